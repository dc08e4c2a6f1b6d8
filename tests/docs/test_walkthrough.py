"""The functions in docs/decisions/walkthrough.md exist, and its calls follow the layers."""

import ast
import re
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "decisions" / "walkthrough.md").read_text("utf-8")
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
HANDOVERS = {"call", "return", "event", "request"}
_ROW = re.compile(r"^\| \d+ \| `(?P<path>[^:`]+):(?P<name>[^`]+)` \| [^|]+ \| (?P<then>\w*) ?\|$", re.MULTILINE)


class Hop(NamedTuple):
    """A function in a path, and how it hands over to the next one."""

    path: str
    name: str
    then: str

    @property
    def layers(self) -> tuple[str, ...]:
        """The package of the function and its module inside it."""
        _, package, module, *_ = self.path.removesuffix(".py").split("/")
        return package, module


_SECTIONS = re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]
PATHS = [path for section in _SECTIONS if (path := [Hop(**found.groupdict()) for found in _ROW.finditer(section)])]


def functions(path: Path) -> set[str]:
    """Return the names of the functions and methods of a module."""
    tree = ast.parse(path.read_text("utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    top = {node.name for node in tree.body if isinstance(node, kinds)}
    methods = {
        f"{node.name}.{one.name}"
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for one in node.body
        if isinstance(one, kinds)
    }
    return top | methods


def depth(hop: Hop) -> tuple[int, int]:
    """Return how deep a function is: the layer of its package, and of its module inside the package."""
    package, module = hop.layers
    by_container = {
        contract.get("containers", ["packages"])[0]: contract["layers"]
        for contract in CONTRACTS
        if contract["type"] == "layers"
    }
    return _index(by_container["packages"], package), _index(by_container.get(package, [module]), module)


def _index(layers: list[str], name: str) -> int:
    return next(number for number, layer in enumerate(layers) if name in re.split(r"[ |:]+", layer))


def test_both_paths_are_parsed() -> None:
    """Every row of the tables is a hop, and its last column a way to hand over."""
    assert sum(map(len, PATHS)) == len(re.findall(r"^\| \d", TEXT, re.MULTILINE))
    assert {hop.then for path in PATHS for hop in path[:-1]} <= HANDOVERS
    assert [path[-1].then for path in PATHS] == ["", ""]


@pytest.mark.parametrize("hop", [hop for path in PATHS for hop in path], ids=lambda hop: hop.name)
def test_a_function_of_a_path_exists(hop: Hop) -> None:
    """Its module defines it."""
    assert hop.name in functions(ROOT / hop.path)


@pytest.mark.parametrize(("caller", "called"), [pair for path in PATHS for pair in pairwise(path)])
def test_no_call_goes_up(caller: Hop, called: Hop) -> None:
    """A call goes into the same or a lower layer; everything else is a value that is handed over."""
    if caller.then == "call":
        assert depth(called) >= depth(caller)
