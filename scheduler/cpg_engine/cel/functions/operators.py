"""Operators on two values, or on one."""

import math
from collections.abc import Callable
from operator import add as operator_add
from typing import Final

from cpg_engine.cel.comparison import compare, contains
from cpg_engine.cel.errors import CelError, EvaluationError
from cpg_engine.cel.functions.times import add_to_timestamp, checked_duration
from cpg_engine.cel.semver import Semver
from cpg_engine.cel.values import (
    INT_MAX,
    INT_MIN,
    UINT_MAX,
    CelDuration,
    CelMap,
    GrowingList,
    JoinedList,
    Meter,
    Timestamp,
    Uint,
    no_overload,
    type_name,
)


def checked_int(value: int) -> int:
    """Return the value; raise an error if it is no signed integer of 64 bits."""
    if INT_MIN <= value <= INT_MAX:
        return value
    raise EvaluationError("integer overflow")


def checked_uint(value: int) -> Uint:
    """Return the value as an unsigned integer; raise an error if it has more than 64 bits."""
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise EvaluationError("unsigned integer overflow")


def _divide_doubles(left: float, right: float) -> float:
    if right:
        return left / right
    if not left or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _divide(left: int, right: int) -> int:
    if not right:
        raise EvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _modulo(left: int, right: int) -> int:
    if not right:
        raise EvaluationError("modulus by zero")
    if left == INT_MIN and right == -1:
        raise EvaluationError("integer overflow")
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


_WHOLE: Final[dict[str, Callable[[int, int], int]]] = {
    "_+_": lambda left, right: left + right,
    "_-_": lambda left, right: left - right,
    "_*_": lambda left, right: left * right,
    "_/_": _divide,
    "_%_": _modulo,
}
_DOUBLE: Final[dict[str, Callable[[float, float], float]]] = {
    "_+_": lambda left, right: left + right,
    "_-_": lambda left, right: left - right,
    "_*_": lambda left, right: left * right,
    "_/_": _divide_doubles,
}


def arithmetic(operator: str) -> Callable[[object, object], object]:
    """Return the operator on numbers of one type; other types are left to ``_other``."""
    whole, double = _WHOLE[operator], _DOUBLE.get(operator)

    def run(left: object, right: object) -> object:
        if type(left) is int and type(right) is int:
            return checked_int(whole(left, right))
        if isinstance(left, Uint) and isinstance(right, Uint):
            return checked_uint(whole(left, right))
        if double and isinstance(left, float) and isinstance(right, float):
            return double(left, right)
        return _other(operator, left, right)

    return run


def _other(operator: str, left: object, right: object) -> object:
    """Apply the operator to texts, lists, timestamps or durations."""
    if operator == "_+_":
        return _add(left, right)
    if operator == "_-_":
        return _subtract(left, right)
    raise no_overload(operator.strip("_"), left, right)


def _add(left: object, right: object) -> object:
    match left, right:
        case (str(), str()) | (bytes(), bytes()):
            return operator_add(left, right)
        case list(), list():
            return _join(left, right)
        case CelDuration(), CelDuration():
            return checked_duration(left.nanos + right.nanos)
        case Timestamp(), CelDuration():
            return add_to_timestamp(left, right.nanos)
        case CelDuration(), Timestamp():
            return add_to_timestamp(right, left.nanos)
    raise no_overload("+", left, right)


def _subtract(left: object, right: object) -> object:
    match left, right:
        case CelDuration(), CelDuration():
            return checked_duration(left.nanos - right.nanos)
        case Timestamp(), Timestamp():
            return checked_duration(left.nanos - right.nanos)
        case Timestamp(), CelDuration():
            return add_to_timestamp(left, checked_duration(-right.nanos).nanos)
    raise no_overload("-", left, right)


def _join(left: list[object], right: list[object]) -> list[object]:
    """Join two lists; an empty one adds nothing."""
    if isinstance(left, GrowingList):
        left.extend(right)
        return left
    return JoinedList([*left, *right]) if left and right else left or right


def negate(value: object) -> object:
    """Return ``-value``."""
    if type(value) is int:
        return checked_int(-value)
    if isinstance(value, float):
        return -value
    if isinstance(value, CelDuration):
        return checked_duration(-value.nanos)
    raise no_overload("-", value)


def invert(value: object) -> object:
    """Return ``!value``."""
    if isinstance(value, bool):
        return not value
    raise no_overload("!", value)


def order(is_met: Callable[[int], bool]) -> Callable[[object, object], bool]:
    """Return an operator that compares, such as ``<``."""
    return lambda left, right: is_met(compare(left, right))


def size(value: object) -> int:
    """Return the number of characters, bytes, elements or entries."""
    if isinstance(value, str | bytes | list):
        return len(value)
    if isinstance(value, CelMap):
        return len(value.entries)
    raise no_overload("size", value)


def is_in(meter: Meter, value: object, container: object) -> bool:
    """Return ``value in container``."""
    if isinstance(container, list):
        return contains(container, value, meter)
    if isinstance(container, CelMap):
        if isinstance(value, bytes | Semver) and container.entries and not container.is_given:
            raise CelError(f"{type_name(value)} cannot be looked up in a map")
        return container.contains(value)
    raise no_overload("in", value, container)
