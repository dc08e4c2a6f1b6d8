"""Run several reflectors together; none ends silently."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from cpg_client.reflector import Reflector, ReflectorCounts
from cpg_client.watch_health import CollectionHealth, WatchHealth

_POLL_SECONDS = 0.02


class Informers(WatchHealth):
    """Reflectors that run in a block: ``async with Informers(pods, nodes) as informers``.

    Leaving the block ends them all. A reflector fails only through a bug, never through a server that is away. Then the
    others and the block are cancelled, and its exception leaves the block.
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

    @property
    def reflectors(self) -> Sequence[Reflector[Any, Any]]:
        """The reflectors that run."""
        return tuple(self._reflectors)

    def start(self, reflector: Reflector[Any, Any]) -> None:
        """Run another reflector, such as for a resource that the server has only now begun to serve."""
        self._reflectors.append(reflector)
        self._run(reflector)

    async def wait_synced(self) -> None:
        """Wait until ``synced``."""
        while not self.synced:  # noqa: ASYNC110  # what is closed becomes so by time alone
            await asyncio.sleep(_POLL_SECONDS)

    @property
    def synced(self) -> bool:
        """Whether every reflector has delivered its first list, except for forbidden namespaces."""
        missing = [one.source.path for one in self._reflectors if not one.synced]
        return not missing or self.forbidden(self._clock()).keys() >= set(missing)

    def collections(self) -> Mapping[str, CollectionHealth]:
        """Return the health of each collection, by its path."""
        return {one.source.path: one.health for one in self._reflectors}

    def counts(self) -> dict[str, ReflectorCounts]:
        """Return the counts of each reflector, by the path that it watches."""
        return {one.source.path: one.counts for one in self._reflectors}

    def _run(self, reflector: Reflector[Any, Any]) -> None:
        name = f"reflector of {reflector.source.path}"
        self._tasks.append(self._group.create_task(reflector.run(), name=name))
