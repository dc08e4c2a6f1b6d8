"""How well somebody else hears: the words of reflectors, about requests by a lent session."""

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
    """A time of day that stands still."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Return a clock."""
    return Clock()


@pytest.fixture
def overheard(clock: Clock) -> SessionHealth:
    """Return what is overheard of one collection."""
    return SessionHealth([(THINGS, None)], clock)


def test_silence_counts_from_the_start(overheard: SessionHealth, clock: Clock) -> None:
    """Who never asks is not heard either; who is heard is silent anew; who fails, fails since the first time."""
    clock.now = 5.0
    assert (overheard.silence(clock.now), overheard.longest_silence(5.0), overheard.longest_failure(5.0)) == (
        {PATH: 5},
        5,
        0,
    )
    overheard.failed(PATH)
    clock.now = 7.0
    overheard.failed(PATH)
    assert (overheard.longest_silence(7.0), overheard.longest_failure(7.0)) == (7, 2)
    overheard.heard(PATH)
    assert (overheard.longest_silence(7.0), overheard.longest_failure(7.0)) == (0, 0)


def test_what_is_asked_of_others_is_nothing(overheard: SessionHealth) -> None:
    """Only the collections that are named count."""
    overheard.heard("/version", listed=True)
    overheard.failed("/version")
    assert (overheard.last_listed(), overheard.longest_failure(9.0), overheard.longest_silence(9.0)) == (
        float("-inf"),
        0,
        9,
    )


def test_the_last_list_is_known(overheard: SessionHealth, clock: Clock) -> None:
    """Also after a watch has been heard of."""
    clock.now = 3.0
    overheard.heard(PATH, listed=True)
    clock.now = 4.0
    overheard.heard(PATH)
    assert overheard.last_listed() == 3


async def test_answers_pieces_and_failures_are_overheard(overheard: SessionHealth, clock: Clock) -> None:
    """By a session that is lent, below whatever path the server is; each piece of a stream is a word."""
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
        async with open_shared_session(Endpoint(server=server), session_health=overheard) as session:
            url = f"{server.rstrip('/')}{PATH}"
            clock.now = 1.0
            async with session.get(url, params={"status": "503"}):
                assert overheard.longest_failure(1.0) == 0
                assert overheard.longest_failure(2.0) == 1
            async with session.get(url) as listed:
                assert (await listed.json(), overheard.last_listed(), overheard.longest_failure(2.0)) == ({}, 1, 0)
            async with session.get(url, params={"status": "403"}):
                assert overheard.collections()[PATH].refused_since == 1
            clock.now = 2.0
            async with session.get(url, params={"watch": "true"}) as watched:
                assert overheard.longest_silence(2.0) == 0
                clock.now = 9.0
                gate.set()
                assert [piece async for piece in watched.content.iter_chunked(99)] == [b"piece"]
            assert (overheard.longest_silence(9.0), overheard.last_listed()) == (0, 1)
    finally:
        await runner.cleanup()
    async with open_shared_session(Endpoint(server=server), session_health=overheard) as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(url)
    assert overheard.longest_failure(10.0) == 1
