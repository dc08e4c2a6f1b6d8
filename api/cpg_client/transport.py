"""A connected socket: bytes go out at once, and come in as they are there, over TLS or not.

OpenSSL works on the socket itself. asyncio's own transports take every record through two more buffers and a dozen
calls in Python, and keep 32 KiB and more for each connection over TLS.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from ssl import SSLContext, SSLSocket, SSLWantReadError, SSLWantWriteError
from typing import Any, TypeAlias

from cpg_client.sockets import configure_socket

Address: TypeAlias = tuple[Any, ...]
HAPPY_EYEBALLS_SECONDS = 0.25
"""Seconds of a head start that each address of a name has."""
MAX_TLS_RECORD_BYTES = 1 << 14
"""Bytes that are taken at once: what a record of TLS has at the most, so OpenSSL never holds back a part of one."""
MAX_READS_PER_TURN = 16
"""Full records that are taken in a row, before others on the loop have their turn."""
_WOULD_BLOCK = (BlockingIOError, InterruptedError, SSLWantReadError, SSLWantWriteError)


class SocketTransport:
    """One connection; ``received`` is called with bytes that came, ``lost`` once, with what went wrong if anything."""

    def __init__(
        self, connected: socket.socket, received: Callable[[bytes], None], lost: Callable[[OSError | None], None]
    ) -> None:
        """Begin to listen."""
        self.is_open = True
        self._socket = connected
        self._received = received
        self._lost = lost
        self._unsent = b""
        self._loop = asyncio.get_running_loop()
        self._listens = False
        self.resume_reading()

    def write(self, data: bytes) -> None:
        """Send, now; what the kernel does not take yet goes as soon as it does."""
        if self.is_open:
            self._unsent += data
            self._write()

    def pause_reading(self) -> None:
        """Listen no more for now, so that the other side has to wait."""
        self._listens = False
        self._loop.remove_reader(self._socket)

    def resume_reading(self) -> None:
        """Listen again."""
        if self.is_open:
            self._listens = True
            self._loop.add_reader(self._socket, self._read)

    def close(self) -> None:
        """Hang up, and tell nobody."""
        if self.is_open:
            self.is_open = False
            self.pause_reading()
            self._loop.remove_writer(self._socket)
            self._socket.close()

    def _read(self) -> None:
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
            if len(data) < MAX_TLS_RECORD_BYTES or not self._listens:
                return

    def _write(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except _WOULD_BLOCK:
            self._loop.add_writer(self._socket, self._write_on)
        except OSError as error:
            self._end(error)

    def _write_on(self) -> None:
        self._loop.remove_writer(self._socket)
        self._write()

    def _end(self, error: OSError | None) -> None:
        self.close()
        self._lost(error)


async def connect(host: str, port: int, context: SSLContext | None, name: str | None) -> socket.socket:
    """Connect to a host, and agree on TLS where there is a context for it, under a name to ask for and to verify."""
    connected = await _connect_first(host, port)
    try:
        configure_socket(connected)
        if context is None:
            return connected
        connected = secured = context.wrap_socket(connected, do_handshake_on_connect=False, server_hostname=name)
        await _handshake(secured)
    except BaseException:
        connected.close()
        raise
    return connected


async def _connect_first(host: str, port: int) -> socket.socket:
    """Return a connection to the first address of a host that answers, each with a head start before the next."""
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
    """Return where a host is: itself, if it is an address."""
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
    """Hang up where somebody else has answered first, or nobody waits any more."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()


async def _handshake(secured: SSLSocket) -> None:
    loop = asyncio.get_running_loop()
    while True:
        try:
            secured.do_handshake()
        except SSLWantReadError:
            await _wait_ready(secured, loop.add_reader, loop.remove_reader)
        except SSLWantWriteError:
            await _wait_ready(secured, loop.add_writer, loop.remove_writer)
        else:
            return


async def _wait_ready(
    wanted: socket.socket, add: Callable[..., None], remove: Callable[[socket.socket], object]
) -> None:
    """Wait until a socket can be read from, or written to."""
    ready = asyncio.Event()
    add(wanted, ready.set)
    try:
        await ready.wait()
    finally:
        remove(wanted)
