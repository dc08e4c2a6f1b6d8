"""Open channels to one server, one request at a time on each, kept for the next.

Written out rather than taken from a library for two reasons. Between the last look at the fence and the bytes in the
kernel's hands nothing may come: a leader that is stopped in between would act when it is none any more. ``ask``
does both in one step. And a request costs two thirds of the processor time that it costs through aiohttp, most of
what is left being TLS and the event loop.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from ssl import SSLContext

from msgspec import Struct

from cpg_client.http1 import MalformedResponseError, ResponseHead, ResponseParser
from cpg_client.transport import SocketTransport, connect

MAX_BUFFERED_BYTES = 1 << 20
"""Bytes of a stream that nobody has taken yet, from which on the server has to wait."""


class BrokenConnectionError(OSError):
    """A channel ended, or brought nonsense, before the answer was complete."""


class HttpConnection:
    """One connection. It answers one request at a time, and is good for the next when the answer is complete."""

    def __init__(self, connected: socket.socket) -> None:
        """Begin with a connection that nothing has been asked on."""
        self.idle_since = 0.0
        self.tls_context: SSLContext | None = None
        """Whom we trusted, and who we said to be, when it was opened."""
        self.responses = 0
        """Answers that have come over this channel."""
        self._transport = SocketTransport(connected, self._received, self._lost)
        self._reading: ResponseParser | None = None
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._paused = False
        self._streaming = False
        self._waiter: asyncio.Future[None] | None = None
        self._error: BaseException | None = None

    # What callers do.

    @property
    def is_open(self) -> bool:
        """Whether a request may be sent."""
        return self._transport.is_open

    @property
    def is_reusable(self) -> bool:
        """Whether the last answer was taken to its end, and the server keeps the channel open."""
        reading = self._reading
        if reading is None:
            return self.is_open
        return (
            self.is_open and reading.is_complete and not self._pieces and bool(reading.head and reading.head.keeps_open)
        )

    @property
    def is_stale(self) -> bool:
        """Whether the channel broke as one that had been idle does: after others, and without a byte."""
        return self.responses > 0 and self._reading is not None and self._reading.is_untouched

    def send_request(self, data: bytes, *, fence: Callable[[], None], streaming: bool) -> None:
        """Send a request, if the fence lets it pass: nothing comes between the two."""
        self._streaming = streaming
        fence()
        self._reading = ResponseParser()
        self._transport.write(data)

    async def read_head(self) -> ResponseHead:
        """Wait for the beginning of the answer; unless it is a stream, for all of it."""
        reading = self._reading
        while reading is None or reading.head is None or not (self._streaming or reading.is_complete):
            await self._news()
        return reading.head

    async def read_chunk(self) -> bytes:
        """Wait for a piece of the body; nothing means that it is complete."""
        while not self._pieces:
            if self._reading is None or self._reading.is_complete:
                return b""
            await self._news()
        data = self._pieces.popleft()
        self._held -= len(data)
        if self._paused and self._held < MAX_BUFFERED_BYTES:
            self._paused = False
            self._transport.resume_reading()
        return data

    def take_body(self) -> bytes:
        """Take all of the body that has come."""
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._held = 0
        return data

    def close(self) -> None:
        """Hang up; who waits for an answer is told."""
        self._transport.close()
        self._fail(BrokenConnectionError("the channel was closed"))

    async def _news(self) -> None:
        if self._error is not None:
            raise BrokenConnectionError(str(self._error) or type(self._error).__name__) from self._error
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # What the line tells.

    def _received(self, data: bytes) -> None:
        """Read on."""
        reading = self._reading = self._reading or ResponseParser()
        try:
            piece = reading.feed(data)
        except MalformedResponseError as error:
            self._fail(error)
            self.close()
            return
        if piece:
            self._pieces.append(piece)
            self._held += len(piece)
        if self._streaming and self._held > MAX_BUFFERED_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        if reading.is_complete:
            self.responses += 1
        if reading.is_complete or (self._streaming and reading.head is not None):
            self._wake()

    def _lost(self, error: Exception | None) -> None:
        """Tell who waits, unless this was the end of the answer."""
        try:
            if error is None and self._reading is not None:
                self._reading.end()
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
    """Where the server is: TLS where there is a context for it by now, under a name to ask for and to verify."""

    host: str
    port: int
    tls: Callable[[], SSLContext] | None = None
    name: str | None = None


class ConnectionPool:
    """The channels to one place: so many at the most, the latest used first, and none that has been idle for long.

    When the context is another one, those that were opened by the old one end with what they are about.
    """

    def __init__(self, place: ServerAddress, *, limit: int, connect_timeout: float, idle_timeout: float) -> None:
        """Begin with none."""
        self._place = place
        self._free = asyncio.Semaphore(limit)
        self._connect_timeout = connect_timeout
        self._idle_timeout = idle_timeout
        self._idle: list[HttpConnection] = []
        self._all: set[HttpConnection] = set()
        self._clock = asyncio.get_running_loop().time
        self._context: SSLContext | None = None
        self.refresh()

    def refresh(self) -> bool:
        """Ask for the context of now; tell whether it is another one than before."""
        before, self._context = self._context, self._place.tls() if self._place.tls else None
        return self._context is not before

    async def acquire(self, *, fresh: bool = False) -> HttpConnection:
        """Return a channel for one request, an idle one if there is any and it need not be new; give it back after."""
        await self._free.acquire()
        try:
            return (None if fresh else self._found()) or await self._opened()
        except BaseException:
            self._free.release()
            raise

    def release(self, channel: HttpConnection) -> None:
        """Take a channel back; one that is in the middle of something is of no more use."""
        self._free.release()
        if channel.is_reusable:
            channel.idle_since = self._clock()
            self._idle.append(channel)
        else:
            self._drop(channel)
        while self._idle and not self._lives(self._idle[0]):
            self._drop(self._idle.pop(0))

    def close(self) -> None:
        """Hang up everywhere; who waits for an answer is told."""
        for channel in tuple(self._all):
            self._drop(channel)
        self._idle.clear()

    def _found(self) -> HttpConnection | None:
        while self._idle:
            channel = self._idle.pop()
            if self._lives(channel):
                return channel
            self._drop(channel)
        return None

    def _lives(self, channel: HttpConnection) -> bool:
        is_current = channel.tls_context is self._context
        return channel.is_open and is_current and self._clock() - channel.idle_since < self._idle_timeout

    def _drop(self, channel: HttpConnection) -> None:
        self._all.discard(channel)
        channel.close()

    async def _opened(self) -> HttpConnection:
        place = self._place
        self.refresh()
        context = self._context
        name = (place.name or place.host) if context else None
        try:
            async with asyncio.timeout(self._connect_timeout):
                channel = HttpConnection(await connect(place.host, place.port, context, name))
        except TimeoutError as error:
            raise BrokenConnectionError(f"Cannot connect within {self._connect_timeout:g} s") from error
        except OSError as error:
            raise BrokenConnectionError(f"Cannot connect: {error}") from error
        channel.tls_context = context
        self._all.add(channel)
        return channel
