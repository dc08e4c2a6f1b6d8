"""What goes over the wire, and what comes back from it."""

import asyncio
import gc
import os
import tracemalloc
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
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
from cpg_client.endpoint import Credentials, Endpoint
from cpg_client.errors import ApiError, ConnectionFailedError
from cpg_client.retrying import RetryPolicy
from cpg_client.timing import Timing

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer, Naps, Pair, Pki

NO_RETRIES = ConnectionSettings(retries=RetryPolicy(attempts=1))


async def test_get_returns_the_bytes(server: "FakeServer", connection: Connection) -> None:
    """A body comes back as it was sent, and the request says who asks for what."""
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
    """Objects are encoded, and bytes go out as they are."""
    for method, send in {"POST": connection.post, "PUT": connection.put, "DELETE": connection.delete}.items():
        server.answers(method, "/x", b"done", status=201)
        assert await send("/x", body, {"dryRun": "All"}) == b"done"
        seen = server.seen[-1]
        assert (seen.method, seen.body, seen.query) == (method, sent, {"dryRun": "All"})
        assert seen.headers["Content-Type"] == "application/json"


async def test_a_delete_needs_no_body(server: "FakeServer", connection: Connection) -> None:
    """Without DeleteOptions nothing is sent, not even a type."""
    server.answers("DELETE", "/x")
    await connection.delete("/x")
    assert server.seen[0].body == b""


@pytest.mark.parametrize("content_type", [MERGE_PATCH, STRATEGIC_MERGE_PATCH, JSON_PATCH, APPLY_YAML])
async def test_a_patch_says_its_kind(server: "FakeServer", connection: Connection, content_type: str) -> None:
    """The content type of a patch tells the server how to read it."""
    server.answers("PATCH", "/x")
    await connection.patch("/x", [], content_type, params={"fieldManager": "cpg"})
    assert server.seen[0].headers["Content-Type"] == content_type
    assert server.seen[0].query == {"fieldManager": "cpg"}


async def test_paths_arrive_as_written(server: "FakeServer", connection: Connection) -> None:
    """Escapes in a path are neither undone nor doubled."""
    server.answers("GET", "/api/v1/nodes/system:a b?")
    await connection.get("/api/v1/nodes/system:a%20b%3F")
    assert server.seen[0].path == "/api/v1/nodes/system:a%20b%3F"


async def test_a_server_may_live_under_a_prefix(server: "FakeServer") -> None:
    """A cluster behind a proxy is addressed by a path, with or without a final slash."""
    server.answers("GET", "/clusters/7/version", b"1")
    async with Connection(Endpoint(server=f"{server.url}/clusters/7/")) as connection:
        assert await connection.get("/version") == b"1"


async def test_nothing_is_compressed(server: "FakeServer", connection: Connection) -> None:
    """A server that would compress long lists is asked not to, as kube-scheduler asks."""

    async def handle(_: web.Request) -> web.Response:
        response = web.Response(body=b"x" * 200_000)
        response.enable_compression()
        return response

    server.handles("GET", "/x", handle)
    assert await connection.get("/x") == b"x" * 200_000


async def test_a_line_that_was_closed_while_idle_is_no_failure(server: "FakeServer", connection: Connection) -> None:
    """What only reads is sent again on a new line; what may write is not."""
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


async def test_who_is_slow_to_read_holds_the_server_back(server: "FakeServer", connection: Connection) -> None:
    """A watch that nobody reads for a while does not fill the memory."""
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


async def test_who_gives_up_while_connecting_leaves_nothing_open(
    tls_server: "FakeServer", tls_endpoint: Endpoint
) -> None:
    """Whenever that is; a socket that is forgotten is a warning, and here an error."""
    tls_server.answers("GET", "/x")
    for delay in range(1, 30):
        async with Connection(tls_endpoint) as connection:
            asking = asyncio.create_task(connection.get("/x"))
            await asyncio.sleep(delay * 0.0003)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        async with Connection(tls_endpoint, ConnectionSettings(connect_timeout=delay * 0.0003)) as connection:
            await asyncio.gather(connection.get("/x"), return_exceptions=True)
        gc.collect()


async def test_leaving_hangs_up(server: "FakeServer") -> None:
    """Who still waits for an answer is told that there will be none."""
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
    """The server's own words reach the caller, with the request they are about."""
    status = {"kind": "Status", "reason": "AlreadyExists", "message": 'pods "web" already exists'}
    server.answers("POST", "/x", status, status=409)
    with pytest.raises(ApiError, match='POST /x: 409 AlreadyExists: pods "web" already exists') as caught:
        await connection.post("/x", {})
    assert caught.value.is_already_exists


