"""A small HTTP server for probes, metrics and debug pages: GET only, one request per connection.

We run our own server because it must share the scheduler's event loop: a stuck loop must fail its probe. Long pages are
sent in chunks, and the loop continues its other work between them.
"""

import asyncio
import traceback
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

IO_TIMEOUT_SECONDS = 5.0
REASON_PHRASES = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
MAX_REQUEST_BYTES = 16 * 1024
NO_CHUNKS: tuple[bytes, ...] = ()
LAST_CHUNK = b"0\r\n\r\n"


class ProbeResponse(Struct, frozen=True):
    """The response to a GET; each of the ``chunks`` after the body is built when it is sent.

    Empty chunks are pauses in which others run.
    """

    body: bytes
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"
    chunks: Iterable[bytes] = NO_CHUNKS
    retry_after: int | None = None


Route = Callable[[str], ProbeResponse]
"""A handler; its argument is the path after the prefix."""


class ProbeServer:
    """Serves routes by the longest matching prefix."""

    def __init__(self, routes: dict[str, Route]) -> None:
        """Take the routes; ``serve`` starts to listen."""
        self._routes: list[tuple[str, Route]] = []
        self.add(routes)

    def add(self, routes: dict[str, Route]) -> None:
        """Add routes; they replace routes of the same prefix."""
        self._routes = sorted((dict(self._routes) | routes).items(), key=lambda item: -len(item[0]))

    async def serve(self, host: str, port: int) -> None:
        """Listen until cancelled."""
        server = await asyncio.start_server(self._connected, host, port, limit=MAX_REQUEST_BYTES)
        async with server:
            await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await _read_request(reader)
            if isinstance(request, ProbeResponse):
                await send(writer, encode(request))
            else:
                await self._respond(request, writer)
            writer.close()
            async with asyncio.timeout(IO_TIMEOUT_SECONDS):
                await writer.wait_closed()
        except (TimeoutError, ConnectionError):
            pass
        finally:
            writer.transport.abort()  # what a client never reads would be kept for as long as it stays

    async def _respond(self, request: str, writer: asyncio.StreamWriter) -> None:
        """Send the response to a request, and let others run after each piece."""
        for piece in self.pieces(request):
            await send(writer, piece)
            await asyncio.sleep(0)

    def pieces(self, request: str) -> Iterator[bytes]:
        """Yield the response to a request; the status is known after the first piece that is not empty."""
        answer = self.answer(request)
        chunks = iter(answer.chunks)
        body = answer.body
        try:
            while not body and (chunk := next(chunks, None)) is not None:
                yield b""
                body = chunk
        except Exception:  # noqa: BLE001 - whatever it is
            answer = _failure()
            body = answer.body
        if answer.chunks is NO_CHUNKS:
            yield _encode_head(answer) + body
            return
        yield _encode_head(answer) + _frame(body)
        yield from map(_frame, chunks)
        yield LAST_CHUNK

    def answer(self, request: str) -> ProbeResponse:
        """Return the response to a request, by its first line."""
        method, _, rest = request.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in {"GET", "HEAD"}:
            return ProbeResponse(b"only GET is answered\n", status=405)
        for prefix, route in self._routes:
            if path == prefix or (prefix.endswith("/") and path.startswith(prefix)):
                return _call_route(route, path.removeprefix(prefix))
        return ProbeResponse(
            b"not found; there are " + b", ".join(sorted(p.encode() for p, _ in self._routes)) + b"\n", 404
        )


async def _read_request(reader: asyncio.StreamReader) -> str | ProbeResponse:
    """Return the head of a request, or the response to a malformed one."""
    try:
        async with asyncio.timeout(IO_TIMEOUT_SECONDS):
            return (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except TimeoutError:
        return ProbeResponse(f"the request has not ended within {IO_TIMEOUT_SECONDS:g} s\n".encode(), status=408)
    except asyncio.LimitOverrunError:
        return ProbeResponse(f"the request is longer than {MAX_REQUEST_BYTES} bytes\n".encode(), status=431)
    except asyncio.IncompleteReadError:
        return ProbeResponse(b"the request ends before its empty line\n", status=400)


def _call_route(route: Route, rest: str) -> ProbeResponse:
    """Call a route; an exception becomes a response with status 500."""
    try:
        return route(rest)
    except Exception:  # noqa: BLE001 - whatever it is
        return _failure()


def _failure() -> ProbeResponse:
    """Return the response that names the present exception."""
    return ProbeResponse(traceback.format_exc().encode(), status=500)


async def send(writer: asyncio.StreamWriter, piece: bytes) -> None:
    """Send a piece of a response; a reader that stops reading ends the connection."""
    writer.write(piece)
    async with asyncio.timeout(IO_TIMEOUT_SECONDS):
        await writer.drain()


def encode(answer: ProbeResponse) -> bytes:
    """Return a response without chunks."""
    return _encode_head(answer) + answer.body


def _frame(chunk: bytes) -> bytes:
    """Return a chunk with its length; an empty one stays empty, because its length would mean the end."""
    return b"%x\r\n%s\r\n" % (len(chunk), chunk) if chunk else b""


def _encode_head(answer: ProbeResponse) -> bytes:
    """Return status line and headers.

    A page in chunks says where it ends: a port-forward passes on the data, and not always the end of the connection.
    """
    is_whole = answer.chunks is NO_CHUNKS
    length = f"Content-Length: {len(answer.body)}\r\n" if is_whole else "Transfer-Encoding: chunked\r\n"
    retry = "" if answer.retry_after is None else f"Retry-After: {answer.retry_after}\r\n"
    head = (
        f"HTTP/1.1 {answer.status} {REASON_PHRASES[answer.status]}\r\n"
        f"Content-Type: {answer.content_type}\r\n{length}{retry}Connection: close\r\n\r\n"
    )
    return head.encode("latin-1")
