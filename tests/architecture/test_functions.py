"""Code is short, and what is shared is frozen."""

import ast
import importlib
import pkgutil
import tomllib
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path

import msgspec
import pytest

import cpg_api

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES: list[str] = SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(files: list[Path]) -> Iterator[tuple[int, str]]:
    """Yield length and place of every function."""
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, Function):
                yield length(node), f"{file.relative_to(ROOT)}:{node.lineno} {node.name}"


def length(node: Function) -> int:
    """Return a function's lines from its ``def`` on, without its docstring."""
    first = node.body[0]
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node) is None:
        return lines
    return lines - ((first.end_lineno or first.lineno) - first.lineno + 1)


def p95(lengths: list[int]) -> int:
    """Return the length that 95 of 100 functions keep to."""
    return sorted(lengths)[len(lengths) * 95 // 100]


def sources(folder: str) -> list[Path]:
    """Return the Python files below a folder."""
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_functions_fit_on_a_screen(package: str) -> None:
    """95 of 100 have at most 35 lines, and none has over 60, docstrings not counted."""
    found = list(functions(sources(package)))
    assert [one for one in found if one[0] > 60] == []
    assert p95([lines for lines, _ in found] or [0]) <= 35


def test_tests_are_short() -> None:
    """95 of 100 have at most 25 lines, and none has over 60: a longer story is a file of its own."""
    found = list(functions(sources("tests")))
    assert [one for one in found if one[0] > 60] == []
    assert p95([lines for lines, _ in found]) <= 25


@pytest.mark.parametrize("folder", [*PACKAGES, "tests", "tools", "bench"])
def test_modules_can_be_read_in_one_go(folder: str) -> None:
    """None has over 600 lines."""
    lengths = {str(file): len(file.read_text(encoding="utf-8").splitlines()) for file in sources(folder)}
    assert {file: lines for file, lines in lengths.items() if lines > 600} == {}


def test_a_docstring_does_not_count() -> None:
    """Explaining more never makes a function too long."""
    (short, long) = ast.parse('def f():\n    return 1\ndef g():\n    """One.\n\n    Two.\n    """\n    return 1\n').body
    assert isinstance(short, ast.FunctionDef)
    assert isinstance(long, ast.FunctionDef)
    assert length(short) == length(long) == 2


def test_everything_in_the_api_model_is_frozen() -> None:
    """A store shares an object with everybody who asks: nobody may change it under the others."""
    shared = [found for found in classes_of_the_api() if issubclass(found, msgspec.Struct) or is_dataclass(found)]
    assert len(shared) > 50
    assert [found.__qualname__ for found in shared if not is_frozen(found)] == []


def classes_of_the_api() -> list[type]:
    """Return every class that a module of cpg_api defines."""
    names = [module.name for module in pkgutil.walk_packages(cpg_api.__path__, "cpg_api.")]
    modules = [importlib.import_module(name) for name in names]
    return [found for module in modules for found in vars(module).values() if own_class(found, module.__name__)]


def own_class(found: object, module: str) -> bool:
    """Tell whether it is a class that was defined in that module."""
    return isinstance(found, type) and found.__module__ == module


def is_frozen(found: type) -> bool:
    """Tell whether instances of a struct or dataclass can be changed."""
    if issubclass(found, msgspec.Struct):
        return found.__struct_config__.frozen
    return bool(found.__dataclass_params__.frozen)  # type: ignore[attr-defined]
