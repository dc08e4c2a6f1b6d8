"""The queue of root units: who is next, who waits for time to pass, who waits for something to happen.

A root is in one of three places. *Active* roots are popped in one total order: the more important, then the older,
then by name. A root that failed is *parked* until something happens that may help it, and then, if its backoff has
not passed yet, it *backs off* until it has. The queue knows nothing of pods or clusters, and time is an argument.
"""

import heapq
from typing import NamedTuple

from msgspec import Struct

from cpg_api.scheduling.forest import GroupKey


class RootKey(NamedTuple):
    """A root unit: a tree of groups of one flavour, or a single pod, of none."""

    flavour: str
    key: GroupKey


class Order(NamedTuple):
    """Where a root stands in the queue; the smaller first."""

    importance: int
    created: str
    key: RootKey


class Backoff(Struct, frozen=True):
    """How long a root that failed is left alone: longer each time, and longer for large groups."""

    first: float = 1.0
    most: float = 10.0
    per_doubling: float = 0.25

    def delay(self, attempts: int, size: int) -> float:
        """Return the seconds to wait after so many failed attempts of a unit with so many pods."""
        base = min(self.first * 2 ** min(attempts - 1, 30), self.most)
        return float(base * (1.0 + self.per_doubling * max(size, 1).bit_length()))


class _Entry:
    """What the queue remembers of a root from one attempt to the next."""

    __slots__ = ("attempts", "not_before", "order", "place")

    def __init__(self, order: Order) -> None:
        self.order = order
        self.attempts = 0
        self.not_before = 0.0
        self.place = ""


ACTIVE, WAITING, PARKED, POPPED = "active", "backoff", "unschedulable", "popped"


class Pending:
    """The root units that have pods without a node."""

    def __init__(self, backoff: Backoff) -> None:
        """Start with nobody waiting."""
        self._backoff = backoff
        self._entries: dict[RootKey, _Entry] = {}
        self._active: list[Order] = []
        self._waiting: list[tuple[float, Order]] = []
        self._parked: set[RootKey] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def counts(self) -> dict[str, int]:
        """Return how many roots are where."""
        found = dict.fromkeys((ACTIVE, WAITING, PARKED), 0)
        for entry in self._entries.values():
            if entry.place in found:
                found[entry.place] += 1
        return found

    def put(self, order: Order, now: float) -> None:
        """Make a root active because something of its own has changed: that is worth a new attempt at once."""
        entry = self._entries.get(order.key)
        if entry is None:
            entry = self._entries[order.key] = _Entry(order)
        elif entry.place == ACTIVE and entry.order == order:
            return
        entry.order = order
        self._parked.discard(order.key)
        self._activate(entry, now)

    def drop(self, key: RootKey) -> None:
        """Forget a root: it has nothing left to place, or is gone."""
        self._entries.pop(key, None)
        self._parked.discard(key)

    def fail(self, key: RootKey, size: int, now: float) -> None:
        """Park a root that was popped and could not be placed."""
        entry = self._entries.get(key)
        if entry is None:
            return
        entry.attempts += 1
        entry.not_before = now + self._backoff.delay(entry.attempts, size)
        if entry.place == POPPED:
            entry.place = PARKED
            self._parked.add(key)

    def stir(self, now: float) -> None:
        """Let everybody who is parked try again: room has appeared somewhere."""
        for key in self._parked:
            self._activate(self._entries[key], now, at_once=False)
        self._parked.clear()

    def pop(self, now: float) -> RootKey | None:
        """Return the next root to attempt, or None where nobody may be attempted yet."""
        self._wake(now)
        while self._active:
            order = heapq.heappop(self._active)
            entry = self._entries.get(order.key)
            if entry is not None and entry.place == ACTIVE and entry.order == order:
                entry.place = POPPED
                return order.key
        return None

    def next_wake(self) -> float | None:
        """Return when the first backoff ends; what was left behind in the heap is dropped on the way."""
        while self._waiting:
            until, order = self._waiting[0]
            entry = self._entries.get(order.key)
            if entry is not None and entry.place == WAITING and entry.not_before == until:
                return until
            heapq.heappop(self._waiting)
        return None

    def _wake(self, now: float) -> None:
        while (until := self.next_wake()) is not None and until <= now:
            _, order = heapq.heappop(self._waiting)
            self._activate(self._entries[order.key], now)

    def _activate(self, entry: _Entry, now: float, *, at_once: bool = True) -> None:
        if at_once or entry.not_before <= now:
            entry.place = ACTIVE
            heapq.heappush(self._active, entry.order)
        else:
            entry.place = WAITING
            heapq.heappush(self._waiting, (entry.not_before, entry.order))
