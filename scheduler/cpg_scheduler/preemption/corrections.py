"""Corrections: what the API shows of preemptions is compared with what is active, again and again.

Nominations and conditions are written once, when a preemption begins, breaks or ends. Such a write can fail, and its
leader can die before it is repeated. So every few seconds all marks that the watches show are compared with the active
preemptions, and what differs is written again, by this leader or by the next one:

1. A pending pod is nominated to the node that is reserved for it. Where no room is reserved, we have nominated it to
   none; the nomination of another component stays, and reserves nothing.
2. A running pod has our ``DisruptionTarget`` only if it is a victim that has been started, or is about to be.
3. A group has it as long as its pods are evicted, and until it has its minimum again: its tree is resynced.

A difference is only written after some seconds, because the watch may just be late. The next write follows after
twice that time, and so on, so a write that is always refused costs little.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Group
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.cache.conditions import is_being_evicted
from cpg_scheduler.instructions import ResyncTree
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.preemption.active import ActivePreemptions
from cpg_scheduler.preemption.evictions import Evictions
from cpg_scheduler.preemption.jobs import Nominate, RetractEvictions
from cpg_scheduler.preemption.outbox import Outbox
from cpg_scheduler.preemption.states import PreemptionState
from cpg_scheduler.preemption.terminating import TerminatingPods
from cpg_scheduler.preemption.victim_condition import is_evicted_by

SECONDS_BETWEEN_CORRECTIONS = 5.0
SECONDS_OF_LATENESS = 4.0
"""Seconds for which a watch may be late: a difference is written if it lasts longer."""
MAX_SECONDS_BETWEEN_WRITES = 300.0


class _Difference(Struct):
    """A difference that was seen: when it is written next, and after how many seconds once more."""

    due: float
    wait: float


_Key: TypeAlias = tuple[str, ...]
"""What differs, of which object, and how: a nomination to another node is another difference."""


class Corrections:
    """Finds what the API shows wrongly, and adds the instructions that correct it."""

    def __init__(
        self,
        cache: ClusterCache,
        active: ActivePreemptions,
        terminating: TerminatingPods,
        evictions: Evictions,
        outbox: Outbox,
        *,
        clock: Callable[[], float],
    ) -> None:
        """Wire up; no difference is known yet."""
        self._cache = cache
        self._active = active
        self._terminating = terminating
        self._evictions = evictions
        self._outbox = outbox
        self._clock = clock
        self._differences: dict[_Key, _Difference] = {}

    def run(self) -> None:
        """Compare everything once."""
        before, self._differences = self._differences, {}
        outdated = [
            pod for pod in self._outdated_nominations() if self._is_due(before, ("nomination", pod.metadata.uid))
        ]
        self._outbox.clear_nominations(outdated)
        for pod, node in self._missing_nominations():
            if self._is_due(before, ("nomination", pod.metadata.uid, node)):
                self._outbox.add(Nominate(pod, node))
        staying = [pod for pod in self._staying_pods() if self._is_due(before, ("victim", pod.metadata.uid))]
        if staying:
            self._outbox.add(RetractEvictions(staying))
        for unit, group in self._settled_groups():
            if self._is_due(before, ("group", group.metadata.uid)):
                self._outbox.add(ResyncTree(unit))

    def _is_due(self, before: dict[_Key, _Difference], key: _Key) -> bool:
        """Note a difference; return whether it is to be written now."""
        now = self._clock()
        known = before.get(key) or _Difference(now + SECONDS_OF_LATENESS, SECONDS_OF_LATENESS)
        is_due = now >= known.due
        if is_due:
            wait = min(2 * known.wait, MAX_SECONDS_BETWEEN_WRITES)
            known = _Difference(now + wait, wait)
        self._differences[key] = known
        return is_due

    def _outdated_nominations(self) -> Iterator[Pod]:
        """Yield the pending pods with a nomination of ours for which no room is reserved."""
        for uid, pod in self._cache.marks.nominated.items():
            if self._cache.is_pending(pod) and uid not in self._cache.reservations:
                yield pod

    def _missing_nominations(self) -> Iterator[tuple[Pod, str]]:
        """Yield the pods for which room is reserved at another node than the API shows, with that node."""
        for preemption in self._active:
            if not preemption.is_reserving or preemption.state is PreemptionState.PREPARING:
                continue  # while it is prepared, its nominations are being written
            for uid, node in preemption.nominations.items():
                pod = self._cache.pods.get(uid)
                if pod is not None and self._cache.is_pending(pod) and pod.status.nominated_node_name != node:
                    yield pod, node

    def _staying_pods(self) -> Iterator[Pod]:
        """Yield the running pods that say that we evict them, and are no victims."""
        started = self._evictions.pods() | self._terminating.expected()
        for uid, pod in self._cache.marks.disrupted.items():
            if pod.is_terminating or pod.is_terminal or not self._cache.is_writable(pod):
                continue
            is_victim = uid in started or uid in self._active.awaited()
            if not is_victim and is_evicted_by(self._cache.scheduler_name, pod):
                yield pod

    def _settled_groups(self) -> Iterator[tuple[UnitKey, Group]]:
        """Yield the groups that say that we evict them, in no job and without victims, with the unit to resync."""
        started = self._evictions.groups()
        marked = {self._cache.unit_of(pod) for pod in self._cache.marks.disrupted.values() if is_being_evicted(pod)}
        for (flavour, key), group in self._cache.marks.groups.items():
            unit = self._cache.current_unit(UnitKey(flavour, key))
            is_settled = group.metadata.uid not in started and unit not in marked
            if is_settled and is_evicted_by(self._cache.scheduler_name, group):
                yield unit, group
