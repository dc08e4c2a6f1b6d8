"""Macros: calls that the parser replaces by other nodes."""

from collections.abc import Callable
from typing import Final

from cpg_engine.cel.errors import CelError
from cpg_engine.cel.syntax import BindMacro, Call, Fold, ListLiteral, Literal, MapLiteral, Name, Select, SyntaxNode

RESULT: Final = "@result"
"""The accumulator of macros over a range."""
_RESERVED_RESULT: Final = "__result__"
_SORTED: Final = "@sorted"
_OPTIONAL: Final = "@optional"


def expand(call: Call) -> SyntaxNode:
    """Return what the call stands for if it is a macro, otherwise the call."""
    if call.target is None:
        return _has(call.arguments[0]) if call.name == "has" and len(call.arguments) == 1 else call
    macro = MACROS.get((call.name, len(call.arguments)))
    return macro(call.target, call.arguments) or call if macro else call


def _has(argument: SyntaxNode) -> SyntaxNode:
    if isinstance(argument, Select) and not argument.is_test and not argument.is_optional:
        return Select(argument.operand, argument.name, is_test=True)
    raise CelError("invalid argument to has() macro")


def _variable(argument: SyntaxNode) -> str:
    if not isinstance(argument, Name):
        raise CelError("the variable of a macro must be a simple name")
    if argument.name in {RESULT, _RESERVED_RESULT}:
        raise CelError("the variable of a macro overwrites its result")
    return argument.name


def _variables(arguments: tuple[SyntaxNode, ...], count: int) -> tuple[str, ...]:
    names = tuple(map(_variable, arguments[:count]))
    if len(set(names)) < count:
        raise CelError(f"duplicate variable name: {names[0]}")
    return names


def _operator(name: str, *operands: SyntaxNode) -> SyntaxNode:
    return Call(name, None, operands)


def _filtered(condition: SyntaxNode | None, step: SyntaxNode) -> SyntaxNode:
    return step if condition is None else _operator("_?_:_", condition, step, Name(RESULT))


Macro = Callable[[SyntaxNode, tuple[SyntaxNode, ...]], SyntaxNode | None]


def _quantifier(kind: str, variables: int) -> Macro:
    """Return all, exists or exists_one, with one variable or with two."""

    def make(target: SyntaxNode, arguments: tuple[SyntaxNode, ...]) -> SyntaxNode:
        names, condition, result = _variables(arguments, variables), arguments[variables], Name(RESULT)
        if kind == "exists_one":
            step = _filtered(condition, _operator("_+_", Name(RESULT), Literal(1)))
            return Fold(
                kind, target, names, RESULT, Literal(0), step, _operator("_==_", result, Literal(1)), (condition,)
            )
        step = _operator("_&&_" if kind == "all" else "_||_", Name(RESULT), condition)
        return Fold(kind, target, names, RESULT, Literal(kind == "all"), step, result, (condition,))

    return make


def _make_list(target: SyntaxNode, names: tuple[str, ...], value: SyntaxNode, condition: SyntaxNode | None) -> Fold:
    step = _filtered(condition, _operator("_+_", Name(RESULT), ListLiteral((value,))))
    parts = (value,) if condition is None else (value, condition)
    return Fold("list", target, names, RESULT, ListLiteral(()), step, Name(RESULT), parts)


def _map(target: SyntaxNode, arguments: tuple[SyntaxNode, ...]) -> SyntaxNode:
    condition = arguments[1] if len(arguments) == 3 else None
    return _make_list(target, _variables(arguments, 1), arguments[-1], condition)


def _filter(target: SyntaxNode, arguments: tuple[SyntaxNode, ...]) -> SyntaxNode:
    return _make_list(target, _variables(arguments, 1), arguments[0], arguments[1])


