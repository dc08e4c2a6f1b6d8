"""Cut JSON that is nested too deeply for a recursive decoder.

Users with write access to pods can nest ``managedFields`` by the thousand. msgspec recurses into everything, also into
fields that it skips, and raises ``RecursionError`` then. The scan here does not recurse.
"""

from itertools import accumulate, compress
from operator import sub

MAX_NESTING = 200
"""Levels that are kept. No field of the model is nested that deeply."""

_OPEN, _CLOSE = b"\x01", b"\xff"
_LEVELS = bytes({b"[": 1, b"{": 1, b"]": 255, b"}": 255}.get(bytes([code]), 0) for code in range(256))
"""Change of depth at a byte: 1 for an opening bracket, -1 (as an unsigned byte) for a closing one, else 0."""
_OPENINGS = bytes(code == 1 for code in range(256))
_PLAIN = bytes.maketrans(b"[]{}", b"____")
_STRETCH = 1024
_PIECE = 1 << 16


def cut_nesting(data: bytes) -> bytes:
    """Return the JSON without everything below ``MAX_NESTING`` levels."""
    return _cut(data, MAX_NESTING)


def cut_items(data: bytes) -> bytes:
    """Return a LIST, cut if one of its items is nested too deeply. An item is two levels deep itself."""
    return data if _cut(data, MAX_NESTING + 2) == data else cut_nesting(data)


def _cut(data: bytes, most: int) -> bytes:
    """Leave out what is nested more deeply than ``most`` levels, one stretch of bytes at a time.

    Most stretches are kept or dropped whole: their count of brackets shows that they cannot reach the limit, or cannot
    come back above it.
    """
    if data.count(b"{") + data.count(b"[") <= most:
        return data
    steps = _steps(data)
    kept: list[bytes] = []
    depth = 0
    for start in range(0, len(data), _STRETCH):
        stretch, here = data[start : start + _STRETCH], steps[start : start + _STRETCH]
        opened, closed = here.count(_OPEN), here.count(_CLOSE)
        if depth + opened <= most:
            kept.append(stretch)
        elif depth - closed <= most:
            kept.append(_cut_within(stretch, here, most - depth))
        depth += opened - closed
    return b"".join(kept)


def _cut_within(stretch: bytes, steps: bytes, most: int) -> bytes:
    """Cut one stretch byte by byte; a bracket belongs to the level around it."""
    depths = map(sub, accumulate(memoryview(steps).cast("b")), steps.translate(_OPENINGS))
    return bytes(compress(stretch, map(most.__ge__, depths)))


def _steps(data: bytes) -> bytes:
    """Return the change of depth at each byte. Brackets inside strings change nothing.

    One piece after the other: the strings of a piece are split apart, which takes fifty times their bytes.
    """
    found: list[bytes] = []
    start, in_string = 0, False
    while start < len(data):
        piece = data[start : start + _PIECE]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # an escape is not cut
            piece = data[start : start + len(piece) + 1]
        start += len(piece)
        parts = piece.replace(rb"\\", b"__").replace(rb"\"", b"__").split(b'"')
        strings = slice(0 if in_string else 1, None, 2)
        if parts[strings]:
            parts[strings] = b'"'.join(parts[strings]).translate(_PLAIN).split(b'"')
        found.append(b'"'.join(parts).translate(_LEVELS))
        in_string ^= len(parts) % 2 == 0
    return b"".join(found)
