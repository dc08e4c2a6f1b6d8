"""The gate for urgent writes: conditions and events wait while binds and evictions are in flight.

A batch of binds waits for the status writes of its pods that may be in flight already. On another connection such a
write could arrive after the bind, and a pod that runs would say that it cannot be scheduled.
"""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager


class WriteGate:
    """Counts urgent writes; it is open while there are none. It knows the objects whose status is being written."""

    def __init__(self) -> None:
        """Start open."""
        self._urgent = 0
        self._open = asyncio.Event()
        self._open.set()
        self._in_flight: dict[str, asyncio.Event] = {}
        """For each object whose status is being written, by its key: set when that has ended."""

    def enter(self, writes: int = 1) -> None:
        """Note that urgent writes have begun."""
        self._urgent += writes
        if self._urgent:
            self._open.clear()

    def leave(self, writes: int = 1) -> None:
        """Note that urgent writes have ended."""
        self._urgent -= writes
        if not self._urgent:
            self._open.set()

    @contextmanager
    def urgent(self) -> Iterator[None]:
        """Hold the gate closed for as long as the block runs."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    @property
    def is_open(self) -> bool:
        """Return whether no urgent write is in flight."""
        return self._open.is_set()

    async def wait_open(self) -> None:
        """Wait until no urgent write is in flight."""
        await self._open.wait()

    @contextmanager
    def writing(self, key: str) -> Iterator[None]:
        """Note that the status of an object is being written for as long as the block runs."""
        ended = self._in_flight[key] = asyncio.Event()
        try:
            yield
        finally:
            del self._in_flight[key]
            ended.set()

    def is_writing(self, keys: Collection[str]) -> bool:
        """Return whether the status of one of these objects is being written."""
        return not self._in_flight.keys().isdisjoint(keys)

    async def wait_written(self, keys: Collection[str]) -> None:
        """Wait until the status of none of these objects is being written."""
        while writing := self._in_flight.keys() & keys:
            await self._in_flight[min(writing)].wait()
