"""What the source says about a name: the string that stands below an assignment, which Python itself throws away."""

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise
from types import ModuleType


class UndocumentedError(LookupError):
    """A name that users meet and about which the code says nothing."""


def told_about(where: type | ModuleType) -> dict[str, str]:
    """Return what is said below each assignment in a class or module, in one line each."""
    (top,) = ast.parse(inspect.getsource(where)).body if isinstance(where, type) else [_module(where)]
    body = top.body if isinstance(top, ast.ClassDef | ast.Module) else []
    return dict(_pairs(body))


def need(told: dict[str, str], name: str, where: type | ModuleType) -> str:
    """Return what is said about a name; raise where nothing is."""
    if name not in told:
        raise UndocumentedError(f"{where.__name__}.{name} has no docstring, and the reference needs one")
    return told[name]


def escaped(text: str) -> str:
    """Return a text that fits into a cell of a table; the code's double backticks become single ones."""
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