async def test_redirects_are_not_followed(server: "FakeServer", connection: Connection) -> None:
    """Credentials never travel to where an answer points."""
    server.answers("GET", "/x", status=302, headers={"Location": f"{server.url}/y"})
    with pytest.raises(ApiError, match="302 Found"):
        await connection.get("/x")
    assert [seen.path for seen in server.seen] == ["/x"]


async def test_throttling_is_waited_out(server: "FakeServer", connection: Connection, naps: "Naps") -> None:
    """A create that was turned away is sent again after the time the server named."""
    for wait in ("1", "2"):
        server.answers("POST", "/x", status=429, headers={"Retry-After": wait})
    server.answers("POST", "/x", b"created", status=201)
    assert await connection.post("/x", {"a": 1}) == b"created"
    assert naps.seconds == [1, 2]
    assert [seen.body for seen in server.seen] == [b'{"a":1}'] * 3


async def test_patience_ends(server: "FakeServer", connection: Connection, naps: "Naps") -> None:
    """When the server stays unavailable, its last refusal is raised."""
    server.answers("GET", "/x", status=503, headers={"Retry-After": "12"})
    with pytest.raises(ApiError, match="503"):
        await connection.get("/x")
    assert naps.seconds == [12, 12]
    assert len(server.seen) == 3


async def test_settings_bound_the_retries(server: "FakeServer", naps: "Naps") -> None:
    """A caller that wants every refusal at once gets it."""
    server.answers("GET", "/x", status=503)
    async with Connection(Endpoint(server=server.url), NO_RETRIES, timing=Timing(sleep=naps)) as connection:
        with pytest.raises(ApiError, match="503"):
            await connection.get("/x")
    assert naps.seconds == []


async def test_requests_share_connections(server: "FakeServer", connection: Connection) -> None:
    """A second request goes through the socket of the first."""
    ports = []

    async def handle(request: web.Request) -> web.Response:
        ports.append(request.get_extra_info("peername")[1])
        return web.Response()

    server.handles("GET", "/x", handle)
    await connection.get("/x")
    await connection.get("/x")
    assert ports[0] == ports[1]


async def test_hundreds_of_requests_are_in_flight(server: "FakeServer", connection: Connection) -> None:
    """By default, 300 requests are on their way at once."""
    together = asyncio.Barrier(300)

    async def handle(_: web.Request) -> web.Response:
        await together.wait()
        return web.Response()

    server.handles("GET", "/x", handle)
    async with asyncio.timeout(20):
        await asyncio.gather(*(connection.get("/x") for _ in range(300)))


async def test_a_refused_connection_names_the_server(server: "FakeServer") -> None:
    """Where nothing listens, the error tells which address that was."""
    nowhere = server.url.rpartition(":")[0] + ":1"
    async with Connection(Endpoint(server=nowhere)) as connection:
        with pytest.raises(ConnectionFailedError, match=f"{nowhere}: GET /x: Cannot connect"):
            await connection.get("/x")


