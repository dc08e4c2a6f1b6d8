"""The observer of requests: every response, every missing response, and every retry."""

from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from cpg_client.connection import Connection
from cpg_client.endpoint import Endpoint
from cpg_client.errors import ApiError, ConnectionFailedError
from cpg_client.observer import RequestObserver
from cpg_client.timing import Timing

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer, FakeSleep


class RecordingObserver(RequestObserver):
    """Records the calls."""

    def __init__(self) -> None:
        """Start empty."""
        self.told: list[tuple[str, int]] = []
        self.again: list[tuple[str, int]] = []

    def on_response(self, method: str, status: int, seconds: float) -> None:
        """Record a response."""
        assert seconds >= 0.0
        self.told.append((method, status))

    def on_retry(self, method: str, status: int) -> None:
        """Record a retry."""
        self.again.append((method, status))


@pytest.fixture
def recorded(connection: Connection) -> RecordingObserver:
    """Return an observer of the connection."""
    connection.observer = found = RecordingObserver()
    return found


async def test_responses_have_method_and_status(
    server: "FakeServer", connection: Connection, recorded: RecordingObserver
) -> None:
    """Including refusals, and the head of a watch."""
    server.answers("GET", "/x", b"{}")
    server.answers("POST", "/x", b"{}", status=409)
    await connection.get("/x")
    with pytest.raises(ApiError):
        await connection.post("/x", {})
    async with aclosing(connection.stream("/x", silence=5.0)) as pieces:
        await anext(pieces)
    assert recorded.told == [("GET", 200), ("POST", 409), ("GET", 200)]
    assert recorded.again == []


async def test_a_lost_connection_has_status_zero(
    server: "FakeServer", connection: Connection, recorded: RecordingObserver
) -> None:
    """There was no response."""

    async def lose(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    server.handles("POST", "/x", lose)
    with pytest.raises(ConnectionFailedError):
        await connection.post("/x", {})
    assert recorded.told == [("POST", 0)]


async def test_a_failed_connect_has_status_zero() -> None:
    """Each attempt counts."""
    async with Connection(Endpoint(server="http://127.0.0.1:1")) as connection:
        connection.observer = recorded = RecordingObserver()
        with pytest.raises(ConnectionFailedError):
            await connection.get("/x")
    assert recorded.told == [("GET", 0)]


async def test_a_retry_has_the_status_of_the_failed_attempt(server: "FakeServer", fake_sleep: "FakeSleep") -> None:
    """Every attempt is also reported as a request of its own."""
    server.answers("POST", "/x", status=429, headers={"Retry-After": "1"})
    server.answers("POST", "/x", b"{}")
    async with Connection(Endpoint(server=server.url), timing=Timing(sleep=fake_sleep)) as connection:
        connection.observer = recorded = RecordingObserver()
        await connection.post("/x", {})
    assert (recorded.told, recorded.again) == ([("POST", 429), ("POST", 200)], [("POST", 429)])
