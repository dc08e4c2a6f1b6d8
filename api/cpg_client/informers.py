"""Several reflectors under one roof: all run while the block runs, and none dies in silence."""

import asyncio
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from cpg_client.reflector import Reflector, ReflectorCounts
from cpg_client.watch_health import CollectionHealth, WatchHealth

_POLL_SECONDS = 0.02


class Informers(WatchHealth):
    """Runs reflectors as ``async with Informers(pods, nodes) as informers``.

    Leaving the block ends them all. If one fails, which means that a program is wrong and not that a server is
    away, the others and the block are cancelled and its exception comes out of the block.
    """

    def __init__(self, *reflectors: Reflector[Any, Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._reflectors = list(reflectors)
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        for reflector in self._reflectors:
            self._run(reflector)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        try:
            await self._group.__aexit__(kind, error, traceback)
        except BaseExceptionGroup as failures:
            if len(failures.exceptions) > 1:
                raise
            raise failures.exceptions[0] from None

    def start(self, reflector: Reflector[Any, Any]) -> None:
        """Run one more from now on, such as for a resource that the server has only begun to serve."""
        self._reflectors.append(reflector)
        self._run(reflector)

    async def wait_synced(self) -> None:
        """Return once ``synced``."""
        while not self.synced:  # noqa: ASYNC110  # what is closed becomes so by time alone
            await asyncio.sleep(_POLL_SECONDS)

    @property
    def synced(self) -> bool:
        """Whether every reflector has told all that was there, but for what is closed to us."""
        missing = [one.source.path for one in self._reflectors if not one.synced]
        return not missing or self.forbidden(self._clock()).keys() >= set(missing)

    def collections(self) -> Mapping[str, CollectionHealth]:
        """Return how each collection is heard, by its path."""
        return {one.source.path: one.health for one in self._reflectors}

    def counts(self) -> dict[str, ReflectorCounts]:
        """Return what each of them has seen, by the path that it watches."""
        return {one.source.path: one.counts for one in self._reflectors}

    def _run(self, reflector: Reflector[Any, Any]) -> None:
        name = f"reflector of {reflector.source.path}"
        self._tasks.append(self._group.create_task(reflector.run(), name=name))
