"""The preemptions that are active, one per unit at most, and what they hold in the cache.

The machine changes reservations and budgets in the cache by plain calls: the cache is a lower layer, and what is
reserved has to be seen by the decision that follows in the same pass.
"""

from collections.abc import Collection, Iterable, Iterator, KeysView

from cpg_api.core.pod import Pod
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.cache.reservations import Reservation
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.preemption.states import ActivePreemption


class ActivePreemptions:
    """The active preemptions by unit, and by the pods that they wait for."""

    def __init__(self, cache: ClusterCache) -> None:
        """Start without any."""
        self._cache = cache
        self._by_unit: dict[UnitKey, ActivePreemption] = {}
        self._by_pod: dict[str, set[UnitKey]] = {}

    def __iter__(self) -> Iterator[ActivePreemption]:
        return iter(tuple(self._by_unit.values()))

    def __contains__(self, unit: UnitKey) -> bool:
        return unit in self._by_unit

    def get(self, unit: UnitKey) -> ActivePreemption | None:
        """Return the preemption of a unit."""
        return self._by_unit.get(unit)

    def awaited(self) -> KeysView[str]:
        """Return the pods, by UID, that some preemption waits for."""
        return self._by_pod.keys()

    def waiting_for(self, uid: str) -> list[ActivePreemption]:
        """Return the preemptions that wait for a pod to end."""
        return [self._by_unit[unit] for unit in self._by_pod.get(uid, ())]

    def add(self, preemption: ActivePreemption) -> None:
        """Add a preemption, and reserve its room."""
        self._by_unit[preemption.unit] = preemption
        preemption.awaited_at_first = len(preemption.awaited)
        for uid in preemption.awaited:
            self._by_pod.setdefault(uid, set()).add(preemption.unit)
        for uid, node in preemption.nominations.items():
            self.reserve(preemption, uid, node)
        for pod, node in preemption.expected.values():
            self._cache.reservations.put(pod, Reservation(node, preemption.unit, preemption.priority))

    def remove(self, preemption: ActivePreemption) -> None:
        """Remove a preemption; it waits for no pod any more."""
        del self._by_unit[preemption.unit]
        self.stop_waiting(preemption, preemption.awaited)

    def reserve(self, preemption: ActivePreemption, uid: str, node: str) -> None:
        """Nominate a pod to a node, and reserve its room there."""
        preemption.nominations[uid] = node
        self._cache.reservations.put(self._cache.pods[uid], Reservation(node, preemption.unit, preemption.priority))

    def release(self, preemption: ActivePreemption) -> list[Pod]:
        """Drop the reservations of a preemption; return the pods that were nominated, as far as they still exist."""
        nominated, preemption.nominations = preemption.nominations, {}
        for uid in (*nominated, *preemption.expected):
            self._cache.reservations.remove(uid)
        preemption.expected = {}
        return [self._cache.pods[uid] for uid in nominated if uid in self._cache.pods]

    def lose(self, gone: Iterable[str]) -> Iterator[ActivePreemption]:
        """Note that awaited pods have ended; yield each preemption that waits for none any more."""
        for uid in gone:
            for unit in self._by_pod.pop(uid, ()):
                preemption = self._by_unit[unit]
                preemption.awaited.discard(uid)
                if not preemption.awaited:
                    yield preemption

    def stop_waiting(self, preemption: ActivePreemption, uids: Collection[str]) -> None:
        """Have a preemption wait for these pods no more."""
        for uid in uids:
            units = self._by_pod.get(uid)
            if units is not None:
                units.discard(preemption.unit)
                if not units:
                    del self._by_pod[uid]
        preemption.awaited = preemption.awaited - set(uids)
