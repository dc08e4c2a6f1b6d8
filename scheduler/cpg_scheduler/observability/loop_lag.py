"""For how long nothing else could run: probes, watches, binds and leases all wait while one part of us computes."""

import asyncio
from collections.abc import Callable

TICK = 0.02
"""Seconds between two looks, and so the most by which a stall is longer than it is told to be."""
WINDOW = 60.0
"""Seconds for which the longest stall is told at the least; twice as long at the most."""


class LoopLag:
    """Looks at the clock again and again, and remembers when that came latest."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Know of no stall."""
        self._clock = clock
        self._began = clock()
        self._before = self._now = 0.0

    def longest(self) -> float:
        """Return the seconds of the longest stall of the last minute or two."""
        return max(self._before, self._now)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            asleep = self._clock()
            await asyncio.sleep(TICK)
            awake = self._clock()
            if awake - self._began >= WINDOW:
                self._began, self._before, self._now = awake, self._now, 0.0
            self._now = max(self._now, awake - asleep - TICK)