def _transform_list(target: SyntaxNode, arguments: tuple[SyntaxNode, ...]) -> SyntaxNode:
    condition = arguments[2] if len(arguments) == 4 else None
    return _make_list(target, _variables(arguments, 2), arguments[-1], condition)


def _transform_map(target: SyntaxNode, arguments: tuple[SyntaxNode, ...]) -> SyntaxNode:
    names = _variables(arguments, 2)
    return _make_map("map", target, names, (Name(names[0]), arguments[-1]), arguments)


def _transform_entries(target: SyntaxNode, arguments: tuple[SyntaxNode, ...]) -> SyntaxNode:
    return _make_map("entries", target, _variables(arguments, 2), (arguments[-1],), arguments)


def _make_map(
    kind: str,
    target: SyntaxNode,
    names: tuple[str, ...],
    inserted: tuple[SyntaxNode, ...],
    arguments: tuple[SyntaxNode, ...],
) -> SyntaxNode:
    condition = arguments[2] if len(arguments) == 4 else None
    step = _filtered(condition, _operator("@insert", Name(RESULT), *inserted))
    parts = (inserted[-1],) if condition is None else (inserted[-1], condition)
    return Fold(kind, target, names, RESULT, MapLiteral(()), step, Name(RESULT), parts)


def _bind(target: SyntaxNode, arguments: tuple[SyntaxNode, ...]) -> SyntaxNode | None:
    if not isinstance(target, Name) or target.name != "cel":
        return None
    return BindMacro(_bound_name(arguments[0]), arguments[1], arguments[2])


def _bound_name(argument: SyntaxNode) -> str:
    if not isinstance(argument, Name) or argument.name.startswith("."):
        raise CelError("the variable of cel.bind(), optMap() or optFlatMap() must be a simple name")
    return argument.name


def _optional_map(is_flat: bool) -> Macro:  # noqa: FBT001 - a table below gives it its meaning
    def make(target: SyntaxNode, arguments: tuple[SyntaxNode, ...]) -> SyntaxNode:
        optional = Name(_OPTIONAL)
        body: SyntaxNode = BindMacro(_bound_name(arguments[0]), Call("value", optional, ()), arguments[1])
        found = body if is_flat else _operator("optional.of", body)
        chosen = _operator("_?_:_", Call("hasValue", optional, ()), found, _operator("optional.none"))
        # Upstream copies the target instead, which takes exponential time in a chain.
        return BindMacro(_OPTIONAL, target, chosen)

    return make


def _sort_by(target: SyntaxNode, arguments: tuple[SyntaxNode, ...]) -> SyntaxNode:
    if not isinstance(target, ListLiteral | Select | Name | Fold | BindMacro | Call):
        raise CelError("sortBy can only be applied to a list, identifier, comprehension, call or select expression")
    keys = _map(Name(_SORTED), arguments)
    return BindMacro(_SORTED, target, Call("@sortByKeys", Name(_SORTED), (keys,)))


MACROS: Final[dict[tuple[str, int], Macro]] = {
    **{("all", variables + 1): _quantifier("all", variables) for variables in (1, 2)},
    **{("exists", variables + 1): _quantifier("exists", variables) for variables in (1, 2)},
    **{("exists_one", variables + 1): _quantifier("exists_one", variables) for variables in (1, 2)},
    ("existsOne", 3): _quantifier("exists_one", 2),
    ("map", 2): _map,
    ("map", 3): _map,
    ("filter", 2): _filter,
    ("transformList", 3): _transform_list,
    ("transformList", 4): _transform_list,
    ("transformMap", 3): _transform_map,
    ("transformMap", 4): _transform_map,
    ("transformMapEntry", 3): _transform_entries,
    ("transformMapEntry", 4): _transform_entries,
    ("bind", 3): _bind,
    ("optMap", 2): _optional_map(is_flat=False),
    ("optFlatMap", 2): _optional_map(is_flat=True),
    ("sortBy", 2): _sort_by,
}
"""Macros by name and number of arguments."""
