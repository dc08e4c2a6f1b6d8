"""Responses that are streamed."""

import asyncio
import socket
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from cpg_client import connection_pool, transport
from cpg_client.connection import (
    Connection,
    ConnectionSettings,
)
from cpg_client.endpoint import Endpoint
from cpg_client.errors import ApiError, ConnectionFailedError
from cpg_client.retrying import RetryPolicy

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer

NO_RETRIES = ConnectionSettings(retries=RetryPolicy(attempts=1))


async def test_a_slow_reader_makes_the_server_wait(server: "FakeServer", connection: Connection) -> None:
    """The unread part of a watch stays bounded."""
    sent = 0

    async def handle(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(100):
            await response.write(b"x" * (1 << 20))
            sent += 1
        return response

    server.handles("GET", "/x", handle)
    async with aclosing(connection.stream("/x", silence=5)) as pieces:
        await anext(pieces)
        await asyncio.sleep(0.5)
        assert sent < 50
        assert sum([len(piece) async for piece in pieces]) == 100 << 20


async def test_a_stream_comes_in_chunks(server: "FakeServer", connection: Connection) -> None:
    """The first is empty and marks the accepted request; the others arrive as they are sent."""
    server.streams("/x", b"one", b"two")
    async with aclosing(connection.stream("/x", {"watch": "true"}, silence=5)) as pieces:
        first, *others = [piece async for piece in pieces]
    assert (first, b"".join(others)) == (b"", b"onetwo")
    assert server.seen[0].query == {"watch": "true"}


async def test_a_refused_stream_is_raised_without_retry(server: "FakeServer", connection: Connection) -> None:
    """The caller decides when to try again."""
    server.answers("GET", "/x", status=429, headers={"Retry-After": "3"})
    with pytest.raises(ApiError) as caught:
        await anext(connection.stream("/x", silence=5))
    assert caught.value.retry_after == 3
    assert len(server.seen) == 1


async def test_a_broken_stream_is_an_error(server: "FakeServer", connection: Connection) -> None:
    """It differs from a stream that the server ended."""
    server.streams("/x", b"one", end="cut")
    with pytest.raises(ConnectionFailedError, match="GET /x: "):
        _ = [piece async for piece in connection.stream("/x", silence=5)]


async def test_a_stream_may_exceed_the_total_timeout(server: "FakeServer") -> None:
    """Only silence ends it."""
    server.streams("/x", *(b"." for _ in range(100)))
    settings = ConnectionSettings(total_timeout=0.05)
    async with Connection(Endpoint(server=server.url), settings) as connection:
        pieces = [piece async for piece in connection.stream("/x", silence=5)]
    assert b"".join(pieces) == b"." * 100


async def test_watches_leave_requests_their_connections(server: "FakeServer") -> None:
    """More streams than the limit on requests are open, and a bind is answered at once."""
    server.streams("/watch", b"one", end="hold")
    server.answers("POST", "/bind", b"{}", status=201)
    async with (
        Connection(Endpoint(server=server.url), ConnectionSettings(limit=4)) as connection,
        AsyncExitStack() as all_of,
    ):
        for _ in range(40):
            pieces = await all_of.enter_async_context(aclosing(connection.stream("/watch", silence=5)))
            assert await anext(pieces) == b""
        async with asyncio.timeout(5):
            assert await connection.post("/bind", {}) == b"{}"


async def test_few_connections_are_opened_at_once(server: "FakeServer", monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of TLS handshakes in one turn would hold the event loop for seconds."""
    server.answers("GET", "/x", {})
    opening, longest = 0, 0

    async def counted(*address: Any) -> socket.socket:
        nonlocal opening, longest
        opening += 1
        longest = max(longest, opening)
        await asyncio.sleep(0.001)
        connected = await transport.connect(*address)
        opening -= 1
        return connected

    monkeypatch.setattr(connection_pool, "connect", counted)
    async with Connection(Endpoint(server=server.url)) as connection:
        await asyncio.gather(*(connection.get("/x") for _ in range(100)))
    assert longest == connection_pool.MAX_OPENING
