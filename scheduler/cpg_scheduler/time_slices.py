"""Time slices: a long decision is suspended after each slice, so that watches, binds and probes get their turn.

The engine calls ``pause`` between two steps of a search. When the slice is used up, the call is suspended there and the
event loop goes on; later the call continues where it was. This takes a second stack, a greenlet, and neither a thread
nor an ``await`` in the engine. A call that ends within its slice is never suspended.

While a call is suspended, the cache and its ledger belong to it, in the middle of a simulation:

1. **Changes wait.** What the watches report and the outcomes of binds are applied when the call has ended, in order. So
   a decision sees one state of the cluster, and comes out as if it had not been suspended.
2. **Other readers of the ledger wait**: the validation of binds, and debug pages.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from greenlet import greenlet

T = TypeVar("T")

MAX_SECONDS_PER_SLICE = 0.03
"""Seconds of a call after which others get their turn; more than a turn of short attempts takes."""


class TimeSlices:
    """Runs one call at a time, in time slices."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without a call."""
        self._clock = clock
        self.cpu_clock = time.thread_time
        """The CPU seconds of the thread: what work costs, however busy the machine is."""
        self._cpu_of_others = 0.0
        self._call: greenlet | None = None
        self._slice_ends = 0.0
        self._waiting: deque[Callable[[], None]] = deque()
        self._free = asyncio.Event()
        self._free.set()
        self.suspended_seconds = 0.0
        """Seconds for which calls have been suspended, in all."""

    @property
    def is_suspended(self) -> bool:
        """Return whether a call is suspended now."""
        return not self._free.is_set()

    def work_seconds(self) -> float:
        """Return the CPU seconds of the thread so far, without those while a call was suspended."""
        return self.cpu_clock() - self._cpu_of_others

    def pause(self) -> None:
        """Suspend the call if its slice is used up; elsewhere than in a call, do nothing."""
        call = self._call
        if call is not None and self._clock() >= self._slice_ends and greenlet.getcurrent() is call:
            call.parent.switch()

    async def run(self, function: Callable[[], T]) -> T:
        """Return the result of a call; if this is cancelled, the call is unwound from where it is suspended."""
        call: Any = greenlet(function)
        self._call = call
        try:
            result = self._resume(call)
            while not call.dead:
                await self._suspend()
                result = self._resume(call)
        finally:
            self._call = None
            if not call.dead:
                call.throw()
            self._free.set()
            self._apply_waiting()
        found: T = result
        return found

    def when_free(self, action: Callable[[], None]) -> None:
        """Change the cache: now, or once the suspended call has ended."""
        if self.is_suspended:
            self._waiting.append(action)
        else:
            action()

    async def wait_free(self) -> None:
        """Wait until no call is suspended."""
        while self.is_suspended:
            await self._free.wait()

    def _resume(self, call: Any) -> Any:  # noqa: ANN401 - the result of any call
        self._slice_ends = self._clock() + MAX_SECONDS_PER_SLICE
        return call.switch()

    async def _suspend(self) -> None:
        self._free.clear()
        began, cpu_began = self._clock(), self.cpu_clock()
        await asyncio.sleep(0)
        self.suspended_seconds += self._clock() - began
        self._cpu_of_others += self.cpu_clock() - cpu_began

    def _apply_waiting(self) -> None:
        while self._waiting:
            self._waiting.popleft()()
