"""Calls of functions: the overload is found by the types of the values where they are not known before."""

from collections.abc import Callable, Sequence
from typing import Final, cast

from cpg_engine.cel.errors import CelError, EvaluationError
from cpg_engine.cel.quantities import Quantity
from cpg_engine.cel.semver import Semver
from cpg_engine.cel.signatures import Cost, Function, Overload, Type
from cpg_engine.cel.syntax import Call, SyntaxNode, children
from cpg_engine.cel.values import (
    CelDuration,
    GrowingList,
    JoinedList,
    Meter,
    Optional,
    Timestamp,
    Uint,
    no_overload,
    type_name,
)

Run = Callable[[list[object]], object]
"""Evaluates a node in an environment, whose first element is the meter."""
Guard = Callable[[object], bool]

_FRAGILE: Final[dict[str, dict[int, type]]] = {
    "distinct": {0: list},
    "sort": {0: list},
    "@sortByKeys": {0: list, 1: list},
    "flatten": {1: int},
}
"""Operands by index that have to be of a type: if not, upstream's cost tracker ends the whole evaluation."""
_SIZED: Final = frozenset({str, bytes, list, JoinedList, GrowingList})
_SIZE_PER_STEP: Final = 8
"""Characters, or elements."""
_PYTHON: Final[dict[str, type]] = {
    "bool": bool,
    "int": int,
    "uint": Uint,
    "double": float,
    "string": str,
    "bytes": bytes,
    "timestamp": Timestamp,
    "duration": CelDuration,
    "kubernetes.Quantity": Quantity,
    "kubernetes.Semver": Semver,
}


def call_function(node: Call, function: Function, operands: tuple[Run, ...]) -> Run:
    """Return the evaluation of a call."""
    if len(node.overloads) == 1:
        operands = _with_fragile(function.name, operands)
    if function.is_shared:
        return _apply(node.overloads[0], operands)
    # The types are checked even where the checker knows them: what it infers from dyn need not be true.
    overloads = node.overloads if len(node.overloads) == 1 else function.overloads
    return _dispatch(function.name, overloads, operands)


def has_fragile(node: SyntaxNode) -> bool:
    """Say whether an error below a node may end the whole evaluation."""
    is_fragile = isinstance(node, Call) and node.name in _FRAGILE
    return is_fragile or any(map(has_fragile, children(node)))


def _with_fragile(name: str, operands: tuple[Run, ...]) -> tuple[Run, ...]:
    """Return the operands, those that must not fail with a check of their type."""
    types = _FRAGILE.get(name, {})
    return tuple(_fragile(run, types[index]) if index in types else run for index, run in enumerate(operands))


def _fragile(run: Run, python: type) -> Run:
    def checked(env: list[object]) -> object:
        try:
            value = run(env)
        except EvaluationError as error:
            raise CelError(*error.args) from None
        if isinstance(value, python):
            return value
        raise CelError(f"no such overload: the operand is {type_name(value)}")

    return checked


def _apply(overload: Overload, operands: tuple[Run, ...]) -> Run:
    """Return the call of an implementation that needs no look at the values before."""
    run = overload.run
    if overload.cost is Cost.METERED:
        return lambda env: run(env[0], *[operand(env) for operand in operands])
    if overload.cost is Cost.LINEAR:
        return lambda env: _charge(env, run, [operand(env) for operand in operands])
    if len(operands) == 1:
        return lambda env: run(operands[0](env))
    one, other = operands
    return lambda env: run(one(env), other(env))


def _charge(env: list[object], run: Callable[..., object], values: list[object]) -> object:
    """Call an implementation and take the sizes of operands and result off the meter."""
    result = run(*values)
    if type(result) in _SIZED or type(values[0]) in _SIZED:
        size = sum(len(cast("str", one)) for one in (*values, result) if type(one) in _SIZED)
        cast("Meter", env[0]).spend(1 + size // _SIZE_PER_STEP)
    return result


def _dispatch(name: str, overloads: Sequence[Overload], operands: tuple[Run, ...]) -> Run:
    """Return a call that uses the first overload of the values' types."""
    choices = [
        (overload, tuple(map(_guard, overload.operands)))
        for overload in overloads
        if len(overload.operands) == len(operands)
    ]

    def run(env: list[object]) -> object:
        values = [operand(env) for operand in operands]
        for overload, guards in choices:
            if all(guard(value) for guard, value in zip(guards, values, strict=True)):
                if overload.cost is Cost.METERED:
                    return overload.run(env[0], *values)
                return _charge(env, overload.run, values) if overload.cost is Cost.LINEAR else overload.run(*values)
        raise no_overload(name, *values)

    return run


def _guard(type_: Type) -> Guard:
    """Return a function that says whether a value is of the type; of a list it looks at the first element only."""
    if type_.kind == "list":
        element = _guard(type_.parameters[0])
        return lambda value: isinstance(value, list) and (not value or element(value[0]))
    if type_.kind == "optional":
        return lambda value: isinstance(value, Optional)
    python = _PYTHON.get(type_.name or type_.kind)
    return (lambda _: True) if python is None else (lambda value: type(value) is python)
