"""From the text of an expression to its syntax tree, with macros expanded.

The grammar is CEL's. Nesting is limited, so that no expression exhausts the stack.
"""

from collections.abc import Iterator
from typing import Final

from cpg_engine.cel.errors import CelError, NotSupportedError
from cpg_engine.cel.lexer import RESERVED, Token, literal_value, tokenize
from cpg_engine.cel.macros import expand
from cpg_engine.cel.syntax import (
    Call,
    ListLiteral,
    Literal,
    MapLiteral,
    Name,
    Select,
    SyntaxNode,
    children,
)

MAX_DEPTH: Final = 100
"""The depth of the syntax tree."""
MAX_NESTING: Final = 50
"""The depth of parentheses, lists and calls in the text."""

_OPERATORS: Final = ("||", "&&", "== != < <= >= > in", "+ -", "* / %")
_PRECEDENCE: Final = {operator: level for level, text in enumerate(_OPERATORS) for operator in text.split()}
_LITERALS: Final = frozenset({"int", "uint", "double", "string", "bytes"})
_CONSTANTS: Final[dict[str, object]] = {"true": True, "false": False, "null": None}


def parse(text: str) -> SyntaxNode:
    """Return the syntax tree of an expression."""
    parser = _Parser(text)
    tree = parser.expression()
    parser.expect("end")
    _check_depth(tree)
    return tree


def _check_depth(tree: SyntaxNode) -> None:
    level = [tree]
    for _ in range(MAX_DEPTH):
        level = list({id(child): child for node in level for child in children(node)}.values())
        if not level:
            return
    raise NotSupportedError(f"an expression that is nested more than {MAX_DEPTH} levels deep is not supported")


class _Parser:
    """Recursive descent; one method for each rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._tokens = list(tokenize(text))
        self._position = 0
        self._depth = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._position]

    def _accept(self, kind: str) -> bool:
        """Skip the next token if it is of the kind."""
        is_kind = self._next.kind == kind
        self._position += is_kind
        return is_kind

    def _take(self) -> Token:
        self._position += 1
        return self._tokens[self._position - 1]

    def expect(self, kind: str) -> Token:
        """Skip the next token, which has to be of the kind."""
        if self._next.kind != kind:
            raise CelError(f"syntax error: unexpected {self._next.text} at position {self._next.position}")
        return self._take()

    def expression(self) -> SyntaxNode:
        """Read ``condition ? one : other``, or a condition."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise NotSupportedError(
                f"more than {MAX_NESTING} parentheses, lists or calls in each other are not supported"
            )
        condition = self._operation(0)
        if self._accept("?"):
            one = self._operation(0)
            self.expect(":")
            condition = Call("_?_:_", None, (condition, one, self.expression()))
        self._depth -= 1
        return condition

    def _operation(self, least: int) -> SyntaxNode:
        """Read operands of operators that bind at least so tightly; all associate to the left.

        Several ``&&`` or ``||`` become one call, so that long conditions are not deep.
        """
        left, before = self._unary(), ""
        while (precedence := _PRECEDENCE.get(self._next.kind, -1)) >= least:
            operator = self._take().kind
            right = self._operation(precedence + 1)
            is_more = isinstance(left, Call) and operator == before and precedence < 2
            first = left.arguments if is_more and isinstance(left, Call) else (left,)
            left, before = Call(f"_{operator}_", None, (*first, right)), operator
        return left

    def _unary(self) -> SyntaxNode:
        """Read ``!`` or ``-`` before a member; a minus before a number belongs to it."""
        operator, count = self._next.kind, 0
        if operator not in {"!", "-"} or self._is_negative_number():
            return self._member()
        while self._accept(operator):
            count += 1
        operand = self._member()
        return Call(f"{operator}_", None, (operand,)) if count % 2 else operand

    def _is_negative_number(self) -> bool:
        following = self._tokens[self._position : self._position + 2]
        return following[0].kind == "-" and following[1].kind in {"int", "double"}

    def _member(self) -> SyntaxNode:
        node = self._primary()
        while True:
            if self._accept("."):
                node = self._after_dot(node)
            elif self._accept("["):
                name = "_[?_]" if self._accept("?") else "_[_]"
                node = Call(name, None, (node, self.expression()))
                self.expect("]")
            elif self._next.kind == "{" and _is_qualified(node):
                raise NotSupportedError("message literals are not supported")
            else:
                return node

    def _after_dot(self, operand: SyntaxNode) -> SyntaxNode:
        is_optional = self._accept("?")
        if self._next.kind == "escaped":
            return Select(operand, self._take().text[1:-1], is_optional=is_optional)
        name = self.expect("name").text
        if not is_optional and self._accept("("):
            return expand(Call(name, operand, self._arguments()))
        return Select(operand, name, is_optional=is_optional)

    def _primary(self) -> SyntaxNode:
        is_negative = self._is_negative_number() and self._accept("-")
        token = self._take()
        node: SyntaxNode
        if token.kind in _LITERALS:
            node = Literal(literal_value(token.kind, ("-" if is_negative else "") + token.text))
        elif token.kind in _CONSTANTS:
            node = Literal(_CONSTANTS[token.kind])
        elif token.kind == "(":
            node = self.expression()
            self.expect(")")
        else:
            node = self._composite(token)
        return node

    def _composite(self, token: Token) -> SyntaxNode:
        """Read a list, a map, a name or a call that begins with the token."""
        match token.kind:
            case "[":
                return self._list_literal()
            case "{":
                return self._map_literal()
            case "." | "name":
                return self._name(token)
        raise CelError(f"syntax error: unexpected {token.text} at position {token.position}")

    def _name(self, token: Token) -> SyntaxNode:
        """Read a name, or a call of a global function; a dot may stand in front."""
        name = token.text if token.kind == "name" else "." + self.expect("name").text
        if name.removeprefix(".") in RESERVED:
            raise CelError(f"reserved identifier: {name}")
        return expand(Call(name, None, self._arguments())) if self._accept("(") else Name(name)

    def _arguments(self) -> tuple[SyntaxNode, ...]:
        found: list[SyntaxNode] = []
        while not self._accept(")"):
            if found:
                self.expect(",")
            found.append(self.expression())
        return tuple(found)

    def _items(self, end: str) -> Iterator[bool]:
        """Yield at the begin of each item of a literal, and whether it is optional; a comma may stand at the end."""
        while self._next.kind not in {end, ","}:
            yield self._accept("?")
            if self._next.kind == end or not self._accept(","):
                self.expect(end)
                return
        if self._tokens[self._position - 1].kind != ",":
            self._accept(",")
        self.expect(end)

    def _list_literal(self) -> SyntaxNode:
        elements: list[SyntaxNode] = []
        optional = set()
        for is_optional in self._items("]"):
            if is_optional:
                optional.add(len(elements))
            elements.append(self.expression())
        return ListLiteral(tuple(elements), frozenset(optional))

    def _map_literal(self) -> SyntaxNode:
        entries: list[tuple[SyntaxNode, SyntaxNode, bool]] = []
        for is_optional in self._items("}"):
            key = self.expression()
            self.expect(":")
            entries.append((key, self.expression(), is_optional))
        return MapLiteral(tuple(entries))


def _is_qualified(node: SyntaxNode) -> bool:
    """Say whether the node is a name, or several with dots between."""
    while isinstance(node, Select) and not (node.is_optional or node.is_test):
        node = node.operand
    return isinstance(node, Name)
