"""The syntax tree of an expression."""

from dataclasses import dataclass, field

from cpg_engine.cel.signatures import DYN, Function, Overload, Type


@dataclass(eq=False, slots=True)
class Expression:
    """A node; the checker sets its type."""

    type: Type = field(default=DYN, init=False)


@dataclass(eq=False, slots=True)
class Literal(Expression):
    """A constant: None, bool, int, Uint, float, str or bytes; the checker also makes constants of names of types."""

    value: object


@dataclass(eq=False, slots=True)
class Name(Expression):
    """A variable, or a type; a leading dot skips the variables of macros."""

    name: str
    constant: object = field(default=None, init=False)
    """The type, if the name is of one."""


@dataclass(eq=False, slots=True)
class Select(Expression):
    """``operand.name``, or ``has(operand.name)`` with ``is_test``, or ``operand.?name`` with ``is_optional``."""

    operand: Expression
    name: str
    is_test: bool = False
    is_optional: bool = False
    constant: object = field(default=None, init=False)
    """The type, if the whole is a name of one, such as ``google.protobuf.Duration``."""


@dataclass(eq=False, slots=True)
class Call(Expression):
    """A call of a function or of an operator."""

    name: str
    target: Expression | None
    arguments: tuple[Expression, ...]
    function: Function | None = field(default=None, init=False)
    overloads: tuple[Overload, ...] = field(default=(), init=False)

    @property
    def operands(self) -> tuple[Expression, ...]:
        """The target, if there is one, and the arguments."""
        return self.arguments if self.target is None else (self.target, *self.arguments)


@dataclass(eq=False, slots=True)
class ListLiteral(Expression):
    """``[a, ?b]``."""

    elements: tuple[Expression, ...]
    optional: frozenset[int] = frozenset()


@dataclass(eq=False, slots=True)
class MapLiteral(Expression):
    """``{key: value, ?other: optional}``; the third part of an entry says whether it is optional."""

    entries: tuple[tuple[Expression, Expression, bool], ...]


@dataclass(eq=False, slots=True)
class Fold(Expression):
    """What a macro over a list or map stands for.

    It is checked as the loop that the specification defines (``initial``, ``step``, ``result``), and evaluated by
    ``macro`` with ``parts``, which are nodes of the step.
    """

    macro: str
    range: Expression
    variables: tuple[str, ...]
    accumulator: str
    initial: Expression
    step: Expression
    result: Expression
    parts: tuple[Expression, ...]


@dataclass(eq=False, slots=True)
class Bind(Expression):
    """``cel.bind(variable, value, body)``; the value is computed when it is first read."""

    variable: str
    value: Expression
    body: Expression


def children(node: Expression) -> tuple[Expression, ...]:
    """Return the nodes directly below, as the author wrote them."""
    found: tuple[Expression, ...] = ()
    match node:
        case Select():
            found = (node.operand,)
        case Call():
            found = node.operands
        case ListLiteral():
            found = node.elements
        case MapLiteral():
            found = tuple(part for key, value, _ in node.entries for part in (key, value))
        case Fold():
            found = (node.range, *node.parts)
        case Bind():
            found = (node.value, node.body)
    return found
