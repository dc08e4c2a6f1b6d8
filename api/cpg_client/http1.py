"""Encode requests and parse responses of HTTP/1.1, without a socket.

Only what this client needs: no compression, no redirects. A body is delimited by its length, by chunks, or by the end
of the connection.
"""

from collections.abc import Iterable

from msgspec import Struct

MAX_HEAD_BYTES = 64 * 1024
"""Bytes of headers that are accepted."""
MAX_CHUNK_LINE_BYTES = 256
UNTIL_CLOSED = -1
"""The length of a body that ends with the connection."""
STATUSES_WITHOUT_BODY = {204, 304}


class MalformedResponseError(ValueError):
    """The bytes are not HTTP, or not as long as announced."""


class ResponseHead(Struct, frozen=True):
    """Status and headers of a response; the names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    keeps_open: bool

    def header(self, name: str) -> str | None:
        """Return a header, or None."""
        return self.headers.get(name)


def encode_request(method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes | None) -> bytes:
    """Return the bytes of a request."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header must not contain a line break")
    return "\r\n".join((*lines, "", "")).encode() + (body or b"")


class ResponseParser:
    """An incremental parser of one response."""

    def __init__(self) -> None:
        """Start before the first byte."""
        self.head: ResponseHead | None = None
        self.is_complete = False
        self._unparsed = bytearray()
        self._bytes_left = 0
        self._is_chunked = False
        self._in_trailer = False

    @property
    def is_untouched(self) -> bool:
        """Whether no byte has been received."""
        return self.head is None and not self._unparsed

    def feed(self, data: bytes) -> bytes:
        """Parse bytes; return the part of the body that they contain."""
        if self.is_complete:
            raise MalformedResponseError("the server sent more than its response")
        if self.head is not None and not self._is_chunked:
            return self._take_body(data)
        self._unparsed += data
        if self.head is None:
            self._read_head()
        if self.head is None:
            return b""
        if self._is_chunked:
            return self._take_chunks()
        data = bytes(self._unparsed)
        self._unparsed.clear()
        return self._take_body(data)

    def end(self) -> None:
        """Handle the end of the connection, which ends a body without a length."""
        if self.is_complete:
            return
        if self.head is None or self._bytes_left != UNTIL_CLOSED:
            if self.is_untouched:
                raise MalformedResponseError("Server disconnected")
            raise MalformedResponseError("the server closed the connection in the middle of its response")
        self.is_complete = True

    def _read_head(self) -> None:
        while self.head is None:
            end = self._unparsed.find(b"\r\n\r\n")
            if max(end, len(self._unparsed) if end < 0 else 0) > MAX_HEAD_BYTES:
                raise MalformedResponseError("the headers of the response have no end")
            if end < 0:
                return
            head = _parse_head(self._unparsed[:end].decode("latin-1"))
            del self._unparsed[: end + 4]
            if head.status >= 200:  # statuses below it are interim responses without meaning here
                self.head = head
                self._delimit(head)

    def _delimit(self, head: ResponseHead) -> None:
        """Determine how the end of the body is marked."""
        if head.status in STATUSES_WITHOUT_BODY:
            self._bytes_left = 0
        elif "transfer-encoding" in head.headers:
            self._is_chunked = True
        else:
            self._bytes_left = (
                _parse_number(head.headers["content-length"], 10) if "content-length" in head.headers else UNTIL_CLOSED
            )
        self.is_complete = not self._bytes_left and not self._is_chunked

    def _take_body(self, data: bytes) -> bytes:
        """Take a part of a body with a length, or of one until the end of the connection."""
        if self._bytes_left != UNTIL_CLOSED:
            if len(data) > self._bytes_left:
                raise MalformedResponseError("the server sent more than its response")
            self._bytes_left -= len(data)
            self.is_complete = not self._bytes_left
        return data

    def _take_chunks(self) -> bytes:
        """Take the available chunks: each has a line with its size, the bytes, and a line end."""
        found, place = [], 0
        raw = self._unparsed
        while not self.is_complete:
            if self._bytes_left > 2:
                piece = bytes(raw[place : place + self._bytes_left - 2])
                place += len(piece)
                self._bytes_left -= len(piece)
                found.append(piece)
            if self._bytes_left:
                if self._bytes_left > 2 or len(raw) - place < self._bytes_left:
                    break
                place += self._bytes_left
                self._bytes_left = 0
            end = raw.find(b"\r\n", place)
            if end < 0:
                if len(raw) - place > MAX_CHUNK_LINE_BYTES:
                    raise MalformedResponseError("a chunk of the response has no size")
                break
            line, place = bytes(raw[place:end]), end + 2
            self._parse_chunk_line(line)
        del raw[:place]
        if self.is_complete and raw:
            raise MalformedResponseError("the server sent more than its response")
        return b"".join(found)

    def _parse_chunk_line(self, line: bytes) -> None:
        """Parse the line before a chunk, or a trailer after the last."""
        if self._in_trailer:
            self.is_complete = not line
            return
        size = _parse_number(line.partition(b";")[0].decode("latin-1").strip(), 16)
        self._bytes_left = size + 2 if size else 0
        self._in_trailer = not size


def _parse_head(text: str) -> ResponseHead:
    first, *lines = text.split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1."):
        raise MalformedResponseError(f"this is not an HTTP/1.1 response: {first[:60]!r}")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    keeps_open = "close" not in headers.get("connection", "").lower() and version != "HTTP/1.0"
    return ResponseHead(_parse_number(rest[:3], 10), headers, keeps_open=keeps_open)


def _parse_number(text: str, base: int) -> int:
    """Parse a number of HTTP: digits alone."""
    if not text.isalnum():
        raise MalformedResponseError(f"this is not a number: {text[:60]!r}")
    try:
        return int(text, base)
    except ValueError:
        raise MalformedResponseError(f"this is not a number: {text[:60]!r}") from None
