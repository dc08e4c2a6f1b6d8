"""Our reading of a response compared with that of h11, the parser of httpx."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import h11
from hypothesis import event, example, given
from hypothesis import strategies as st

from cpg_client.http1 import MalformedResponseError, ResponseParser

HEADERS_OF_INTEREST = ("content-length", "transfer-encoding", "retry-after", "connection")
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"

STATUS_LINES = st.sampled_from(
    [
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 201 Created",
        b"HTTP/1.0 200 OK",
        b"HTTP/1.1 204 No Content",
        b"HTTP/1.1 304 Not Modified",
        b"HTTP/1.1 429",
        b"HTTP/1.1 999 ",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK",
        b"HTTP/1.1 101 Switching Protocols",
        b"HTTP/1.1  200 OK",
        b"HTTP/1.1 20 OK",
        b"HTTP/1.1 2000 OK",
        b"HTTP/11 200 OK",
        b"http/1.1 200 OK",
        b"\r\nHTTP/1.1 200 OK",
    ]
)
HEADERS = st.sampled_from(
    [
        b"Content-Length: 5",
        b"Content-Length: 0",
        b"Content-Length: 05",
        b"Content-Length: +5",
        b"Content-Length: 5, 5",
        b"Content-Length : 5",
        b"content-length:5 ",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: Chunked ",
        b"Transfer-Encoding: identity",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding:",
        b"Connection: close",
        b"Connection: keep-alive, Upgrade",
        b"Upgrade: h2c",
        b"Retry-After: 7",
        b"Date: Thu, 19 Nov 2026 21:00:00 GMT",
        b" folded",
        b"no colon",
        b": no name",
        b"X-Odd: \x80\xff\t ",
    ]
)
SIZES = st.sampled_from([b"5", b"05", b"5;a=b", b'5;a="b"', b"0x5", b" 5", b"5 ", b"+5", b"1_0", b"A", b"5\n", b""])
CHUNKS = st.lists(st.tuples(SIZES, st.sampled_from([b"abcde", b"abcdefghij", b""]), st.sampled_from([b"\r\n", b"XX"])))


ENDS = st.sampled_from([b"0\r\n\r\n", b"0;a=b\r\nTrailer: 1\r\n\r\n", b"00\r\n\r\n", b"0\r\n"])


@st.composite
def responses(draw: st.DrawFn) -> bytes:
    """Draw a valid response, replace parts of it by odd ones, and change a few of its bytes."""
    is_chunked, is_odd = draw(st.booleans()), draw(st.booleans())
    body = draw(st.binary(max_size=20))
    framing = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % len(body)
    if is_chunked:
        parts = [(b"%x" % len(part), part, b"\r\n") for part in draw(st.lists(st.binary(min_size=1, max_size=20)))]
        parts += draw(CHUNKS) if is_odd else []
        body = b"".join(size + b"\r\n" + data + end for size, data, end in parts) + draw(ENDS)
    others = draw(st.lists(HEADERS, max_size=2))
    lines = [draw(STATUS_LINES), *([framing] if draw(st.integers(0, 4)) else []), *others, b"", b""]
    wire = bytearray(b"\r\n".join(lines) + body)
    odd = st.lists(st.tuples(st.integers(0, len(wire) - 1), st.integers(0, 255)), max_size=2 if is_odd else 0)
    for place, value in draw(odd):
        wire[place] = value
    return bytes(wire)


class Reading(NamedTuple):
    """What a parser has read."""

    status: int
    headers: dict[str, str | None]
    body: bytes


def cut(wire: bytes, places: Sequence[int]) -> Iterator[bytes]:
    """Yield the bytes in pieces."""
    ends = sorted({place % len(wire) for place in places} - {0})
    yield from (wire[start:end] for start, end in zip([0, *ends], [*ends, len(wire)], strict=True))


def read_ours(wire: bytes, places: Sequence[int]) -> Reading:
    """Read a response with our parser."""
    parser = ResponseParser()
    body = b"".join(part for piece in cut(wire, places) for part in parser.feed(piece))
    parser.end()
    assert parser.head is not None
    headers = {name: parser.head.header(name) for name in HEADERS_OF_INTEREST}
    if coding := headers["transfer-encoding"]:
        headers["transfer-encoding"] = coding.lower()  # h11 writes it so
    return Reading(parser.head.status, headers, body)


def read_theirs(wire: bytes) -> Reading:
    """Read a response with h11."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    connection.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(wire)
    connection.receive_data(b"")
    status, headers, body = 0, dict[str, str | None](), b""
    while not isinstance(found := connection.next_event(), h11.EndOfMessage):
        assert not isinstance(found, h11.ConnectionClosed | type(h11.NEED_DATA))
        if isinstance(found, h11.Response):
            known = defaultdict[str, list[str]](list)
            for name, value in found.headers:
                known[name.decode()].append(value.decode("latin-1"))
            status = found.status_code
            headers = {name: ", ".join(known[name]) if name in known else None for name in HEADERS_OF_INTEREST}
        if isinstance(found, h11.Data):
            body += found.data
    return Reading(status, headers, body)


@given(responses(), st.lists(st.integers(0, 400), max_size=6))
@example(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc", [])
@example(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + CHUNKED + b"0\r\n\r\n", [])
@example(b"HTTP/1.1 200 OK\r\n" + CHUNKED + b"0x5\r\nabcde\r\n0\r\n\r\n", [])
@example(b"HTTP/1.1 200 OK\r\n" + CHUNKED + b"5\r\nabcdeXX0\r\n\r\n", [])
@example(b"HTTP/1.1 200 OK\r\n" + CHUNKED + b"5\r\nabcde\r\n0\r\n\r\n", [90])
def test_h11_reads_the_same(wire: bytes, places: list[int]) -> None:
    """What our parser accepts, h11 accepts with the same status, headers and body; ours raises no other error."""
    try:
        ours = read_ours(wire, places)
    except MalformedResponseError:
        event("refused")
        return
    event("accepted")
    assert read_theirs(wire) == ours


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=6))
def test_random_bytes_are_a_response_or_malformed(noise: bytes, places: list[int]) -> None:
    """No other error occurs, in a head, in a body of chunks, and anywhere else."""
    for start in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\n" + CHUNKED):
        test_h11_reads_the_same.hypothesis.inner_test(start + noise or b"x", places)  # type: ignore[attr-defined]
