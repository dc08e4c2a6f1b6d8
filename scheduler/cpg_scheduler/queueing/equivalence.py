"""Lots: roots that are alike wait together, so that one attempt answers for all of them."""

import heapq
from collections.abc import Callable, Hashable

from cpg_scheduler.keys import QueueKey, UnitKey
from cpg_scheduler.queueing.hints import FailedAttempt

LED = "led"
FEW = 64
"""Roots that have left a lot stay in its line until there are this many more of them than of those who wait."""


class EquivalenceClass:
    """Roots that are alike; ``line`` holds those who wait in it, and what is left of those who did."""

    __slots__ = (
        "attempts",
        "failure",
        "key",
        "leader",
        "line",
        "members",
        "not_before",
        "place",
        "review",
        "since",
        "untold",
        "users",
    )

    def __init__(self, key: Hashable) -> None:
        """Start with nobody waiting."""
        self.key = key
        self.failure = FailedAttempt()
        self.place = LED
        self.leader: UnitKey | None = None
        self.attempts = 0
        self.not_before = 0.0
        self.review = 0.0
        self.since = 0
        self.members: dict[UnitKey, QueueKey] = {}
        self.line: list[QueueKey] = []
        self.untold: dict[UnitKey, None] = {}
        self.users = 0

    def join(self, order: QueueKey) -> None:
        """Let a root wait here."""
        self.members[order.key] = order
        heapq.heappush(self.line, order)
        if len(self.line) > 2 * len(self.members) + FEW:
            self.line = sorted(self.members.values())

    def leave(self, key: UnitKey) -> None:
        """Let a root go."""
        self.members.pop(key, None)
        self.untold.pop(key, None)

    def first(self) -> QueueKey | None:
        """Take out the first who waits."""
        while self.line:
            order = heapq.heappop(self.line)
            if self.members.get(order.key) == order:
                self.leave(order.key)
                return order
        return None


class Alarms:
    """Times at which lots are to be looked at, the first first; an alarm that no longer holds for its lot is none."""

    def __init__(self, holds: Callable[[EquivalenceClass, float], bool]) -> None:
        """Start with none; ``holds`` tells of a lot whether its alarm at a time is still meant."""
        self._holds = holds
        self._heap: list[tuple[float, int, EquivalenceClass]] = []
        self._pushes = 0

    def put(self, time: float, lot: EquivalenceClass) -> None:
        """Have a lot looked at at a time; of the same time, who came first is first."""
        self._pushes += 1
        heapq.heappush(self._heap, (time, self._pushes, lot))

    def next(self) -> float | None:
        """Return the time of the first; those that were left behind are dropped on the way."""
        while self._heap:
            time, _, lot = self._heap[0]
            if lot.users and self._holds(lot, time):
                return time
            heapq.heappop(self._heap)
        return None

    def due(self, now: float) -> EquivalenceClass | None:
        """Take out the first whose time has come."""
        time = self.next()
        return heapq.heappop(self._heap)[2] if time is not None and time <= now else None
