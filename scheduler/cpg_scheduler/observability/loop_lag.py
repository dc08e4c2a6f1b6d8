"""How long one piece of work holds up the event loop: probes, watches, binds and the lease all wait meanwhile."""

import asyncio
from collections.abc import Callable

SECONDS_BETWEEN_CHECKS = 0.02
"""The measured lag is too short by this much at most."""
WINDOW_SECONDS = 60.0
"""The longest lag is reported for at least one window, and at most two."""


class LoopLag:
    """Wakes up regularly and remembers by how much it was late."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start without any lag."""
        self._clock = clock
        self._window_began = clock()
        self._last_window = self._this_window = 0.0

    def longest(self) -> float:
        """Return the longest lag of the last one to two windows, in seconds."""
        return max(self._last_window, self._this_window)

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            before = self._clock()
            await asyncio.sleep(SECONDS_BETWEEN_CHECKS)
            now = self._clock()
            if now - self._window_began >= WINDOW_SECONDS:
                self._window_began, self._last_window, self._this_window = now, self._this_window, 0.0
            self._this_window = max(self._this_window, now - before - SECONDS_BETWEEN_CHECKS)
