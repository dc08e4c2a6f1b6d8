"""The queue of root units: who is next, who waits for time to pass, who waits for something to happen.

1. **One total order.** Active roots are popped by importance, then by who has had no turn for longest, then age, then
   name. How long that is, is counted in attempts since a root came, or was popped or called last: those that come
   together go by age, and a tree that is changed before every cycle goes behind each of the others once before it is
   tried again. But those that were *called* because there is hope let one go first that comes of itself and is as
   important, and again after each that was called in vain: a crowd that is called again and again, and never fits,
   holds up the next who comes not at all, and those behind by no more than an attempt each. Nor can they starve: only
   one goes first, beside those that are older and have had no turn since, and none while they are placed.
2. **A root's own change makes it active at once.** It is worth an attempt, whatever came of the last one; but the last
   one was its turn.
3. **A root that failed waits in a lot**, with all that are alike, so that one attempt answers for all of them. What
   makes roots alike, and why that is sound, stands in ``failing``. A lot is *parked* until something happens that may
   help it, then it is in *backoff* until its time has come, then *led*: its first root is active. Who leads and
   is placed hands over to the next; who leads and fails parks the lot again. A lot of ten thousand costs as much as a
   lot of one.
4. **Who comes late shares the answer.** A root that turns out to be like those of a parked lot joins it without an
   attempt. If the lot is in backoff already, there is news, and its first root is active at once.
5. **Hope is looked at again before an attempt.** A node that comes wakes all whom it might help, in order, and others
   may have filled it when their turn comes: they park again, unattempted.
6. **A lot that nothing has helped for long is attempted all the same**, when there is nobody else: the rules about hope
   may be wrong, and who waits for something that nobody tells us of must not wait for ever. ``surprises`` counts how
   often that was worth while; it should not happen.
7. **A bind that fails is the root's own trouble**: it backs off alone, longer each time, until it is gone or bound.

The queue knows nothing of pods or clusters, and time is an argument.
"""

import heapq
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

from msgspec import Struct

from cpg_api.scheduling.forest import GroupKey
from cpg_engine.gangs.unit import POD
from cpg_scheduler.keys import QueueKey, Rank, UnitKey
from cpg_scheduler.queueing.equivalence import LED, Alarms, EquivalenceClass
from cpg_scheduler.queueing.hint_index import HintIndex
from cpg_scheduler.queueing.hints import FailedAttempt, RequeueHint


class QueuePosition(NamedTuple):
    """Where a root waits, how often it failed so far, until when it backs off, and what became of the last attempt."""

    queue: str
    order: QueueKey
    attempts: int = 0
    until: float | None = None
    failure: FailedAttempt | None = None


