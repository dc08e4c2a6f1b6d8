"""Non-blocking sockets against a server in the tests."""

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
"""Bytes beyond the kernel's buffers and one turn of reads."""


class RecordingClient:
    """Records the callbacks of a transport."""

    def __init__(self, connected: socket.socket) -> None:
        self.heard = bytearray()
        self.lost = asyncio.get_running_loop().create_future()
        self.line = SocketTransport(connected, self.heard.extend, self.lost.set_result)


class EchoServer:
    """Echoes slowly, until the client ends."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.context = context
        self.leisure = asyncio.Event()
        self.leisure.set()
        self.port = 0

    async def serve(self) -> AsyncIterator["EchoServer"]:
        """Serve on a free port."""
        server = await asyncio.start_server(self._echo, "127.0.0.1", 0, ssl=self.context)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self

    async def _echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.leisure.wait()
        while (data := await reader.read(1 << 16)) and data != b"client":
            writer.write(data)
            await writer.drain()
        writer.close()


@pytest.fixture
def trust(pki: "Pki") -> ssl.SSLContext:
    """Return a context that trusts the server."""
    return ssl.create_default_context(cadata=pki.ca.decode())


@pytest.fixture(params=["plain", "tls"])
async def server(request: pytest.FixtureRequest, pki: "Pki", tmp_path: Path) -> AsyncIterator[EchoServer]:
    """Run a server of either sort."""
    context = None
    if request.param == "tls":
        for name, pem in {"tls.crt": pki.server.certificate, "tls.key": pki.server.key}.items():
            tmp_path.joinpath(name).write_bytes(pem)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    async for running in EchoServer(context).serve():
        yield running


@pytest.fixture
async def client(server: EchoServer, trust: ssl.SSLContext) -> AsyncIterator[RecordingClient]:
    """Return a client of the server."""
    made = RecordingClient(await connect("127.0.0.1", server.port, trust if server.context else None, "127.0.0.1"))
    yield made
    made.line.close()


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110  # what is waited for is in the kernel's hands
            await asyncio.sleep(0.001)


async def test_data_arrives_in_order_after_a_full_buffer(server: EchoServer, client: RecordingClient) -> None:
    """Data that the kernel does not take is kept, and is sent before later data."""
    server.leisure.clear()
    sent = bytes(range(256)) * (MANY // 256)
    client.line.write(sent)
    client.line.write(b"after")
    assert client.line.is_open
    server.leisure.set()
    await until(lambda: len(client.heard) == len(sent) + 5)
    assert client.heard == sent + b"after"


async def test_a_paused_transport_loses_nothing(client: RecordingClient) -> None:
    """The other side has to wait."""
    client.line.pause_reading()
    client.line.write(b"x" * MANY)
    await asyncio.sleep(0.05)
    assert not client.heard
    client.line.resume_reading()
    await until(lambda: len(client.heard) == MANY)


async def test_pausing_in_a_callback_stops_the_turn(client: RecordingClient) -> None:
    """No more data of that turn is delivered."""
    hear = client.heard.extend

    def hear_once(data: bytes) -> None:
        hear(data)
        client.line.pause_reading()

    client.line._received = hear_once
    client.line.write(b"x" * MANY)
    await until(lambda: bool(client.heard))
    heard = len(client.heard)
    await asyncio.sleep(0.05)
    assert len(client.heard) == heard <= MAX_TLS_RECORD_BYTES


async def test_the_end_is_reported_once(client: RecordingClient) -> None:
    """An orderly one without an error; later writes are ignored."""
    client.line.write(b"client")
    async with asyncio.timeout(10):
        assert await client.lost is None
    assert not client.line.is_open
    client.line.write(b"more")
    client.line.resume_reading()
    client.line.close()


async def test_an_error_of_the_socket_is_reported(server: EchoServer, client: RecordingClient) -> None:
    """While it is read or written."""
    server.leisure.clear()
    broken = OSError("broken")

    class Broken:
        def __init__(self, whole: socket.socket) -> None:
            self.fileno, self.close = whole.fileno, whole.close

        def recv(self, _: int) -> bytes:
            raise broken

        def send(self, _: bytes) -> int:
            raise broken

    whole: Any = client.line
    whole._socket = Broken(whole._socket)
    client.line.write(b"x")
    assert await client.lost is broken
    assert not client.line.is_open


async def test_a_reset_by_the_server_is_reported() -> None:
    """As by an overloaded proxy."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = RecordingClient(await connect("127.0.0.1", listening.getsockname()[1], None, None))
        accepted, _ = listening.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        accepted.close()
        async with asyncio.timeout(10):
            assert isinstance(await client.lost, ConnectionResetError)


async def test_the_addresses_of_a_name_are_tried_in_turn(server: EchoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that refuses or does not answer does not block the next, and all attempts are ended."""
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


async def test_a_late_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another address was faster."""
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


async def test_without_any_connection_the_first_error_is_raised() -> None:
    """For an IP address of either kind."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ConnectionRefusedError, match=rf"127\.0\.0\.1.*{port}"):
        await connect("127.0.0.1", port, None, None)
    with pytest.raises(OSError, match=str(port)):
        await connect("::1", port, None, None)


async def test_an_untrusted_server_is_disconnected(server: EchoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It speaks no TLS, or its certificate is not trusted."""
    closed, close = list[int](), socket.socket.close

    def closing(one: socket.socket) -> None:
        closed.append(one.fileno())
        close(one)

    monkeypatch.setattr(socket.socket, "close", closing)
    with pytest.raises(ssl.SSLError) as refused:
        await connect("127.0.0.1", server.port, ssl.create_default_context(), "127.0.0.1")
    assert isinstance(refused.value, ssl.SSLCertVerificationError) == (server.context is not None)
    assert closed
