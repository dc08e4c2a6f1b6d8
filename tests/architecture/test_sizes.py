"""Functions, classes and modules are short, and no two classes of ours share a name.

Lines of a function are counted from its ``def`` on, without its docstring: an explanation never makes it too long.
"""

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES: list[str] = SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
FOLDERS = [*PACKAGES, "tests", "tools", "bench"]

MAX_LINES_PER_FUNCTION = 60
P95_LINES_PER_FUNCTION = 25
MAX_LINES_PER_MODULE = 450
P95_LINES_PER_MODULE = 350
MAX_METHODS_PER_CLASS = 25

Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources(folder: str) -> list[Path]:
    """Return the Python files below a folder."""
    return sorted((ROOT / folder).rglob("*.py"))


@cache
def parsed(file: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(file.read_text(encoding="utf-8"))


def place(file: Path, node: ast.stmt) -> str:
    """Return where a definition stands."""
    return f"{file.relative_to(ROOT)}:{node.lineno}"


def functions(files: list[Path]) -> Iterator[tuple[int, str]]:
    """Yield length and place of every function, nested ones and methods included."""
    for file in files:
        for node in ast.walk(parsed(file)):
            if isinstance(node, Function):
                yield length(node), f"{place(file, node)} {node.name}"


def length(node: Function) -> int:
    """Return the lines of a function without its docstring."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node) is None:
        return lines
    docstring = node.body[0]
    return lines - ((docstring.end_lineno or docstring.lineno) - docstring.lineno + 1)


def module_lengths(folder: str) -> dict[str, int]:
    """Return the lines of every module below a folder."""
    return {str(file.relative_to(ROOT)): len(file.read_text("utf-8").splitlines()) for file in sources(folder)}


def classes(folder: str) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield place and definition of every class at the top of a module."""
    for file in sources(folder):
        for node in parsed(file).body:
            if isinstance(node, ast.ClassDef):
                yield place(file, node), node


def methods(node: ast.ClassDef) -> int:
    """Return how many functions the body of a class defines, properties included."""
    return sum(isinstance(part, Function) for part in node.body)


def p95(lengths: list[int]) -> int:
    """Return the length that 95 % of all keep to."""
    return sorted(lengths)[len(lengths) * 95 // 100] if lengths else 0


@pytest.mark.parametrize("folder", FOLDERS)
def test_functions_fit_on_a_screen(folder: str) -> None:
    """95 % of the functions have at most 25 lines, and none has more than 60."""
    found = list(functions(sources(folder)))
    assert [one for one in found if one[0] > MAX_LINES_PER_FUNCTION] == []
    assert p95([lines for lines, _ in found]) <= P95_LINES_PER_FUNCTION


@pytest.mark.parametrize("folder", FOLDERS)
def test_modules_are_short(folder: str) -> None:
    """95 % of the modules have at most 350 lines, and none has more than 450."""
    lengths = module_lengths(folder)
    long = {module: lines for module, lines in lengths.items() if lines > MAX_LINES_PER_MODULE}
    assert long == {}
    assert p95([*lengths.values()]) <= P95_LINES_PER_MODULE


@pytest.mark.parametrize("folder", FOLDERS)
def test_classes_have_few_methods(folder: str) -> None:
    """None has more than 25."""
    counts = {f"{where} {node.name}": methods(node) for where, node in classes(folder)}
    large = {name: count for name, count in counts.items() if count > MAX_METHODS_PER_CLASS}
    assert large == {}


def test_no_two_classes_share_a_name() -> None:
    """A name means one thing in all packages, those for tests included."""
    places: dict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for where, node in classes(package):
            places[node.name].append(where)
    shared = {name: found for name, found in places.items() if len(found) > 1}
    assert shared == {}


def test_a_docstring_does_not_count() -> None:
    """A function with a long docstring is as long as one without."""
    (short, long) = ast.parse('def f():\n    return 1\ndef g():\n    """One.\n\n    Two.\n    """\n    return 1\n').body
    assert isinstance(short, ast.FunctionDef)
    assert isinstance(long, ast.FunctionDef)
    assert length(short) == length(long) == 2
