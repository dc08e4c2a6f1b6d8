"""Equality and order."""

from cpg_engine.cel.errors import EvaluationError
from cpg_engine.cel.quantities import Quantity
from cpg_engine.cel.semver import Semver
from cpg_engine.cel.values import (
    MISSING,
    CelDuration,
    CelMap,
    JoinedList,
    Meter,
    Optional,
    Timestamp,
    TypeValue,
    Uint,
    no_overload,
)

_NUMBERS = frozenset({int, Uint, float})
_ORDERED = frozenset({bool, str, bytes, Timestamp, CelDuration})


def equals(left: object, right: object, meter: Meter) -> bool:
    """Compare two values of any types. Values of Kubernetes raise an error if the right one is of another type."""
    if left is None or right is None:
        return left is right
    kind = type(left)
    if kind in _NUMBERS:
        return type(right) in _NUMBERS and _compare_numbers(left, right) == 0
    if kind in {bool, str, bytes, CelDuration, TypeValue}:
        return kind is type(right) and left == right
    return _equal_composites(left, right, meter)


def _equal_composites(left: object, right: object, meter: Meter) -> bool:
    meter.spend(2)
    match left:
        case list():
            return isinstance(right, list) and _equal_lists(left, right, meter)
        case CelMap():
            return isinstance(right, CelMap) and _equal_maps(left, right, meter)
        case Optional():
            return isinstance(right, Optional) and _equal_optionals(left, right, meter)
        case Timestamp():
            return isinstance(right, Timestamp) and left.nanos == right.nanos
        case Quantity() if isinstance(right, Quantity) and not right.is_computed:
            return left.compare(right) == 0
        case Semver() if isinstance(right, Semver):
            return left.key == right.key
    raise no_overload("==", left, right)


def _equal_lists(left: list[object], right: list[object], meter: Meter) -> bool:
    if len(left) != len(right):
        return False
    error = None
    for one, other in zip(left, right, strict=True):
        meter.spend(1)
        try:
            if not equals(one, other, meter):
                return False
        except EvaluationError as raised:
            error = error or raised
    # Upstream forgets such errors, except in the result of an addition.
    if error and isinstance(left, JoinedList):
        raise error
    return True


def _equal_maps(left: CelMap, right: CelMap, meter: Meter) -> bool:
    if len(left.entries) != len(right.entries):
        return False
    for key, value in left.items():
        meter.spend(1)
        other = right.find(key)
        try:
            if other is MISSING or not equals(value, other, meter):
                return False
        except EvaluationError:
            continue  # as upstream does
    return True


def _equal_optionals(left: Optional, right: Optional, meter: Meter) -> bool:
    if left.value is MISSING or right.value is MISSING:
        return left.value is right.value
    return equals(left.value, right.value, meter)


def contains(values: list[object], value: object, meter: Meter) -> bool:
    """Say whether a list has an element to which the value is equal."""
    for one in values:
        meter.spend(2)
        try:
            if equals(value, one, meter):
                return True
        except EvaluationError:
            continue
    return False


def compare(left: object, right: object) -> int:
    """Return -1, 0 or 1; raise an error for values that have no order."""
    kind = type(left)
    if kind in _NUMBERS and type(right) in _NUMBERS:
        return _compare_numbers(left, right, is_order=True)
    if kind is not type(right) or kind not in _ORDERED:
        raise no_overload("<", left, right)
    if isinstance(left, bytes) and isinstance(right, bytes):
        return (left > right) - (left < right)
    if isinstance(left, str) and isinstance(right, str):
        return (left > right) - (left < right)
    first, second = _number_of(left), _number_of(right)
    return (first > second) - (first < second)


def require_order(value: object) -> None:
    """Raise an error if values of the type have no order."""
    if type(value) not in _NUMBERS | _ORDERED:
        raise no_overload("<", value)


def _number_of(value: object) -> int:
    """Return what timestamps, durations and bools are ordered by."""
    return value.nanos if isinstance(value, Timestamp | CelDuration) else int(value is True)


def _compare_numbers(left: object, right: object, *, is_order: bool = False) -> int:
    """Compare as Go does: an integer beside a double becomes a double. NaN equals nothing and has no order."""
    assert isinstance(left, int | float)  # noqa: S101 - the caller has looked
    assert isinstance(right, int | float)  # noqa: S101 - likewise
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
        if left != left or right != right:  # noqa: PLR0124 - NaN
            if is_order:
                raise EvaluationError("NaN values cannot be ordered")
            return 1
    return (left > right) - (left < right)
