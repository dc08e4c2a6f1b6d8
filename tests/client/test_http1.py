"""HTTP/1.1 as bytes, valid and invalid."""

from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cpg_client.http1 import MalformedResponseError, ResponseParser, encode_request

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


def read(pieces: Sequence[bytes], *, ended: bool = False) -> tuple[ResponseParser, bytes]:
    """Parse a response that arrives in these chunks."""
    reading = ResponseParser()
    body = b"".join([part for piece in pieces for part in reading.feed(piece)])
    if ended:
        reading.end()
    return reading, body


def chunked(chunks: Sequence[bytes]) -> bytes:
    """Encode a body in chunks."""
    sized = [f"{len(chunk):x};note=1\r\n".encode() + chunk + b"\r\n" for chunk in chunks if chunk]
    return b"".join([*sized, b"0\r\nTrailer: 1\r\n\r\n"])


@given(st.lists(st.binary(max_size=40), max_size=6), st.sampled_from(["sized", "chunked", "endless"]), st.data())
def test_a_response_may_arrive_in_any_chunks(chunks: list[bytes], way: str, data: st.DataObject) -> None:
    """For every split, and for every way to delimit the body, the body is complete."""
    body = b"".join(chunks)
    wire = {
        "sized": OK + f"Content-Length: {len(body)}\r\n\r\n".encode() + body,
        "chunked": OK + b"transfer-encoding: chunked\r\n\r\n" + chunked(chunks),
        "endless": OK + b"Connection: close\r\n\r\n" + body,
    }[way]
    cuts = sorted(data.draw(st.sets(st.integers(1, len(wire) - 1), max_size=8)))
    pieces = [wire[start:end] for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    reading, found = read(pieces, ended=way == "endless")
    assert found == body
    assert reading.is_complete
    assert reading.head is not None
    assert (reading.head.status, reading.head.keeps_open) == (200, way != "endless")


@given(st.binary(max_size=200), st.sampled_from([b"", OK, OK + b"Transfer-Encoding: chunked\r\n\r\n"]))
@example(b"Content-Length: -1\r\n\r\n", OK)
@example(b"Content-Length: 1_0\r\n\r\n", OK)
@example("Content-Length: \u00b2\r\n\r\n".encode("latin-1"), OK)
@example(b"-4\r\nabcd\r\n", OK + b"Transfer-Encoding: chunked\r\n\r\n")
@example(b"0x4\r\nabcd\r\n", OK + b"Transfer-Encoding: chunked\r\n\r\n")
@example(b"HTTP/1.1 2x0 OK\r\n\r\n", b"")
def test_any_bytes_are_a_response_or_malformed(nonsense: bytes, start: bytes) -> None:
    """No other error occurs."""
    with suppress(MalformedResponseError):
        reading, _ = read([start, nonsense], ended=True)
        assert reading.is_complete


@pytest.mark.parametrize(
    ("wire", "why"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not an HTTP"),
        (OK + b"Content-Length: 2\r\n\r\nabc", "more than its response"),
        (OK + b"Content-Length: 2\r\n\r\nab" + OK, "more than its response"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nabc", "more than its response"),
        (OK + b"Content-Length: 2\r\n\r\na", "in the middle"),
        (OK + b"Content-Length: x\r\n\r\na", "Invalid character in Content-Length"),
        (OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc", "Duplicate Content-Length"),
        (OK + b"Content-Length: 2\r\n" + CHUNKED + b"0\r\n\r\n", "present"),
        (OK + CHUNKED[:-2] + b"Content-Length: 2\r\n\r\n0\r\n\r\n", "present"),
        (OK + CHUNKED + b"0x5\r\nabcde\r\n0\r\n\r\n", "chunk size"),
        (OK + CHUNKED + b"2_0\r\nabcde\r\n0\r\n\r\n", "chunk size"),
        (OK + CHUNKED + b"+5\r\nabcde\r\n0\r\n\r\n", "chunk size"),
        (OK + CHUNKED + b" 5\r\nabcde\r\n0\r\n\r\n", "chunk size"),
        (OK + CHUNKED + b"5\r\nabcdeXX0\r\n\r\n", "after chunk data"),
        (OK + b"Transfer-Encoding: gzip\r\n" + CHUNKED + b"0\r\n\r\n", "unsupported transfer encoding"),
        (b"HTTP/1.0 200 OK\r\n" + CHUNKED + b"0\r\n\r\n", "unsupported transfer encoding"),
        (OK + CHUNKED + b"1;" + b"a" * 70_000, "no end"),
        (OK + CHUNKED + b"0\r\n" + b"a: b\r\n" * 20_000, "no end"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 9_000, "no end"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", "unexpected status 101"),
        (b"HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n", "unexpected status 99"),
        (b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", "not an HTTP/1.1"),
        (b"RTSP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "not an HTTP/1.1"),
        (b"\r\n" + OK + b"Content-Length: 0\r\n\r\n", "not an HTTP/1.1"),
        (OK + b"x: y\r\n" * 20_000, "no end"),
        (b"", "disconnected"),
    ],
)
def test_a_malformed_response_is_an_error(wire: bytes, why: str) -> None:
    """The message names the problem."""
    with pytest.raises(MalformedResponseError, match=why):
        read([wire] if wire else [], ended=True)


def test_bytes_after_a_response_are_an_error() -> None:
    """One request has one response."""
    reading, _ = read([OK + b"Content-Length: 0\r\n\r\n"])
    with pytest.raises(MalformedResponseError, match="more than its response"):
        reading.feed(b"x")


def test_interim_responses_are_skipped() -> None:
    """The server may send other heads before the final one, and a response may have no body."""
    reading, body = read([b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 204 No Content\r\nWarning: 299\r\n\r\n"])
    assert (reading.is_complete, body) == (True, b"")
    assert reading.head is not None
    assert (reading.head.status, reading.head.keeps_open, reading.head.header("warning")) == (204, False, "299")


def test_a_request_is_encoded() -> None:
    """With a length where there is a body, and without line breaks in headers."""
    assert encode_request("GET", "/x", [("Host", "h")], None) == b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n"
    assert encode_request("PUT", "/x", [], b"ab") == b"PUT /x HTTP/1.1\r\nContent-Length: 2\r\n\r\nab"
    with pytest.raises(ValueError, match="line break"):
        encode_request("GET", "/x", [("Authorization", "Bearer a\r\nHost: other")], None)
