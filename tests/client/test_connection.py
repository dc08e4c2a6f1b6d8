"""Requests and responses on the wire."""

import asyncio
import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from cpg_client.connection import (
    APPLY_YAML,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    Connection,
    ConnectionSettings,
)
from cpg_client.endpoint import Endpoint
from cpg_client.errors import ApiError, ConnectionFailedError
from cpg_client.retrying import RetryPolicy
from cpg_client.timing import Timing

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer, FakeSleep

NO_RETRIES = ConnectionSettings(retries=RetryPolicy(attempts=1))


async def test_get_returns_the_body(server: "FakeServer", connection: Connection) -> None:
    """The body is returned unchanged, and the request has the usual headers."""
    server.answers("GET", "/api/v1/pods", b'{"items": [ ]}')
    assert await connection.get("/api/v1/pods", {"limit": 5, "continue": "a+b/c="}) == b'{"items": [ ]}'
    (seen,) = server.seen
    assert seen.query == {"limit": "5", "continue": "a+b/c="}
    assert seen.headers["User-Agent"].startswith("kube-cpg/")
    assert seen.headers["Accept"] == "application/json"
    assert "Content-Type" not in seen.headers
    assert "Authorization" not in seen.headers


@pytest.mark.parametrize(("body", "sent"), [({"a": 1}, b'{"a":1}'), (b"{ }", b"{ }")])
async def test_bodies_are_json_unless_they_are_bytes(
    server: "FakeServer", connection: Connection, body: object, sent: bytes
) -> None:
    """Objects are encoded, and bytes are sent unchanged."""
    for method, send in {"POST": connection.post, "PUT": connection.put, "DELETE": connection.delete}.items():
        server.answers(method, "/x", b"done", status=201)
        assert await send("/x", body, {"dryRun": "All"}) == b"done"
        seen = server.seen[-1]
        assert (seen.method, seen.body, seen.query) == (method, sent, {"dryRun": "All"})
        assert seen.headers["Content-Type"] == "application/json"


async def test_a_delete_needs_no_body(server: "FakeServer", connection: Connection) -> None:
    """Without DeleteOptions there is neither a body nor a content type."""
    server.answers("DELETE", "/x")
    await connection.delete("/x")
    assert server.seen[0].body == b""


@pytest.mark.parametrize("content_type", [MERGE_PATCH, STRATEGIC_MERGE_PATCH, JSON_PATCH, APPLY_YAML])
async def test_a_patch_has_its_content_type(server: "FakeServer", connection: Connection, content_type: str) -> None:
    """The content type selects the kind of patch."""
    server.answers("PATCH", "/x")
    await connection.patch("/x", [], content_type, params={"fieldManager": "cpg"})
    assert server.seen[0].headers["Content-Type"] == content_type
    assert server.seen[0].query == {"fieldManager": "cpg"}


async def test_paths_arrive_unchanged(server: "FakeServer", connection: Connection) -> None:
    """Existing escapes are neither decoded nor doubled."""
    server.answers("GET", "/api/v1/nodes/system:a b?")
    await connection.get("/api/v1/nodes/system:a%20b%3F")
    assert server.seen[0].path == "/api/v1/nodes/system:a%20b%3F"


async def test_a_server_may_have_a_path_prefix(server: "FakeServer") -> None:
    """With or without a final slash."""
    server.answers("GET", "/clusters/7/version", b"1")
    async with Connection(Endpoint(server=f"{server.url}/clusters/7/")) as connection:
        assert await connection.get("/version") == b"1"


async def test_compression_is_declined(server: "FakeServer", connection: Connection) -> None:
    """As in kube-scheduler."""

    async def handle(_: web.Request) -> web.Response:
        response = web.Response(body=b"x" * 200_000)
        response.enable_compression()
        return response

    server.handles("GET", "/x", handle)
    assert await connection.get("/x") == b"x" * 200_000


async def test_a_get_is_repeated_when_an_idle_connection_was_closed(
    server: "FakeServer", connection: Connection
) -> None:
    """On a new connection; requests that may write are not repeated."""
    cut = False

    async def handle(request: web.Request) -> web.Response:
        nonlocal cut
        if cut:
            cut = False
            assert request.transport is not None
            request.transport.abort()
        return web.Response(body=b"here")

    for method in ("GET", "POST"):
        server.handles(method, "/x", handle)
    assert await connection.get("/x") == b"here"
    cut = True
    assert await connection.get("/x") == b"here"
    cut = True
    with pytest.raises(ConnectionFailedError):
        await connection.post("/x", {})


@pytest.fixture
def small_heap() -> Iterator[None]:
    """Limit garbage collections to the objects of one test: after thousands of tests a full one takes a second."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("small_heap")
async def test_a_cancelled_connect_leaves_no_socket_open(tls_server: "FakeServer", tls_endpoint: Endpoint) -> None:
    """At any moment; a leaked socket is a warning, and an error in these tests."""
    tls_server.answers("GET", "/x")
    for delay in range(1, 30):
        async with Connection(tls_endpoint) as connection:
            asking = asyncio.create_task(connection.get("/x"))
            await asyncio.sleep(delay * 0.0003)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        # Without retries, which would only repeat the same moment after a wait.
        impatient = ConnectionSettings(connect_timeout=delay * 0.0003, retries=RetryPolicy(attempts=1))
        async with Connection(tls_endpoint, impatient) as connection:
            await asyncio.gather(connection.get("/x"), return_exceptions=True)
        gc.collect()


async def test_closing_fails_pending_requests(server: "FakeServer") -> None:
    """They raise ``ConnectionFailedError``."""
    asked = asyncio.Event()

    async def handle(_: web.Request) -> web.Response:
        asked.set()
        await asyncio.Event().wait()
        return web.Response()

    server.handles("GET", "/x", handle)
    async with Connection(Endpoint(server=server.url)) as connection:
        waiting = asyncio.create_task(connection.get("/x"))
        await asked.wait()
    with pytest.raises(ConnectionFailedError):
        await waiting


async def test_a_refusal_is_raised(server: "FakeServer", connection: Connection) -> None:
    """The server's message reaches the caller, with the request."""
    status = {"kind": "Status", "reason": "AlreadyExists", "message": 'pods "web" already exists'}
    server.answers("POST", "/x", status, status=409)
    with pytest.raises(ApiError, match='POST /x: 409 AlreadyExists: pods "web" already exists') as caught:
        await connection.post("/x", {})
    assert caught.value.is_already_exists


