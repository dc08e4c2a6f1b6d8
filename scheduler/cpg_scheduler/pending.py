"""The queue of root units: who is next, who waits for time to pass, who waits for something to happen.

1. **One total order.** Active roots are popped by importance, then age, then name.
2. **A root's own change makes it active at once.** It is worth an attempt, whatever came of the last one.
3. **A root that failed waits in a lot**, with all that are alike, so that one attempt answers for all of them. What
   makes roots alike, and why that is sound, stands in ``failing``. A lot is *parked* until something happens that may
   help it, then it is in *backoff* until its time has come, then *led*: its first root is active. Who leads and
   is placed hands over to the next; who leads and fails parks the lot again. A lot of ten thousand costs as much as a
   lot of one.
4. **Who comes late shares the answer.** A root that turns out to be like those of a parked lot joins it without an
   attempt. If the lot is in backoff already, there is news, and its first root is active at once.
5. **A bind that fails is the root's own trouble**: it backs off alone, longer each time, until it is gone or bound.

The queue knows nothing of pods or clusters, and time is an argument.
"""

import heapq
from collections.abc import Callable, Hashable
from typing import NamedTuple

from msgspec import Struct

from cpg_api.scheduling.forest import GroupKey
from cpg_scheduler.failing import Failure, Hope


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


ACTIVE, WAITING, PARKED, POPPED, BINDING = "active", "backoff", "unschedulable", "popped", "binding"
LED = "led"
FEW = 64
"""Roots that have left a lot stay in its line until there are this many more of them than of those who wait."""


class _Lot:
    """Roots that are alike; ``line`` holds those who wait in it, and what is left of those who did."""

    __slots__ = ("attempts", "failure", "key", "leader", "line", "members", "not_before", "place", "untold", "users")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.failure = Failure()
        self.place = LED
        self.leader: RootKey | None = None
        self.attempts = 0
        self.not_before = 0.0
        self.members: dict[RootKey, Order] = {}
        self.line: list[Order] = []
        self.untold: dict[RootKey, None] = {}
        self.users = 0

    def join(self, order: Order) -> None:
        """Let a root wait here."""
        self.members[order.key] = order
        heapq.heappush(self.line, order)
        if len(self.line) > 2 * len(self.members) + FEW:
            self.line = sorted(self.members.values())

    def leave(self, key: RootKey) -> None:
        """Let a root go."""
        self.members.pop(key, None)
        self.untold.pop(key, None)

    def first(self) -> Order | None:
        """Take out the first who waits."""
        while self.line:
            order = heapq.heappop(self.line)
            if self.members.get(order.key) == order:
                self.leave(order.key)
                return order
        return None


class _Entry:
    """What the queue remembers of a root from one attempt to the next; ``lot`` is the one it waits or waited in."""

    __slots__ = ("lot", "order", "place", "refusals")

    def __init__(self, order: Order) -> None:
        self.order = order
        self.place = ""
        self.lot: _Lot | None = None
        self.refusals = 0


