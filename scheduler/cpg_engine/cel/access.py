"""Selection and indexing. What is selected from an optional is optional."""

from cpg_engine.cel.errors import EvaluationError
from cpg_engine.cel.values import INT_MAX, MISSING, CelMap, Optional, Uint, type_name

_SHOWN = 64
"""Characters of a value in a message."""
KEYS = frozenset({str, int, Uint, bool, float})


def present(value: object, key: object) -> object:
    """Return what the value has at a key, or ``MISSING``; only a key of a wrong type is an error."""
    if type(value) is CelMap:
        return value.find(key) if type(key) in KEYS else _invalid(key)
    if isinstance(value, list):
        index = _index(key)
        return value[index] if 0 <= index < len(value) else MISSING
    return MISSING if type(key) in KEYS else _invalid(key)


def _invalid(key: object) -> object:
    raise EvaluationError(f"{type_name(key)} cannot be a key or an index")


def _index(key: object) -> int:
    if isinstance(key, float) and key.is_integer() and -INT_MAX <= key <= INT_MAX:
        return int(key)
    if isinstance(key, int) and type(key) is not bool and key <= INT_MAX:
        return int(key)
    raise EvaluationError(f"{type_name(key)} cannot be the index of a list")


def get(value: object, key: object) -> object:
    """Return what the value has at a key; raise an error if it has nothing there."""
    if isinstance(value, Optional):
        return get_optional(value, key)
    found = present(value, key)
    if found is MISSING:
        raise EvaluationError(f"no such key: {str(key)[:_SHOWN]}")
    return found


def get_optional(value: object, key: object) -> Optional:
    """Return what the value has at a key, as an optional."""
    if isinstance(value, Optional):
        value = value.value
    return Optional(present(value, key))


def has(value: object, key: str) -> bool:
    """Say whether the value has something at a key."""
    return get_optional(value, key).value is not MISSING
