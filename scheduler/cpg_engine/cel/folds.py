"""Macros over a list or a map. Each iteration takes steps off the meter, so that evaluations end."""

from collections.abc import Callable, Iterator
from typing import Final, cast

from cpg_engine.cel.calls import Run
from cpg_engine.cel.errors import EvaluationError
from cpg_engine.cel.functions.lists import insert
from cpg_engine.cel.values import CelMap, Meter, no_overload

Step = Callable[[list[object]], Iterator[None]]
"""Sets the variables to each element in turn."""


def fold(macro: str, range_: Run, slots: tuple[int, ...], parts: tuple[Run, ...], *, weight: int) -> Run:
    """Return the evaluation of a macro; ``parts`` are a predicate, or a value and perhaps a condition."""

    def elements(env: list[object]) -> Iterator[None]:
        meter = cast("Meter", env[0])
        for values in _elements(range_(env), len(slots)):
            meter.spend(weight)
            for slot, value in zip(slots, values, strict=True):
                env[slot] = value
            yield

    return _FOLDS[macro](elements, slots, *parts)


def _elements(value: object, count: int) -> Iterator[tuple[object, ...]]:
    """Yield elements or keys, or indices and elements, or keys and values."""
    if isinstance(value, list):
        return enumerate(value) if count == 2 else zip(value)
    if isinstance(value, CelMap):
        return value.items() if count == 2 else zip(value.keys())
    raise no_overload("a macro", value)


def _quantifier(decisive: bool) -> Callable[..., Run]:  # noqa: FBT001 - a table below gives it its meaning
    """Return ``all`` (decided by false) or ``exists`` (decided by true); errors count if no element decides."""

    def make(elements: Step, _: tuple[int, ...], predicate: Run) -> Run:
        def run(env: list[object]) -> object:
            error: EvaluationError | None = None
            for _ in elements(env):
                try:
                    value = predicate(env)
                except EvaluationError as raised:
                    error = error or raised
                    continue
                if value is decisive:
                    return decisive
                if value is not (not decisive):
                    error = error or no_overload("a predicate", value)
            if error:
                raise error
            return not decisive

        return run

    return make


def _is_met(condition: Run | None, env: list[object]) -> bool:
    value = condition is None or condition(env)
    if value is True or value is False:
        return value
    raise no_overload("a predicate", value)


def _exists_one(elements: Step, _: tuple[int, ...], predicate: Run) -> Run:
    return lambda env: sum(_is_met(predicate, env) for _ in elements(env)) == 1


def _list(elements: Step, _: tuple[int, ...], value: Run, condition: Run | None = None) -> Run:
    return lambda env: [value(env) for _ in elements(env) if _is_met(condition, env)]


def _map(elements: Step, slots: tuple[int, ...], value: Run, condition: Run | None = None) -> Run:
    def run(env: list[object]) -> object:
        result = CelMap({})
        for _ in elements(env):
            if _is_met(condition, env):
                insert(result, [(env[slots[0]], value(env))])
        return result

    return run


def _entries(elements: Step, _: tuple[int, ...], value: Run, condition: Run | None = None) -> Run:
    def run(env: list[object]) -> object:
        result = CelMap({})
        for _ in elements(env):
            if _is_met(condition, env):
                entries = value(env)
                if not isinstance(entries, CelMap):
                    raise no_overload("transformMapEntry", entries)
                insert(result, entries.items())
        return result

    return run


_FOLDS: Final[dict[str, Callable[..., Run]]] = {
    "all": _quantifier(decisive=False),
    "exists": _quantifier(decisive=True),
    "exists_one": _exists_one,
    "list": _list,
    "map": _map,
    "entries": _entries,
}
