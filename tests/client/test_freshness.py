"""Stores that are at least as new as the API server, and versions that go back."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import msgspec
import pytest
import structlog
from aiohttp import web

from cpg_api.core.pod import Pod
from cpg_client import freshness
from cpg_client.connection import Connection
from cpg_client.endpoint import Endpoint
from cpg_client.freshness import Freshness
from cpg_client.informers import Informers
from cpg_client.listing import FIRST_ITEMS
from cpg_client.reflector import Reflector, Source
from cpg_client.resources import PODS
from cpg_client.stores import keep_whole
from cpg_client.versions import VersionsWentBackError

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer, FakeSleep

PATH = "/api/v1/pods"


class Collection:
    """Pods at some version, and a watch that shows what the test wants it to show."""

    def __init__(self, server: "FakeServer") -> None:
        self.version = 5
        self.names: list[str] = []
        self.queries: list[dict[str, str]] = []
        self.status = 200
        self._lines: asyncio.Queue[dict[str, object]] = asyncio.Queue()
        server.handles("GET", PATH, self._answer)

    @property
    def lists(self) -> int:
        """Return how often the whole collection was listed."""
        return sum(query.get("limit") == str(FIRST_ITEMS) for query in self.queries)

    def show(self, kind: str, version: int) -> None:
        """Let the watch show an event."""
        self._lines.put_nowait({"type": kind, "object": self._pod(f"p{version}", version)})

    def _pod(self, name: str, version: int) -> dict[str, object]:
        return {"metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": str(version)}}

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.queries.append(dict(request.query))
        if "watch" not in request.query:
            items = [self._pod(name, 1) for name in self.names]
            listed = {"metadata": {"resourceVersion": str(self.version)}, "items": items}
            return web.Response(status=self.status, body=msgspec.json.encode(listed))
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(msgspec.json.encode(await self._lines.get()) + b"\n")


@asynccontextmanager
async def reflecting(connection: Connection) -> AsyncIterator[tuple[Reflector[Pod, Pod], Freshness]]:
    """Run a reflector of pods, which has listed them."""
    reflector = Reflector(connection, Source(resource=PODS, kind=Pod, project=keep_whole), lambda _: None)
    async with Informers(reflector) as informers:
        await informers.wait_synced()
        while not reflector.counts.watches:  # noqa: ASYNC110  # another task's doing
            await asyncio.sleep(0.001)
        yield reflector, Freshness(connection, informers, structlog.get_logger())


@pytest.fixture
def pods(server: "FakeServer") -> Collection:
    """Serve a collection of pods."""
    return Collection(server)


async def test_a_store_with_the_present_version_is_fresh(pods: Collection, connection: Connection) -> None:
    """It takes one request, and nothing is listed anew."""
    async with reflecting(connection) as (_, fresh):
        await fresh.catch_up()
        assert (pods.lists, pods.queries[-1]) == (1, {"limit": "1"})


@pytest.mark.parametrize("kind", ["ADDED", "BOOKMARK"])
async def test_an_event_shows_the_present_version(
    pods: Collection, connection: Connection, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A late watch is waited for, if it delivers soon."""
    monkeypatch.setattr(freshness, "SECONDS_TO_SHOW", 5.0)
    async with reflecting(connection) as (reflector, fresh):
        pods.version = 8
        catching_up = asyncio.create_task(fresh.catch_up())
        pods.show(kind, 7)
        await asyncio.sleep(0.05)
        assert (reflector.version, catching_up.done()) == ("7", False)
        pods.show(kind, 8)
        await catching_up
        assert (reflector.version, pods.lists) == ("8", 1)


async def test_a_silent_collection_is_listed_anew(pods: Collection, connection: Connection) -> None:
    """The watch shows nothing, because nothing has happened or because it is late. It is resumed after the list."""
    async with reflecting(connection) as (reflector, fresh):
        pods.version, pods.names = 8, ["new"]
        began = time.monotonic()
        await fresh.catch_up()
        assert time.monotonic() - began < 0.5
        assert (list(reflector.objects), pods.lists, reflector.counts.failures) == (["ns/new"], 2, 0)
        while reflector.counts.watches < 2:  # noqa: ASYNC110  # another task's doing
            await asyncio.sleep(0.001)
        assert pods.queries[-1]["resourceVersion"] == "8"


