"""The health of watches over a shared session."""

import asyncio

import aiohttp
import pytest
from aiohttp import web

from cpg_client.endpoint import Endpoint
from cpg_client.resources import Resource
from cpg_client.session_health import SessionHealth
from cpg_client.shared_session import open_shared_session

THINGS = Resource("g", "v1", "things", "Thing")
PATH = THINGS.path()


class Clock:
    """A clock that stands still."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Return a clock."""
    return Clock()


@pytest.fixture
def health(clock: Clock) -> SessionHealth:
    """Return the health of one collection."""
    return SessionHealth([(THINGS, None)], clock)


def test_silence_counts_from_the_start(health: SessionHealth, clock: Clock) -> None:
    """A collection without requests is silent; data ends the silence; a failure counts from the first one."""
    clock.now = 5.0
    assert (health.silence(clock.now), health.longest_silence(5.0), health.longest_failure(5.0)) == ({PATH: 5}, 5, 0)
    health.record_failure(PATH)
    clock.now = 7.0
    health.record_failure(PATH)
    assert (health.longest_silence(7.0), health.longest_failure(7.0)) == (7, 2)
    health.record_data(PATH)
    assert (health.longest_silence(7.0), health.longest_failure(7.0)) == (0, 0)


def test_other_paths_are_ignored(health: SessionHealth) -> None:
    """Only the given collections count."""
    health.record_data("/version", listed=True)
    health.record_failure("/version")
    assert (health.last_gap(), health.longest_failure(9.0), health.longest_silence(9.0)) == (float("-inf"), 0, 9)


def test_the_last_list_is_remembered(health: SessionHealth, clock: Clock) -> None:
    """Also after later data of a watch."""
    clock.now = 3.0
    health.record_data(PATH, listed=True)
    clock.now = 4.0
    health.record_data(PATH)
    assert health.last_gap() == 3


@pytest.mark.parametrize(("failed_for", "gap"), [(2.9, float("-inf")), (3.0, 4.0)])
def test_an_outage_as_long_as_a_restore_is_a_gap(
    health: SessionHealth, clock: Clock, failed_for: float, gap: float
) -> None:
    """A watch that resumes after it misses what the restore has changed; after a shorter one it misses nothing."""
    clock.now = 4.0 - failed_for
    health.record_failure(PATH)
    clock.now = 4.0
    health.record_data(PATH)
    assert health.last_gap() == gap


async def test_responses_chunks_and_failures_are_recorded(health: SessionHealth, clock: Clock) -> None:
    """Over a shared session, for a server with a path prefix; each chunk of a stream counts."""
    gate = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({}, status=int(request.query.get("status", 200)))
        response = web.StreamResponse()
        await response.prepare(request)
        await gate.wait()
        await response.write(b"piece")
        return response

    application = web.Application()
    application.router.add_get(f"/base{PATH}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server = "http://{}:{}/base/".format(*runner.addresses[0])
    try:
        async with open_shared_session(Endpoint(server=server), session_health=health) as session:
            url = f"{server.rstrip('/')}{PATH}"
            clock.now = 1.0
            async with session.get(url, params={"status": "503"}):
                assert health.longest_failure(1.0) == 0
                assert health.longest_failure(2.0) == 1
            async with session.get(url) as listed:
                assert (await listed.json(), health.last_gap(), health.longest_failure(2.0)) == ({}, 1, 0)
            async with session.get(url, params={"status": "403"}):
                assert health.collections()[PATH].refused_since == 1
            clock.now = 2.0
            async with session.get(url, params={"watch": "true"}) as watched:
                assert health.longest_silence(2.0) == 0
                clock.now = 9.0
                gate.set()
                assert [piece async for piece in watched.content.iter_chunked(99)] == [b"piece"]
            assert (health.longest_silence(9.0), health.last_gap()) == (0, 1)
    finally:
        await runner.cleanup()
    async with open_shared_session(Endpoint(server=server), session_health=health) as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(url)
    assert health.longest_failure(10.0) == 1
