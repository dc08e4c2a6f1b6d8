"""The bytes of HTTP/1.1: requests written, answers read, without a socket.

Only what a client needs that asks for no compression and follows nothing: status, headers, and a body that is
delimited by its length, by chunks, or by the end of the connection.
"""

from collections.abc import Iterable

from msgspec import Struct

MAX_HEAD_BYTES = 64 * 1024
"""Bytes of headers after which an answer is none."""
MAX_CHUNK_LINE_BYTES = 256
UNTIL_CLOSED = -1
"""The length of a body that ends with the connection."""
STATUSES_WITHOUT_BODY = {204, 304}


class MalformedResponseError(ValueError):
    """What came is not HTTP, or not as long as it said."""


class ResponseHead(Struct, frozen=True):
    """What comes before a body; names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    keeps_open: bool

    def header(self, name: str) -> str | None:
        """Return a header, or None where the server sent none."""
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
    """An answer as it comes in: feed it bytes, and take what has become of them."""

    def __init__(self) -> None:
        """Begin before the first byte."""
        self.head: ResponseHead | None = None
        self.is_complete = False
        self._raw = bytearray()
        self._left = 0
        self._chunked = False
        self._in_trailer = False

    @property
    def is_untouched(self) -> bool:
        """Whether not a byte has come."""
        return self.head is None and not self._raw

    def feed(self, data: bytes) -> bytes:
        """Take bytes in; return as much of the body as they complete."""
        if self.is_complete:
            raise MalformedResponseError("the server sent more than its answer")
        if self.head is not None and not self._chunked:
            return self._measured(data)
        self._raw += data
        if self.head is None:
            self._read_head()
        if self.head is None:
            return b""
        if self._chunked:
            return self._chunks()
        data = bytes(self._raw)
        self._raw.clear()
        return self._measured(data)

    def end(self) -> None:
        """Note that the server has closed the connection: the end of a body that has no other."""
        if self.is_complete:
            return
        if self.head is None or self._left != UNTIL_CLOSED:
            raise MalformedResponseError(
                "Server disconnected" if self.is_untouched else "the server broke off its answer"
            )
        self.is_complete = True

    def _read_head(self) -> None:
        while self.head is None:
            end = self._raw.find(b"\r\n\r\n")
            if max(end, len(self._raw) if end < 0 else 0) > MAX_HEAD_BYTES:
                raise MalformedResponseError("the headers of the answer have no end")
            if end < 0:
                return
            head = _parse_head(self._raw[:end].decode("latin-1"))
            del self._raw[: end + 4]
            if head.status >= 200:  # before it, a server may send others that say nothing
                self.head = head
                self._delimit(head)

    def _delimit(self, head: ResponseHead) -> None:
        """Learn how to tell the end of the body."""
        if head.status in STATUSES_WITHOUT_BODY:
            self._left = 0
        elif "transfer-encoding" in head.headers:
            self._chunked = True
        else:
            self._left = (
                _parse_number(head.headers["content-length"], 10) if "content-length" in head.headers else UNTIL_CLOSED
            )
        self.is_complete = not self._left and not self._chunked

    def _measured(self, data: bytes) -> bytes:
        """Take a piece of a body that has a length, or none at all."""
        if self._left != UNTIL_CLOSED:
            if len(data) > self._left:
                raise MalformedResponseError("the server sent more than its answer")
            self._left -= len(data)
            self.is_complete = not self._left
        return data

    def _chunks(self) -> bytes:
        """Take what there is of chunks: each is a line with its size, so many bytes, and the end of a line."""
        found, place = [], 0
        raw = self._raw
        while not self.is_complete:
            if self._left > 2:
                piece = bytes(raw[place : place + self._left - 2])
                place += len(piece)
                self._left -= len(piece)
                found.append(piece)
            if self._left:
                if self._left > 2 or len(raw) - place < self._left:
                    break
                place += self._left
                self._left = 0
            end = raw.find(b"\r\n", place)
            if end < 0:
                if len(raw) - place > MAX_CHUNK_LINE_BYTES:
                    raise MalformedResponseError("a chunk of the answer has no size")
                break
            line, place = bytes(raw[place:end]), end + 2
            self._begin(line)
        del raw[:place]
        if self.is_complete and raw:
            raise MalformedResponseError("the server sent more than its answer")
        return b"".join(found)

    def _begin(self, line: bytes) -> None:
        """Read the line before a chunk, or one of those after the last."""
        if self._in_trailer:
            self.is_complete = not line
            return
        size = _parse_number(line.partition(b";")[0].decode("latin-1").strip(), 16)
        self._left = size + 2 if size else 0
        self._in_trailer = not size


def _parse_head(text: str) -> ResponseHead:
    first, *lines = text.split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1."):
        raise MalformedResponseError(f"this is no answer of HTTP/1.1: {first[:60]!r}")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    wish = headers.get("connection", "").lower()
    return ResponseHead(_parse_number(rest[:3], 10), headers, keeps_open="close" not in wish and version != "HTTP/1.0")


def _parse_number(text: str, base: int) -> int:
    """Read a number as HTTP writes them: digits and nothing else."""
    if not text.isalnum():
        raise MalformedResponseError(f"this is no number: {text[:60]!r}")
    try:
        return int(text, base)
    except ValueError:
        raise MalformedResponseError(f"this is no number: {text[:60]!r}") from None
