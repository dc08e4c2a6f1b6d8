"""The inbox of the scheduling loop: the outcomes of writes arrive here, as values, beside the events of the watches.

A component that performs instructions never calls back. It puts a frozen event into the inbox it was built with, and
the loop takes all events at the beginning of its next pass, in the order of arrival.
"""

import asyncio
from collections import deque
from typing import Any


class EventInbox:
    """Events for the scheduling loop, and what wakes it."""

    def __init__(self) -> None:
        """Start empty."""
        self._events: deque[Any] = deque()
        self._wakeup = asyncio.Event()

    def put(self, event: object) -> None:
        """Add an outcome and wake the loop."""
        self._events.append(event)
        self._wakeup.set()

    def wake(self) -> None:
        """Wake the loop: the cache has changed."""
        self._wakeup.set()

    def take(self) -> list[Any]:
        """Return the events that have arrived since the last call, the oldest first."""
        events = list(self._events)
        self._events.clear()
        return events

    async def wait(self) -> None:
        """Wait until the loop is woken."""
        await self._wakeup.wait()

    def clear(self) -> None:
        """Sleep again at the next ``wait``, unless events are left to take."""
        if not self._events:
            self._wakeup.clear()
