"""LIST and WATCH one resource into a store.

A reflector never gives up. Every failure of the server is followed by a wait and another list, and is reported to
``on_failure``. The known objects stay in the store meanwhile, and ``health`` shows their age. Three things end
``run``: cancellation, an exception from ``on_change`` or the projection, which is a bug, and versions that go back.

Lists request the newest state and not a cached one (``resourceVersion=0``): a scheduler that starts after another must
not see an older state. So a list that is older than what was seen before shows that etcd was restored from a backup.
That ends ``run``, because stores of other collections are void as well.

WatchList streaming (KEP-3157) is not used. It saves memory of the server when thousands of clients start; here are two
or three, and its initial state would need a second path into the store.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, NoReturn, TypeVar

from msgspec import Raw, Struct

from cpg_api.parsing import Rejected, parse_object
from cpg_client.connection import Connection, Params
from cpg_client.errors import ApiError, ClientError
from cpg_client.listing import pages
from cpg_client.resources import Resource
from cpg_client.stores import Change, ObjectStore, StoredObject, Synced
from cpg_client.versions import VersionsWentBackError, is_older
from cpg_client.watch_health import CollectionHealth
from cpg_client.watching import DEFAULT_SETTINGS, WatchHooks, WatchSettings, watch

T = TypeVar("T", bound=Struct)
S = TypeVar("S")

_STABLE_SECONDS = 10.0
"""Seconds without a failure, after which the next failure starts a new series for the back-off."""


@dataclass(frozen=True, kw_only=True)
class Source(Generic[T, S]):
    """What to reflect: the objects, their type, and the projection to keep (``stores.keep_whole`` for all).

    ``decode`` may read more of an object than its type says. Where the projection has more than
    ``stores.LARGE_BYTES``, ``reduce`` says what to keep of it.
    """

    resource: Resource
    kind: type[T]
    project: Callable[[T], S | Rejected]
    decode: Callable[[Raw, type[T]], T | Rejected] = parse_object
    reduce: Callable[[S], S | Rejected] | None = None
    namespace: str | None = None
    labels: str = ""
    fields: str = ""

    @cached_property
    def path(self) -> str:
        """The path of the collection."""
        return self.resource.path(self.namespace)

    @property
    def params(self) -> Params:
        """The selectors as query parameters."""
        selectors = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: selector for name, selector in selectors.items() if selector}


@dataclass
class ReflectorCounts:
    """Counters for metrics."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    bookmarks: int = 0
    failures: int = 0


def _ignore_failure(error: ClientError, wait: float) -> None:
    """Ignore a failure: the default of ``on_failure``."""


class Reflector(Generic[T, S]):
    """Keeps a store of one collection, and passes every change to ``on_change``, in order.

    ``on_change`` is synchronous, so the store and everything derived from it change together: no other task sees one
    without the other. A list is applied in one step for the same reason.
    """

    def __init__(
        self,
        connection: Connection,
        source: Source[T, S],
        on_change: Callable[[Change[S]], None],
        *,
        on_failure: Callable[[ClientError, float], None] = _ignore_failure,
        settings: WatchSettings = DEFAULT_SETTINGS,
    ) -> None:
        self.source = source
        self.counts = ReflectorCounts()
        self.health = CollectionHealth(source.resource.path(), source.namespace or "")
        """The health of the watch, by the connection's clock."""
        self._connection = connection
        self._on_change = on_change
        self._on_failure = on_failure
        self._settings = settings
        self._store = ObjectStore(
            source.kind,
            source.project,
            source.decode,
            reduce=source.reduce,
            namespaced=source.resource.namespaced,
        )
        self._synced = asyncio.Event()
        self.version = ""
        """The newest version that a list, an event or a bookmark has shown."""
        self.listed_since: float | None = None
        """When the last complete list was begun."""
        self._watching: asyncio.Timeout | None = None
        self._must_relist = False

    @property
    def objects(self) -> Mapping[str, S]:
        """The objects by ``namespace/name``, as a live view."""
        return self._store.objects

    @property
    def rejected(self) -> Mapping[str, Rejected]:
        """The objects that do not fit their type or their projection, as a live view."""
        return self._store.rejected

    @property
    def synced(self) -> bool:
        """Whether the first list has been delivered."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Wait until ``synced``."""
        await self._synced.wait()

    async def run(self) -> NoReturn:
        """Reflect until cancelled."""
        failures, clock = 0, self._connection.timing.clock
        while True:
            began = clock()
            try:
                await self._watch_until_relist(await self._list())
            except VersionsWentBackError:
                raise
            except ClientError as error:
                failures = 1 if clock() - began >= _STABLE_SECONDS else failures + 1
                wait = self._settings.backoff.wait(failures, error)
                self._failed(error, wait)
                await self._connection.timing.sleep(wait)

    def relist(self) -> None:
        """End the watch and list anew; a list that is under way is repeated."""
        self._must_relist = True
        if self._watching is not None:
            self._watching.reschedule(asyncio.get_running_loop().time())

    async def _list(self) -> str:
        """Bring the store to the server's state; return its resourceVersion."""
        self._must_relist, began = False, self._connection.timing.clock()
        found: list[StoredObject[S] | Rejected] = []
        version = ""
        async for page in pages(self._connection, self.source.path, self.source.params):
            if page.number == 0:
                found.clear()
            found.extend(map(self._store.read, page.items))
            version = page.resource_version
            del page  # it would be in memory beside the next one
        if is_older(version, self.version):
            raise VersionsWentBackError(self.source.path, self.version, version)
        for key, known, listed in self._store.differing(found):
            if is_older(listed, known):
                raise VersionsWentBackError(f"{self.source.path} {key}", known, listed)
        self.counts.lists += 1
        self._heard()
        for change in self._store.replace(found):
            self._on_change(change)
        if not self.synced:
            self._synced.set()
            self._on_change(Synced())
        self.version, self.listed_since = version, began
        return version

    async def _watch_until_relist(self, version: str) -> None:
        """Follow the changes after a version, until an error or ``relist`` requires a new list."""
        if self._must_relist:
            return
        try:
            async with asyncio.timeout(None) as self._watching:
                await self._watch(version)
        except TimeoutError:
            if not self._must_relist:
                raise
        finally:
            self._watching = None

    async def _watch(self, version: str) -> None:
        """Follow the changes after a version, until an error requires a new list."""
        source = self.source
        events = watch(
            self._connection,
            source.path,
            version,
            params=source.params,
            settings=self._settings,
            hooks=WatchHooks(on_accepted=self._accepted, on_failed=self._failed),
        )
        async with aclosing(events):
            async for event in events:  # pragma: no branch  # it never ends by itself
                self._heard()
                if event.type == "BOOKMARK":
                    self.counts.bookmarks += 1
                else:
                    self.counts.events += 1
                    for change in self._store.apply(event):
                        self._on_change(change)
                self.version = event.resource_version

    def _heard(self) -> None:
        self.health.record_data(self._connection.timing.clock())

    def _accepted(self) -> None:
        self.counts.watches += 1
        self._heard()

    def _failed(self, error: ClientError, wait: float) -> None:
        self.counts.failures += 1
        refused = isinstance(error, ApiError) and error.is_forbidden
        self.health.record_failure(self._connection.timing.clock(), refused=refused)
        self._on_failure(error, wait)