async def test_a_broken_connection_is_not_retried(server: "FakeServer", connection: Connection) -> None:
    """A create without an answer is not sent twice: it may have been done."""

    async def handle(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    server.handles("POST", "/x", handle)
    with pytest.raises(ConnectionFailedError, match="POST /x: Server disconnected"):
        await connection.post("/x", {})
    assert len(server.seen) == 1


async def test_a_silent_server_is_given_up(server: "FakeServer") -> None:
    """The time-out's length is in the message, since the exception itself says nothing."""
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


async def test_a_closed_connection_says_so() -> None:
    """Use outside of ``async with`` is a mistake of the program; leaving unentered is harmless."""
    connection = Connection(Endpoint(server="http://127.0.0.1:1"))
    with pytest.raises(RuntimeError, match="not open"):
        await connection.get("/x")
    await connection.__aexit__(None, None, None)


async def test_channels_over_tls_are_cheap(tls_server: "FakeServer", tls_endpoint: Endpoint) -> None:
    """Both ends are in this process here, and that of the server sets 256 KiB aside, as asyncio does."""
    number, beginning = 16, asyncio.Event()

    async def together(_: web.Request) -> web.Response:
        if len(tls_server.seen) == number:
            beginning.set()
        await beginning.wait()
        return web.Response()

    tls_server.handles("GET", "/x", together)
    tracemalloc.start()
    async with Connection(tls_endpoint) as connection:
        before, _ = tracemalloc.get_traced_memory()
        await asyncio.gather(*(connection.get("/x") for _ in range(number)))
        after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (after - before) / number < (256 + 32) * 1024


async def test_a_token_is_sent_over_tls(tls_server: "FakeServer", tls_endpoint: Endpoint) -> None:
    """The bearer token reaches a server whose certificate was verified."""
    tls_server.answers("GET", "/x", b"hello")
    async with Connection(tls_endpoint) as connection:
        assert await connection.get("/x") == b"hello"
    assert tls_server.seen[0].headers["Authorization"] == "Bearer sesame"


async def test_a_rotated_token_is_sent(tls_server: "FakeServer", tls_endpoint: Endpoint, tmp_path: Path) -> None:
    """Requests use the token file's content as of the last minute."""
    now, file = [0.0], tmp_path / "token"
    file.write_text("first")
    tls_server.answers("GET", "/x")
    endpoint = replace(tls_endpoint, credentials=Credentials(token_file=file))
    async with Connection(endpoint, timing=Timing(clock=lambda: now[0])) as connection:
        await connection.get("/x")
        file.write_text("second")
        now[0] = 61.0
        await connection.get("/x")
    assert [seen.headers["Authorization"] for seen in tls_server.seen] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_refused_token_is_read_again(
    tls_server: "FakeServer", tls_endpoint: Endpoint, tmp_path: Path, *, streaming: bool
) -> None:
    """After a 401 the file is read at once; with another token in it, the request is sent again, or can be."""
    file = tmp_path / "token"
    file.write_text("first")
    tls_server.answers("GET", "/x", status=401)
    tls_server.answers("GET", "/x", b"hello")
    async with Connection(replace(tls_endpoint, credentials=Credentials(token_file=file))) as connection:
        assert connection._tokens.current() == "first"
        file.write_text("second")
        if streaming:
            with pytest.raises(ApiError, match="401 Unauthorized"):
                await anext(connection.stream("/x", silence=5))
        assert await connection.get("/x") == b"hello"
    assert [seen.headers["Authorization"] for seen in tls_server.seen] == ["Bearer first", "Bearer second"]


async def test_a_token_that_stays_refused_is_no_loop(tls_server: "FakeServer", tls_endpoint: Endpoint) -> None:
    """Without another token, the refusal is raised."""
    tls_server.answers("GET", "/x", status=401)
    async with Connection(tls_endpoint) as connection:
        with pytest.raises(ApiError, match="401 Unauthorized"):
            await connection.get("/x")
    assert len(tls_server.seen) == 1


async def test_a_stream_comes_in_pieces(server: "FakeServer", connection: Connection) -> None:
    """First an empty one for the server's yes, then what comes, as it comes, over the same kind of request."""
    server.streams("/x", b"one", b"two")
    async with aclosing(connection.stream("/x", {"watch": "true"}, silence=5)) as pieces:
        first, *others = [piece async for piece in pieces]
    assert (first, b"".join(others)) == (b"", b"onetwo")
    assert server.seen[0].query == {"watch": "true"}


async def test_a_refused_stream_is_raised_and_not_retried(server: "FakeServer", connection: Connection) -> None:
    """Its reader knows better when to come back."""
    server.answers("GET", "/x", status=429, headers={"Retry-After": "3"})
    with pytest.raises(ApiError) as caught:
        await anext(connection.stream("/x", silence=5))
    assert caught.value.retry_after == 3
    assert len(server.seen) == 1


async def test_a_torn_stream_is_an_error(server: "FakeServer", connection: Connection) -> None:
    """An end that the server did not mean is told from one that it did."""
    server.streams("/x", b"one", end="cut")
    with pytest.raises(ConnectionFailedError, match="GET /x: "):
        _ = [piece async for piece in connection.stream("/x", silence=5)]


async def test_a_stream_outlives_the_total_timeout(server: "FakeServer") -> None:
    """Only silence ends it."""
    server.streams("/x", *(b"." for _ in range(100)))
    settings = ConnectionSettings(total_timeout=0.05)
    async with Connection(Endpoint(server=server.url), settings) as connection:
        pieces = [piece async for piece in connection.stream("/x", silence=5)]
    assert b"".join(pieces) == b"." * 100


async def test_a_token_is_not_sent_in_the_clear(server: "FakeServer") -> None:
    """Over plain HTTP, such as to a local proxy, no secret is sent."""
    server.answers("GET", "/x")
    endpoint = Endpoint(server=server.url, credentials=Credentials(token="sesame"))  # noqa: S106
    async with Connection(endpoint) as connection:
        await connection.get("/x")
    assert "Authorization" not in server.seen[0].headers


async def test_a_rotated_client_certificate_is_shown(
    tls_server: "FakeServer", tls_endpoint: Endpoint, pki: "Pki", tmp_path: Path
) -> None:
    """On channels that are opened after it came, and at once when the old one is refused: files are read again."""
    certificate, key = tmp_path / "mine.crt", tmp_path / "mine.key"

    def become(pair: "Pair") -> None:
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)

    become(pki.client)
    for status in (200, 200, 401, 200, 401):
        tls_server.answers("GET", "/x", status=status)
    mine = replace(tls_endpoint, credentials=Credentials(certificate=certificate, key=key))
    async with Connection(mine, NO_RETRIES) as connection:
        await connection.get("/x")
        become(pki.server)
        await connection.get("/x")
        await connection.get("/x")
        with pytest.raises(ApiError, match="401"):
            await connection.get("/x")
    assert [seen.peer for seen in tls_server.seen] == ["alice", "alice", "alice", "api.test", "api.test"]


