"""The inbox of the scheduling loop: the outcomes of writes arrive here, as values, beside the changes of the watches.

A component that performs instructions never calls back. It puts a frozen event into the inbox it was built with, and
the loop takes all events at the beginning of its next pass, in the order of arrival.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Any


class EventInbox:
    """Events for the scheduling loop, and what wakes it."""

    def __init__(self) -> None:
        """Start empty."""
        self._events: deque[Any] = deque()
        self._arrival = asyncio.Event()
        self._wakeup = asyncio.Event()

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: object) -> None:
        """Add an outcome and wake the loop."""
        self._events.append(event)
        self._arrival.set()
        self._wakeup.set()

    def wake(self) -> None:
        """Wake the loop: the cache has changed."""
        self._wakeup.set()

    def take(self) -> Iterator[Any]:
        """Yield the events that have arrived, the oldest first, and those that arrive meanwhile."""
        while self._events:
            yield self._events.popleft()
        self._arrival.clear()

    async def wait(self) -> None:
        """Wait until the loop is woken."""
        await self._wakeup.wait()

    async def wait_for_event(self) -> None:
        """Wait until there is an event to take."""
        await self._arrival.wait()

    def clear(self) -> None:
        """Sleep again at the next ``wait``, unless events are left to take."""
        if not self._events:
            self._wakeup.clear()
