"""The docstrings of assigned names: the string below an assignment, which Python itself does not keep."""

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise
from types import ModuleType


class UndocumentedError(LookupError):
    """A name in the reference without a docstring."""


def docstrings_of(where: type | ModuleType) -> dict[str, str]:
    """Return the docstrings of the names assigned in a class or module."""
    (top,) = ast.parse(inspect.getsource(where)).body if isinstance(where, type) else [_module(where)]
    body = top.body if isinstance(top, ast.ClassDef | ast.Module) else []
    return dict(_pairs(body))


def docstring(told: dict[str, str], name: str, where: type | ModuleType) -> str:
    """Return the docstring of a name; raise if there is none."""
    if name not in told:
        raise UndocumentedError(f"{where.__name__}.{name} has no docstring, and the reference needs one")
    return told[name]


def escaped(text: str) -> str:
    """Return a text escaped for a cell of a Markdown table, with single backticks."""
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")


def _module(where: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(where))


def _pairs(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for one, following in pairwise(body):
        match one, following:
            case (
                ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, inspect.cleandoc(text)
