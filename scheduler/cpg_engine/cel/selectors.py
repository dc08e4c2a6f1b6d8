# ruff: noqa: A005 - it is inside a package, so the standard library's module stays reachable
"""Selectors of devices: CEL expressions with the semantics of Kubernetes, compiled once, with cached results.

Drivers give every device attributes of its own, such as a UUID. So results are cached by the values that the expression
reads, which is known from its syntax in all usual cases.
"""

from functools import lru_cache
from typing import Final

from cpg_api.core.devices import Device
from cpg_engine.cel.checker import check
from cpg_engine.cel.device_reader import Reader, Values
from cpg_engine.cel.errors import CelError, EvaluationError
from cpg_engine.cel.parser import parse
from cpg_engine.cel.planner import CompiledExpression
from cpg_engine.cel.reads import find_reads
from cpg_engine.cel.values import MISSING, CelMap, Optional, type_name

MAX_STEPS: Final = 200_000
"""The steps of an evaluation; about 50 ms."""
_CACHED_SELECTORS: Final = 1024
_CACHED_RESULTS: Final = 4096
"""For each selector."""


class CompiledSelector:
    """A compiled expression."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        tree = parse(expression)
        check(tree)
        self._program = CompiledExpression(tree)
        self._reads = find_reads(tree)
        self._results: dict[Values, bool | CelError] = {}
        self._readers: dict[str, Reader] = {}

    def matches(self, driver: str, device: Device) -> bool:
        """Say whether the selector accepts a device of the driver; raise ``CelError`` if its evaluation fails."""
        reader = self._readers.get(driver) or self._reader(driver)
        key = reader.read(device)
        result = self._results.get(key)
        if result is None:
            if len(self._results) >= _CACHED_RESULTS:
                self._results.clear()
            result = self._results[key] = self._evaluate(reader.value(key))
        if isinstance(result, CelError):
            raise type(result)(*result.args)
        return result

    def _reader(self, driver: str) -> Reader:
        if len(self._readers) >= _CACHED_RESULTS:
            self._readers.clear()
        reader = self._readers[driver] = Reader(driver, self._reads)
        return reader

    def _evaluate(self, device: CelMap) -> bool | CelError:
        try:
            return _bool_of(self._program.evaluate(device, MAX_STEPS))
        except CelError as error:
            return error


def _bool_of(value: object) -> bool:
    while isinstance(value, Optional) and value.value is not MISSING:
        value = value.value
    if isinstance(value, bool):
        return value
    raise EvaluationError(f"the expression evaluates to {type_name(value)}, not to bool")


@lru_cache(maxsize=_CACHED_SELECTORS)
def _compile(expression: str) -> CompiledSelector | CelError:
    try:
        return CompiledSelector(expression)
    except CelError as error:
        return error


def compile_selector(expression: str) -> CompiledSelector:
    """Return the selector of an expression; raise ``CelError`` if it does not compile or is not supported."""
    compiled = _compile(expression)
    if isinstance(compiled, CelError):
        raise type(compiled)(*compiled.args)
    return compiled
