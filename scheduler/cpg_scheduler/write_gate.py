"""The gate for urgent writes: conditions and events wait while binds and evictions are in flight."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class WriteGate:
    """Counts urgent writes; it is open while there are none."""

    def __init__(self) -> None:
        """Start open."""
        self._urgent = 0
        self._open = asyncio.Event()
        self._open.set()

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