class Pending:
    """The root units that have pods without a node."""

    def __init__(self, backoff: Backoff) -> None:
        """Start with nobody waiting."""
        self._backoff = backoff
        self._entries: dict[RootKey, _Entry] = {}
        self._active: list[Order] = []
        self._lots: dict[Hashable, _Lot] = {}
        self._waiting: list[tuple[float, int, _Lot]] = []
        self._pushes = 0
        self._parked: dict[Hashable, _Lot] = {}
        self._parked_for_anything: dict[Hashable, _Lot] = {}
        self._untold: dict[Hashable, _Lot] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def counts(self) -> dict[str, int]:
        """Return how many roots are where."""
        found = dict.fromkeys((ACTIVE, WAITING, PARKED, BINDING), 0)
        for entry in self._entries.values():
            waits = entry.lot is not None and entry.lot.place == WAITING
            place = WAITING if waits and entry.place == PARKED else entry.place
            if place in found:
                found[place] += 1
        return found

    # What the news say.

    def put(self, order: Order) -> None:
        """Make a root active because something of its own has changed."""
        entry = self._entries.get(order.key)
        if entry is None:
            entry = self._entries[order.key] = _Entry(order)
        elif entry.place == ACTIVE and entry.order == order:
            return
        if entry.lot is not None:
            entry.lot.leave(order.key)
        entry.order = order
        self._activate(entry)

    def drop(self, key: RootKey) -> None:
        """Forget a root: it has nothing left to place, or is gone."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._part(entry)

    def stir(self, now: float, helps: Callable[[Hope], bool] | None = None) -> None:
        """Let those try again whom the news may help; without ``helps``, those alone whom anything may help."""
        found = list(self._parked_for_anything.values())
        if helps is not None:
            found += [lot for lot in self._parked.values() if lot.failure.hope is not None and helps(lot.failure.hope)]
        for lot in found:
            self._unpark(lot)
            self._wait_or_lead(lot, now)

    def scatter(self) -> None:
        """Make all active who wait with others: what makes roots alike has changed."""
        for entry in self._entries.values():
            if entry.lot is None or entry.lot.key == entry.order.key:
                continue
            self._part(entry)
            if entry.place == PARKED:
                self._activate(entry)

    # What the driver does.

    def pop(self, now: float) -> RootKey | None:
        """Return the next root to attempt, or None where nobody may be attempted yet."""
        while (until := self.next_wake()) is not None and until <= now:
            self._lead(heapq.heappop(self._waiting)[2])
        while self._active:
            order = heapq.heappop(self._active)
            entry = self._entries.get(order.key)
            if entry is not None and entry.place == ACTIVE and entry.order == order:
                entry.place = POPPED
                return order.key
        return None

    def share(self, key: RootKey, likeness: Hashable | None) -> bool:
        """Let a root that was popped join its like, if these wait; it is then to be told what they were told.

        Otherwise it has to be attempted: nobody is like it, or all who are may be about to be placed.
        """
        lot = self._lots.get(likeness) if likeness is not None else None
        entry = self._entries.get(key)
        if entry is None or lot is None or lot.place == LED:
            return False
        self._wait_in(entry, lot)
        lot.untold[key] = None
        self._untold[lot.key] = lot
        if lot.place == WAITING:
            self._lead(lot)
        return True

    def fail(self, key: RootKey, size: int, now: float, failure: Failure) -> None:
        """Park a root that was popped and could not be placed, and with it all that are alike."""
        entry = self._entries.get(key)
        if entry is None:
            return
        likeness = failure.likeness if failure.likeness is not None else key
        lot = self._lots.get(likeness)
        if lot is None:
            lot = self._lots[likeness] = _Lot(likeness)
        self._wait_in(entry, lot)
        lot.attempts += 1
        lot.not_before = now + self._backoff.delay(lot.attempts, size)
        if lot.failure.gist != failure.gist:
            lot.untold = dict.fromkeys(member for member in lot.members if member != key)
            self._untold[lot.key] = lot
        lot.failure = failure
        self._park(lot)

    def bind(self, key: RootKey) -> None:
        """Keep a root in mind all of whose pods have been placed: it may have to be retried."""
        entry = self._entries.get(key)
        if entry is None:
            return
        if entry.lot is not None:
            entry.lot.attempts = 0
        self._part(entry)
        entry.place = BINDING

    def bound(self, key: RootKey) -> None:
        """Forget a root whose binds have all worked, unless there is something new to place in it."""
        entry = self._entries.get(key)
        if entry is not None and entry.place == BINDING:
            del self._entries[key]

    def retry(self, order: Order, size: int, now: float) -> None:
        """Attempt a root again after a while: some of its binds have failed."""
        entry = self._entries.get(order.key)
        if entry is None:
            entry = self._entries[order.key] = _Entry(order)
        entry.refusals += 1
        if entry.place == ACTIVE:
            return
        entry.order = order
        self._part(entry)
        lot = self._lots[order.key] = _Lot(order.key)
        self._wait_in(entry, lot)
        lot.not_before = now + self._backoff.delay(entry.refusals, size)
        self._wait_or_lead(lot, now)

    def untold(self) -> tuple[RootKey, Failure] | None:
        """Return a root that shares a failure it has not been told of; every root once for each way to fail."""
        while self._untold:
            key, lot = next(iter(self._untold.items()))
            if lot.untold:
                member = next(iter(lot.untold))
                del lot.untold[member]
                return member, lot.failure
            del self._untold[key]
        return None

    def next_wake(self) -> float | None:
        """Return when the first backoff ends; what was left behind in the heap is dropped on the way."""
        while self._waiting:
            until, _, lot = self._waiting[0]
            if lot.place == WAITING and lot.not_before == until and lot.users:
                return until
            heapq.heappop(self._waiting)
        return None

    def _activate(self, entry: _Entry) -> None:
        entry.place = ACTIVE
        heapq.heappush(self._active, entry.order)

    def _wait_in(self, entry: _Entry, lot: _Lot) -> None:
        """Let a root wait in a lot, and no more in another; one that became active meanwhile stays so."""
        if entry.lot is not lot:
            self._part(entry)
            entry.lot = lot
            lot.users += 1
        if lot.leader == entry.order.key:
            lot.leader = None
        if entry.place != ACTIVE:
            entry.place = PARKED
            lot.join(entry.order)

    def _part(self, entry: _Entry) -> None:
        """Take a root out of its lot; if it led the others, the next one does."""
        lot, entry.lot = entry.lot, None
        if lot is None:
            return
        lot.leave(entry.order.key)
        lot.users -= 1
        if not lot.users:
            self._unpark(lot)
            self._lots.pop(lot.key, None)
        elif lot.leader == entry.order.key:
            self._lead(lot)

    def _lead(self, lot: _Lot) -> None:
        """Make the first root of a lot active, if there is one."""
        self._unpark(lot)
        lot.place = LED
        order = lot.first()
        lot.leader = order.key if order is not None else None
        if order is not None:
            self._activate(self._entries[order.key])

    def _park(self, lot: _Lot) -> None:
        self._unpark(lot)
        lot.place = PARKED
        lot.leader = None
        hope = lot.failure.hope
        if hope is not None:
            (self._parked_for_anything if hope.anything else self._parked)[lot.key] = lot

    def _unpark(self, lot: _Lot) -> None:
        self._parked.pop(lot.key, None)
        self._parked_for_anything.pop(lot.key, None)

    def _wait_or_lead(self, lot: _Lot, now: float) -> None:
        """Let the first root of a lot have its turn as soon as the backoff has passed."""
        if lot.not_before <= now:
            self._lead(lot)
        else:
            lot.place = WAITING
            self._pushes += 1
            heapq.heappush(self._waiting, (lot.not_before, self._pushes, lot))
