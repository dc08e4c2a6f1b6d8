"""Several reflectors under one roof: all run while the block runs, and none dies in silence."""

import asyncio
from types import TracebackType
from typing import Any, Self

from cpg_client.reflecting import Counts, Reflector


class Informers:
    """Runs reflectors as ``async with Informers(pods, nodes) as informers``.

    Leaving the block ends them all. If one fails, which means that a program is wrong and not that a server is
    away, the others and the block are cancelled and its exception comes out of the block.
    """

    def __init__(self, *reflectors: Reflector[Any, Any]) -> None:
        self._reflectors = list(reflectors)
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
        """Return once every reflector has told all that was there."""
        for reflector in self._reflectors:
            await reflector.wait_synced()

    @property
    def synced(self) -> bool:
        """Whether every reflector has told all that was there."""
        return all(reflector.synced for reflector in self._reflectors)

    def unheard_for(self, now: float) -> float:
        """Return for how many seconds the quietest of them has heard nothing; endless before its first list.

        By the settings' defaults a healthy server is heard from every minute, whether anything happens or not.
        """
        heard = (one.last_heard for one in self._reflectors)
        return max((float("inf") if at is None else now - at for at in heard), default=0.0)

    def unheard(self, now: float) -> dict[str, float]:
        """Return for how many seconds each of them has heard nothing, by the path that it watches."""
        heard = {one.source.path: one.last_heard for one in self._reflectors}
        return {path: float("inf") if at is None else now - at for path, at in heard.items()}

    def counts(self) -> dict[str, Counts]:
        """Return what each of them has seen, by the path that it watches."""
        return {one.source.path: one.counts for one in self._reflectors}

    def failing_for(self, now: float) -> float:
        """Return for how many seconds the one that has been in trouble the longest has been so; 0 where all is well."""
        since = (one.failing_since for one in self._reflectors)
        return max((0.0 if at is None else now - at for at in since), default=0.0)

    def _run(self, reflector: Reflector[Any, Any]) -> None:
        name = f"reflector of {reflector.source.path}"
        self._tasks.append(self._group.create_task(reflector.run(), name=name))
