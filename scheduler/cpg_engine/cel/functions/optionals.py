"""Functions on optional values; the planner evaluates ``or`` and ``orValue`` itself."""

from cpg_engine.cel.errors import EvaluationError
from cpg_engine.cel.quantities import Quantity
from cpg_engine.cel.semver import Semver
from cpg_engine.cel.values import MISSING, CelDuration, CelMap, Optional, Timestamp, TypeValue

_YEAR_ONE = -62135596800 * 10**9


def of_non_zero(value: object) -> Optional:
    """Return the value as an optional, without a value if it is the zero of its type."""
    match value:
        case CelMap():
            is_zero = not value.entries
        case CelDuration():
            is_zero = not value.nanos
        case Timestamp():
            is_zero = value.nanos == _YEAR_ONE
        case Optional() | Quantity() | Semver() | TypeValue():
            is_zero = False
        case _:
            is_zero = not value
    return Optional() if is_zero else Optional(value)


def value_of(optional: Optional) -> object:
    """Return the value; raise an error if there is none."""
    if optional.value is MISSING:
        raise EvaluationError("optional.none() dereference")
    return optional.value


def has_value(optional: Optional) -> bool:
    """Say whether there is a value."""
    return optional.value is not MISSING
