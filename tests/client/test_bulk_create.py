"""Creating many objects at once."""

import asyncio
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from cpg_client.bulk_create import create_all
from cpg_client.connection import Connection
from cpg_client.errors import ApiError

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer


async def test_all_objects_are_created(server: "FakeServer", connection: Connection) -> None:
    """Each object is posted once, to its own path."""
    server.answers("POST", "/x", status=201)
    server.answers("POST", "/y", status=201)
    outcome = await create_all(connection, ((path, number) for number in range(50) for path in ("/x", "/y")))
    assert (outcome.created, outcome.failures) == (100, ())
    expected = [(path, b"%d" % number) for number in range(50) for path in ("/x", "/y")]
    assert sorted(expected) == sorted((seen.path, seen.body) for seen in server.seen)


async def test_concurrency_is_bounded(server: "FakeServer", connection: Connection) -> None:
    """As many requests as allowed run at once, and never more."""
    together, current, highest = asyncio.Barrier(8), 0, 0

    async def handle(_: web.Request) -> web.Response:
        nonlocal current, highest
        current += 1
        highest = max(highest, current)
        await together.wait()
        current -= 1
        return web.Response()

    server.handles("POST", "/x", handle)
    await create_all(connection, [("/x", {})] * 80, in_flight=8)
    assert highest == 8


async def test_refused_objects_are_recorded(server: "FakeServer", connection: Connection) -> None:
    """A failure has its object and its error, and the other objects are created."""

    async def handle(request: web.Request) -> web.Response:
        return web.Response(status=409 if await request.read() == b"3" else 201)

    server.handles("POST", "/x", handle)
    outcome = await create_all(connection, [("/x", number) for number in range(10)])
    assert outcome.created == 9
    (failure,) = outcome.failures
    assert (failure.path, failure.body) == ("/x", 3)
    assert isinstance(failure.error, ApiError)
    assert failure.error.is_conflict


async def test_progress_is_reported(server: "FakeServer", connection: Connection) -> None:
    """The count of answers grows by one each time, including refusals."""
    server.answers("POST", "/x", status=201)
    server.answers("POST", "/x", status=500)
    reported: list[int] = []
    outcome = await create_all(connection, [("/x", {})] * 10, progress=reported.append)
    assert outcome.created == 1
    assert reported == list(range(1, 11))


async def test_an_object_that_cannot_be_encoded_raises(connection: Connection) -> None:
    """It is a bug and not a failed create."""
    with pytest.raises(ExceptionGroup) as caught:
        await create_all(connection, [("/x", object())])
    assert isinstance(caught.value.exceptions[0], TypeError)