async def test_redirects_are_not_followed(server: "FakeServer", connection: Connection) -> None:
    """Credentials never follow a response to another host."""
    server.answers("GET", "/x", status=302, headers={"Location": f"{server.url}/y"})
    with pytest.raises(ApiError, match="302 Found"):
        await connection.get("/x")
    assert [seen.path for seen in server.seen] == ["/x"]


async def test_throttled_requests_are_retried(
    server: "FakeServer", connection: Connection, fake_sleep: "FakeSleep"
) -> None:
    """A refused create is sent again after the server's Retry-After."""
    for wait in ("1", "2"):
        server.answers("POST", "/x", status=429, headers={"Retry-After": wait})
    server.answers("POST", "/x", b"created", status=201)
    assert await connection.post("/x", {"a": 1}) == b"created"
    assert fake_sleep.seconds == [1, 2]
    assert [seen.body for seen in server.seen] == [b'{"a":1}'] * 3


async def test_retries_end(server: "FakeServer", connection: Connection, fake_sleep: "FakeSleep") -> None:
    """If the server stays unavailable, its last refusal is raised."""
    server.answers("GET", "/x", status=503, headers={"Retry-After": "12"})
    with pytest.raises(ApiError, match="503"):
        await connection.get("/x")
    assert fake_sleep.seconds == [12, 12]
    assert len(server.seen) == 3


async def test_settings_limit_the_retries(server: "FakeServer", fake_sleep: "FakeSleep") -> None:
    """A caller may ask for no retries."""
    server.answers("GET", "/x", status=503)
    async with Connection(Endpoint(server=server.url), NO_RETRIES, timing=Timing(sleep=fake_sleep)) as connection:
        with pytest.raises(ApiError, match="503"):
            await connection.get("/x")
    assert fake_sleep.seconds == []


async def test_requests_share_connections(server: "FakeServer", connection: Connection) -> None:
    """A second request uses the socket of the first."""
    ports = []

    async def handle(request: web.Request) -> web.Response:
        ports.append(request.get_extra_info("peername")[1])
        return web.Response()

    server.handles("GET", "/x", handle)
    await connection.get("/x")
    await connection.get("/x")
    assert ports[0] == ports[1]


async def test_hundreds_of_requests_run_at_once(server: "FakeServer", connection: Connection) -> None:
    """300 concurrent requests, by default."""
    together = asyncio.Barrier(300)

    async def handle(_: web.Request) -> web.Response:
        await together.wait()
        return web.Response()

    server.handles("GET", "/x", handle)
    async with asyncio.timeout(20):
        await asyncio.gather(*(connection.get("/x") for _ in range(300)))


async def test_a_refused_connection_names_the_server(server: "FakeServer") -> None:
    """The error names the address where nothing listens."""
    nowhere = server.url.rpartition(":")[0] + ":1"
    async with Connection(Endpoint(server=nowhere)) as connection:
        with pytest.raises(ConnectionFailedError, match=f"{nowhere}: GET /x: Cannot connect"):
            await connection.get("/x")


async def test_a_broken_connection_is_not_retried(server: "FakeServer", connection: Connection) -> None:
    """A create without a response is not sent twice: the server may have acted on it."""

    async def handle(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    server.handles("POST", "/x", handle)
    with pytest.raises(ConnectionFailedError, match="POST /x: Server disconnected"):
        await connection.post("/x", {})
    assert len(server.seen) == 1


async def test_a_silent_server_times_out(server: "FakeServer") -> None:
    """The message has the length of the time-out."""
    done = asyncio.Event()

    async def handle(_: web.Request) -> web.Response:
        await done.wait()
        return web.Response()

    server.handles("GET", "/x", handle)
    settings = ConnectionSettings(total_timeout=0.05)
    async with Connection(Endpoint(server=server.url), settings) as connection:
        with pytest.raises(ConnectionFailedError, match=r"GET /x: no complete response within 0\.05 s"):
            await connection.get("/x")
    done.set()


async def test_an_unopened_connection_raises() -> None:
    """Using it outside of ``async with`` is a bug; leaving it unentered is harmless."""
    connection = Connection(Endpoint(server="http://127.0.0.1:1"))
    with pytest.raises(RuntimeError, match="not open"):
        await connection.get("/x")
    await connection.__aexit__(None, None, None)


async def test_a_fence_stops_requests_that_may_write(server: "FakeServer") -> None:
    """It is called immediately before each attempt; GET requests pass."""
    for method in ("GET", "POST"):
        server.answers(method, "/api/v1/pods", {})

    def closed() -> None:
        raise LookupError("no more")

    async with Connection(Endpoint(server=server.url), fence=closed) as connection:
        await connection.get("/api/v1/pods")
        with pytest.raises(LookupError, match="no more"):
            await connection.post("/api/v1/pods", {})
    assert [seen.method for seen in server.seen] == ["GET"]
