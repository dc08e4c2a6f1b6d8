"""A budget for work that answers questions: it may take a small share of the event loop's time and no more.

Work comes in parts, and nothing else runs during a part. After a part the loop belongs to others for a multiple of what
the part has cost. A part that others notice costs a larger multiple: such stalls take at most one per cent of the time,
so the 99th percentile of other latencies stays as it is.
"""

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

REST_PER_COST = 9.0
"""Seconds for others per second of work, in short parts: work takes at most a tenth of the time."""
REST_PER_LONG_COST = 99.0
"""The same for parts longer than ``NOTICED_SECONDS``: at most a hundredth of the time."""
NOTICED_SECONDS = 0.05
"""Seconds of a part from which the delay of other work is noticed."""
MAX_REST_SECONDS = 1.0
"""Seconds between two parts of one answer at most; what is left of the rest delays the next answer."""


class WorkBudget:
    """What a server may do now. One answer is made at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start rested."""
        self._clock = clock
        self._rested_at = clock()
        self._is_taken = False

    def seconds_to_wait(self) -> float:
        """Return the seconds after which to ask again; 0 if an answer may begin now, with a rest that is short."""
        left = max(self._rested_at - self._clock(), 0.0)
        if self._is_taken:
            return max(left, MAX_REST_SECONDS)
        return left if left > MAX_REST_SECONDS else 0.0

    def take(self) -> None:
        """Begin an answer."""
        self._is_taken = True

    def release(self) -> None:
        """End an answer."""
        self._is_taken = False

    def next_part(self, parts: Iterator[T]) -> T | None:
        """Do the next part and charge its cost; return None after the last."""
        began = self._clock()
        try:
            return next(parts, None)
        finally:
            now = self._clock()
            cost = now - began
            factor = REST_PER_COST if cost <= NOTICED_SECONDS else REST_PER_LONG_COST
            self._rested_at = max(self._rested_at, now) + cost * factor

    def rest(self) -> float:
        """Return the seconds to leave to others now, before the next part."""
        return min(max(self._rested_at - self._clock(), 0.0), MAX_REST_SECONDS)
