"""Types of CEL, and functions with their overloads, which are declared by short texts.

A signature such as ``list(T), int -> list(T)`` lists the operands, the target of a member first. A name of one capital
letter is a type parameter.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, slots=True)
class Type:
    """A type. ``object`` is an opaque one with a name, ``parameter`` a type parameter or an unknown type."""

    kind: str
    parameters: tuple["Type", ...] = ()
    name: str = ""

    def __str__(self) -> str:
        """Return the type as it is written in declarations, without what is deep inside."""
        return self._text(depth=4)

    def _text(self, depth: int) -> str:
        if not depth:
            return "..."
        inner = ", ".join(one._text(depth - 1) for one in self.parameters)  # noqa: SLF001 - of the same class
        return (self.name or self.kind) + (f"({inner})" if inner else "")


DYN, ERROR, NULL, BOOL, INT, UINT, DOUBLE, STRING, BYTES, TIMESTAMP, DURATION = (
    Type(kind)
    for kind in ("dyn", "error", "null", "bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration")
)
QUANTITY = Type("object", name="kubernetes.Quantity")
SEMVER = Type("object", name="kubernetes.Semver")
DEVICE = Type("object", name="kubernetes.DRADevice")

_NAMED = {one.kind: one for one in (DYN, NULL, BOOL, INT, UINT, DOUBLE, STRING, BYTES, TIMESTAMP, DURATION)} | {
    "quantity": QUANTITY,
    "semver": SEMVER,
}


def list_of(element: Type) -> Type:
    """Return the type of lists of the element."""
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """Return the type of maps."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """Return the type of an optional value."""
    return Type("optional", (value,))


def parameter(name: str) -> Type:
    """Return a type parameter."""
    return Type("parameter", name=name)


class Cost(Enum):
    """What a call is charged."""

    STEP = "a step"
    LINEAR = "the sizes of operands and result"
    METERED = "what the implementation takes off the meter, its first operand"


@dataclass(frozen=True, slots=True, eq=False)
class Overload:
    """An overload: which operands it takes (the target first), and what it returns."""

    operands: tuple[Type, ...]
    result: Type
    is_member: bool
    run: Callable[..., object]
    cost: Cost
    parameters: tuple[Type, ...]


@dataclass(slots=True, eq=False)
class Function:
    """A function by its full name.

    If it ``is_shared``, all overloads have one implementation, which looks at the values itself. Otherwise the values
    have to be of an overload's types.
    """

    name: str
    overloads: list[Overload] = field(default_factory=list)
    is_shared: bool = False


_TOKEN = re.compile(r"->|[A-Za-z]+|[(),]")


def declare(signature: str, run: Callable[..., object], cost: Cost = Cost.STEP, *, is_member: bool = False) -> Overload:
    """Return the overload that the signature declares."""
    tokens = _TOKEN.findall(signature)[::-1]
    operands = []
    while tokens[-1] != "->":
        operands.append(_type(tokens))
    tokens.pop()
    result = _type(tokens)
    parameters = tuple(dict.fromkeys(one for type_ in (*operands, result) for one in _parameters(type_)))
    return Overload(tuple(operands), result, is_member, run, cost, parameters)


def _type(tokens: list[str]) -> Type:
    """Read a type, and the comma after it, from the end of the reversed tokens."""
    word = tokens.pop()
    inner = []
    if tokens and tokens[-1] == "(":
        tokens.pop()
        while tokens[-1] != ")":
            inner.append(_type(tokens))
        tokens.pop()
    if tokens and tokens[-1] == ",":
        tokens.pop()
    return Type(word, tuple(inner)) if inner else _NAMED.get(word) or parameter(word)


def _parameters(type_: Type) -> Iterator[Type]:
    if type_.kind == "parameter":
        yield type_
    for inner in type_.parameters:
        yield from _parameters(inner)
