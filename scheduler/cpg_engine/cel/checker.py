"""Types of expressions: each node gets a type, each call its overloads, and what cannot be typed is refused."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, cast

from cpg_engine.cel.errors import CelError, NotSupportedError
from cpg_engine.cel.library import FUNCTIONS, REFUSED
from cpg_engine.cel.signatures import (
    BOOL,
    BYTES,
    DEVICE,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    QUANTITY,
    STRING,
    TIMESTAMP,
    UINT,
    Function,
    Overload,
    Type,
    list_of,
    map_of,
    optional_of,
)
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
from cpg_engine.cel.unification import Bindings, is_dynamic, is_result, most_general
from cpg_engine.cel.values import TypeValue, Uint

_FIELDS: Final = {
    "driver": STRING,
    "allowMultipleAllocations": BOOL,
    "attributes": map_of(STRING, map_of(STRING, DYN)),
    "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
}
_LITERALS: Final[dict[type, Type]] = {
    type(None): NULL,
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
}
_TYPES: Final = {
    "bool": BOOL,
    "bytes": BYTES,
    "double": DOUBLE,
    "google.protobuf.Duration": DURATION,
    "int": INT,
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
    "null_type": NULL,
    "string": STRING,
    "google.protobuf.Timestamp": TIMESTAMP,
    "type": Type("type"),
    "uint": UINT,
    "optional_type": optional_of(DYN),
}
"""Names of types, which are values of the type ``type``."""
_REFUSED_NAMES: Final = ("google.protobuf.", "net.")


def check(tree: SyntaxNode) -> None:
    """Set the types of all nodes; raise an error if the expression has none, or cannot be a selector."""
    checker = _Checker()
    checker.check(tree)
    checker.finish(tree)
    if not is_result(tree.type):
        raise CelError(f"must evaluate to bool, not {tree.type}")


def _mismatch(expected: Type, found: Type) -> CelError:
    return CelError(f"expected type {expected} but found {found}")


class _Checker:
    """The variables in scope, and the type parameters bound so far."""

    def __init__(self) -> None:
        self._bindings = Bindings()
        self._scopes: list[dict[str, Type]] = []

    def check(self, node: SyntaxNode) -> Type:
        """Set the type of a node and of all below."""
        match node:
            case Literal():
                node.type = _LITERALS[type(node.value)]
            case Name():
                node.type = self._name(node)
            case Select():
                node.type = self._select(node)
            case Call():
                node.type = self._call(node)
            case ListLiteral():
                node.type = self._list(node)
            case MapLiteral():
                node.type = self._map(node)
            case BindMacro():
                node.type = self._bind(node)
            case _:
                node.type = self._fold(cast("Fold", node))
        return node.type

    def finish(self, node: SyntaxNode, seen: set[int] | None = None) -> None:
        """Make the types final, and see that the elements of each literal are of one type."""
        seen = set() if seen is None else seen
        for child in (*children(node), *((node.step, node.result) if isinstance(node, Fold) else ())):
            if id(child) not in seen:
                seen.add(id(child))
                self.finish(child, seen)
        node.type = self._bindings.substitute(node.type, is_final=True)
        if isinstance(node, ListLiteral):
            _require_one_type([(one, index in node.optional) for index, one in enumerate(node.elements)])
        if isinstance(node, MapLiteral):
            _require_one_type([(key, False) for key, _, _ in node.entries])
            _require_one_type([(value, is_optional) for _, value, is_optional in node.entries])

    # Names.

    def _variable(self, name: str) -> Type | None:
        """Return the type of a variable of a macro; a name with a dot in front is none."""
        if name.startswith("."):
            return None
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)

    def _name(self, node: Name) -> Type:
        local = self._variable(node.name)
        if local is not None:
            return local
        plain = node.name.removeprefix(".")
        if plain == "device":
            return DEVICE
        if plain in _TYPES:
            node.constant = TypeValue(plain)
            return Type("type", (_TYPES[plain],))
        raise CelError(f"undeclared reference to {plain!r}")

    def _qualified(self, node: SyntaxNode) -> str | None:
        """Return the name that selections from an unbound name spell, if they can be one."""
        if isinstance(node, Name):
            return node.name.removeprefix(".")
        if isinstance(node, Select) and not node.is_test and not node.is_optional:
            prefix = self._qualified(node.operand)
            return prefix and f"{prefix}.{node.name}"
        return None

    def _select(self, node: Select) -> Type:
        name = self._qualified(node)
        if name and self._variable(name.partition(".")[0]) is None:
            if name in _TYPES:
                node.constant = TypeValue(name)
                return Type("type", (_TYPES[name],))
            if name.startswith(_REFUSED_NAMES):
                raise NotSupportedError(f"the type {name} is not supported")
        result = self._field(node)
        return BOOL if node.is_test else self._bindings.substitute(result)

    def _field(self, node: Select) -> Type:
        operand = self._bindings.substitute(self.check(node.operand))
        is_optional = operand.kind == "optional"
        target = operand.parameters[0] if is_optional else operand
        result = DYN
        if target.kind == "map":
            result = target.parameters[1]
        elif target == DEVICE:
            if node.name not in _FIELDS:
                raise CelError(f"undefined field {node.name!r}")
            result = _FIELDS[node.name]
        elif target.kind == "parameter":
            self._bindings.is_assignable(DYN, target)
        elif target.kind == "object" or not is_dynamic(target):
            raise CelError(f"type {target} does not support field selection")
        return optional_of(result) if is_optional or node.is_optional else result

    # Calls.

    def _call(self, node: Call) -> Type:
        for argument in node.arguments:
            self.check(argument)
        if node.target is not None:
            prefix = self._qualified(node.target)
            if prefix and (f"{prefix}.{node.name}" in FUNCTIONS or f"{prefix}.{node.name}" in REFUSED):
                node.name, node.target = f"{prefix}.{node.name}", None
        if node.target is not None:
            self.check(node.target)
        name = node.name = node.name.removeprefix(".")
        node.function = FUNCTIONS.get(name)
        if node.function is None:
            if name in REFUSED:
                raise NotSupportedError(f"the function {name} of the {REFUSED[name]} library is not supported")
            raise CelError(f"undeclared reference to {name!r}")
        return self._logic(node) if name in {"_&&_", "_||_"} else self._resolve(node, node.function)

    def _logic(self, node: Call) -> Type:
        for argument in node.arguments:
            self._require(argument.type, BOOL)
        return BOOL

    def _require(self, found: Type, expected: Type) -> None:
        if not self._bindings.is_assignable(found, expected):
            raise _mismatch(expected, self._bindings.substitute(found))

    def _resolve(self, node: Call, function: Function) -> Type:
        """Find the overloads that take the operands; if their results differ, the type is dyn."""
        operands = [operand.type for operand in node.operands]
        result: Type | None = None
        found = []
        for overload in function.overloads:
            if overload.is_member != (node.target is not None):
                continue
            types, returned = self._instantiate(overload)
            if self._bindings.are_assignable(operands, types):
                found.append(overload)
                returned = self._bindings.substitute(returned)
                result = returned if result is None or result == returned else DYN
        if result is None:
            listed = ", ".join(str(self._bindings.substitute(one, is_final=True)) for one in operands)
            raise CelError(f"found no matching overload for {function.name.strip('_')!r} applied to ({listed})")
        node.overloads = tuple(found)
        return result

    def _instantiate(self, overload: Overload) -> tuple[list[Type], Type]:
        """Return the types of operands and result, with new type parameters."""
        fresh = {one: self._bindings.fresh() for one in overload.parameters}
        return [_replace(one, fresh) for one in overload.operands], _replace(overload.result, fresh)

    # Literals and macros.

    def _list(self, node: ListLiteral) -> Type:
        joined: Type | None = None
        for index, element in enumerate(node.elements):
            found = self.check(element)
            joined = self._join(joined, _unwrap(found) if index in node.optional else found)
        return list_of(joined or self._bindings.fresh())

    def _map(self, node: MapLiteral) -> Type:
        keys: Type | None = None
        values: Type | None = None
        for key, value, is_optional in node.entries:
            keys = self._join(keys, self.check(key))
            found = self.check(value)
            values = self._join(values, _unwrap(found) if is_optional else found)
        return map_of(keys or self._bindings.fresh(), values or self._bindings.fresh())

    def _join(self, joined: Type | None, found: Type) -> Type:
        """Return the more general of two types of elements."""
        if joined is None:
            return found
        self._require(joined, found)
        return most_general(joined, found)

    @contextmanager
    def _scope(self, **variables: Type) -> Iterator[None]:
        self._scopes.append(variables)
        yield
        self._scopes.pop()

    def _bind(self, node: BindMacro) -> Type:
        value = self.check(node.value)
        with self._scope(**{node.variable: value}):
            body = self.check(node.body)
        return self._bindings.substitute(body)

    def _fold(self, node: Fold) -> Type:
        self.check(node.range)
        accumulated = self.check(node.initial)
        kinds = self._kinds(self._bindings.substitute(node.range.type), len(node.variables))
        with self._scope(**{node.accumulator: accumulated}):
            with self._scope(**dict(zip(node.variables, kinds, strict=True))):
                self._require(accumulated, self.check(node.step))
            result = self.check(node.result)
        return self._bindings.substitute(result)

    def _kinds(self, range_: Type, count: int) -> tuple[Type, ...]:
        """Return the types of the variables of a macro: element or key, or index and element, or key and value."""
        if range_.kind == "list":
            return (INT, *range_.parameters) if count == 2 else range_.parameters
        if range_.kind == "map":
            return range_.parameters[:count]
        if range_.kind == "parameter" or is_dynamic(range_):
            self._bindings.is_assignable(DYN, range_)
            return (DYN,) * count
        raise CelError(f"expression of type {range_} cannot be the range of a macro")


def _replace(type_: Type, replacements: dict[Type, Type]) -> Type:
    if not replacements:
        return type_
    if type_ in replacements:
        return replacements[type_]
    return Type(type_.kind, tuple(_replace(one, replacements) for one in type_.parameters), type_.name)


def _unwrap(type_: Type) -> Type:
    """Return the type of an optional's value."""
    if type_.kind == "optional":
        return type_.parameters[0]
    if is_dynamic(type_):
        return type_
    raise _mismatch(optional_of(type_), type_)


def _require_one_type(parts: list[tuple[SyntaxNode, bool]]) -> None:
    """Raise an error if the parts are of different types; the type of an optional part is that of its value."""
    if any(is_optional and one.type.kind != "optional" for one, is_optional in parts):
        raise CelError("an optional element of unknown type is not valid in a literal")
    types = [one.type.parameters[0] if is_optional else one.type for one, is_optional in parts]
    for other in types[1:]:
        if other != types[0]:
            raise _mismatch(types[0], other)
