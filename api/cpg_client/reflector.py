"""LIST and WATCH of one resource into a store: the only way by which the state of a cluster gets into a process.

A reflector never gives up. Whatever the server does or fails to do ends in a wait and another list, and is told
through ``on_failure``; what has been known stays known meanwhile, and its age shows in ``line``. Only two
things end ``run``: cancellation, at once, and an exception out of ``on_change`` or the projection, which is a
mistake of the program and must not be waited out.

Lists ask for the newest state and never for whatever a cache may have (``resourceVersion=0``), because a scheduler
that starts after another must not see less than that one did.

WatchList streaming (KEP-3157) is left out: it spares the server's memory at the start of thousands of
clients, of which we are two or three, and its first state would need a second path into the store.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeVar

from msgspec import Struct

from cpg_api.parsing import Rejected
from cpg_client.connection import Connection, Params
from cpg_client.errors import ApiError, ClientError
from cpg_client.listing import pages
from cpg_client.resources import Resource
from cpg_client.stores import Change, ObjectStore, StoredObject, Synced
from cpg_client.watch_health import CollectionHealth
from cpg_client.watching import DEFAULT_SETTINGS, WatchHooks, WatchSettings, watch

T = TypeVar("T", bound=Struct)
S = TypeVar("S")

_STABLE_SECONDS = 10.0
"""Seconds after which a failure is a new one, and no longer the same one again."""


@dataclass(frozen=True, kw_only=True)
class Source(Generic[T, S]):
    """What to reflect: which objects, as which type, and what to keep of each (``stores.whole`` for all)."""

    resource: Resource
    kind: type[T]
    project: Callable[[T], S | Rejected]
    namespace: str | None = None
    labels: str = ""
    fields: str = ""

    @property
    def path(self) -> str:
        """Where the collection is."""
        return self.resource.path(self.namespace)

    @property
    def params(self) -> Params:
        """The selectors, as the server wants them."""
        selectors = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: selector for name, selector in selectors.items() if selector}


@dataclass
class ReflectorCounts:
    """What has happened so far, for metrics; only ever grows."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    bookmarks: int = 0
    failures: int = 0


def _ignore_failure(error: ClientError, wait: float) -> None:
    """Ignore a failure: what a reflector does by default about telling."""


class Reflector(Generic[T, S]):
    """Keeps a store of one collection and hands every change to ``on_change``, in order and within the event loop.

    ``on_change`` is a plain function so that the store, and what its callers derive from it, change together: no
    other task ever sees the one without the other. A list is applied in one go for the same reason.
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
        """How well the collection is heard, by the connection's clock."""
        self._connection = connection
        self._on_change = on_change
        self._on_failure = on_failure
        self._settings = settings
        self._store = ObjectStore(source.kind, source.project)
        self._synced = asyncio.Event()

    @property
    def objects(self) -> Mapping[str, S]:
        """What is there, by ``namespace/name``: a view that follows the changes."""
        return self._store.objects

    @property
    def rejected(self) -> Mapping[str, Rejected]:
        """What is there and does not fit its type or its projection."""
        return self._store.rejected

    @property
    def synced(self) -> bool:
        """Whether everything that was there at the start has been told."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Return once ``synced``."""
        await self._synced.wait()

    async def run(self) -> NoReturn:
        """Reflect until cancelled."""
        failures, clock = 0, self._connection.timing.clock
        while True:
            began = clock()
            try:
                await self._watch(await self._list())
            except ClientError as error:
                failures = 1 if clock() - began >= _STABLE_SECONDS else failures + 1
                wait = self._settings.backoff.wait(failures, error)
                self._failed(error, wait)
                await self._connection.timing.sleep(wait)

    async def _list(self) -> str:
        """Bring the store to what the server has now, and return the version of that."""
        found: list[StoredObject[S] | Rejected] = []
        version = ""
        async for page in pages(self._connection, self.source.path, self.source.params):
            if page.number == 0:
                found.clear()
            found.extend(map(self._store.read, page.items))
            version = page.resource_version
        self.counts.lists += 1
        self._heard()
        for change in self._store.replace(found):
            self._on_change(change)
        if not self.synced:
            self._synced.set()
            self._on_change(Synced())
        return version

    async def _watch(self, version: str) -> None:
        """Follow the changes from a version on, until that takes a new list."""
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
                    continue
                self.counts.events += 1
                for change in self._store.apply(event):
                    self._on_change(change)

    def _heard(self) -> None:
        self.health.heard(self._connection.timing.clock())

    def _accepted(self) -> None:
        self.counts.watches += 1
        self._heard()

    def _failed(self, error: ClientError, wait: float) -> None:
        self.counts.failures += 1
        refused = isinstance(error, ApiError) and error.is_forbidden
        self.health.failed(self._connection.timing.clock(), refused=refused)
        self._on_failure(error, wait)
