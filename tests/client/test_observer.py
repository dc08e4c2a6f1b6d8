"""Who is told of requests hears of every answer, of every missing one, and of every request that is sent again."""

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
    from tests.client.conftest import FakeServer, Naps


class Notes(RequestObserver):
    """Notes what it is told."""

    def __init__(self) -> None:
        """Begin with nothing told."""
        self.told: list[tuple[str, int]] = []
        self.again: list[tuple[str, int]] = []

    def on_response(self, method: str, status: int, seconds: float) -> None:
        """Note an answer."""
        assert seconds >= 0.0
        self.told.append((method, status))

    def on_retry(self, method: str, status: int) -> None:
        """Note a request that is sent again."""
        self.again.append((method, status))


@pytest.fixture
def notes(connection: Connection) -> Notes:
    """Return who listens to the connection."""
    connection.observer = found = Notes()
    return found


async def test_answers_are_told_by_method_and_status(
    server: "FakeServer", connection: Connection, notes: Notes
) -> None:
    """Those that say no as well, and what a watch is answered first."""
    server.answers("GET", "/x", b"{}")
    server.answers("POST", "/x", b"{}", status=409)
    await connection.get("/x")
    with pytest.raises(ApiError):
        await connection.post("/x", {})
    async with aclosing(connection.stream("/x", silence=5.0)) as pieces:
        await anext(pieces)
    assert notes.told == [("GET", 200), ("POST", 409), ("GET", 200)]
    assert notes.again == []


async def test_no_answer_has_no_status(server: "FakeServer", connection: Connection, notes: Notes) -> None:
    """Where the connection is lost on the way."""

    async def lose(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    server.handles("POST", "/x", lose)
    with pytest.raises(ConnectionFailedError):
        await connection.post("/x", {})
    assert notes.told == [("POST", 0)]


async def test_nobody_there_is_no_answer_either() -> None:
    """Each attempt that ends before there is a connection counts, too."""
    async with Connection(Endpoint(server="http://127.0.0.1:1")) as connection:
        connection.observer = notes = Notes()
        with pytest.raises(ConnectionFailedError):
            await connection.get("/x")
    assert notes.told == [("GET", 0)]


async def test_what_is_sent_again_is_told_with_the_answer_that_it_had(server: "FakeServer", naps: "Naps") -> None:
    """Every attempt is a request of its own."""
    server.answers("POST", "/x", status=429, headers={"Retry-After": "1"})
    server.answers("POST", "/x", b"{}")
    async with Connection(Endpoint(server=server.url), timing=Timing(sleep=naps)) as connection:
        connection.observer = notes = Notes()
        await connection.post("/x", {})
    assert (notes.told, notes.again) == ([("POST", 429), ("POST", 200)], [("POST", 429)])
