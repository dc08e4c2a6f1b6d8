"""Which parts of a device an expression reads, found without evaluating it.

A *path* is what the analysis knows of a value: the device, its map of all attributes or capacities, or the map of one
domain. A read is recorded where a path ends. Where a whole map is used in another way, such as in a macro, everything
is read.
"""

from typing import NamedTuple

from cpg_engine.cel.syntax import BindMacro, Call, Fold, Literal, Name, Select, SyntaxNode, children

ATTRIBUTES = "attributes"
CAPACITY = "capacity"
_MAPS = frozenset({ATTRIBUTES, CAPACITY})
_INDEXING = frozenset({"_[_]", "_[?_]"})
_DEVICE = ("device",)

Path = tuple[str, ...]


class Read(NamedTuple):
    """An attribute or capacity by domain and name; without a name, whether the domain has any."""

    map: str
    domain: str
    name: str | None = None


class Reads(NamedTuple):
    """What an expression reads of a device, beside its driver and whether it can be allocated more than once."""

    parts: frozenset[Read]
    is_everything: bool


def find_reads(tree: SyntaxNode) -> Reads:
    """Return what an expression reads."""
    analysis = _Analysis()
    analysis.use(tree)
    return Reads(frozenset(analysis.parts), analysis.is_everything)


class _Analysis:
    """Collects reads; knows the paths of the variables in scope."""

    def __init__(self) -> None:
        self.parts: set[Read] = set()
        self.is_everything = False
        self._variables: dict[str, Path | None] = {}

    def use(self, node: SyntaxNode) -> None:
        """Read the whole value of a node."""
        if self._path(node) is not None:
            self.is_everything = True

    def _path(self, node: SyntaxNode) -> Path | None:
        """Return the path of a node's value, or None if it is no map of the device; record what is read for it."""
        match node:
            case Name():
                device = _DEVICE if node.constant is None else None
                return device if node.name.startswith(".") else self._variables.get(node.name, device)
            case Select():
                return self._step(self._path(node.operand), node.name, is_test=node.is_test)
            case Call(name=name, arguments=(operand, Literal(value=str(key)))) if name in _INDEXING:
                return self._step(self._path(operand), key)
            case Call(name="_in_", arguments=(Literal(value=str(key)), operand)):
                return self._step(self._path(operand), key, is_test=True)
            case BindMacro():
                return self._bound(node)
            case Fold():
                self.use(node.range)
                before = dict(self._variables)
                self._variables.update(dict.fromkeys(node.variables))
                for part in node.parts:
                    self.use(part)
                self._variables = before
            case _:
                for child in children(node):
                    self.use(child)
        return None

    def _bound(self, node: BindMacro) -> Path | None:
        before = dict(self._variables)
        self._variables[node.variable] = self._path(node.value)
        path = self._path(node.body)
        self._variables = before
        return path

    def _step(self, path: Path | None, key: str, *, is_test: bool = False) -> Path | None:
        """Go from a map to what it has at a key, or only look whether it has the key."""
        if path is None:
            return None
        if path == _DEVICE:
            return (key,) if key in _MAPS and not is_test else None
        if len(path) == 1:
            if is_test:
                self.parts.add(Read(path[0], key))
            return None if is_test else (*path, key)
        self.parts.add(Read(path[0], path[1], key))
        return None
