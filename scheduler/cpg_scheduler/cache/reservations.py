"""Room that is reserved for nominated pods while their victims terminate.

Pods that other schedulers have nominated count as well, since those schedulers evict for them.

A reservation is a pod in the ledger, at the nominated node and under a UID of its own, so every other decision sees
that room as taken. The unit of the nominated pod, and units of higher priority, ignore it.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import NOMINATED
from cpg_engine.cluster.requests import RequestError
from cpg_scheduler.cache.events import EventCollector
from cpg_scheduler.keys import UnitKey

RESERVATION_PREFIX = NOMINATED
"""Begins the UID of a reservation; the engine knows by it that the pod may never come."""


class Reservation(Struct, frozen=True):
    """The node that a pod is nominated to, and its unit with its priority."""

    node: str
    root: UnitKey
    priority: int


class Reservations:
    """The reservations in a ledger."""

    def __init__(self, ledger: Ledger, events: EventCollector) -> None:
        """Start without any; a node that loses one is noted as freed."""
        self._ledger = ledger
        self._events = events
        self._held: dict[str, Reservation] = {}
        self._pods: dict[str, Pod] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._held

    def items(self) -> Iterable[tuple[str, Reservation]]:
        """Return the reservations by the UID of the nominated pod."""
        return self._held.items()

    def get(self, uid: str) -> Reservation | None:
        """Return the reservation of a pod, if it has one."""
        return self._held.get(uid)

    def pod_of(self, uid: str) -> Pod | None:
        """Return the pod for which room is reserved."""
        return self._pods.get(uid)

    def put(self, pod: Pod, reservation: Reservation) -> None:
        """Reserve room for a pod, in place of the room reserved before."""
        uid = pod.metadata.uid
        self.remove(uid)
        try:
            self._ledger.put_pod(
                replace(pod, metadata=replace(pod.metadata, uid=RESERVATION_PREFIX + uid)), reservation.node
            )
        except RequestError:
            return  # the requests are invalid, so the pod will never be placed
        self._held[uid], self._pods[uid] = reservation, pod

    def remove(self, uid: str) -> None:
        """Give up the room of a pod, if any is reserved."""
        found = self._held.pop(uid, None)
        if found is not None:
            del self._pods[uid]
            self._ledger.remove_pod(RESERVATION_PREFIX + uid)
            self._events.free_node(found.node)

    def ignored_by(self, root: UnitKey, priority: int) -> tuple[str, ...]:
        """Return the reservations that a unit ignores, as the ledger knows them: its own, and less important ones."""
        return tuple(
            RESERVATION_PREFIX + uid
            for uid, found in self._held.items()
            if found.root == root or found.priority < priority
        )

    def reserved_uids(self) -> tuple[str, ...]:
        """Return all reservations, as the ledger knows them."""
        return tuple(RESERVATION_PREFIX + uid for uid in self._held)

    @contextmanager
    def ignored(self, nodes: Iterable[str], others: Iterable[str] = ()) -> Iterator[None]:
        """Have the ledger ignore the reservations at these nodes, and some pods, for as long as the block runs."""
        mark = self._ledger.mark()
        reserved = (
            uid for node in nodes for uid in self._ledger.uids_on_node(node) if uid.startswith(RESERVATION_PREFIX)
        )
        self._ledger.ignore((*reserved, *others) if self._held else others)
        try:
            yield
        finally:
            self._ledger.rollback(mark)
