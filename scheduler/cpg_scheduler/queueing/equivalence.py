"""Equivalence classes: units that the engine cannot tell apart share the result of one attempt."""

import heapq
from collections.abc import Callable, Hashable

from cpg_scheduler.keys import QueueKey, UnitKey
from cpg_scheduler.queueing.hints import FailedAttempt
from cpg_scheduler.queueing.policy import MAX_STALE_ENTRIES, RequeueBackoff

REPRESENTED = "represented"
"""The state of a class while its first unit is active or being attempted, for all of them."""


class EquivalenceClass:
    """Units with one signature: those that wait, and their representative."""

    __slots__ = (
        "attempts",
        "backoff_until",
        "failure",
        "heap",
        "members",
        "moves_seen",
        "representative",
        "retry_at",
        "signature",
        "state",
        "unreported",
        "waiting",
    )

    def __init__(self, signature: Hashable) -> None:
        """Start without units."""
        self.signature = signature
        self.failure = FailedAttempt()
        self.state = REPRESENTED
        self.representative: UnitKey | None = None
        self.attempts = 0
        self.backoff_until = 0.0
        self.retry_at = 0.0
        """When it is attempted although no hint has activated it."""
        self.moves_seen = 0
        """The number of move requests before the last failure: only later ones can help."""
        self.waiting: dict[UnitKey, QueueKey] = {}
        self.heap: list[QueueKey] = []
        """The waiting units in order, and what is left of units that wait no more."""
        self.unreported: dict[UnitKey, None] = {}
        """The waiting units that have not been reported with the present failure of the class."""
        self.members = 0
        """Units that refer to this class; one that is active or being attempted may."""

    def set_times(
        self, failure: FailedAttempt, backoff: RequeueBackoff, *, size: int, has_grown: bool, now: float
    ) -> None:
        """Set for how long the class backs off after a failed attempt, and when it is attempted without an event.

        The attempt does not count if the unit ``has_grown`` since the last one, or if no event can help it.
        """
        if failure.hint is None:
            self.attempts, self.backoff_until = 0, now
        else:
            self.attempts = max(self.attempts + (not has_grown), 1)
            self.backoff_until = now + backoff.delay(self.attempts, size)
        wait = failure.retry_after
        if failure.is_unproven:
            wait = min(wait, backoff.delay_without_event(self.attempts, size))
        self.retry_at = now + wait

    def add(self, queue_key: QueueKey) -> None:
        """Let a unit wait here."""
        self.waiting[queue_key.unit] = queue_key
        heapq.heappush(self.heap, queue_key)
        if len(self.heap) > 2 * len(self.waiting) + MAX_STALE_ENTRIES:
            self.heap = sorted(self.waiting.values())

    def remove(self, unit: UnitKey) -> None:
        """Remove a unit, if it waits here."""
        self.waiting.pop(unit, None)
        self.unreported.pop(unit, None)

    def pop_first(self) -> QueueKey | None:
        """Remove and return the first of the waiting units; whether it has been reported is left to the caller."""
        while self.heap:
            queue_key = heapq.heappop(self.heap)
            if self.waiting.get(queue_key.unit) == queue_key:
                del self.waiting[queue_key.unit]
                return queue_key
        return None


class ClassTimers:
    """Times at which classes are due, the earliest first; a timer counts only as long as it is valid for its class."""

    def __init__(self, is_valid: Callable[[EquivalenceClass, float], bool]) -> None:
        """Start without timers."""
        self._is_valid = is_valid
        self._heap: list[tuple[float, int, EquivalenceClass]] = []
        self._pushes = 0

    def put(self, time: float, peers: EquivalenceClass) -> None:
        """Add a timer; of several for the same time, the first added is due first."""
        self._pushes += 1
        heapq.heappush(self._heap, (time, self._pushes, peers))

    def next_time(self) -> float | None:
        """Return the time of the first valid timer, and drop the invalid ones before it."""
        while self._heap:
            time, _, peers = self._heap[0]
            if peers.members and self._is_valid(peers, time):
                return time
            heapq.heappop(self._heap)
        return None

    def pop_due(self, now: float) -> EquivalenceClass | None:
        """Remove the first valid timer if its time has come, and return its class."""
        time = self.next_time()
        return heapq.heappop(self._heap)[2] if time is not None and time <= now else None
