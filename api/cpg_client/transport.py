"""A non-blocking socket, with or without TLS.

OpenSSL works on the socket itself. The transports of asyncio copy every record through two more buffers and a dozen
Python calls, and keep at least 32 KiB for each TLS connection.
"""

import asyncio
import select
import socket
from collections import deque
from collections.abc import Callable
from ssl import SSLContext, SSLSocket, SSLWantReadError, SSLWantWriteError
from typing import Any, TypeAlias

from cpg_client.sockets import configure_socket

Address: TypeAlias = tuple[Any, ...]
HAPPY_EYEBALLS_SECONDS = 0.25
"""Seconds before the next address of a host is tried in parallel, as in RFC 8305."""
MAX_TLS_RECORD_BYTES = 1 << 14
"""Bytes per read: the largest TLS record, so that OpenSSL never holds back a part of one."""
MAX_READS_PER_TURN = 16
"""Full records that are read in a row before other tasks of the loop get a turn."""
_WOULD_BLOCK = (BlockingIOError, InterruptedError, SSLWantReadError, SSLWantWriteError)


class SocketTransport:
    """One connection. ``received`` is called with data; ``lost`` is called once at the end, with the error if any."""

    def __init__(
        self, connected: socket.socket, received: Callable[[bytes], None], lost: Callable[[OSError | None], None]
    ) -> None:
        """Start to read."""
        self.is_open = True
        self._socket = connected
        self._received = received
        self._lost = lost
        self._unsent = b""
        self._loop = asyncio.get_running_loop()
        self._is_reading = False
        self._arrived = select.poll()
        self._arrived.register(connected, select.POLLIN)
        self.resume_reading()

    @property
    def has_unsent(self) -> bool:
        """Whether a part of the written data has not been sent yet."""
        return bool(self._unsent)

    def read_pending(self) -> None:
        """Read what the kernel has received already, without waiting for the event loop."""
        if self.is_open and self._arrived.poll(0):
            self._on_readable()

    def write(self, data: bytes) -> None:
        """Send data at once; what the kernel does not accept is sent when it can."""
        if self.is_open:
            self._unsent += data
            self._flush()

    def pause_reading(self) -> None:
        """Stop reading, so that the server has to wait."""
        self._is_reading = False
        self._loop.remove_reader(self._socket)

    def resume_reading(self) -> None:
        """Read again."""
        if self.is_open:
            self._is_reading = True
            self._loop.add_reader(self._socket, self._on_readable)

    def close(self) -> None:
        """Close the socket, without a call of ``lost``."""
        if self.is_open:
            self.is_open = False
            self.pause_reading()
            self._loop.remove_writer(self._socket)
            self._socket.close()

    def _on_readable(self) -> None:
        for _ in range(MAX_READS_PER_TURN):
            try:
                data = self._socket.recv(MAX_TLS_RECORD_BYTES)
            except _WOULD_BLOCK:
                return
            except OSError as error:
                self._end(error)
                return
            if not data:
                self._end(None)
                return
            self._received(data)
            if len(data) < MAX_TLS_RECORD_BYTES or not self._is_reading:
                return

    def _flush(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except _WOULD_BLOCK:
            self._loop.add_writer(self._socket, self._on_writable)
        except OSError as error:
            self._end(error)

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._socket)
        self._flush()

    def _end(self, error: OSError | None) -> None:
        self.close()
        self._lost(error)


async def connect(host: str, port: int, context: SSLContext | None, name: str | None) -> socket.socket:
    """Connect to a host, with TLS where there is a context; ``name`` is the server name to request and to verify."""
    connected = await _connect_first(host, port)
    try:
        configure_socket(connected)
        if context is None:
            return connected
        connected = tls_socket = context.wrap_socket(connected, do_handshake_on_connect=False, server_hostname=name)
        await _handshake(tls_socket)
    except BaseException:
        connected.close()
        raise
    return connected


async def _connect_first(host: str, port: int) -> socket.socket:
    """Return a connection to the first address that answers; addresses are tried one by one with a delay."""
    loop = asyncio.get_running_loop()
    addresses = await _resolve(host, port)
    running: set[asyncio.Task[socket.socket]] = set()
    errors: list[BaseException] = []
    try:
        while addresses or running:
            if addresses:
                running.add(loop.create_task(_connect_address(*addresses.popleft())))
            wait = HAPPY_EYEBALLS_SECONDS if addresses else None
            ended, _ = await asyncio.wait(running, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                error = task.exception()
                running.remove(task)
                if error is None:
                    return task.result()
                errors.append(error)
    finally:
        for task in running:
            task.cancel()
            task.add_done_callback(_close_unused)
    raise errors[0]


async def _resolve(host: str, port: int) -> deque[tuple[int, Address]]:
    """Return the addresses of a host, which may be an address itself."""
    if ":" in host:
        return deque([(socket.AF_INET6, (host, port))])
    if host.replace(".", "").isdecimal():
        return deque([(socket.AF_INET, (host, port))])
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return deque((family, address) for family, _, _, _, address in found)


async def _connect_address(family: int, address: Address) -> socket.socket:
    connected = socket.socket(family, socket.SOCK_STREAM)
    try:
        connected.setblocking(False)  # noqa: FBT003  # that is what it takes
        await asyncio.get_running_loop().sock_connect(connected, address)
    except BaseException:
        connected.close()
        raise
    return connected


def _close_unused(task: asyncio.Task[socket.socket]) -> None:
    """Close a connection that arrived too late, or after the attempt was cancelled."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


async def _handshake(tls_socket: SSLSocket) -> None:
    loop = asyncio.get_running_loop()
    while True:
        try:
            tls_socket.do_handshake()
        except SSLWantReadError:
            await _wait_ready(tls_socket, loop.add_reader, loop.remove_reader)
        except SSLWantWriteError:
            await _wait_ready(tls_socket, loop.add_writer, loop.remove_writer)
        else:
            return


async def _wait_ready(
    wanted: socket.socket, add: Callable[..., None], remove: Callable[[socket.socket], object]
) -> None:
    """Wait until a socket is ready to be read or written."""
    ready = asyncio.Event()
    add(wanted, ready.set)
    try:
        await ready.wait()
    finally:
        remove(wanted)
