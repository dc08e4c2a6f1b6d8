"""Several reflectors that run together."""

import asyncio
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_client import watch_health
from cpg_client.connection import Connection
from cpg_client.informers import Informers
from cpg_client.reflector import Reflector, Source
from cpg_client.resources import NODES, PODS
from cpg_client.stores import Change, keep_whole

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer

EMPTY = {"metadata": {"resourceVersion": "3"}, "items": []}
ALL_PODS = Source(resource=PODS, kind=Pod, project=keep_whole)
ALL_NODES = Source(resource=NODES, kind=Node, project=keep_whole)


def ignore(_: object) -> None:
    """Ignore a change."""


def fail(_: Change[Node]) -> None:
    """Raise an error, as a bug would."""
    raise LookupError("mine")


def running() -> list[str]:
    """Return the running reflectors; the server has tasks of its own."""
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("reflector of")]


@pytest.fixture
def serve_empty(server: "FakeServer") -> "FakeServer":
    """Serve pods and nodes, none of either."""
    for path in ("/api/v1/pods", "/api/v1/nodes"):
        server.answers("GET", path, EMPTY)
        server.streams(path, end="hold")
    return server


@pytest.mark.usefixtures("serve_empty")
async def test_all_sync_and_all_end(connection: Connection) -> None:
    """``wait_synced`` returns after the last list, and leaving the block ends every task."""
    async with Informers(Reflector(connection, ALL_PODS, ignore)) as informers:
        nodes = Reflector(connection, ALL_NODES, ignore)
        states = [informers.synced]
        informers.start(nodes)
        assert informers.longest_silence(connection.timing.clock()) == math.inf
        await informers.wait_synced()
        assert [*states, informers.synced] == [False, True]
        assert sorted(running()) == ["reflector of /api/v1/nodes", "reflector of /api/v1/pods"]
        assert informers.longest_silence(connection.timing.clock()) < 10
    assert running() == []


async def test_a_forbidden_namespace_does_not_delay_the_others(
    server: "FakeServer", connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has been refused for some time, and the other has not. If both are refused, nothing is synced."""
    monkeypatch.setattr(watch_health, "FORBIDDEN_GRACE_SECONDS", 0.0)
    paths = {space: f"/api/v1/namespaces/{space}/pods" for space in "ab"}
    for path in paths.values():
        server.answers("GET", path, status=403)
    two = [Reflector(connection, replace(ALL_PODS, namespace=space), ignore) for space in paths]
    async with Informers(*two) as informers:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await informers.wait_synced()
        server.answers("GET", paths["a"], EMPTY)
        server.streams(paths["a"], end="hold")
        await informers.wait_synced()
        assert [one.synced for one in two] == [True, False]
        assert set(informers.forbidden(connection.timing.clock()).values()) == {"b"}


async def test_without_reflectors_everything_is_synced() -> None:
    """There is nothing to wait for and no age."""
    async with Informers() as informers:
        await informers.wait_synced()
        assert (informers.longest_silence(7), informers.longest_failure(7)) == (0, 0)


@pytest.mark.usefixtures("serve_empty")
async def test_one_failure_ends_all(connection: Connection) -> None:
    """An exception of a callback cancels the block and leaves it unchanged."""
    with pytest.raises(LookupError, match="mine"):
        async with Informers(Reflector(connection, ALL_PODS, ignore), Reflector(connection, ALL_NODES, fail)):
            await asyncio.Event().wait()
    assert running() == []


@pytest.mark.usefixtures("serve_empty")
async def test_an_exception_of_the_block_is_raised(connection: Connection) -> None:
    """It ends the reflectors and is not wrapped."""
    with pytest.raises(ValueError, match="of the block"):
        async with Informers(Reflector(connection, ALL_PODS, ignore)):
            raise ValueError("of the block")


@pytest.mark.usefixtures("serve_empty")
async def test_two_failures_are_raised_together(connection: Connection) -> None:
    """No exception is lost."""

    async def live() -> None:
        async with Informers(Reflector(connection, ALL_NODES, fail)):
            try:
                await asyncio.Event().wait()
            finally:
                raise ValueError("of the block")

    with pytest.raises(ExceptionGroup) as caught:
        await live()
    assert {type(error) for error in caught.value.exceptions} == {LookupError, ValueError}


async def test_the_longest_failure_counts_from_its_first_error(server: "FakeServer", connection: Connection) -> None:
    """Until the server is heard from again."""
    server.answers("GET", "/api/v1/pods", EMPTY)
    server.streams("/api/v1/pods", end="hold")
    server.answers("GET", "/api/v1/nodes", status=500)
    clock = connection.timing.clock
    nodes = Reflector(connection, ALL_NODES, ignore)
    async with Informers(Reflector(connection, ALL_PODS, ignore), nodes) as informers:
        while nodes.counts.failures < 2:  # noqa: ASYNC110 - nothing tells of the second one
            await asyncio.sleep(0.01)
        assert informers.longest_failure(clock() + 10) >= 10
        server.answers("GET", "/api/v1/nodes", EMPTY)
        server.streams("/api/v1/nodes", end="hold")
        await informers.wait_synced()
        assert informers.longest_failure(clock() + 10) == 0
