"""Time as an argument: what waits here waits by a ``Timing``, and a test hands in one that takes no time.

The clock counts seconds from any origin and never jumps; it is what durations are measured by. The wall
clock serves only to write down for people when something was.
"""

import asyncio
import datetime as dt
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How to wait and how to tell the time."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time

    def timestamp(self) -> str:
        """Return now as the API's MicroTime."""
        return dt.datetime.fromtimestamp(self.wall(), dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    async def within(self, seconds: float, work: Coroutine[Any, Any, T]) -> T:
        """Return what the work returns, or cancel it and raise ``TimeoutError``.

        This is ``asyncio.timeout`` by our own clock, which the event loop's cannot be replaced by.
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


async def cancel_and_wait(task: asyncio.Future[Any]) -> None:
    """Cancel a task and return once it has ended; how it ended is for somebody else to ask."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # so that asyncio does not complain that nobody asked
