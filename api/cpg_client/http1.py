"""Encode requests and parse responses of HTTP/1.1, without a socket.

The grammar is that of llhttp, the parser of Node.js, through ``httptools``. It refuses two lengths, a length beside
chunks, sizes that are not plain digits, and chunks without their line ends. ``ResponseParser`` adds the rules of this
client: a request has one response, no head is endless, and chunks are the only transfer encoding.
"""

from collections.abc import Iterable
from typing import Final

import httptools
from msgspec import Struct

MAX_HEAD_BYTES: Final = 64 * 1024
"""Bytes that are accepted without a byte of a body: headers, the lines of chunks, trailers."""
MAX_LINE_BYTES: Final = 32 << 20
"""Bytes of a line of a watch. No object is that large: etcd takes 1.5 MB. Longer lines would fill the memory."""
SWITCHING_PROTOCOLS: Final = 101
STATUSES_WITHOUT_BODY: Final = frozenset({204, 304})
_TEXT: Final = bytes([9, *range(32, 127), *range(128, 256)])
"""The bytes that text in a head may have: all but control characters."""
_GRAMMAR_ERRORS: Final = (httptools.HttpParserError, httptools.HttpParserUpgrade)


class MalformedResponseError(ValueError):
    """The bytes are not one HTTP response, or not as long as announced."""


class ResponseHead(Struct, frozen=True):
    """Status and headers of a response; the names of headers are in lower case."""

    status: int
    headers: dict[bytes, bytes]
    keeps_open: bool

    def header(self, name: str) -> str | None:
        """Return a header, or None."""
        value = self.headers.get(name.encode())
        return None if value is None else value.decode("latin-1")


def encode_request(method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes | None) -> bytes:
    """Return the bytes of a request."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header must not contain a line break")
    return "\r\n".join((*lines, "", "")).encode() + (body or b"")


class _Callbacks:
    """What llhttp reports about one connection. Bodies of the current response gather in ``body``."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.reset()

    def reset(self) -> None:
        """Expect the next response."""
        self.head: ResponseHead | None = None
        self.is_complete = False
        self.is_delimited = True
        self.problem = ""
        self.body: list[bytes] = []
        self._headers: dict[bytes, bytes] = {}

    def on_message_begin(self) -> None:
        """Start a response; after an interim one this is the final one."""
        self._headers = {}
        if self.is_complete:
            self.problem = "the server sent more than its response"

    def on_status(self, reason: bytes) -> None:
        """Refuse a reason with control characters, as h11 does."""
        if reason.translate(None, _TEXT):
            self.problem = f"malformed HTTP: control characters in the reason {reason[:60]!r}"

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, and join repeated ones; trailers are ignored."""
        if self.head is None:
            name, headers = name.lower(), self._headers
            headers[name] = b"%b, %b" % (headers[name], value) if name in headers else value.strip()

    def on_headers_complete(self) -> None:
        """Determine how the body ends. Statuses below 200 are interim responses without meaning here."""
        parser, headers = self.parser, self._headers
        status, version = parser.get_status_code(), parser.get_http_version()
        coding = headers.get(b"transfer-encoding")
        if status < 100 or status == SWITCHING_PROTOCOLS:
            self.problem = f"unexpected status {status}"
        elif version not in {"1.1", "1.0"}:
            self.problem = f"this is not an HTTP/1.1 response: HTTP/{version}"
        elif coding is not None and (coding.lower() != b"chunked" or version == "1.0"):
            self.problem = f"unsupported transfer encoding {coding[:60]!r}"
        if status >= 200:
            has_end = b"content-length" in headers or coding is not None or status in STATUSES_WITHOUT_BODY
            self.is_delimited = has_end
            self.head = ResponseHead(status, headers, keeps_open=has_end and parser.should_keep_alive())

    def on_body(self, data: bytes) -> None:
        """Take a part of the body."""
        self.body.append(data)

    def on_message_complete(self) -> None:
        """End the response, unless it is an interim one."""
        self.is_complete = self.head is not None


class ResponseParser:
    """An incremental parser of the responses of one connection, one at a time."""

    def __init__(self) -> None:
        """Start before the first byte of the first response."""
        self._state = _Callbacks()
        self._bytes_without_body = 0

    @property
    def head(self) -> ResponseHead | None:
        """The head of the response, once it is there."""
        return self._state.head

    @property
    def is_complete(self) -> bool:
        """Whether the whole response has been received."""
        return self._state.is_complete

    @property
    def is_untouched(self) -> bool:
        """Whether no byte of the response has been received."""
        return self.head is None and not self._bytes_without_body

    def expect_next(self) -> None:
        """Expect the response to another request; the last one must be complete."""
        self._state.reset()
        self._bytes_without_body = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Parse bytes; return the parts of the body that they contain."""
        state = self._state
        if state.is_complete:
            raise MalformedResponseError("the server sent more than its response")
        if self.is_untouched and not data.startswith(b"H"):  # llhttp skips empty lines, and knows RTSP
            raise MalformedResponseError(f"this is not an HTTP/1.1 response: {data[:60]!r}")
        self._bytes_without_body += len(data)
        try:
            state.parser.feed_data(data)
        except _GRAMMAR_ERRORS as error:
            raise MalformedResponseError(state.problem or f"malformed HTTP: {error}") from error
        if state.problem:
            raise MalformedResponseError(state.problem)
        parts, state.body = state.body, []
        if parts:
            self._bytes_without_body = 0
        elif self._bytes_without_body > MAX_HEAD_BYTES:
            raise MalformedResponseError("the headers of the response have no end")
        return parts

    def end(self) -> None:
        """Handle the end of the connection, which ends a body without a length."""
        state = self._state
        if state.is_complete:
            return
        if self.is_untouched:
            raise MalformedResponseError("Server disconnected")
        if state.head is None or state.is_delimited:
            raise MalformedResponseError("the server closed the connection in the middle of its response")
        state.is_complete = True
