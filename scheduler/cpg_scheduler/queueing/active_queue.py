"""The active queue: the units that may be attempted now, in order.

A unit is *fresh* if it is new or something of its own has changed, and *requeued* if a hint or the time has activated
it.

Among units of one importance, those of a namespace whose attempts have lately taken long come last (``attempt_costs``).
Among the others:

1. **Fresh units** are ordered by the turn at which they arrived or were last attempted, then by
   age and name. Turns count attempts. So units that arrive together are ordered by age, and a unit that changes before
   every attempt takes its turn behind all units of its importance.
2. **Requeued units** are ordered by age and name. Before the first of them, one fresh unit goes, and one more after
   each requeued unit that was activated in vain. So a crowd that is requeued again and again, and never fits, delays a
   fresh unit by one attempt at most.
3. **Requeued units do not starve**: only one fresh unit goes before them, except older ones that have had no turn
   since, and none while requeued units are placed.
"""

import heapq
from collections.abc import Mapping
from typing import NamedTuple

from cpg_scheduler.keys import QueueKey, UnitKey
from cpg_scheduler.queueing.attempt_costs import NamespaceCosts
from cpg_scheduler.queueing.equivalence import EquivalenceClass
from cpg_scheduler.queueing.places import ACTIVE, POPPED


class Rank(NamedTuple):
    """The order of active units; the smaller first."""

    importance: int
    lag: int
    turn: int
    queue_key: QueueKey


class QueueEntry:
    """What the queue remembers of a unit from one attempt to the next."""

    __slots__ = (
        "attempts",
        "bind_failures",
        "is_costly",
        "is_unreported",
        "not_before",
        "peers",
        "queue_key",
        "requeued_by",
        "size",
        "state",
        "turn",
    )

    def __init__(self, queue_key: QueueKey, turn: int) -> None:
        """Start without a state."""
        self.queue_key = queue_key
        self.turn = turn
        """The turn at which it arrived, was requeued or was attempted last."""
        self.state = ""
        self.peers: EquivalenceClass | None = None
        """The class in which it waits, or has waited before it became active."""
        self.attempts = 0
        """How often it has failed, by itself or with its class."""
        self.bind_failures = 0
        self.size = 0
        """How many pods it had at its last failed attempt."""
        self.not_before = 0.0
        """When it may be attempted again, by what its last attempt has cost."""
        self.is_costly = False
        """Whether its last attempt was costly and in vain."""
        self.is_unreported = False
        """Whether the failure of its class is still to be reported to it."""
        self.requeued_by = ""
        """The event that has requeued it; empty for a fresh unit."""

    @property
    def namespace(self) -> str:
        """Return its namespace."""
        return self.queue_key.unit.key.namespace

    def rank(self, lag: int) -> Rank:
        """Return its place among active units, with the lag of its namespace."""
        return Rank(self.queue_key.importance, lag, 0 if self.requeued_by else self.turn, self.queue_key)


class ActiveQueue:
    """Two heaps, with entries that are left behind when a unit changes; these are skipped."""

    def __init__(self, units: Mapping[UnitKey, QueueEntry], costs: NamespaceCosts) -> None:
        """Start empty; ``units`` are all units of the scheduling queue."""
        self._units = units
        self._costs = costs
        self._namespaces: set[str] = set()
        """The namespaces that have had an active unit since the queue was last empty."""
        self._fresh: list[Rank] = []
        self._requeued: list[Rank] = []
        self._requeued_go_first = False
        """Whether a fresh unit has gone before the requeued ones already, or the last of these was placed."""
        self.turn = 0
        """How many units have been popped."""

    def push(self, unit: QueueEntry) -> None:
        """Activate a unit."""
        unit.state = ACTIVE
        self._namespaces.add(unit.namespace)
        if unit.requeued_by:
            unit.turn = self.turn
        heapq.heappush(self._requeued if unit.requeued_by else self._fresh, self.rank_of(unit))

    def rank_of(self, unit: QueueEntry) -> Rank:
        """Return the place of a unit among active units now; a namespace lags only behind others."""
        return unit.rank(self._costs.lag(unit.namespace) if len(self._namespaces) > 1 else 0)

    def pop(self) -> QueueEntry | None:
        """Remove and return the next unit; this is its turn."""
        fresh, requeued = self._top(self._fresh, is_requeued=False), self._top(self._requeued, is_requeued=True)
        if requeued is None:
            self._requeued_go_first = False
        if self._is_requeued_next(fresh, requeued):
            unit = self._units[heapq.heappop(self._requeued).queue_key.unit]
        elif fresh is not None:
            unit = self._units[heapq.heappop(self._fresh).queue_key.unit]
        else:
            self._namespaces.clear()
            return None
        self.turn += 1
        unit.state, unit.turn = POPPED, self.turn
        return unit

    def note_failure(self, unit: QueueEntry) -> None:
        """Note that a unit was attempted and not placed; a requeued one lets a fresh one go first again."""
        if unit.requeued_by:
            self._requeued_go_first = False

    def _is_requeued_next(self, fresh: Rank | None, requeued: Rank | None) -> bool:
        """Return whether the first requeued unit goes before the first fresh one."""
        if requeued is None:
            return False
        if fresh is None or requeued[:2] < fresh[:2]:
            return True
        takes_turns = self._take_turns(fresh, requeued)
        if takes_turns and self._requeued_go_first:
            return True
        self._requeued_go_first = self._requeued_go_first or takes_turns
        return False

    def _take_turns(self, fresh: Rank, requeued: Rank) -> bool:
        """Return whether a fresh unit goes only once before the first requeued one.

        More important ones always go first, and so do those of a namespace with less lag, and older ones that have had
        no turn since the other was requeued.
        """
        if requeued[:2] != fresh[:2]:
            return False
        return requeued.queue_key < fresh.queue_key or self._units[requeued.queue_key.unit].turn < fresh.turn

    def _top(self, heap: list[Rank], *, is_requeued: bool) -> Rank | None:
        """Return the first valid entry of a heap, drop the invalid ones before it, and move those that lag now."""
        while heap:
            first = heap[0]
            unit = self._units.get(first.queue_key.unit)
            if unit is None or unit.state != ACTIVE or bool(unit.requeued_by) != is_requeued:
                heapq.heappop(heap)
                continue
            rank = self.rank_of(unit)
            if rank == first:
                return first
            heapq.heappop(heap)
            if rank == first._replace(lag=rank.lag):
                heapq.heappush(heap, rank)
        return None
