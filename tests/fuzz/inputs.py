"""Inputs of fuzz targets: those that are kept, and changes of JSON as JSON."""

import ast
import random
from contextlib import suppress
from pathlib import Path

import msgspec
from tests.hostile.spoiled_objects import Spoiler

KEPT = Path(__file__).with_name("kept")


def kept(name: str) -> list[bytes]:
    """Return the inputs that are kept of a target, one in a line as Python writes bytes."""
    file = KEPT / f"{name}.txt"
    return [ast.literal_eval(line) for line in file.read_text("ascii").splitlines()] if file.exists() else []


def mutated(data: bytes, max_size: int, seed: int) -> bytes:
    """Spoil a value of JSON, or change bytes; some bytes may stand before the JSON."""
    spoiler, start = Spoiler(seed), data.find(b"{")
    if start >= 0 and spoiler.random.random() < 0.5:
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            plain = msgspec.json.decode(data[start:])
            if plain:
                spoiler.spoil(plain)
                return (data[:start] + msgspec.json.encode(plain))[:max_size]
    return changed_bytes(data, spoiler.random)[:max_size]


def changed_bytes(data: bytes, chance: random.Random) -> bytes:
    """Replace some bytes by others, perhaps of another place."""
    start, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    source = chance.randrange(len(data) + 1)
    odd = (b'"', b"[", b"}", b"0", b"", chance.randbytes(chance.randrange(4)))
    piece = chance.choice((data[source : source + 16], *odd))
    return data[:start] + piece + data[min(end, start + chance.choice((0, 1, 4, 64))) :]
