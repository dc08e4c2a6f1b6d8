"""Which types can stand for others, with the rules of CEL's type checker.

Type parameters are bound as expressions are checked. A failed attempt leaves no bindings.
"""

from collections.abc import Sequence

from cpg_engine.cel.errors import NotSupportedError
from cpg_engine.cel.signatures import BOOL, DYN, Type

_NULLABLE = frozenset({"null", "optional", "object", "duration", "timestamp"})
_WITH_PARAMETERS = frozenset({"list", "map", "optional", "type"})


_MAX_STEPS = 100_000
"""Steps for all types of an expression; a type that has itself twice inside would grow without bounds."""


def is_dynamic(type_: Type) -> bool:
    """Say whether nothing is known of the type; the type of something wrong counts, too."""
    return type_.kind in {"dyn", "error"}


class Bindings:
    """What the type parameters stand for."""

    def __init__(self) -> None:
        self._bound: dict[Type, Type] = {}
        self._count = 0
        self._steps = 0

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise NotSupportedError("an expression with types as complex as these is not supported")

    def fresh(self) -> Type:
        """Return a new type parameter."""
        self._count += 1
        return Type("parameter", name=f"_{self._count}")

    def are_assignable(self, types: Sequence[Type], targets: Sequence[Type]) -> bool:
        """Say whether each type can stand for its target, and bind what that needs."""
        before = dict(self._bound)
        if len(types) == len(targets) and all(map(self._assign, types, targets)):
            return True
        self._bound = before
        return False

    def is_assignable(self, type_: Type, target: Type) -> bool:
        """Say whether the type can stand for the target."""
        return self.are_assignable((type_,), (target,))

    def substitute(self, type_: Type, *, is_final: bool = False) -> Type:
        """Replace bound parameters; finally, unbound ones are dyn."""
        self._step()
        if type_.kind == "parameter":
            if type_ in self._bound:
                return self.substitute(self._bound[type_], is_final=is_final)
            return DYN if is_final else type_
        if not type_.parameters:
            return type_
        inner = tuple(self.substitute(one, is_final=is_final) for one in type_.parameters)
        return Type(type_.kind, inner, type_.name)

    def _assign(self, type_: Type, target: Type) -> bool:
        self._step()
        if target.kind == "parameter":
            is_valid, is_bound = self._bind(target, type_)
            if is_valid or is_bound:
                return is_valid
        if type_.kind == "parameter":
            return self._bind(type_, target)[0]
        if is_dynamic(type_) or is_dynamic(target):
            return True
        if type_.kind == "null" or target.kind == "null":
            return {type_.kind, target.kind} <= _NULLABLE
        if type_.kind in _WITH_PARAMETERS and type_.kind == target.kind:
            return type_.kind == "type" or all(map(self._assign, type_.parameters, target.parameters))
        return type_ == target

    def _bind(self, parameter: Type, type_: Type) -> tuple[bool, bool]:
        """Let the parameter stand for the type; return whether it can, and whether it was bound before."""
        if parameter == type_:
            return True, True
        bound = self._bound.get(parameter)
        if bound is None:
            is_free = not self._occurs(parameter, type_)
            if is_free:
                self._bound[parameter] = type_
            return is_free, False
        if bound == type_:
            return True, True
        if not self._assign(type_, bound):
            return False, True
        general = most_general(type_, bound)
        if not self._occurs(parameter, general):
            self._bound[parameter] = general
        return True, True

    def _occurs(self, parameter: Type, within: Type) -> bool:
        self._step()
        if parameter == within:
            return True
        if within.kind == "parameter":
            bound = self._bound.get(within)
            return bound is not None and self._occurs(parameter, bound)
        return any(self._occurs(parameter, inner) for inner in within.parameters)


def most_general(one: Type, other: Type) -> Type:
    """Return the more general of two types that can stand for each other."""
    return one if _is_as_general(one, other) else other


def _is_as_general(one: Type, other: Type) -> bool:
    if one.kind in {"dyn", "parameter"}:
        return True
    if other.kind in {"dyn", "parameter"} or one.kind != other.kind:
        return False
    if one.kind == "type":
        return True
    if one.kind in _WITH_PARAMETERS:
        return all(map(_is_as_general, one.parameters, other.parameters))
    return one == other


def is_result(type_: Type) -> bool:
    """Say whether a selector may have the type: bool, or not known."""
    return type_ in {BOOL, DYN}
