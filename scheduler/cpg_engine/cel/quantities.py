"""Quantities, as the CEL library of Kubernetes reads and computes them.

Unlike ``cpg_api.quantity`` this follows Go's code where that contradicts the documentation, because an expression has
to mean the same to kube-scheduler: only binary suffixes are capped, ``isInteger`` depends on the spelling, and an
empty number is zero.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from cpg_engine.cel.errors import EvaluationError, NotSupportedError

_INT_MAX: Final = 2**63 - 1
_INT_MIN: Final = -(2**63)
_MOST_DIGITS: Final = 18
_MAX_LENGTH: Final = 255
_LONGEST_EXPONENT: Final = 5
_NANO: Final = -9
_GRAMMAR: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*(?:[+-]?[0-9]*))")
_DECIMAL: Final = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


@dataclass(frozen=True, slots=True)
class Quantity:
    """``number * 10**scale``; ``is_big`` where Go leaves its 64-bit representation."""

    number: int
    scale: int = 0
    is_big: bool = False
    is_computed: bool = False
    """Whether it is the result of an addition: upstream finds nothing equal to such an operand on the right."""

    def compare(self, other: "Quantity") -> int:
        """Return -1, 0 or 1."""
        left, right, _ = self._aligned(other)
        return (left > right) - (left < right)

    def add(self, other: "Quantity", sign: int = 1) -> "Quantity":
        """Return the sum, or with a sign of -1 the difference."""
        if self.is_big or other.is_big:
            left, right, scale = self._aligned(other)
            return Quantity(left + sign * right, scale, is_big=True, is_computed=True)
        if not other.number:
            return Quantity(self.number, self.scale, is_computed=True)
        if not self.number:
            return Quantity(
                other.number if other.number == _INT_MIN else sign * other.number, other.scale, is_computed=True
            )
        left, right, scale = self._aligned(other)
        # Go negates the number before it adds, and there the least number is its own negative.
        total = left + (right if right == _INT_MIN else sign * right)
        if all(_INT_MIN <= one <= _INT_MAX for one in (left, right, total)):
            return Quantity(total, scale, is_computed=True)
        return Quantity(left + sign * right, scale, is_big=True, is_computed=True)

    @property
    def integer(self) -> int | None:
        """The value, if Go finds it a 64-bit integer."""
        if self.is_big or self.scale < 0:
            return None
        value = self.number * int(10**self.scale)
        return value if abs(value) <= _INT_MAX else None

    def to_double(self) -> float:
        """Return the value as Go approximates it."""
        try:
            base = float(self.number)
        except OverflowError:
            return float("inf") if self.number > 0 else float("-inf")
        if not self.scale:
            return base
        return base * (float(f"1e{self.scale}") if self.scale > -324 else 0.0)

    def _aligned(self, other: "Quantity") -> tuple[int, int, int]:
        scale = min(self.scale, other.scale)
        return self.number * int(10 ** (self.scale - scale)), other.number * int(10 ** (other.scale - scale)), scale


def parse_quantity(quantity: str | float) -> Quantity:
    """Read a quantity. Plain numbers in JSON are read from their shortest spelling."""
    text = quantity if isinstance(quantity, str) else repr(quantity)
    if len(text) > _MAX_LENGTH:
        raise NotSupportedError(f"quantities of more than {_MAX_LENGTH} characters are not supported")
    return _parse(text)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity:
    match = _GRAMMAR.fullmatch(text)
    if not text or match is None:
        raise EvaluationError(f"{text!r} is not a quantity")
    sign, whole, fraction, suffix = match[1], match[2].lstrip("0"), match[3] or "", match[4]
    if suffix in _BINARY:
        return _signed(sign, _binary(whole or "0", fraction, _BINARY[suffix]))
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else _exponent(suffix)
    scale = exponent - len(fraction)
    if len(whole or "0") + len(fraction) <= _MOST_DIGITS and scale >= _NANO:
        return _signed(sign, Quantity(int((whole or "0") + fraction), scale))
    return _signed(sign, _rounded(int(whole + fraction or "0"), scale))


def is_quantity(text: str) -> bool:
    """Say whether the text is a quantity."""
    try:
        parse_quantity(text)
    except EvaluationError:
        return False
    return True


def to_integer(quantity: Quantity) -> int:
    """Return the value; raise an error if it is no integer."""
    value = quantity.integer
    if value is None:
        raise EvaluationError("cannot convert value to integer")
    return value


def _exponent(suffix: str) -> int:
    if suffix[0] in "eE" and re.fullmatch(r"[+-]?[0-9]+", suffix[1:]):
        if len(suffix) > _LONGEST_EXPONENT:
            raise NotSupportedError(f"the exponent of a quantity is not supported: {suffix[1:]}")
        return int(suffix[1:])
    raise EvaluationError(f"{suffix!r} is no suffix of a quantity")


def _binary(whole: str, fraction: str, exponent: int) -> Quantity:
    """Return a number with a binary suffix: in 64 bits if it is short, otherwise rounded up and capped."""
    if not fraction and 15 - len(whole) - exponent * 3 // 10 - 1 >= 0:
        return Quantity(int(whole) << exponent)
    rounded = _rounded(int(whole + fraction) << exponent, -len(fraction))
    return Quantity(_INT_MAX, is_big=True) if rounded.compare(Quantity(_INT_MAX)) > 0 else rounded


def _rounded(number: int, scale: int) -> Quantity:
    """Return the big quantity in nanos, rounded up."""
    if not number:
        return Quantity(0, scale, is_big=True)
    nanos = number * int(10 ** (scale - _NANO)) if scale >= _NANO else -(-number // int(10 ** (_NANO - scale)))
    return Quantity(nanos, _NANO, is_big=True)


def _signed(sign: str, quantity: Quantity) -> Quantity:
    return Quantity(-quantity.number, quantity.scale, quantity.is_big) if sign == "-" else quantity
