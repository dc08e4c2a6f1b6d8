"""Holds decisions after a stall of the process until its stores are fresh again.

A process that was suspended (SIGSTOP, a paused machine) resumes with what it knew before. Its watches show bit by bit
what has happened since, and a decision in between would be based on a part of it. A lease ends such a process; without
leader election, or if the stall was shorter than the lease, it goes on.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

MAX_SECONDS_STALLED = 3.0
"""Seconds without a turn of the event loop from which the stores count as old."""
SECONDS_BETWEEN_BEATS = 0.5
POLL_SECONDS = 0.01


class StallGuard:
    """Notices by a clock that the event loop has not run for a while."""

    def __init__(self, clock: Callable[[], float], catch_up: Callable[[], Awaitable[object]]) -> None:
        """Start current. The clock counts on while the machine is suspended; ``catch_up`` makes the stores fresh."""
        self._clock = clock
        self._catch_up = catch_up
        self._beat = clock()

    @property
    def is_stalled(self) -> bool:
        """Whether the loop has stalled and the stores have not caught up since."""
        return self._clock() - self._beat > MAX_SECONDS_STALLED

    async def wait_current(self) -> None:
        """Wait until the stores have caught up with a stall; usually there is none."""
        while self.is_stalled:  # noqa: ASYNC110  # it becomes so by time alone
            await asyncio.sleep(POLL_SECONDS)

    async def run(self) -> NoReturn:
        """Catch up after each stall, until cancelled."""
        self._beat = self._clock()
        while True:
            await asyncio.sleep(SECONDS_BETWEEN_BEATS)
            if self.is_stalled:
                await self._catch_up()
            self._beat = self._clock()
