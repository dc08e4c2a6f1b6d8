"""From a checked syntax tree to a function that evaluates it.

Each node becomes a closure over those of its operands. The environment is a list: the meter, the device, and a slot for
each variable of a macro.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final, cast

from cpg_engine.cel.access import KEYS, get, get_optional, has
from cpg_engine.cel.calls import Run, call_function, has_fragile
from cpg_engine.cel.comparison import equals
from cpg_engine.cel.errors import CelError, EvaluationError
from cpg_engine.cel.folds import fold
from cpg_engine.cel.functions.operators import is_in
from cpg_engine.cel.functions.texts import compile_pattern
from cpg_engine.cel.semver import Semver
from cpg_engine.cel.syntax import (
    BindMacro,
    Call,
    Fold,
    ListLiteral,
    Literal,
    MapLiteral,
    Name,
    Select,
    SyntaxNode,
    children,
)
from cpg_engine.cel.values import MISSING, CelMap, GrowingList, Meter, Optional, encode_key, no_overload, type_name

METER: Final = 0
DEVICE: Final = 1
_FIRST_SLOT: Final = 2
_CONVERSIONS: Final = frozenset(
    {"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"}
)
_LOOK_UPS: Final = {"_[_]": get, "_[?_]": get_optional}
_LAZY: Final = frozenset({"_&&_", "_||_", "or", "orValue", *_LOOK_UPS})
"""Functions of two operands that may not evaluate the second."""
_PATTERNS: Final = frozenset({"matches", "find", "findAll"})


class CompiledExpression:
    """An expression that can be evaluated."""

    def __init__(self, tree: SyntaxNode) -> None:
        planner = _Planner()
        self._run = planner.plan(tree)
        self._slots = planner.slots

    def evaluate(self, device: CelMap, steps: int) -> object:
        """Return the value of the expression for a device; raise ``CostError`` if it takes more steps."""
        return self._run([Meter(steps), device, *(MISSING,) * self._slots])


class _Planner:
    """Turns nodes into closures; knows the slots of the variables in scope, and the nodes that are constant."""

    def __init__(self) -> None:
        self.slots = 0
        self._scopes: list[dict[str, Run]] = []
        self._constants: dict[int, object] = {}

    def plan(self, node: SyntaxNode) -> Run:
        """Return the closure that evaluates a node."""
        run = self._plan(node)
        if id(node) not in self._constants:
            return run
        value = self._constants[id(node)]
        return lambda _: value

    def _plan(self, node: SyntaxNode) -> Run:
        if isinstance(node, Literal):
            return self._constant(node, node.value)
        if isinstance(node, Name | Select) and node.constant is not None:
            return self._constant(node, node.constant)
        rules: dict[type[SyntaxNode], Callable[[Any], Run]] = {
            Name: self._name,
            Select: self._select,
            Call: self._call,
            ListLiteral: self._list,
            MapLiteral: self._map,
            BindMacro: self._bind,
            Fold: self._fold,
        }
        return rules[type(node)](node)

    def _constant(self, node: SyntaxNode, value: object) -> Run:
        self._constants[id(node)] = value
        return lambda _: value

    def _evaluate_constant(self, node: SyntaxNode, run: Run) -> Run:
        """Evaluate a node without variables once; what fails now would always fail, so it does not compile."""
        try:
            return self._constant(node, run([Meter(_FOLDING_STEPS)]))
        except EvaluationError as error:
            raise CelError(f"a constant part of the expression is invalid: {error}") from None

    def _are_constant(self, *nodes: SyntaxNode) -> bool:
        return all(id(node) in self._constants for node in nodes)

    # Names and fields.

    def _name(self, node: Name) -> Run:
        if node.name.startswith("."):
            return itemgetter(DEVICE)
        local = next((scope[node.name] for scope in reversed(self._scopes) if node.name in scope), None)
        return local or itemgetter(DEVICE)

    def _slot(self) -> int:
        self.slots += 1
        return self.slots + _FIRST_SLOT - 1

    def _select(self, node: Select) -> Run:
        operand, name = self.plan(node.operand), node.name
        if node.is_test:
            return lambda env: has(operand(env), name)
        if node.is_optional:
            return lambda env: get_optional(operand(env), name)
        return lambda env: get(operand(env), name)

    def _index(self, operand: Run, key: Run, look_up: Callable[[object, object], object]) -> Run:
        def run(env: list[object]) -> object:
            value = operand(env)
            if isinstance(value, Optional) and value.value is MISSING:
                return value
            return look_up(value, key(env))

        return run

    # Literals.

    def _list(self, node: ListLiteral) -> Run:
        parts = [(self.plan(element), index in node.optional) for index, element in enumerate(node.elements)]

        def run(env: list[object]) -> object:
            found: list[object] = []
            for part, is_optional in parts:
                value = _unwrapped(part(env)) if is_optional else part(env)
                if value is not MISSING:
                    found.append(value)
            return found

        is_constant = not node.optional and self._are_constant(*node.elements)
        return self._evaluate_constant(node, run) if is_constant else run

    def _map(self, node: MapLiteral) -> Run:
        parts = [(self.plan(key), self.plan(value), is_optional) for key, value, is_optional in node.entries]

        def run(env: list[object]) -> object:
            entries: dict[object, object] = {}
            for key_of, value_of, is_optional in parts:
                key = encode_key(key_of(env))
                value = _unwrapped(value_of(env)) if is_optional else value_of(env)
                if value is MISSING:
                    entries.pop(key, None)
                else:
                    entries[key] = value
            return CelMap(entries)

        is_constant = not any(one[2] for one in node.entries) and self._are_constant(*children(node))
        return self._evaluate_constant(node, run) if is_constant else run

    # Macros.

    def _bind(self, node: BindMacro) -> Run:
        slot, value = self._slot(), self.plan(node.value)

        def read(env: list[object]) -> object:
            found = env[slot]
            if found is MISSING:
                try:
                    found = value(env)
                except EvaluationError as error:
                    found = error
                env[slot] = found = GrowingList() if found == [] else found
            if isinstance(found, EvaluationError):
                raise EvaluationError(*found.args)
            return found

        self._scopes.append({node.variable: read})
        body = self.plan(node.body)
        self._scopes.pop()

        def run(env: list[object]) -> object:
            env[slot] = MISSING
            result = body(env)
            return list(result) if isinstance(result, GrowingList) else result

        return run

    def _fold(self, node: Fold) -> Run:
        range_ = self.plan(node.range)
        slots = tuple(self._slot() for _ in node.variables)
        self._scopes.append({name: itemgetter(slot) for name, slot in zip(node.variables, slots, strict=True)})
        parts = tuple(map(self.plan, node.parts))
        self._scopes.pop()
        return fold(node.macro, range_, slots, parts, weight=1 + sum(map(_size, node.parts)))

    # Calls.

    def _call(self, node: Call) -> Run:
        operands = tuple(map(self.plan, node.operands))
        if len(operands) == 2 and node.name not in _LAZY and has_fragile(node.operands[1]):
            operands = (_with_other(*operands), operands[1])
        if node.name in _PATTERNS and len(operands) > 1 and id(node.operands[1]) not in self._constants:
            operands = (operands[0], _pattern(operands[1]), *operands[2:])
        function = node.function
        assert function is not None  # noqa: S101 - the checker has set it
        if function.name in _SPECIAL:
            return _SPECIAL[function.name](*operands)
        if function.name in _LOOK_UPS:
            key = self._constants.get(id(node.operands[1]), "")
            if type(key) not in KEYS:
                raise CelError(f"{type_name(key)} cannot be a key or an index")
            return self._index(operands[0], operands[1], _LOOK_UPS[function.name])
        if function.name == "_in_":
            return self._in(node, *operands)
        return self._check_literals(node, call_function(node, function, operands))

    def _in(self, node: Call, value: Run, container: Run) -> Run:
        values = self._constants.get(id(node.arguments[1]))
        if isinstance(values, list) and len(node.overloads) == 1:
            if not values:
                return self._constant(node, value=False)
            if all(type(one) in KEYS for one in values):
                value = _hashable(value)
        return lambda env: is_in(cast("Meter", env[METER]), value(env), container(env))

    def _check_literals(self, node: Call, run: Run) -> Run:
        """Evaluate what is constant, and refuse literals that the function cannot read."""
        first = node.arguments[0] if node.arguments else None
        if node.name in _CONVERSIONS and len(node.operands) == 1 and self._are_constant(*node.operands):
            return self._evaluate_constant(node, run)
        if node.name == "matches" and isinstance(first, Literal):
            self._check_pattern(first.value)
        if node.name in _PATTERNS and id(node.operands[1]) in self._constants:
            self._check_pattern(self._constants[id(node.operands[1])])
        return run

    def _check_pattern(self, pattern: object) -> None:
        if isinstance(pattern, str):
            self._evaluate_constant(Literal(None), lambda _: compile_pattern(pattern))


_STEPS_PER_CALL: Final = 4
_FOLDING_STEPS: Final = 10_000
_COMPILING_STEPS: Final = 500


def _pattern(run: Run) -> Run:
    """Return a pattern that is not known before, after what it costs to compile is taken off."""

    def checked(env: list[object]) -> object:
        pattern = run(env)
        if isinstance(pattern, str):
            meter = cast("Meter", env[METER])
            meter.spend(_COMPILING_STEPS + len(pattern))
            meter.spend(compile_pattern(pattern).size)
        return pattern

    return checked


def _with_other(left: Run, right: Run) -> Run:
    """Return the left operand; if it fails, the right one is evaluated, too, as it may end the evaluation."""

    def run(env: list[object]) -> object:
        try:
            return left(env)
        except EvaluationError:
            right(env)
            raise

    return run


def _hashable(run: Run) -> Run:
    """Return a value that is looked up in a set of constants: others end the evaluation upstream."""

    def checked(env: list[object]) -> object:
        value = run(env)
        if isinstance(value, bytes | Semver):
            raise CelError(f"{type_name(value)} cannot be looked up in a list of constants")
        return value

    return checked


def _unwrapped(value: object) -> object:
    if isinstance(value, Optional):
        return value.value
    raise EvaluationError("cannot initialize an optional entry from a value that is not optional")


def _size(node: SyntaxNode) -> int:
    """Return the number of nodes; calls of functions take longer than operators."""
    own = _STEPS_PER_CALL if isinstance(node, Call) and "_" not in node.name else 1
    return own + sum(map(_size, children(node)))


def _all(*terms: Run) -> Run:
    return _logic(terms, decisive=False)


def _any(*terms: Run) -> Run:
    return _logic(terms, decisive=True)


def _logic(terms: tuple[Run, ...], *, decisive: bool) -> Run:
    """Return ``&&`` or ``||``: an error counts only if no operand decides."""

    def run(env: list[object]) -> object:
        error: EvaluationError | None = None
        for term in terms:
            try:
                value = term(env)
            except EvaluationError as raised:
                error = error or raised
                continue
            if value is decisive:
                return decisive
            if value is not (not decisive):
                error = error or no_overload("||" if decisive else "&&", value)
        if error:
            raise error
        return not decisive

    return run


def _condition(condition: Run, one: Run, other: Run) -> Run:
    def run(env: list[object]) -> object:
        decision = condition(env)
        if decision is True:
            return one(env)
        if decision is False:
            return other(env)
        raise no_overload("?:", decision)

    return run


def _equal(left: Run, right: Run) -> Run:
    return lambda env: equals(left(env), right(env), cast("Meter", env[METER]))


def _differ(left: Run, right: Run) -> Run:
    def run(env: list[object]) -> object:
        one, other = left(env), right(env)
        try:
            return not equals(one, other, cast("Meter", env[METER]))
        except EvaluationError:
            return True  # as upstream does

    return run


def _either(optional: Run, other: Run, *, is_value: bool) -> Run:
    """Return ``or`` or ``orValue``; the other operand is evaluated only if it is needed."""

    def run(env: list[object]) -> object:
        found = optional(env)
        if not isinstance(found, Optional):
            raise no_overload("or", found)
        if found.value is MISSING:
            return other(env)
        return found.value if is_value else found

    return run


_SPECIAL: Final[dict[str, Callable[..., Run]]] = {
    "_&&_": _all,
    "_||_": _any,
    "_?_:_": _condition,
    "_==_": _equal,
    "_!=_": _differ,
    "or": lambda optional, other: _either(optional, other, is_value=False),
    "orValue": lambda optional, other: _either(optional, other, is_value=True),
}
