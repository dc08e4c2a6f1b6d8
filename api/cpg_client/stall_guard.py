"""Holds decisions after a stall of the process or of its API server until the stores are fresh again.

A process that was suspended (SIGSTOP, a paused machine) resumes with what it knew before. Its watches show bit by bit
what has happened since, and a decision in between would be based on a part of it. A lease ends such a process; without
leader election, or if the stall was shorter than the lease, it goes on.

After an outage of the API server its history may be another one: a restore of etcd takes all servers down for seconds.
What was decided before is void then, and only new lists show it.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import NoReturn

MAX_SECONDS_STALLED = 3.0
"""Seconds without a turn of the event loop from which the stores count as old."""
MAX_SECONDS_UNANSWERED = 2.5
"""Seconds in which all watches and lists have failed, from which the stores count as old: with the time to the next
beat, less than those after which no watch resumes."""
SECONDS_BETWEEN_BEATS = 0.5
POLL_SECONDS = 0.01


class StallGuard:
    """Notices by a clock that the event loop has not run for a while, or that the API server has not answered."""

    def __init__(
        self,
        clock: Callable[[], float],
        catch_up: Callable[[], Awaitable[object]],
        seconds_unanswered: Callable[[], float] = float,
    ) -> None:
        """Start current. The clock counts on while the machine is suspended; ``catch_up`` makes the stores fresh."""
        self._clock = clock
        self._catch_up = catch_up
        self._seconds_unanswered = seconds_unanswered
        self._beat = clock()

    @property
    def is_stalled(self) -> bool:
        """Whether the loop or the server has stalled and the stores have not caught up since."""
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
            if self._seconds_unanswered() >= MAX_SECONDS_UNANSWERED:
                self._beat = -math.inf
                continue
            if self.is_stalled:
                await self._catch_up()
            self._beat = self._clock()
