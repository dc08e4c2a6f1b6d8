"""Clocks and sleeping as an argument, so that tests control time.

``clock`` counts seconds from any origin, never jumps, and measures durations. ``wall`` is the time of day, for
timestamps only. A ``Connection`` has one that follows the clock of its API server.

While a machine is suspended, the usual monotonic clock stands. For a back-off that is right: nothing happened. For a
lease it is not: other machines have gone on, and another replica leads. So the election has a clock that counts on, and
outages are measured by ``elapsed``, which does too.
"""

import asyncio
import datetime as dt
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


def seconds_with_suspension() -> float:
    """Return the seconds of a monotonic clock that counts on while the machine is suspended, where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How to sleep and how to read the time."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic
    elapsed: Callable[[], float] = seconds_with_suspension
    wall: Callable[[], float] = time.time

    def timestamp(self) -> str:
        """Return the present time as the API's MicroTime."""
        return dt.datetime.fromtimestamp(self.wall(), dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def whole_seconds(self) -> str:
        """Return the present time as the API's Time, of conditions and creation timestamps."""
        return f"{self.timestamp()[:19]}Z"

    async def within(self, seconds: float, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of the work, or cancel it and raise ``TimeoutError``.

        This is ``asyncio.timeout`` by this clock; the clock of the event loop cannot be replaced.
        """
        working = asyncio.ensure_future(work)
        waiting = asyncio.ensure_future(self.sleep(seconds))
        try:
            await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise TimeoutError(f"no answer within {seconds:g} s")
            return working.result()
        finally:
            await cancel_and_wait(working)
            await cancel_and_wait(waiting)


REAL_TIME = Timing()


ELECTION_TIME = Timing(clock=seconds_with_suspension)


async def cancel_and_wait(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait until it has ended. Its result is ignored."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # marks the exception as retrieved, so that asyncio does not log it


async def run_until(stopping: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of the work, or None where the process is asked to stop first."""
    working, waiting = asyncio.create_task(work), asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        await cancel_and_wait(working)
        await cancel_and_wait(waiting)
