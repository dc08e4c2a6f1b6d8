"""The CPU time that attempts take, by unit and by namespace, and what follows for their order.

1. **A unit rests** after an expensive attempt that placed nothing, for ``REST_PER_COST`` times as long as it took. So
   no unit takes more than five per cent of the loop, however often it changes.
2. **A namespace lags** if its attempts have lately taken longer than those of others: its units go behind units of the
   same importance. The lag grows by one each time the cost doubles, and the cost is forgotten by half every ten
   seconds. If no other namespace has active units, nothing changes, and no time is lost.
"""

import heapq
from collections.abc import Iterator
from math import exp2, log2

from cpg_scheduler.keys import UnitKey

REST_PER_COST = 19.0
MAX_SECONDS_WITHOUT_REST = 0.01
"""The part of an attempt that needs no rest; most attempts take less."""
SECONDS_OF_FIRST_LAG = 0.25
HALF_LIFE_SECONDS = 10.0
MAX_NAMESPACES = 1024
"""Namespaces that are remembered; of more, those that have cost least are forgotten."""


def rest_after(seconds: float) -> float:
    """Return for how long a unit rests after an attempt of so many seconds that placed nothing."""
    return REST_PER_COST * max(seconds - MAX_SECONDS_WITHOUT_REST, 0.0)


class NamespaceCosts:
    """The recent cost of the attempts of each namespace."""

    def __init__(self) -> None:
        """Start without costs."""
        self._costs: dict[str, tuple[float, float]] = {}
        """The cost in seconds, and when it was computed."""
        self._now = 0.0

    def charge(self, namespace: str, seconds: float, now: float) -> None:
        """Add the cost of an attempt."""
        self._now = now
        self._costs[namespace] = self._current(namespace) + seconds, now
        if len(self._costs) > MAX_NAMESPACES:
            kept = sorted(self._costs, key=self._current, reverse=True)[: MAX_NAMESPACES // 2]
            self._costs = {name: self._costs[name] for name in kept}

    def advance(self, now: float) -> None:
        """Let time pass."""
        self._now = now

    def lag(self, namespace: str) -> int:
        """Return by how much a namespace goes behind others."""
        return int(log2(1.0 + self._current(namespace) / SECONDS_OF_FIRST_LAG))

    def _current(self, namespace: str) -> float:
        cost, since = self._costs.get(namespace, (0.0, self._now))
        return cost * exp2((since - self._now) / HALF_LIFE_SECONDS)


class RestingUnits:
    """Units that rest after an expensive attempt, and until when."""

    def __init__(self) -> None:
        """Start without any."""
        self._heap: list[tuple[float, UnitKey]] = []

    def put(self, unit: UnitKey, until: float) -> None:
        """Let a unit rest."""
        heapq.heappush(self._heap, (until, unit))

    def next_time(self) -> float | None:
        """Return when the first unit has rested for long enough."""
        return self._heap[0][0] if self._heap else None

    def pop_rested(self, now: float) -> Iterator[UnitKey]:
        """Remove and yield the units that have rested for long enough; some may be gone, or have been put twice."""
        while self._heap and self._heap[0][0] <= now:
            yield heapq.heappop(self._heap)[1]
