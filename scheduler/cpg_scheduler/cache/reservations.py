"""Room that is kept for pods that wait until others have gone.

Pods of other schedulers count as well: whom they nominate they have made room for, or are about to.

A nominated pod is held in the ledger at its node as a ghost, under a UID of its own, so that whoever is decided about
sees no room there. Its own root does see it, and so do those that outrank it: for them the ghosts are lifted.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import NOMINATED
from cpg_engine.cluster.requests import RequestError
from cpg_scheduler.keys import UnitKey

RESERVATION = NOMINATED
"""What the UID of a ghost begins with, by which the engine knows that it may never come."""


class Reservation(Struct, frozen=True):
    """Who is nominated where."""

    node: str
    root: UnitKey
    priority: int


class Reservations:
    """The ghosts in a ledger."""

    def __init__(self, ledger: Ledger, ease: Callable[[str], None]) -> None:
        """Start without any; ``ease`` is told of a node where there is more room again."""
        self._ledger = ledger
        self._ease = ease
        self._held: dict[str, Reservation] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._held

    def items(self) -> Iterable[tuple[str, Reservation]]:
        """Return who is nominated where, by the pods' UIDs."""
        return self._held.items()

    def of(self, uid: str) -> Reservation | None:
        """Return where a pod is nominated to, by its UID."""
        return self._held.get(uid)

    def put(self, pod: Pod, nominated: Reservation) -> None:
        """Keep room for a pod."""
        uid = pod.metadata.uid
        self.drop(uid)
        try:
            self._ledger.put_pod(replace(pod, metadata=replace(pod.metadata, uid=RESERVATION + uid)), nominated.node)
        except RequestError:
            return  # it will never be placed
        self._held[uid] = nominated

    def drop(self, uid: str) -> None:
        """Keep no room any more for a pod; one that has none is no news."""
        found = self._held.pop(uid, None)
        if found is not None:
            self._ledger.remove_pod(RESERVATION + uid)
            self._ease(found.node)

    def ignored_by(self, root: UnitKey, priority: int) -> tuple[str, ...]:
        """Return the ghosts that a root of this priority need not mind: its own, and those that it outranks."""
        return tuple(
            RESERVATION + uid for uid, found in self._held.items() if found.root == root or found.priority < priority
        )

    def reserved_uids(self) -> tuple[str, ...]:
        """Return all of them, as the ledger knows them."""
        return tuple(RESERVATION + uid for uid in self._held)

    @contextmanager
    def ignored(self, nodes: Iterable[str], others: Iterable[str] = ()) -> Iterator[None]:
        """Look at the ledger as if there were none at these nodes, nor some others, by UID."""
        mark = self._ledger.mark()
        reserved_uids = (uid for node in nodes for uid in self._ledger.uids_at(node) if uid.startswith(RESERVATION))
        self._ledger.ignore((*reserved_uids, *others) if self._held else others)
        try:
            yield
        finally:
            self._ledger.rollback(mark)
