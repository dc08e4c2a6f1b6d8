"""Functions on lists. Those that compare elements get the meter of the evaluation."""

from collections.abc import Callable, Iterable
from functools import cmp_to_key
from itertools import pairwise

from cpg_engine.cel.comparison import compare, contains, equals, require_order
from cpg_engine.cel.errors import EvaluationError
from cpg_engine.cel.functions.operators import arithmetic
from cpg_engine.cel.values import MISSING, CelMap, Meter, Optional, encode_key, no_overload, type_name

_MAX_RANGE = 1_000_000
_COST_OF_SORTING = 16
"""Steps for each element."""
_add = arithmetic("_+_")


def slice_list(values: list[object], start: int, end: int) -> list[object]:
    """Return the elements from ``start`` to before ``end``."""
    if not 0 <= start <= end <= len(values):
        raise EvaluationError(f"cannot slice({start}, {end}) a list of {len(values)} elements")
    return values[start:end]


def flatten(meter: Meter, values: object, depth: object = 1) -> list[object]:
    """Replace lists in the list by their elements, down to a depth."""
    if not isinstance(values, list) or type(depth) is not int:
        raise no_overload("flatten", values, depth)
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    flat: list[object] = []
    for value in values:
        meter.spend(1)
        if isinstance(value, list) and depth:
            flat += flatten(meter, value, depth - 1)
        else:
            flat.append(value)
    return flat


def sort_by_keys(meter: Meter, values: list[object], keys: list[object]) -> list[object]:
    """Return the values in the order of the keys, which have to be of one type."""
    meter.spend(_COST_OF_SORTING * len(values))
    if len({type_name(key) for key in keys}) > 1:
        raise EvaluationError("list elements must have the same type")
    for key in keys[:1]:
        require_order(key)

    def order(one: tuple[object, object], other: tuple[object, object]) -> int:
        return _order(one[0], other[0])

    return [value for _, value in sorted(zip(keys, values, strict=True), key=cmp_to_key(order))]


def sort(meter: Meter, values: object) -> list[object]:
    """Return the values in ascending order."""
    if not isinstance(values, list):
        raise no_overload("sort", values)
    return sort_by_keys(meter, values, values)


def number_range(meter: Meter, count: int) -> list[object]:
    """Return the numbers from 0 to before ``count``."""
    if not 0 <= count <= _MAX_RANGE:
        raise EvaluationError(f"lists.range({count}) is out of range")
    meter.spend(count)
    return list(range(count))


def reverse(values: list[object]) -> list[object]:
    """Return the elements in reverse order."""
    return values[::-1]


def distinct(meter: Meter, values: list[object]) -> list[object]:
    """Return each element once, where it first occurs."""
    unique: list[object] = []
    for value in values:
        if not contains(unique, value, meter):
            unique.append(value)
    return unique


def is_sorted(values: list[object]) -> bool:
    """Say whether no element is greater than the next one."""
    for value in values:
        require_order(value)
    return all(_order(one, other) <= 0 for one, other in pairwise(values))


def _order(one: object, other: object) -> int:
    """Compare; values that cannot be compared, such as NaN, count as equal."""
    try:
        return compare(one, other)
    except EvaluationError:
        return 0


def extreme(name: str, sign: int) -> Callable[[list[object]], object]:
    """Return the function that finds the greatest element (sign 1) or the least (-1)."""

    def run(values: list[object]) -> object:
        if not values:
            raise EvaluationError(f"{name} called on empty list")
        result = values[0]
        for value in values:
            require_order(value)
            if _order(result, value) == -sign:
                result = value
        return result

    return run


def total(zero: object) -> Callable[[list[object]], object]:
    """Return the function that adds all elements to a zero."""

    def run(values: list[object]) -> object:
        result = zero
        for value in values:
            result = _add(result, value)
        return result

    return run


def index_of(meter: Meter, values: list[object], value: object) -> int:
    """Return the index of the first element that is equal to the value, or -1."""
    return next((index for index, one in enumerate(values) if _is_equal(one, value, meter)), -1)


def last_index_of(meter: Meter, values: list[object], value: object) -> int:
    """Return the index of the last element that is equal to the value, or -1."""
    return next((index for index in range(len(values) - 1, -1, -1) if _is_equal(values[index], value, meter)), -1)


def includes(meter: Meter, values: object, value: object) -> bool:
    """Say whether a list has the value, or whether a single value is the other."""
    return any(_is_equal(one, value, meter) for one in (values if isinstance(values, list) else [values]))


def _is_equal(one: object, other: object, meter: Meter) -> bool:
    meter.spend(1)
    try:
        return equals(one, other, meter)
    except EvaluationError:
        return False


def _contains_all(meter: Meter, values: list[object], others: list[object]) -> bool:
    return all(contains(values, other, meter) for other in others)


def set_contains(meter: Meter, values: list[object], others: list[object]) -> bool:
    """Say whether the first list has all elements of the second."""
    return _contains_all(meter, values, others)


def set_equivalent(meter: Meter, values: list[object], others: list[object]) -> bool:
    """Say whether each list has all elements of the other."""
    return _contains_all(meter, values, others) and _contains_all(meter, others, values)


def set_intersects(meter: Meter, values: list[object], others: list[object]) -> bool:
    """Say whether the lists have an element in common."""
    return any(contains(others, value, meter) for value in values)


def first(values: list[object]) -> Optional:
    """Return the first element, if there is one."""
    return Optional(values[0]) if values else Optional()


def last(values: list[object]) -> Optional:
    """Return the last element, if there is one."""
    return Optional(values[-1]) if values else Optional()


def unwrap(values: list[object]) -> list[object]:
    """Return the values of the optionals that have one."""
    for value in values:
        if not isinstance(value, Optional):
            raise EvaluationError("a value is not optional")
    return [value.value for value in values if isinstance(value, Optional) and value.value is not MISSING]


def insert(target: CelMap, pairs: Iterable[tuple[object, object]]) -> None:
    """Add entries to a map that is being made; a key may come only once."""
    for key, value in pairs:
        if target.find(key) is not MISSING:
            raise EvaluationError("insert failed: the key already exists")
        target.entries[encode_key(key)] = value
