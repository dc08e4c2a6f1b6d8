"""Notices that the event loop has paused, because the process or its machine was suspended or had no CPU.

Meanwhile the process sees nothing: an outage of the API server that began then seems to begin when the loop goes on.
"""

import asyncio
from collections.abc import Callable
from typing import NoReturn

SECONDS_BETWEEN_BEATS = 0.5
MIN_SECONDS_OF_PAUSE = 1.0
"""Shorter ones are usual on a busy machine."""
SECONDS_TO_NOTICE = 5.0
"""Seconds after a pause in which connections that were lost meanwhile are noticed."""


class LoopPauses:
    """The last pause of the event loop; there is none while ``run`` does not run."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Know of no pause yet. The clock counts on while the machine is suspended."""
        self._clock = clock
        self._beat: float | None = None
        self._seconds, self._ended = 0.0, clock()

    def recent(self) -> float:
        """Return how long the loop has paused, if it has gone on for a few seconds at most since; else 0."""
        now = self._clock()
        if self._beat is not None and now - self._beat > MIN_SECONDS_OF_PAUSE:
            return now - self._beat
        return self._seconds if now - self._ended < SECONDS_TO_NOTICE else 0.0

    async def run(self) -> NoReturn:
        """Look for pauses until cancelled."""
        while True:
            self._beat = self._clock()
            await asyncio.sleep(SECONDS_BETWEEN_BEATS)
            now = self._clock()
            if now - self._beat > MIN_SECONDS_OF_PAUSE:
                self._seconds, self._ended = now - self._beat, now
