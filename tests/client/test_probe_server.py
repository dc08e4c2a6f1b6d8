"""The probe server."""

import asyncio
import contextlib
import socket

import pytest

from cpg_client import probe_server
from cpg_client.probe_server import MAX_REQUEST_BYTES, ProbeResponse, ProbeServer

SERVER = ProbeServer(
    {
        "/healthz": lambda _: ProbeResponse(b"ok"),
        "/debug/": lambda rest: ProbeResponse(rest.encode()),
        "/debug/long": lambda _: ProbeResponse(b"[", chunks=iter((b"1,", b"2]"))),
        "/debug/deep/": lambda rest: ProbeResponse(b"deep " + rest.encode(), status=503),
    }
)


@pytest.mark.parametrize(
    ("request_line", "expected"),
    [
        ("GET /healthz HTTP/1.1", ProbeResponse(b"ok")),
        ("HEAD /healthz?verbose HTTP/1.1", ProbeResponse(b"ok")),
        ("GET /debug/a/b HTTP/1.1", ProbeResponse(b"a/b")),
        ("GET /debug/deep/c HTTP/1.1", ProbeResponse(b"deep c", status=503)),
        (
            "GET /healthzz HTTP/1.1",
            ProbeResponse(b"not found; there are /debug/, /debug/deep/, /debug/long, /healthz\n", status=404),
        ),
        ("POST /healthz HTTP/1.1", ProbeResponse(b"only GET is answered\n", status=405)),
        ("nonsense", ProbeResponse(b"only GET is answered\n", status=405)),
    ],
)
def test_the_longest_prefix_wins(request_line: str, expected: ProbeResponse) -> None:
    """The route gets the rest of the path. Other requests get 404 or 405."""
    assert SERVER.answer(request_line) == expected


async def ask(request: bytes) -> bytes:
    """Return the response to a request on a new connection."""
    starting = asyncio.start_server(SERVER._connected, "127.0.0.1", 0, limit=MAX_REQUEST_BYTES)
    async with await starting as listening:
        reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
        writer.write(request)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    return answer


async def test_the_server_runs_until_cancelled() -> None:
    """It leaves nothing behind."""
    serving = asyncio.create_task(SERVER.serve("127.0.0.1", 0))
    await asyncio.sleep(0.01)
    assert not serving.done()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


async def test_a_response_has_length_and_type() -> None:
    """The connection is closed after it."""
    head, _, body = (await ask(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")).partition(b"\r\n\r\n")
    assert (head.split(b"\r\n")[0], body) == (b"HTTP/1.1 200 OK", b"ok")
    assert {b"Content-Length: 2", b"Connection: close"} < set(head.split(b"\r\n"))


async def test_a_response_in_chunks_says_where_it_ends() -> None:
    """It has no Content-Length, and a port-forward may keep the connection open."""
    head, _, body = (await ask(b"GET /debug/long HTTP/1.1\r\n\r\n")).partition(b"\r\n\r\n")
    assert (b"Content-Length" in head, b"Transfer-Encoding: chunked" in head) == (False, True)
    assert body == b"1\r\n[\r\n2\r\n1,\r\n2\r\n2]\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (b"", b"400 Bad Request"),
        (b"GET /healthz HTTP/1.1\r\n", b"400 Bad Request"),
        (b"GET /" + b"a" * MAX_REQUEST_BYTES * 2, b"431 Request Header Fields Too Large"),
    ],
)
async def test_malformed_requests_are_refused(request_: bytes, expected: bytes) -> None:
    """Other requests are still served."""
    with contextlib.suppress(ConnectionResetError):
        assert (await ask(request_)).startswith(b"HTTP/1.1 " + expected)


async def test_a_slow_request_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its headers do not end."""
    monkeypatch.setattr(probe_server, "IO_TIMEOUT_SECONDS", 0.05)
    starting = asyncio.start_server(SERVER._connected, "127.0.0.1", 0)
    async with await starting as listening:
        reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
        writer.write(b"GET /healthz HTTP/1.1\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 408 Request Timeout")
        writer.close()
        await writer.wait_closed()


async def test_a_response_that_is_never_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its bytes nor its socket are kept for as long as the client stays."""
    monkeypatch.setattr(probe_server, "IO_TIMEOUT_SECONDS", 0.05)
    served = list[asyncio.StreamWriter]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(writer)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        await ProbeServer({"/long": lambda _: ProbeResponse(b"x" * 60_000)})._connected(reader, writer)

    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)  # noqa: FBT003  # that is what it takes
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, listening.sockets[0].getsockname())
        await loop.sock_sendall(client, b"GET /long HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(5):
            while not served or served[0].transport.get_extra_info("socket").fileno() >= 0:  # noqa: ASYNC110  # the server's doing
                await asyncio.sleep(0.01)
    client.close()
    assert served[0].transport.get_write_buffer_size() == 0
