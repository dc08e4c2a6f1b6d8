"""Pods that count as bound before the API server has said so.

::

               assume                 confirm: the watch shows the node
    pending ------------> assumed ------------------------------------> bound
       ^                   |   |
       |      forget       |   | remove: the pod terminates, ends or is deleted
       +-------------------+   +--------------------------------------> gone
      the bind has failed

Unlike in kube-scheduler, an assumed pod never expires: a bind without an answer is read again until its outcome is
known.
"""

from collections.abc import Iterable, Iterator

from cpg_engine.cluster.allocator import Allocators
from cpg_engine.decisions import Allocation, Bind, DeviceAllocation, ExtendedAllocation
from cpg_scheduler.cache.events import EventCollector
from cpg_scheduler.cache.versions import SeenVersions


class AssumedPods:
    """The binds that were decided and are not confirmed, by the UID of the pod."""

    def __init__(self, allocators: Allocators, events: EventCollector, versions: SeenVersions) -> None:
        """Start without any; ``allocators`` hold what was allocated with them."""
        self._allocators = allocators
        self._events = events
        self._versions = versions
        self._binds: dict[str, Bind] = {}
        self._allocated: dict[tuple[type[Allocation], str], tuple[Allocation, set[str]]] = {}
        """What is assumed for a claim of each kind, and the assumed pods, by UID, that need it."""

    def __contains__(self, uid: str) -> bool:
        return uid in self._binds

    def __iter__(self) -> Iterator[str]:
        return iter(self._binds)

    def __len__(self) -> int:
        return len(self._binds)

    def values(self) -> Iterable[Bind]:
        """Return the binds."""
        return self._binds.values()

    def node_of(self, uid: str) -> str | None:
        """Return the node that a pod is assumed to have."""
        bind = self._binds.get(uid)
        return None if bind is None else bind.node

    def add(self, bind: Bind) -> None:
        """Assume a bind."""
        self._binds[bind.uid] = bind
        for found in bind.allocations:
            _, users = self._allocated.setdefault((type(found), found.claim), (found, set()))
            users.add(bind.uid)
        self._allocators.assume(bind.allocations)

    def remove(self, uid: str, *, is_bound: bool = False) -> None:
        """End an assumption, confirmed or not; what another assumed pod needs stays allocated."""
        bind = self._binds.pop(uid, None)
        if bind is None:
            return
        unused = list(self._leave(bind))
        self._allocators.forget(unused)
        if not is_bound and any(isinstance(found, DeviceAllocation | ExtendedAllocation) for found in unused):
            self._events.change_devices()
        self._versions.notify(uid)

    def _leave(self, bind: Bind) -> Iterator[Allocation]:
        """Yield what no assumed pod needs any more, as it was assumed for the first of them."""
        for found in bind.allocations:
            key = (type(found), found.claim)
            allocation, users = self._allocated[key]
            users.discard(bind.uid)
            if not users:
                del self._allocated[key]
                yield allocation


class BindsInFlight:
    """The pods, by UID, that are part of a batch of binds that has not ended.

    A pod that the watch shows with its node stays listed until its whole batch has ended: until then its group does not
    count as placed.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._batch_of: dict[str, int] = {}

    def __contains__(self, uid: object) -> bool:
        return uid in self._batch_of

    def begin(self, batch: int, uids: Iterable[str]) -> None:
        """List the pods of a batch."""
        self._batch_of.update(dict.fromkeys(uids, batch))

    def end(self, batch: int, uids: Iterable[str]) -> None:
        """Remove the pods of a batch, except those that are part of a later one by now."""
        for uid in uids:
            if self._batch_of.get(uid) == batch:
                del self._batch_of[uid]
