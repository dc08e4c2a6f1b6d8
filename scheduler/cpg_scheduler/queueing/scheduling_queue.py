"""The scheduling queue: all units with pending pods, each in one of four places.

1. **Active** units are attempted, in the order of ``active_queue``. A unit that is new, or of which something has
   changed, is active at once.
2. **Unschedulable** units wait in the *equivalence class* of their signature, so that one attempt answers for all of
   them; ``hints`` says what makes units equivalent. A unit that turns out to be equivalent to waiting ones joins them
   without an attempt.
3. **Backoff** is where a class goes when a queueing hint says that something may have helped it, until its backoff has
   ended. Then its first unit becomes active as the *representative*. If that is placed, the next one follows; if not,
   the whole class is unschedulable again. A class of ten thousand units costs as much as a class of one.
4. **Binding** units have all their pods placed. A bind that fails concerns the unit alone: it backs off by itself,
   longer each time, until it is bound or gone.

A hint is checked again when the turn of a representative comes: a new node activates all classes that it may help, in
order, and may be full by then.

The backoff grows with each failed attempt, unless the unit has only gathered members: it has more pods than at its last
attempt, or nothing but its own members, groups and templates can help it. The backoff ends early if the bounds on room
have left a unit no place, and leave it one after an event; units are checked for that while no unit is active.

A class of units for which the search may have missed a placement is attempted again after a time that doubles with each
failure, even if nothing happens.

A class that no hint has activated for ``MAX_SECONDS_UNSCHEDULABLE`` is attempted when no other unit is active: the
hints may have a defect. ``missed_hints`` counts how often such an attempt placed the unit.

The queue knows nothing of pods or clusters, and time is an argument.
"""

import heapq
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import NamedTuple

from cpg_api.scheduling.forest import GroupKey
from cpg_engine.gangs.unit import POD
from cpg_scheduler.keys import QueueKey, UnitKey
from cpg_scheduler.queueing.active_queue import ActiveQueue, QueueEntry, Rank
from cpg_scheduler.queueing.attempt_costs import NamespaceCosts, RestingUnits, rest_after
from cpg_scheduler.queueing.equivalence import REPRESENTED, ClassTimers, EquivalenceClass
from cpg_scheduler.queueing.hint_index import HintIndex
from cpg_scheduler.queueing.hints import FailedAttempt, RequeueHint
from cpg_scheduler.queueing.namespace_shares import NamespaceShares, excess, rest_beside_others
from cpg_scheduler.queueing.places import (
    ACTIVE,
    BACKOFF,
    BINDING,
    CHANGE,
    FAILURE,
    HINT,
    PLACES,
    TIMEOUT,
    UNSCHEDULABLE,
)
from cpg_scheduler.queueing.policy import RequeueBackoff

NO_UNIT = UnitKey("", GroupKey(POD, "", ""))


class QueuePosition(NamedTuple):
    """Where a unit is, how often it has failed, when its backoff ends, and what the last attempt found."""

    queue: str
    queue_key: QueueKey
    attempts: int = 0
    until: float | None = None
    failure: FailedAttempt | None = None


