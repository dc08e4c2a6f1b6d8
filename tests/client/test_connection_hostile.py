"""Servers that break the rules of HTTP, and answers that belong to no request."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from cpg_client.connection import Connection, ConnectionSettings
from cpg_client.endpoint import Endpoint
from cpg_client.errors import AnswerTooLargeError, ApiError, ConnectionFailedError
from cpg_client.timing import cancel_and_wait

OK = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"
CONFLICT = b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def raw_server(serve: Serve) -> AsyncIterator[str]:
    """Serve each connection with a function that reads and writes bytes; yield the URL."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await serve(reader, writer)
        finally:
            writer.close()
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(handle(reader, writer)))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for task in tasks:
            await cancel_and_wait(task)
        await asyncio.sleep(0)  # the sockets are closed in this turn


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """Read a request with a body of two bytes."""
    return await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(2)


async def test_an_unasked_answer_belongs_to_no_request() -> None:
    """It arrives before the loop could read it, and then a bind is sent: the bind is refused, as its answer says."""
    channels: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channels.append(writer)
        await read_request(reader)
        writer.write(OK if len(channels) == 1 else CONFLICT)
        await read_request(reader)
        writer.write(CONFLICT)

    async with raw_server(serve) as url, Connection(Endpoint(server=url)) as connection:
        await connection.post("/bind", b"{}")
        channels[0].write(OK)
        with pytest.raises(ApiError, match="409"):
            await connection.post("/bind", b"{}")
    assert len(channels) == 2


async def test_bytes_on_an_idle_connection_close_it() -> None:
    """Also when they are no answer."""
    rest: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await asyncio.sleep(0.01)
        writer.write(b"\r\n")
        rest.put_nowait(await reader.read())

    async with raw_server(serve) as url, Connection(Endpoint(server=url)) as connection, asyncio.timeout(5):
        await connection.post("/x", b"{}")
        assert await rest.get() == b""


async def test_a_server_that_speaks_first_is_refused() -> None:
    """An answer before the first request is no answer to it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        await read_request(reader)

    async with raw_server(serve) as url, Connection(Endpoint(server=url)) as connection:
        with pytest.raises(ConnectionFailedError):
            await connection.post("/x", b"{}")


async def test_a_closed_idle_connection_is_noticed_before_a_write() -> None:
    """A POST is not repeated, so it must not be sent where the end of the connection has arrived already."""
    channels: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channels.append(writer)
        await read_request(reader)
        writer.write(OK)
        await reader.read()

    async with raw_server(serve) as url, Connection(Endpoint(server=url)) as connection:
        await connection.post("/x", b"{}")
        channels[0].get_extra_info("socket").shutdown(socket.SHUT_WR)
        await connection.post("/x", b"{}")
    assert len(channels) == 2


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 2\r\nContent-Length: 7\r\n\r\n{}",
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}XX0\r\n\r\n",
    ],
)
async def test_an_ambiguous_answer_is_no_answer(head: bytes) -> None:
    """Two readers could see its end in different places."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 201 Created\r\n" + head)
        await reader.read()

    async with raw_server(serve) as url, Connection(Endpoint(server=url)) as connection:
        with pytest.raises(ConnectionFailedError):
            await connection.post("/x", b"{}")


async def test_an_answer_before_the_whole_request_ends_the_connection() -> None:
    """The rest of the request would otherwise be sent in front of the next one."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await asyncio.Event().wait()

    async with raw_server(serve) as url, Connection(Endpoint(server=url)) as connection:
        for _ in range(2):
            with pytest.raises(ApiError, match="413"):
                await connection.post("/x", b"x" * (16 << 20))
    assert connections == 2


@pytest.mark.parametrize("start", [b"200 OK\r\n\r\n", b"500 Odd\r\nTransfer-Encoding: chunked\r\n\r\n"])
async def test_an_endless_answer_is_not_kept(start: bytes) -> None:
    """The client stops to read at its limit, and says so."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 " + start)
        while True:
            writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            await writer.drain()

    settings = ConnectionSettings(max_answer_bytes=1 << 20)
    async with raw_server(serve) as url, Connection(Endpoint(server=url), settings) as connection:
        with pytest.raises(AnswerTooLargeError, match="more than 1048576 bytes"):
            await connection.post("/x", b"{}")


async def test_an_endless_refusal_of_a_stream_is_cut() -> None:
    """Its beginning is enough for a message."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        while True:
            writer.write(b"no " * 10_000)
            await writer.drain()

    async with raw_server(serve) as url, Connection(Endpoint(server=url)) as connection, asyncio.timeout(10):
        with pytest.raises(ApiError, match="403 Forbidden: no no"):
            await anext(connection.stream("/x", silence=5))
