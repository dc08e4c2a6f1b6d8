"""Values of CEL that Python lacks, and equality.

Null, bool, int, double, string and bytes are Python's; a list is a Python list.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cpg_engine.cel.errors import CostError, EvaluationError, NotSupportedError
from cpg_engine.cel.quantities import Quantity
from cpg_engine.cel.semver import Semver

INT_MAX: Final = 2**63 - 1
INT_MIN: Final = -(2**63)
UINT_MAX: Final = 2**64 - 1

MISSING: Final = object()
"""What a lookup returns for a key that is not there."""


class Uint(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


class GrowingList(list[object]):
    """An empty list that ``cel.bind`` has bound: upstream adds to it in place."""

    __slots__ = ()


class JoinedList(list[object]):
    """The result of ``list + list``; upstream compares it differently."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value, as ``type(1)`` returns it."""

    name: str


@dataclass(frozen=True, slots=True)
class CelDuration:
    """A duration in nanoseconds."""

    nanos: int


@dataclass(frozen=True, slots=True)
class Timestamp:
    """An instant in nanoseconds since the epoch, with the offset from UTC in seconds in which it was written."""

    nanos: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Optional:
    """A value that may be missing."""

    value: object = MISSING


class CelMap:
    """A map. Strings are keys of ``entries`` as they are; other keys stand beside their type, so that 1 is not true."""

    __slots__ = ("default", "entries", "is_given")

    def __init__(self, entries: dict[object, object], default: object = MISSING, *, is_given: bool = False) -> None:
        self.entries = entries
        self.is_given = is_given
        """Whether it is of the device, and not made by the expression."""
        self.default = default
        """What a lookup of a missing key returns: upstream's maps by domain have an empty map here."""

    def find(self, key: object) -> object:
        """Look up a key, or ``default``."""
        value = self.entries.get(key, MISSING) if type(key) is str else self._find_number(key)
        return self.default if value is MISSING else value

    def contains(self, key: object) -> bool:
        """Say whether there is such a key; the default does not count."""
        return CelMap(self.entries).find(key) is not MISSING

    def keys(self) -> Iterator[object]:
        """Yield the keys."""
        return (key[1] if isinstance(key, tuple) else key for key in self.entries)

    def items(self) -> Iterator[tuple[object, object]]:
        """Yield keys and values."""
        return zip(self.keys(), self.entries.values(), strict=True)

    def _find_number(self, key: object) -> object:
        """Look up a key that is no string; numbers that are equal are one key."""
        for encoded in _encodings(key):
            if encoded in self.entries:
                return self.entries[encoded]
        return MISSING


def _encodings(key: object) -> Iterator[tuple[type, object]]:
    """Yield what a key may be stored as."""
    kind = type(key)
    if kind is float and key == key:  # noqa: PLR0124 - NaN is no key
        yield (float, key)
        if key in {float("inf"), float("-inf")}:
            return
    number = key if isinstance(key, int) else int(key) if isinstance(key, float) and key.is_integer() else None
    if key is None or kind is bool:
        yield (kind, key)
    elif number is not None:
        yield from ((int, number), (Uint, number)) if kind is not Uint else ((Uint, number), (int, number))


def encode_key(key: object) -> object:
    """Return the key as it is stored in a map."""
    kind = type(key)
    if kind is str:
        return key
    if key is None or kind in {bool, int, Uint, float}:
        return (kind, key)
    raise NotSupportedError(f"{type_name(key)} as the key of a map is not supported")


_TYPE_NAMES: Final = {
    type(None): "null_type",
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    JoinedList: "list",
    GrowingList: "list",
    CelMap: "map",
    Timestamp: "google.protobuf.Timestamp",
    CelDuration: "google.protobuf.Duration",
    Optional: "optional_type",
    TypeValue: "type",
    Quantity: "kubernetes.Quantity",
    Semver: "kubernetes.Semver",
}


def type_name(value: object) -> str:
    """Return the name of the value's type."""
    return _TYPE_NAMES[type(value)]


class Meter:
    """The steps that an evaluation may still take."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, steps: int) -> None:
        """Take steps off; raise ``CostError`` when none are left."""
        self.left -= steps
        if self.left < 0:
            raise CostError("the evaluation takes too many steps")


def no_overload(function: str, *values: object) -> EvaluationError:
    """Return the error of a function that does not take values of these types."""
    return EvaluationError(f"no such overload: {function}({', '.join(map(type_name, values))})")
