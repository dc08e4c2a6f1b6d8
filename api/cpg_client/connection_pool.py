"""A pool of HTTP connections to one server, each with one request at a time.

We wrote our own pool for two reasons. First, ``send_request`` checks the write fence and hands the bytes to the kernel
in one step. A process that is stopped between the two could write after it has lost its lease. Second, a request takes
two thirds of the CPU time that it takes through aiohttp; most of the rest is TLS and the event loop.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from io import BytesIO
from ssl import SSLContext

from msgspec import Struct

from cpg_client.http1 import MalformedResponseError, ResponseHead, ResponseParser
from cpg_client.transport import SocketTransport, connect

MAX_BUFFERED_BYTES = 1 << 20
"""Bytes of a stream that are received and not read yet. Above this limit, reading pauses, so the server waits."""


class BrokenConnectionError(OSError):
    """A connection ended, or sent malformed data, before the response was complete."""


class OversizedResponseError(BrokenConnectionError):
    """A response that is not streamed has more bytes than the client accepts."""


class HttpConnection:
    """One connection. It answers one request at a time, and is reusable once the response is complete."""

    def __init__(self, connected: socket.socket, max_response_bytes: int) -> None:
        """Take a connected socket, without a request."""
        self.idle_since = 0.0
        self.tls_context: SSLContext | None = None
        """The TLS context with which it was opened: the authorities trusted then, and the client certificate."""
        self.responses = 0
        """Responses received over this connection."""
        self._max_response_bytes = max_response_bytes
        self._parser = ResponseParser()
        self._awaits_response = False
        self._body = BytesIO()
        self._chunks: deque[bytes] = deque()
        self._buffered_bytes = 0
        self._is_paused = False
        self._is_streaming = False
        self._waiter: asyncio.Future[None] | None = None
        self._error: BaseException | None = None
        self._transport = SocketTransport(connected, self._on_data, self._on_closed)

    # Called by users of the connection.

    @property
    def is_open(self) -> bool:
        """Whether a request can be sent."""
        return self._transport.is_open

    @property
    def is_reusable(self) -> bool:
        """Whether request and response are complete, and the server keeps the connection open."""
        head = self._parser.head
        is_finished = not (self._awaits_response or self._chunks or self._transport.has_unsent)
        return self.is_open and is_finished and (head is None or head.keeps_open)

    @property
    def is_stale(self) -> bool:
        """Whether the connection broke like an idle one: after earlier responses, and without a byte of this one."""
        return self.responses > 0 and self._parser.is_untouched

    def read_pending(self) -> None:
        """Read what has arrived already, before a request is sent: bytes that no request asked for close an idle one.

        They could otherwise be taken for the response to the next request.
        """
        self._transport.read_pending()

    def send_request(self, data: bytes, *, fence: Callable[[], None], streaming: bool) -> None:
        """Check the fence and send a request, with nothing in between."""
        fence()
        self._is_streaming = streaming
        self._awaits_response = True
        self._parser.expect_next()
        self._transport.write(data)

    async def read_head(self) -> ResponseHead:
        """Wait for the head of the response; unless it is streamed, for the whole response."""
        while (head := self._parser.head) is None or not (self._is_streaming or self._parser.is_complete):
            await self._wait_for_data()
        return head

    async def read_chunk(self) -> bytes:
        """Wait for the next part of the body; empty bytes mean that it is complete."""
        while not self._chunks:
            if self._parser.is_complete:
                return b""
            await self._wait_for_data()
        data = self._chunks.popleft()
        self._buffered_bytes -= len(data)
        if self._is_paused and self._buffered_bytes < MAX_BUFFERED_BYTES:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    def take_body(self) -> bytes:
        """Return the whole body that has been received, without a copy: ``BytesIO`` hands out its buffer."""
        body, self._body = self._body, BytesIO()
        return body.getvalue()

    def close(self) -> None:
        """Close the socket; a pending read fails."""
        self._transport.close()
        self._fail(BrokenConnectionError("the connection was closed"))

    async def _wait_for_data(self) -> None:
        error = self._error
        if isinstance(error, OversizedResponseError):
            raise error
        if error is not None:
            raise BrokenConnectionError(str(error) or type(error).__name__) from error
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # Called by the transport.

    def _on_data(self, data: bytes) -> None:
        """Parse received bytes."""
        parser = self._parser
        try:
            self._keep(self._parse(data))
        except (MalformedResponseError, OversizedResponseError) as error:
            self._fail(error)
            self.close()
            return
        if parser.is_complete:
            self.responses += 1
            self._awaits_response = False
        if parser.is_complete or (self._is_streaming and parser.head is not None):
            self._wake()

    def _parse(self, data: bytes) -> list[bytes]:
        if not self._awaits_response:
            raise MalformedResponseError("the server sent bytes that no request asked for")
        return self._parser.feed(data)

    def _keep(self, parts: list[bytes]) -> None:
        """Keep parts of a body: one buffer that grows, or a queue of a stream that pauses when it is full."""
        if self._is_streaming:
            self._chunks.extend(parts)
            self._buffered_bytes += sum(map(len, parts))
            if self._buffered_bytes > MAX_BUFFERED_BYTES and not self._is_paused:
                self._is_paused = True
                self._transport.pause_reading()
            return
        self._body.writelines(parts)
        if self._body.tell() > self._max_response_bytes:
            raise OversizedResponseError(f"the response has more than {self._max_response_bytes} bytes")

    def _on_closed(self, error: Exception | None) -> None:
        """Fail the pending read, unless the closed connection marks the end of the response."""
        try:
            if error is None:
                self._parser.end()
                self._awaits_response = False
        except MalformedResponseError as broken:
            error = broken
        self._fail(error or BrokenConnectionError("Server disconnected"))

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class ServerAddress(Struct, frozen=True, kw_only=True):
    """The address of the server, its TLS context if any, and the name to verify."""

    host: str
    port: int
    tls: Callable[[], SSLContext] | None = None
    name: str | None = None


class PoolLimits(Struct, frozen=True):
    """Seconds for a new socket, seconds for which an unused one is kept, and the most bytes of a response."""

    connect_timeout: float
    idle_timeout: float
    max_response_bytes: int


MAX_OPENING = 16
"""Connections that are opened at once. Hundreds of TLS handshakes in one turn of the loop took 3 s, and the lease."""


class ConnectionPool:
    """A bounded pool of connections to one server. The last used is reused first; long idle ones are closed.

    When the TLS context changes, connections with the old context are closed after their current request.
    """

    def __init__(self, address: ServerAddress, limits: PoolLimits, size: int) -> None:
        """Start without connections; later there are at most ``size``."""
        self._address = address
        self._limits = limits
        self._slots = asyncio.Semaphore(size)
        self._opening = asyncio.Semaphore(MAX_OPENING)
        self._waiting: dict[object, float] = {}
        self._idle: list[HttpConnection] = []
        self._connections: set[HttpConnection] = set()
        self._clock = asyncio.get_running_loop().time
        self._context: SSLContext | None = None
        self.refresh()

    def refresh(self) -> bool:
        """Get the current TLS context; return whether it has changed."""
        before, self._context = self._context, self._address.tls() if self._address.tls else None
        return self._context is not before

    async def acquire(self, *, fresh: bool = False) -> HttpConnection:
        """Return a connection for one request, idle or ``fresh``; the caller releases it."""
        await self._take_slot()
        try:
            return (None if fresh else self._pop_idle()) or await self._open()
        except BaseException:
            self._slots.release()
            raise

    def longest_wait(self) -> float:
        """Return the seconds for which the oldest request has been waiting for a socket; 0 if none waits."""
        return self._clock() - next(iter(self._waiting.values())) if self._waiting else 0.0

    async def _take_slot(self) -> None:
        if not self._slots.locked():
            await self._slots.acquire()
            return
        waiter = object()
        self._waiting[waiter] = self._clock()
        try:
            await self._slots.acquire()
        finally:
            del self._waiting[waiter]

    def release(self, connection: HttpConnection) -> None:
        """Return a connection to the pool. One with an unfinished response is closed."""
        self._slots.release()
        if connection.is_reusable:
            connection.idle_since = self._clock()
            self._idle.append(connection)
        else:
            self._close(connection)
        while self._idle and not self._is_usable(self._idle[0]):
            self._close(self._idle.pop(0))

    def close(self) -> None:
        """Close all connections; pending reads fail."""
        for connection in tuple(self._connections):
            self._close(connection)
        self._idle.clear()

    def _pop_idle(self) -> HttpConnection | None:
        while self._idle:
            connection = self._idle.pop()
            connection.read_pending()
            if self._is_usable(connection):
                return connection
            self._close(connection)
        return None

    def _is_usable(self, connection: HttpConnection) -> bool:
        is_current = connection.tls_context is self._context
        return connection.is_open and is_current and self._clock() - connection.idle_since < self._limits.idle_timeout

    def _close(self, connection: HttpConnection) -> None:
        self._connections.discard(connection)
        connection.close()

    async def _open(self) -> HttpConnection:
        address = self._address
        self.refresh()
        context = self._context
        name = (address.name or address.host) if context else None
        try:
            async with self._opening, asyncio.timeout(self._limits.connect_timeout):
                connected = await connect(address.host, address.port, context, name)
        except TimeoutError as error:
            raise BrokenConnectionError(f"Cannot connect within {self._limits.connect_timeout:g} s") from error
        except OSError as error:
            raise BrokenConnectionError(f"Cannot connect: {error}") from error
        connection = HttpConnection(connected, self._limits.max_response_bytes)
        connection.tls_context = context
        self._connections.add(connection)
        connection.read_pending()
        return connection


class ConnectionPools(Struct, frozen=True):
    """The sockets of requests, and those of streams, which are held for long."""

    requests: ConnectionPool
    streams: ConnectionPool

    def refresh(self) -> bool:
        """Get the current TLS context; return whether it has changed."""
        return any([self.requests.refresh(), self.streams.refresh()])

    def longest_wait(self) -> float:
        """Return the seconds for which the oldest request or stream has been waiting for a socket; 0 if none waits."""
        return max(self.requests.longest_wait(), self.streams.longest_wait())

    def close(self) -> None:
        """Close all connections; pending reads fail."""
        self.requests.close()
        self.streams.close()
