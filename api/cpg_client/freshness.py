"""Compare the stores of reflectors with the API server: whether they are as new, and whether its versions still grow.

**A new leader must not decide on old data.** The watches of a standby can be late by seconds without any error, and
the store then lacks the last binds of the leader before. So ``catch_up`` reads the present version of each collection,
by a consistent read of one object, and returns when each store has that version. An event or a bookmark of a later
version shows it. A quiet collection shows nothing for a minute. So the caller may touch one of its objects, after that
read: the event of this write shows that the watch has delivered everything before it, whatever the number of objects.
Where there is nothing to touch, the collection is listed anew: a small one after some milliseconds, a large one only
after a quarter of a second, in which an event is likely. Touching is for speed alone: only versions make a store fresh.

**Versions that go back mean a restored etcd.** A watch that resumes at a version of the future gets no events and no
error. So ``run`` reads the present versions regularly, and soon after a failure, and raises if one is older than what
was seen before the read.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias

from structlog.typing import FilteringBoundLogger

from cpg_client.connection import Connection
from cpg_client.errors import ClientError
from cpg_client.informers import Informers
from cpg_client.reflector import Reflector
from cpg_client.versions import VersionsWentBackError, is_at_least, is_older, present_version

LARGE_COLLECTION = 2000
"""Objects from which a list is too expensive to be the first choice: it takes as long as the wait for an event."""
SECONDS_TO_SHOW, SECONDS_TO_SHOW_LARGE, SECONDS_TO_SHOW_TOUCH = 0.01, 0.25, 0.5
"""Seconds in which the watch of a collection can show the present version, before the collection is listed anew."""
Touch: TypeAlias = Callable[[], Awaitable[bool]]
"""Changes an object of a collection; returns whether its watch has something to show."""
SECONDS_BETWEEN_CHECKS = 30.0
SECONDS_AFTER_FAILURE = 2.0
"""Seconds after which the versions are checked if a watch has failed."""
RETRY_SECONDS = 0.5
MAX_AT_ONCE = 16
"""Collections that catch up at once. Hundreds, of many namespaces, would leave the lease no time."""
_FIRST_POLL_SECONDS, _LONGEST_POLL_SECONDS = 0.002, 0.05


class Freshness:
    """Compares the reflectors of a process with the API server."""

    def __init__(
        self,
        connection: Connection,
        informers: Informers,
        log: FilteringBoundLogger,
        touches: Mapping[str, Touch] = MappingProxyType({}),
    ) -> None:
        """Compare nothing yet. ``touches`` are by the path of the collection, and optional."""
        self._connection = connection
        self._informers = informers
        self._log = log
        self._touches = touches
        self._clock = connection.timing.clock
        self._turns = asyncio.Semaphore(MAX_AT_ONCE)

    async def catch_up(self) -> None:
        """Return once every store is at least as new as the API server is now, without forbidden namespaces."""
        began = self._clock()
        async with asyncio.TaskGroup() as tasks:
            caught_up = [tasks.create_task(self._in_turn(one, began)) for one in self._informers.reflectors]
        listed = sorted(path for one in caught_up if (path := one.result()))
        self._log.info("caught up", seconds=round(self._clock() - began, 3), listed=listed)

    async def run(self) -> NoReturn:
        """Check the versions until cancelled; raise ``VersionsWentBackError`` if one has gone back."""
        failures = self._failures()
        while True:
            since = self._clock()
            while self._clock() - since < SECONDS_BETWEEN_CHECKS and self._failures() == failures:
                await self._connection.timing.sleep(SECONDS_AFTER_FAILURE)
            failures = self._failures()
            await self.check()

    async def check(self) -> None:
        """Raise ``VersionsWentBackError`` if the API server has an older version of a collection than its store."""
        for reflector in self._informers.reflectors:
            try:
                await self._present(reflector)
            except VersionsWentBackError:
                raise
            except ClientError:
                continue  # its watch reports the failure

    async def _in_turn(self, reflector: Reflector[Any, Any], since: float) -> str:
        async with self._turns:
            return await self._catch_up(reflector, since)

    async def _catch_up(self, reflector: Reflector[Any, Any], since: float) -> str:
        """Wait until a store is fresh; return its path if it was listed anew for that, else nothing."""
        present = await self._insist(reflector)
        seconds = SECONDS_TO_SHOW_LARGE if len(reflector.objects) > LARGE_COLLECTION else SECONDS_TO_SHOW
        touch = self._touches.get(reflector.source.path)
        if touch is not None and await touch():
            seconds = SECONDS_TO_SHOW_TOUCH
        if await self._shows(reflector, present, since, seconds):
            return ""
        reflector.relist()
        await self._shows(reflector, present, since, float("inf"))
        return reflector.source.path

    async def _insist(self, reflector: Reflector[Any, Any]) -> str:
        """Return the present version of a collection; nothing if its namespace is forbidden."""
        while not self._is_forbidden(reflector):
            try:
                return await self._present(reflector)
            except VersionsWentBackError:
                raise
            except ClientError as error:
                self._log.warning("version not read", path=reflector.source.path, error=str(error))
                await self._connection.timing.sleep(RETRY_SECONDS)
        return ""

    async def _present(self, reflector: Reflector[Any, Any]) -> str:
        """Return the present version of a collection, which must not be older than what its watch has shown before."""
        source, seen = reflector.source, reflector.version
        present = await present_version(self._connection, source.path, source.params)
        if is_older(present, seen):
            raise VersionsWentBackError(source.path, seen, present)
        return present

    async def _shows(self, reflector: Reflector[Any, Any], present: str, since: float, seconds: float) -> bool:
        """Return whether a store is fresh after some seconds at most: it has a version, or was listed since then."""
        deadline, poll = self._clock() + seconds, _FIRST_POLL_SECONDS
        while True:
            if is_at_least(reflector.version, present) or (reflector.listed_since or 0.0) >= since:
                return True
            if self._is_forbidden(reflector):
                return True
            if self._clock() >= deadline:
                return False
            await asyncio.sleep(poll)
            poll = min(1.2 * poll, _LONGEST_POLL_SECONDS)

    def _is_forbidden(self, reflector: Reflector[Any, Any]) -> bool:
        if reflector.health.refused_since is None:  # one of hundreds, so it must cost nothing
            return False
        return reflector.source.path in self._informers.forbidden(self._clock())

    def _failures(self) -> int:
        return sum(one.counts.failures for one in self._informers.reflectors)
