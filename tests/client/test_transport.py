"""Sockets that are read and written as they are ready, against ends of our own."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cpg_client import transport
from cpg_client.transport import MAX_TLS_RECORD_BYTES, SocketTransport, connect

if TYPE_CHECKING:
    from tests.client.conftest import Pki

MANY = MAX_TLS_RECORD_BYTES * transport.MAX_READS_PER_TURN * 3 + 7
"""Bytes that neither a buffer of the kernel nor a burst holds."""


class End:
    """What a line told."""

    def __init__(self, connected: socket.socket) -> None:
        self.heard = bytearray()
        self.lost = asyncio.get_running_loop().create_future()
        self.line = SocketTransport(connected, self.heard.extend, self.lost.set_result)


class Server:
    """Echoes, at its leisure, until it is told the end."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.context = context
        self.leisure = asyncio.Event()
        self.leisure.set()
        self.port = 0

    async def serve(self) -> AsyncIterator["Server"]:
        """Serve on a port of its own."""
        server = await asyncio.start_server(self._echo, "127.0.0.1", 0, ssl=self.context)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self

    async def _echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.leisure.wait()
        while (data := await reader.read(1 << 16)) and data != b"end":
            writer.write(data)
            await writer.drain()
        writer.close()


@pytest.fixture
def trust(pki: "Pki") -> ssl.SSLContext:
    """Return what trusts the server."""
    return ssl.create_default_context(cadata=pki.ca.decode())


@pytest.fixture(params=["plain", "tls"])
async def server(request: pytest.FixtureRequest, pki: "Pki", tmp_path: Path) -> AsyncIterator[Server]:
    """Run a server of either sort."""
    context = None
    if request.param == "tls":
        for name, pem in {"tls.crt": pki.server.certificate, "tls.key": pki.server.key}.items():
            tmp_path.joinpath(name).write_bytes(pem)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    async for running in Server(context).serve():
        yield running


@pytest.fixture
async def end(server: Server, trust: ssl.SSLContext) -> AsyncIterator[End]:
    """Return a line to the server."""
    made = End(await connect("127.0.0.1", server.port, trust if server.context else None, "127.0.0.1"))
    yield made
    made.line.close()


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110  # what is waited for is in the kernel's hands
            await asyncio.sleep(0.001)


async def test_all_arrives_in_order_though_nobody_takes_it_for_a_while(server: Server, end: End) -> None:
    """What the kernel does not take is kept, and goes before what is sent after it."""
    server.leisure.clear()
    sent = bytes(range(256)) * (MANY // 256)
    end.line.write(sent)
    end.line.write(b"after")
    assert end.line.is_open
    server.leisure.set()
    await until(lambda: len(end.heard) == len(sent) + 5)
    assert end.heard == sent + b"after"


async def test_who_pauses_hears_nothing_and_misses_nothing(end: End) -> None:
    """The other side has to wait."""
    end.line.pause_reading()
    end.line.write(b"x" * MANY)
    await asyncio.sleep(0.05)
    assert not end.heard
    end.line.resume_reading()
    await until(lambda: len(end.heard) == MANY)


async def test_who_pauses_in_the_middle_hears_no_more(end: End) -> None:
    """Neither of what was to come in the same burst."""
    hear = end.heard.extend

    def hear_once(data: bytes) -> None:
        hear(data)
        end.line.pause_reading()

    end.line._received = hear_once
    end.line.write(b"x" * MANY)
    await until(lambda: bool(end.heard))
    heard = len(end.heard)
    await asyncio.sleep(0.05)
    assert len(end.heard) == heard <= MAX_TLS_RECORD_BYTES


async def test_the_end_is_told_once(end: End) -> None:
    """An orderly one without an error; who goes on is not heard by anybody."""
    end.line.write(b"end")
    async with asyncio.timeout(10):
        assert await end.lost is None
    assert not end.line.is_open
    end.line.write(b"more")
    end.line.resume_reading()
    end.line.close()


async def test_a_line_that_breaks_says_how(server: Server, end: End) -> None:
    """Whether it is read from or written to at that time."""
    server.leisure.clear()
    broken = OSError("broken")

    class Broken:
        def __init__(self, whole: socket.socket) -> None:
            self.fileno, self.close = whole.fileno, whole.close

        def recv(self, _: int) -> bytes:
            raise broken

        def send(self, _: bytes) -> int:
            raise broken

    whole: Any = end.line
    whole._socket = Broken(whole._socket)
    end.line.write(b"x")
    assert await end.lost is broken
    assert not end.line.is_open


async def test_a_server_that_resets_is_told_of() -> None:
    """As it is by a proxy that has enough."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        end = End(await connect("127.0.0.1", listening.getsockname()[1], None, None))
        accepted, _ = listening.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        accepted.close()
        async with asyncio.timeout(10):
            assert isinstance(await end.lost, ConnectionResetError)


async def test_a_name_is_tried_address_by_address(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that refuses, or does not answer, is in nobody's way, and all that is begun is ended."""
    monkeypatch.setattr(transport, "HAPPY_EYEBALLS_SECONDS", 0.01)
    silent = asyncio.Event()
    attempt, tried = transport._connect_address, list[str]()

    async def attempted(family: int, address: tuple[str, int]) -> socket.socket:
        tried.append(address[0])
        if address[0] == "silent.test":
            try:
                await asyncio.Event().wait()
            finally:
                silent.set()
        if address[0] == "refusing.test":
            raise ConnectionRefusedError("no")
        return await attempt(family, ("127.0.0.1", server.port))

    async def found(*_: object, **__: object) -> list[tuple[Any, ...]]:
        names = ("silent.test", "refusing.test", "good.test", "late.test")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (name, 1)) for name in names]

    monkeypatch.setattr(transport, "_connect_address", attempted)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)
    connected = await connect("api.test", 1, None, None)
    assert connected.getpeername()[1] == server.port
    connected.close()
    assert tried == ["silent.test", "refusing.test", "good.test"]
    await asyncio.wait_for(silent.wait(), 10)


async def test_who_answers_too_late_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for him any more, and his socket is closed."""
    late = socket.socket()

    async def attempted(*_: object) -> socket.socket:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return late
        raise AssertionError

    monkeypatch.setattr(transport, "_connect_address", attempted)
    trying = asyncio.create_task(connect("127.0.0.1", 1, None, None))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    trying.cancel()
    await asyncio.wait({trying})
    await until(lambda: late.fileno() == -1)


async def test_where_nobody_answers_the_first_refusal_is_told() -> None:
    """By its address, of either kind."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ConnectionRefusedError, match=rf"127\.0\.0\.1.*{port}"):
        await connect("127.0.0.1", port, None, None)
    with pytest.raises(OSError, match=str(port)):
        await connect("::1", port, None, None)


async def test_a_server_that_is_not_trusted_is_hung_up_on(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be it that it speaks no TLS at all, or that nobody vouches for it."""
    closed, close = list[int](), socket.socket.close

    def closing(one: socket.socket) -> None:
        closed.append(one.fileno())
        close(one)

    monkeypatch.setattr(socket.socket, "close", closing)
    with pytest.raises(ssl.SSLError) as refused:
        await connect("127.0.0.1", server.port, ssl.create_default_context(), "127.0.0.1")
    assert isinstance(refused.value, ssl.SSLCertVerificationError) == (server.context is not None)
    assert closed