async def test_a_large_collection_is_listed_anew_after_a_while(
    pods: Collection, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its list is expensive, and its next event is likely to come soon."""
    monkeypatch.setattr(freshness, "LARGE_COLLECTION", 1)
    monkeypatch.setattr(freshness, "SECONDS_TO_SHOW_LARGE", 0.2)
    pods.names = ["a", "b"]
    async with reflecting(connection) as (_, fresh):
        pods.version = 8
        catching_up = asyncio.create_task(fresh.catch_up())
        await asyncio.sleep(0.1)
        assert pods.lists == 1
        await catching_up
        assert pods.lists == 2


async def test_a_touched_object_shows_that_the_watch_is_current(pods: Collection, connection: Connection) -> None:
    """The present version is read before. Nothing is listed anew, though no other event comes."""
    async with reflecting(connection) as (reflector, _):
        informers = Informers(reflector)
        pods.version = 8

        async def touch() -> bool:
            assert pods.queries[-1] == {"limit": "1"}
            pods.show("MODIFIED", 9)
            return True

        await Freshness(connection, informers, structlog.get_logger(), {PATH: touch}).catch_up()
        assert (reflector.version, pods.lists) == ("9", 1)


@pytest.mark.parametrize("touched", [True, False])
async def test_a_touch_alone_makes_no_store_fresh(
    pods: Collection, connection: Connection, monkeypatch: pytest.MonkeyPatch, *, touched: bool
) -> None:
    """The watch is late, or there is nothing to touch: the collection is listed anew."""
    monkeypatch.setattr(freshness, "SECONDS_TO_SHOW_TOUCH", 0.1)
    async with reflecting(connection) as (reflector, _):
        informers = Informers(reflector)
        pods.version, pods.names = 8, ["new"]

        async def touch() -> bool:
            pods.show("MODIFIED", 7)
            return touched

        await Freshness(connection, informers, structlog.get_logger(), {PATH: touch}).catch_up()
        assert ("ns/new" in reflector.objects, pods.lists) == (True, 2)


async def test_a_list_that_is_begun_later_is_fresh(pods: Collection, connection: Connection) -> None:
    """Also where versions have no order."""
    async with reflecting(connection) as (reflector, fresh):
        reflector.version = "opaque"
        await fresh.catch_up()
        assert pods.lists == 2


async def test_a_failed_read_is_repeated(pods: Collection, connection: Connection, fake_sleep: "FakeSleep") -> None:
    """A leader waits for the API server."""
    async with reflecting(connection) as (_, fresh):
        pods.status = 403
        catching_up = asyncio.create_task(fresh.catch_up())
        while freshness.RETRY_SECONDS not in fake_sleep.seconds:  # noqa: ASYNC110  # another task's doing
            await asyncio.sleep(0.001)
        assert not catching_up.done()
        pods.status = 200
        await catching_up


async def test_forbidden_namespaces_are_not_waited_for(
    pods: Collection, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for their version nor for their list."""
    async with reflecting(connection) as (reflector, fresh):
        reflector.health.record_failure(0.0, refused=True)
        monkeypatch.setattr(Informers, "forbidden", lambda *_: {PATH: "ns"})
        pods.status = 403
        await fresh.catch_up()
        assert pods.lists == 1


async def test_versions_that_go_back_end_the_take_over(pods: Collection, connection: Connection) -> None:
    """The stores are of another history, so nothing may be decided on them."""
    async with reflecting(connection) as (_, fresh):
        pods.version = 4
        with pytest.raises(ExceptionGroup) as caught:
            await fresh.catch_up()
        assert caught.group_contains(VersionsWentBackError, match="/api/v1/pods went back from 5 to 4")


async def test_versions_are_checked_regularly(
    pods: Collection, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors are left to the watches; versions that went back are raised."""
    monkeypatch.setattr(freshness, "SECONDS_BETWEEN_CHECKS", 0.01)
    async with reflecting(connection) as (_, fresh):
        checking = asyncio.create_task(fresh.run())
        pods.status = 403
        await asyncio.sleep(0.1)
        pods.status, pods.version = 200, 9
        await asyncio.sleep(0.1)
        assert not checking.done()
        pods.version = 4
        with pytest.raises(VersionsWentBackError):
            await checking


async def test_a_failure_of_a_watch_is_followed_by_a_check(
    pods: Collection, server: "FakeServer", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restored etcd may grow past the versions that were seen, so the check must not wait."""
    monkeypatch.setattr(freshness, "SECONDS_AFTER_FAILURE", 0.02)
    async with Connection(Endpoint(server=server.url)) as connection, reflecting(connection) as (reflector, fresh):
        checking = asyncio.create_task(fresh.run())
        await asyncio.sleep(0.05)
        pods.version = 4
        assert not checking.done()
        reflector.counts.failures += 1
        with pytest.raises(VersionsWentBackError):
            await asyncio.wait_for(checking, 5)


async def test_few_collections_catch_up_at_once(
    pods: Collection, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of namespaces have hundreds of collections, and the lease needs the API server as well."""
    waiting, longest = 0, 0

    async def waits(*_: object) -> str:
        nonlocal waiting, longest
        waiting += 1
        longest = max(longest, waiting)
        await asyncio.sleep(0.001)
        waiting -= 1
        return ""

    async with reflecting(connection) as (reflector, fresh):
        fresh._informers = cast("Informers", SimpleNamespace(reflectors=[reflector] * 3 * freshness.MAX_AT_ONCE))
        monkeypatch.setattr(fresh, "_catch_up", waits)
        await fresh.catch_up()
    assert (longest, pods.lists) == (freshness.MAX_AT_ONCE, 1)