class SchedulingQueue:
    """The units that have pending pods."""

    def __init__(
        self, backoff: RequeueBackoff, on_enter: Callable[[str, str, UnitKey], None] = lambda *_: None
    ) -> None:
        """Start empty; ``on_enter`` is called with the name of a place, the event and the unit that enters it."""
        self._backoff = backoff
        self._on_enter = on_enter
        self._units: dict[UnitKey, QueueEntry] = {}
        self._costs = NamespaceCosts()
        self._active = ActiveQueue(self._units, self._costs)
        self._resting = RestingUnits()
        self._shares = NamespaceShares(self._units)
        self._classes: dict[Hashable, EquivalenceClass] = {}
        self._hints = HintIndex()
        self._backoff_ends = ClassTimers(lambda peers, time: peers.state == BACKOFF and peers.backoff_until == time)
        self._timeouts = ClassTimers(lambda peers, time: peers.retry_at == time)
        self._unreported: dict[Hashable, EquivalenceClass] = {}
        self._helped: dict[Hashable, EquivalenceClass] = {}
        """The classes in backoff that had no place, and that an event may have helped since."""
        self.move_requests = 0
        """How often the cluster has changed so that units may have become schedulable."""
        self.missed_hints = 0

    def __len__(self) -> int:
        return len(self._units)

    def counts(self) -> dict[str, int]:
        """Return the number of units in each place."""
        found = dict.fromkeys((ACTIVE, BACKOFF, UNSCHEDULABLE, BINDING), 0)
        for unit in self._units.values():
            place = _place_of(unit)
            if place in found:
                found[place] += 1
        return found

    def positions(self, first: int | None = None) -> list[QueuePosition]:
        """Return the positions of all units, unsorted because sorting ten thousand would delay the scheduler.

        With a number, return those of so many units that would be attempted first.
        """
        units: Iterable[QueueEntry] = self._units.values()
        if first is not None:
            units = heapq.nsmallest(first, units, key=partial(_overall_rank, self._active))
        return [_position_of(unit) for unit in units]

    def attempts(self, key: UnitKey) -> int:
        """Return how often a unit has failed, by itself or with its class, since it came into the queue."""
        unit = self._units.get(key)
        return unit.attempts + unit.bind_failures if unit is not None else 0

    # Changes of units and of the cluster.

    def activate(self, queue_key: QueueKey) -> None:
        """Activate a unit because something of its own has changed."""
        unit = self._units.get(queue_key.unit)
        if unit is None:
            unit = self._units[queue_key.unit] = QueueEntry(queue_key, self._active.turn)
        elif unit.state == ACTIVE and unit.queue_key == queue_key and not unit.requeued_by:
            return
        if unit.peers is not None:
            unit.peers.remove(queue_key.unit)
        unit.queue_key, unit.requeued_by = queue_key, ""
        self._active.push(unit)
        self._on_enter(ACTIVE, CHANGE, queue_key.unit)

    def remove(self, key: UnitKey) -> None:
        """Remove a unit that has no pending pods any more."""
        unit = self._units.pop(key, None)
        if unit is not None:
            self._leave_class(unit)

    def move_to_active_or_backoff(
        self, now: float, helped: Callable[[HintIndex], Iterable[Hashable]] | None = None
    ) -> None:
        """Move the classes that a change of the cluster may help; by default those that any change may help."""
        self.move_requests += 1
        for signature in self._hints.for_any_change if helped is None else list(helped(self._hints)):
            self._move(self._classes[signature], now)

    def dissolve_classes(self) -> None:
        """Activate all units that wait in a class with others: what makes units equivalent has changed."""
        for unit in self._units.values():
            if unit.peers is None or unit.peers.signature == unit.queue_key.unit:
                continue
            self._leave_class(unit)
            if unit.state == UNSCHEDULABLE:
                unit.requeued_by = HINT
                self._active.push(unit)

    # Attempts and their results.

    def pop(self, now: float, may_help: Callable[[RequeueHint, int], bool] | None = None) -> UnitKey | None:
        """Remove and return the next unit to attempt, or None where there is none yet.

        ``may_help`` returns whether the move requests after a number of them may help a unit with that hint, as the
        cluster is now.
        """
        self._costs.advance(now)
        while (peers := self._backoff_ends.pop_due(now)) is not None:
            self._represent(peers, HINT)
        for key in self._resting.pop_rested(now):
            rested = self._units.get(key)
            if rested is not None and rested.state == BACKOFF:
                self._active.push(rested)
        for released in self._shares.release(now):
            self._active.push(released)
        while (unit := self._active.pop() or self._pop_timed_out(now)) is not None:
            peers, key = unit.peers, unit.queue_key.unit
            if unit.not_before > now:
                unit.state = BACKOFF
                self._resting.put(key, unit.not_before)
                continue
            if self._shares.must_wait(unit, now):
                unit.state = BACKOFF
                continue
            if may_help is None or peers is None or unit.requeued_by != HINT or now >= peers.retry_at:
                return key
            if peers.failure.hint is None or may_help(peers.failure.hint, peers.moves_seen):
                return key
            self._active.note_failure(unit)
            self._wait_in(unit, peers)
            self._park(peers)
        return None

    def join_equivalent(self, key: UnitKey, signature: Hashable | None) -> bool:
        """Let a popped unit wait with equivalent ones, if there are any; its status has to be reported then.

        Otherwise it has to be attempted: it is like no other, or a representative of its class may be about to be
        placed.
        """
        peers = self._classes.get(signature) if signature is not None else None
        unit = self._units.get(key)
        if unit is None or peers is None or peers.state == REPRESENTED:
            return False
        unit.is_unreported = True
        self._wait_in(unit, peers)
        if peers.state == BACKOFF:
            self._represent(peers, HINT)
        return True

    def add_unschedulable(self, key: UnitKey, size: int, now: float, failure: FailedAttempt) -> None:
        """Let a popped unit wait that could not be placed, and all equivalent ones."""
        unit = self._units.get(key)
        if unit is None:
            return
        signature = failure.signature if failure.signature is not None else key
        peers = self._classes.get(signature)
        if peers is None:
            peers = self._classes[signature] = EquivalenceClass(signature)
        self._active.note_failure(unit)
        unit.attempts += 1
        unit.is_unreported = False
        self._wait_in(unit, peers)
        has_grown, unit.size = size > unit.size and not unit.requeued_by, size
        peers.set_times(failure, self._backoff, size=size, has_grown=has_grown, now=now)
        peers.moves_seen = self.move_requests
        self._timeouts.put(peers.retry_at, peers)
        if peers.failure.cause != failure.cause:
            peers.unreported = dict.fromkeys(member for member in peers.waiting if member != key)
            self._unreported[peers.signature] = peers
        peers.failure = failure
        self._park(peers)
        self._on_enter(UNSCHEDULABLE, FAILURE, key)

    def charge(self, key: UnitKey, seconds: float, now: float, *, placed: int) -> None:
        """Note what the attempt at a unit has cost, and for how many pods it has found a place."""
        self._costs.charge(key.key.namespace, seconds, now)
        unit = self._units.get(key)
        if unit is not None:
            self._shares.charge(unit, seconds, now, placed=placed)
            unit.is_costly = not placed and excess(seconds, placed) > 0.0
            rest = rest_after if self._shares.is_alone(unit.namespace, now) else rest_beside_others
            unit.not_before = now + (0.0 if placed else rest(seconds))

    def start_binding(self, key: UnitKey) -> None:
        """Keep a unit that has been placed completely, until its binds have worked."""
        unit = self._units.get(key)
        if unit is None:
            return
        if unit.peers is not None:
            unit.peers.attempts = 0
        if unit.requeued_by == TIMEOUT and unit.peers is not None:
            self.missed_hints += not unit.peers.failure.is_unproven
        self._leave_class(unit)
        unit.state, unit.is_unreported = BINDING, False

    def finish_binding(self, key: UnitKey) -> None:
        """Remove a unit when its binds have worked, unless it has been activated again."""
        unit = self._units.get(key)
        if unit is not None and unit.state == BINDING:
            del self._units[key]

    def retry_after_backoff(self, queue_key: QueueKey, size: int, now: float) -> None:
        """Attempt a unit again after a backoff of its own: some of its binds have failed."""
        key = queue_key.unit
        unit = self._units.get(key)
        if unit is None:
            unit = self._units[key] = QueueEntry(queue_key, self._active.turn)
        unit.bind_failures += 1
        if unit.state == ACTIVE:
            return
        unit.queue_key = queue_key
        self._leave_class(unit)
        peers = self._classes[key] = EquivalenceClass(key)
        self._wait_in(unit, peers)
        peers.backoff_until = now + self._backoff.delay(unit.bind_failures, size)
        self._move(peers, now)

    def next_unreported(self) -> tuple[UnitKey, FailedAttempt] | None:
        """Return a waiting unit to report with the failure of its class; each once for each cause."""
        while self._unreported:
            signature, peers = next(iter(self._unreported.items()))
            if peers.unreported:
                unit = next(iter(peers.unreported))
                del peers.unreported[unit]
                self._units[unit].attempts += 1
                return unit, peers.failure
            del self._unreported[signature]
        return None

    def end_backoff(self, could_place: Callable[[UnitKey], bool]) -> bool:
        """End the backoff of one class that an event may have helped, if one of its units could be placed now.

        Return whether there was such a class; each is asked about once for each event.
        """
        while self._helped:
            peers = self._helped.pop(next(iter(self._helped)))
            if peers.state == BACKOFF and peers.waiting:
                if could_place(next(iter(peers.waiting))):
                    self._represent(peers, HINT)
                return True
        return False

    def next_wake(self) -> float | None:
        """Return when the first backoff ends or the first class times out."""
        waits = self._resting.next_time(), self._shares.next_time()
        times = (self._backoff_ends.next_time(), self._timeouts.next_time(), *waits)
        return min((time for time in times if time is not None), default=None)

    # Equivalence classes.

    def _pop_timed_out(self, now: float) -> QueueEntry | None:
        """Activate the first class that no hint has activated for long, and pop its representative."""
        while (peers := self._timeouts.pop_due(now)) is not None:
            if peers.state == UNSCHEDULABLE:
                self._represent(peers, TIMEOUT)
                unit = self._active.pop()
                if unit is not None:
                    return unit
        return None

    def _wait_in(self, unit: QueueEntry, peers: EquivalenceClass) -> None:
        """Let a unit wait in a class, and in no other; one that was activated meanwhile stays active."""
        if unit.peers is not peers:
            self._leave_class(unit)
            unit.peers = peers
            peers.members += 1
        if peers.representative == unit.queue_key.unit:
            peers.representative = None
        if unit.state != ACTIVE:
            unit.state = UNSCHEDULABLE
            peers.add(unit.queue_key)
            if unit.is_unreported:
                peers.unreported[unit.queue_key.unit] = None
                self._unreported[peers.signature] = peers

    def _leave_class(self, unit: QueueEntry) -> None:
        """Remove a unit from its class; where it was the representative, the next one is."""
        peers, unit.peers = unit.peers, None
        if peers is None:
            return
        peers.remove(unit.queue_key.unit)
        peers.members -= 1
        if not peers.members:
            self._hints.remove(peers.signature)
            self._classes.pop(peers.signature, None)
        elif peers.representative == unit.queue_key.unit:
            self._represent(peers, HINT)

    def _represent(self, peers: EquivalenceClass, event: str) -> None:
        """Activate the first unit of a class, if there is one."""
        self._hints.remove(peers.signature)
        peers.state = REPRESENTED
        first = peers.pop_first()
        peers.representative = first.unit if first is not None else None
        if first is not None:
            unit = self._units[first.unit]
            unit.requeued_by, unit.is_unreported = event, first.unit in peers.unreported
            peers.unreported.pop(first.unit, None)
            self._on_enter(ACTIVE, event, first.unit)
            self._active.push(unit)

    def _park(self, peers: EquivalenceClass) -> None:
        """Make a class unschedulable until its hint is met."""
        self._hints.remove(peers.signature)
        peers.state = UNSCHEDULABLE
        peers.representative = None
        if peers.failure.hint is not None:
            self._hints.put(peers.signature, peers.failure.hint)

    def _move(self, peers: EquivalenceClass, now: float) -> None:
        """Activate the first unit of a class, as soon as its backoff has ended."""
        self._hints.remove(peers.signature)
        if peers.backoff_until <= now:
            self._represent(peers, HINT)
        else:
            peers.state = BACKOFF
            self._backoff_ends.put(peers.backoff_until, peers)
            if peers.failure.is_excluded:
                self._helped[peers.signature] = peers
            self._on_enter(BACKOFF, HINT, next(iter(peers.waiting), NO_UNIT))


def _place_of(unit: QueueEntry) -> str:
    """Return where a unit is; one in backoff waits in a class that is."""
    is_in_backoff = unit.state == UNSCHEDULABLE and unit.peers is not None and unit.peers.state == BACKOFF
    return BACKOFF if is_in_backoff else unit.state


def _position_of(unit: QueueEntry) -> QueuePosition:
    place, peers = _place_of(unit), unit.peers
    if peers is None:
        return QueuePosition(place, unit.queue_key)
    until = peers.backoff_until if place == BACKOFF else None
    return QueuePosition(place, unit.queue_key, peers.attempts, until, peers.failure)


def _overall_rank(active: ActiveQueue, unit: QueueEntry) -> tuple[int, Rank]:
    """Return the rank of a unit among all units; those that are not active are ordered by age."""
    rank = active.rank_of(unit) if unit.state == ACTIVE else Rank(unit.queue_key.importance, 0, 0, unit.queue_key)
    return PLACES.index(_place_of(unit)), rank