class RequeueBackoff(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How long a root that failed is left alone: longer each time, and longer for large groups."""

    first: float = 1.0
    """After the first failure; it doubles with each further one."""
    most: float = 10.0
    """Where doubling ends."""
    per_doubling: float = 0.25
    """The share that is added for each doubling of the number of pods."""

    def delay(self, attempts: int, size: int) -> float:
        """Return the seconds to wait after so many failed attempts of a unit with so many pods."""
        base = min(self.first * 2 ** min(attempts - 1, 30), self.most)
        return float(base * (1.0 + self.per_doubling * max(size, 1).bit_length()))


HOPE, REVIEWED, CHANGED, FAILED = "hope", "review", "change", "failure"
ACTIVE, WAITING, PARKED, POPPED, BINDING = "active", "backoff", "unschedulable", "popped", "binding"
NO_UNIT = UnitKey("", GroupKey(POD, "", ""))
RANKS = (POPPED, ACTIVE, BINDING, WAITING, PARKED)


class _Entry:
    """What the queue remembers of a root from one attempt to the next; ``lot`` is the one it waits or waited in."""

    __slots__ = ("called", "lot", "order", "place", "refusals", "turn")

    def __init__(self, order: QueueKey, turn: int) -> None:
        self.order = order
        self.turn = turn
        """How many had been popped when it came, or was popped or called last."""
        self.place = ""
        self.lot: EquivalenceClass | None = None
        self.refusals = 0
        self.called = ""
        """Why it leads its lot: for hope, or because nothing has happened for long; empty where it changed itself."""

    @property
    def rank(self) -> Rank:
        """Return where it stands among those that are active; who was called goes by age."""
        return Rank(self.order.importance, 0 if self.called else self.turn, self.order)


class SchedulingQueue:
    """The root units that have pods without a node."""

    def __init__(
        self, backoff: RequeueBackoff, on_enter: Callable[[str, str, UnitKey], None] = lambda *_: None
    ) -> None:
        """Start empty; ``on_enter`` is called with the name of a queue, the event and the unit that enters it."""
        self._backoff = backoff
        self._on_enter = on_enter
        self._entries: dict[UnitKey, _Entry] = {}
        self._active: list[Rank] = []
        self._called: list[Rank] = []
        self._pops = 0
        self._insists = False
        """Whether those that were called need not let others go first: they did, or the last of them was placed."""
        self._lots: dict[Hashable, EquivalenceClass] = {}
        self._waiting, self._reviews = Alarms(_is_waiting), Alarms(_is_reviewed)
        self._hopes = HintIndex()
        self.stirs = 0
        """How often there have been news so far, by which a lot knows which of them came after its failure."""
        self.surprises = 0
        self._untold: dict[Hashable, EquivalenceClass] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def counts(self) -> dict[str, int]:
        """Return how many roots are where."""
        found = dict.fromkeys((ACTIVE, WAITING, PARKED, BINDING), 0)
        for entry in self._entries.values():
            place = _place_of(entry)
            if place in found:
                found[place] += 1
        return found

    def places(self) -> list[QueuePosition]:
        """Return where everybody is, in no order: with ten thousand, sorting would hold up the scheduler."""
        return [self._seen(entry) for entry in self._entries.values()]

    def foremost(self, number: int) -> list[QueuePosition]:
        """Return where so many are who would be attempted first."""
        return list(map(self._seen, heapq.nsmallest(number, self._entries.values(), key=_standing)))

    def _seen(self, entry: _Entry) -> QueuePosition:
        queue, lot = _place_of(entry), entry.lot
        if lot is None:
            return QueuePosition(queue, entry.order)
        until = lot.not_before if queue == WAITING else None
        return QueuePosition(queue, entry.order, lot.attempts, until, lot.failure)

    # What the news say.

    def put(self, order: QueueKey) -> None:
        """Make a root active because something of its own has changed."""
        entry = self._entries.get(order.key)
        if entry is None:
            entry = self._entries[order.key] = _Entry(order, self._pops)
        elif entry.place == ACTIVE and entry.order == order and not entry.called:
            return
        if entry.lot is not None:
            entry.lot.leave(order.key)
        entry.order, entry.called = order, ""
        self._activate(entry)
        self._on_enter(ACTIVE, CHANGED, order.key)

    def drop(self, key: UnitKey) -> None:
        """Forget a root: it has nothing left to place, or is gone."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._part(entry)

    def stir(self, now: float, helped: Callable[[HintIndex], Iterable[Hashable]] | None = None) -> None:
        """Let those try again whom the news may help; without ``helped``, those alone whom anything may help."""
        self.stirs += 1
        for key in self._hopes.for_anything if helped is None else list(helped(self._hopes)):
            lot = self._lots[key]
            self._unpark(lot)
            self._wait_or_lead(lot, now)

    def scatter(self) -> None:
        """Call all who wait with others: what makes roots alike has changed."""
        for entry in self._entries.values():
            if entry.lot is None or entry.lot.key == entry.order.key:
                continue
            self._part(entry)
            if entry.place == PARKED:
                entry.called = HOPE
                self._activate(entry)

    # What the driver does.

    def pop(self, now: float, fulfilled: Callable[[RequeueHint, int], bool] | None = None) -> UnitKey | None:
        """Return the next root to attempt, or None where nobody may be attempted yet.

        ``fulfilled`` tells of a hope whether the news after so many stirs may fulfil it as things stand now.
        """
        while (lot := self._waiting.due(now)) is not None:
            self._lead(lot)
        while (order := self._next(now)) is not None:
            entry = self._entries[order.key]
            self._pops += 1
            entry.place, entry.turn = POPPED, self._pops
            home = entry.lot
            if fulfilled is None or home is None or not self._may_be_vain(entry, home, now):
                return order.key
            if home.failure.hope is None or fulfilled(home.failure.hope, home.since):
                return order.key
            self._insists = False
            self._wait_in(entry, home)
            self._park(home)
        return None

    def share(self, key: UnitKey, signature: Hashable | None) -> bool:
        """Let a root that was popped join its like, if these wait; it is then to be told what they were told.

        Otherwise it has to be attempted: nobody is like it, or all who are may be about to be placed.
        """
        lot = self._lots.get(signature) if signature is not None else None
        entry = self._entries.get(key)
        if entry is None or lot is None or lot.place == LED:
            return False
        self._wait_in(entry, lot)
        lot.untold[key] = None
        self._untold[lot.key] = lot
        if lot.place == WAITING:
            self._lead(lot)
        return True

    def fail(self, key: UnitKey, size: int, now: float, failure: FailedAttempt) -> None:
        """Park a root that was popped and could not be placed, and with it all that are alike."""
        entry = self._entries.get(key)
        if entry is None:
            return
        signature = failure.signature if failure.signature is not None else key
        lot = self._lots.get(signature)
        if lot is None:
            lot = self._lots[signature] = EquivalenceClass(signature)
        self._insists = self._insists and not entry.called
        self._wait_in(entry, lot)
        lot.attempts += 1
        lot.not_before = now + self._backoff.delay(lot.attempts, size)
        lot.since, lot.review = self.stirs, now + failure.review
        self._reviews.put(lot.review, lot)
        if lot.failure.gist != failure.gist:
            lot.untold = dict.fromkeys(member for member in lot.members if member != key)
            self._untold[lot.key] = lot
        lot.failure = failure
        self._park(lot)
        self._on_enter(PARKED, FAILED, key)

    def bind(self, key: UnitKey) -> None:
        """Keep a root in mind all of whose pods have been placed: it may have to be retried."""
        entry = self._entries.get(key)
        if entry is None:
            return
        if entry.lot is not None:
            entry.lot.attempts = 0
        self.surprises += entry.called == REVIEWED
        self._part(entry)
        entry.place = BINDING

    def bound(self, key: UnitKey) -> None:
        """Forget a root whose binds have all worked, unless there is something new to place in it."""
        entry = self._entries.get(key)
        if entry is not None and entry.place == BINDING:
            del self._entries[key]

    def retry(self, order: QueueKey, size: int, now: float) -> None:
        """Attempt a root again after a while: some of its binds have failed."""
        entry = self._entries.get(order.key)
        if entry is None:
            entry = self._entries[order.key] = _Entry(order, self._pops)
        entry.refusals += 1
        if entry.place == ACTIVE:
            return
        entry.order = order
        self._part(entry)
        lot = self._lots[order.key] = EquivalenceClass(order.key)
        self._wait_in(entry, lot)
        lot.not_before = now + self._backoff.delay(entry.refusals, size)
        self._wait_or_lead(lot, now)

    def untold(self) -> tuple[UnitKey, FailedAttempt] | None:
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
        """Return when the first backoff ends, or a lot is to be looked at again."""
        ends = (self._waiting.next(), self._reviews.next())
        return min((end for end in ends if end is not None), default=None)

    def _next(self, now: float) -> QueueKey | None:
        """Take out who is next of those who are active; if there is none, of those whom nothing has helped for long."""
        fresh, called = self._top(self._active, is_called=False), self._top(self._called, is_called=True)
        if called is None:
            self._insists = False
            return heapq.heappop(self._active).order if fresh is not None else self._reviewed(now)
        if fresh is None or called.importance < fresh.importance:
            return heapq.heappop(self._called).order
        takes_turns = self._takes_turns(called, fresh)
        if takes_turns and self._insists:
            return heapq.heappop(self._called).order
        self._insists = self._insists or takes_turns
        return heapq.heappop(self._active).order

    def _takes_turns(self, called: Rank, fresh: Rank) -> bool:
        """Tell whether one that comes of itself goes only once before the first that was called.

        It need not where it is more important, or is older and has had no turn since the other was called.
        """
        if called.importance != fresh.importance:
            return False
        return called.order < fresh.order or self._entries[called.order.key].turn < fresh.turn

    def _top(self, heap: list[Rank], *, is_called: bool) -> Rank | None:
        """Return the first in a heap of active roots; what was left behind in it is dropped on the way."""
        while heap:
            entry = self._entries.get(heap[0].order.key)
            if entry is not None and (entry.place, entry.rank, bool(entry.called)) == (ACTIVE, heap[0], is_called):
                return heap[0]
            heapq.heappop(heap)
        return None

    def _reviewed(self, now: float) -> QueueKey | None:
        """Let a lot be led that nothing has helped for long, and return who leads it, if there is one."""
        while (lot := self._reviews.due(now)) is not None:
            if lot.place == PARKED:
                self._lead(lot, REVIEWED)
                return self._next(now)
        return None

    def _may_be_vain(self, entry: _Entry, lot: EquivalenceClass, now: float) -> bool:
        """Tell whether a root is there for nothing but hope, and not yet due whatever comes."""
        return entry.called == HOPE and now < lot.review

    def _activate(self, entry: _Entry) -> None:
        entry.place = ACTIVE
        if entry.called:
            entry.turn = self._pops
        heapq.heappush(self._called if entry.called else self._active, entry.rank)

    def _wait_in(self, entry: _Entry, lot: EquivalenceClass) -> None:
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

    def _lead(self, lot: EquivalenceClass, called: str = HOPE) -> None:
        """Make the first root of a lot active, if there is one."""
        self._unpark(lot)
        lot.place = LED
        order = lot.first()
        lot.leader = order.key if order is not None else None
        if order is not None:
            self._entries[order.key].called = called
            self._on_enter(ACTIVE, called, order.key)
            self._activate(self._entries[order.key])

    def _park(self, lot: EquivalenceClass) -> None:
        self._unpark(lot)
        lot.place = PARKED
        lot.leader = None
        hope = lot.failure.hope
        if hope is not None:
            self._hopes.put(lot.key, hope)

    def _unpark(self, lot: EquivalenceClass) -> None:
        self._hopes.drop(lot.key)

    def _wait_or_lead(self, lot: EquivalenceClass, now: float) -> None:
        """Let the first root of a lot have its turn as soon as the backoff has passed."""
        if lot.not_before <= now:
            self._lead(lot)
        else:
            lot.place = WAITING
            self._waiting.put(lot.not_before, lot)
            self._on_enter(WAITING, HOPE, next(iter(lot.members), NO_UNIT))


def _place_of(entry: _Entry) -> str:
    waits = entry.place == PARKED and entry.lot is not None and entry.lot.place == WAITING
    return WAITING if waits else entry.place


def _standing(entry: _Entry) -> tuple[int, Rank]:
    """Return where a root stands among all; who is not active goes by age."""
    rank = entry.rank if entry.place == ACTIVE else Rank(entry.order.importance, 0, entry.order)
    return RANKS.index(_place_of(entry)), rank


def _is_waiting(lot: EquivalenceClass, until: float) -> bool:
    return lot.place == WAITING and lot.not_before == until


def _is_reviewed(lot: EquivalenceClass, until: float) -> bool:
    return lot.review == until
