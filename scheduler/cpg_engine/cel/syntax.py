"""The syntax tree of an expression."""

from dataclasses import dataclass, field

from cpg_engine.cel.signatures import DYN, Function, Overload, Type


@dataclass(eq=False, slots=True)
class SyntaxNode:
    """A node; the checker sets its type."""

    type: Type = field(default=DYN, init=False)


@dataclass(eq=False, slots=True)
class Literal(SyntaxNode):
    """A constant: None, bool, int, Uint, float, str or bytes; the checker also makes constants of names of types."""

    value: object


@dataclass(eq=False, slots=True)
class Name(SyntaxNode):
    """A variable, or a type; a leading dot skips the variables of macros."""

    name: str
    constant: object = field(default=None, init=False)
    """The type, if the name is of one."""


@dataclass(eq=False, slots=True)
class Select(SyntaxNode):
    """``operand.name``, or ``has(operand.name)`` with ``is_test``, or ``operand.?name`` with ``is_optional``."""

    operand: SyntaxNode
    name: str
    is_test: bool = False
    is_optional: bool = False
    constant: object = field(default=None, init=False)
    """The type, if the whole is a name of one, such as ``google.protobuf.Duration``."""


@dataclass(eq=False, slots=True)
class Call(SyntaxNode):
    """A call of a function or of an operator."""

    name: str
    target: SyntaxNode | None
    arguments: tuple[SyntaxNode, ...]
    function: Function | None = field(default=None, init=False)
    overloads: tuple[Overload, ...] = field(default=(), init=False)

    @property
    def operands(self) -> tuple[SyntaxNode, ...]:
        """The target, if there is one, and the arguments."""
        return self.arguments if self.target is None else (self.target, *self.arguments)


@dataclass(eq=False, slots=True)
class ListLiteral(SyntaxNode):
    """``[a, ?b]``."""

    elements: tuple[SyntaxNode, ...]
    optional: frozenset[int] = frozenset()


@dataclass(eq=False, slots=True)
class MapLiteral(SyntaxNode):
    """``{key: value, ?other: optional}``; the third part of an entry says whether it is optional."""

    entries: tuple[tuple[SyntaxNode, SyntaxNode, bool], ...]


@dataclass(eq=False, slots=True)
class Fold(SyntaxNode):
    """What a macro over a list or map stands for.

    It is checked as the loop that the specification defines (``initial``, ``step``, ``result``), and evaluated by
    ``macro`` with ``parts``, which are nodes of the step.
    """

    macro: str
    range: SyntaxNode
    variables: tuple[str, ...]
    accumulator: str
    initial: SyntaxNode
    step: SyntaxNode
    result: SyntaxNode
    parts: tuple[SyntaxNode, ...]


@dataclass(eq=False, slots=True)
class BindMacro(SyntaxNode):
    """``cel.bind(variable, value, body)``; the value is computed when it is first read."""

    variable: str
    value: SyntaxNode
    body: SyntaxNode


def children(node: SyntaxNode) -> tuple[SyntaxNode, ...]:
    """Return the nodes directly below, as the author wrote them."""
    found: tuple[SyntaxNode, ...] = ()
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
        case BindMacro():
            found = (node.value, node.body)
    return found