async def test_a_rotated_authority_is_trusted(
    tls_server: "FakeServer", tls_endpoint: Endpoint, pki: "Pki", tmp_path: Path
) -> None:
    """As soon as its file has changed, and at the latest when a server was not trusted; the old one no more."""
    tls_server.answers("GET", "/x", b"hello")
    file = tmp_path / "ca.crt"
    file.write_bytes(pki.server.certificate.ljust(4096, b"\n"))  # it vouches for nobody
    async with Connection(replace(tls_endpoint, ca=file), NO_RETRIES) as connection:
        with pytest.raises(ConnectionFailedError, match="certificate verify failed"):
            await connection.get("/x")
        before = file.stat()
        file.write_bytes(pki.ca.ljust(4096, b"\n"))
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert await connection.get("/x") == b"hello"


@pytest.mark.parametrize("kind", ["bytes", "file"])
async def test_a_client_certificate_is_shown(
    tls_server: "FakeServer", tls_endpoint: Endpoint, pki: "Pki", tmp_path: Path, kind: str
) -> None:
    """The server learns the name in the certificate, whether inlined or in files."""
    tls_server.answers("GET", "/x")
    certificate, key = tmp_path / "alice.crt", tmp_path / "alice.key"
    certificate.write_bytes(pki.client.certificate)
    key.write_bytes(pki.client.key)
    credentials = {
        "bytes": Credentials(certificate=pki.client.certificate, key=pki.client.key),
        "file": Credentials(certificate=certificate, key=key),
    }[kind]
    async with Connection(replace(tls_endpoint, credentials=credentials)) as connection:
        await connection.get("/x")
    assert tls_server.seen[0].peer == "alice"


async def test_a_stranger_is_not_trusted(tls_server: "FakeServer", tls_endpoint: Endpoint) -> None:
    """A server that the given authority did not sign for gets no request."""
    async with Connection(replace(tls_endpoint, ca=None)) as connection:
        with pytest.raises(ConnectionFailedError, match="certificate verify failed"):
            await connection.get("/x")
    assert tls_server.seen == []


async def test_a_stranger_is_accepted_on_demand(tls_server: "FakeServer", tls_endpoint: Endpoint) -> None:
    """With verification switched off, any certificate will do."""
    tls_server.answers("GET", "/x", b"hello")
    async with Connection(replace(tls_endpoint, ca=None, verify=False)) as connection:
        assert await connection.get("/x") == b"hello"


@pytest.mark.parametrize(("name", "trusted"), [("api.test", True), ("other.test", False)])
async def test_the_name_to_verify_can_be_given(
    tls_server: "FakeServer", tls_endpoint: Endpoint, name: str, *, trusted: bool
) -> None:
    """What tls-server-name says is verified in place of the host in the address."""
    tls_server.answers("GET", "/x", b"hello")
    async with Connection(replace(tls_endpoint, tls_server_name=name)) as connection:
        if trusted:
            assert await connection.get("/x") == b"hello"
        else:
            with pytest.raises(ConnectionFailedError, match="certificate verify failed"):
                await connection.get("/x")


async def test_a_kubeconfig_leads_to_the_server(server: "FakeServer", tmp_path: Path) -> None:
    """From a file to an answer in one expression."""
    server.answers("GET", "/version", b"1")
    file = tmp_path / "config"
    file.write_text(
        "contexts: [{name: lab, context: {cluster: lab}}]\n"
        f"clusters: [{{name: lab, cluster: {{server: '{server.url}'}}}}]\n"
    )
    async with Connection.from_kubeconfig(file, "lab") as connection:
        assert await connection.get("/version") == b"1"
    assert connection.endpoint.context == "lab"


async def test_a_fence_stops_what_may_write(server: "FakeServer") -> None:
    """Right before each attempt to send it; reading goes on."""
    for method in ("GET", "POST"):
        server.answers(method, "/api/v1/pods", {})

    def closed() -> None:
        raise LookupError("no more")

    async with Connection(Endpoint(server=server.url), fence=closed) as connection:
        await connection.get("/api/v1/pods")
        with pytest.raises(LookupError, match="no more"):
            await connection.post("/api/v1/pods", {})
    assert [seen.method for seen in server.seen] == ["GET"]
