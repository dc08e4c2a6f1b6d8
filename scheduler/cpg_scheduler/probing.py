"""A very small HTTP server for probes, metrics and questions: GET only, one answer per connection.

Written out because it is forty lines, answers four kinds of question a few times a minute, and has to run on the
scheduler's own loop: a loop that is stuck must fail its probe.
"""

import asyncio
from collections.abc import Callable

from msgspec import Struct

PATIENCE = 5.0
PHRASES = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}
LONGEST_REQUEST = 16 * 1024


class Answer(Struct, frozen=True):
    """What is answered to a GET."""

    body: bytes
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"


Route = Callable[[str], Answer]
"""Answers the rest of a path."""


class ProbeServer:
    """Serves routes by the longest prefix that fits."""

    def __init__(self, routes: dict[str, Route]) -> None:
        """Serve these; nothing is listening yet."""
        self._routes = sorted(routes.items(), key=lambda item: -len(item[0]))

    async def serve(self, host: str, port: int) -> None:
        """Listen until cancelled."""
        server = await asyncio.start_server(self._connected, host, port, limit=LONGEST_REQUEST)
        async with server:
            await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(_encoded(self.answer(request.decode("latin-1"))))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # who asks badly gets no answer
        finally:
            writer.close()

    def answer(self, request: str) -> Answer:
        """Answer a request by its first line."""
        method, _, rest = request.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in {"GET", "HEAD"}:
            return Answer(b"only GET is answered\n", status=405)
        for prefix, route in self._routes:
            if path == prefix or (prefix.endswith("/") and path.startswith(prefix)):
                return route(path.removeprefix(prefix))
        return Answer(b"not found; there are " + b", ".join(sorted(p.encode() for p, _ in self._routes)) + b"\n", 404)


def _encoded(answer: Answer) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status} {PHRASES[answer.status]}\r\n"
        f"Content-Type: {answer.content_type}\r\nContent-Length: {len(answer.body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + answer.body
