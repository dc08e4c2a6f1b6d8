"""Answers are decoded in one place, which never raises ``RecursionError``."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("api", "cli", "lab", "operator", "scheduler")
ALLOWED = {"api/cpg_api/decoding.py"}
"""Has ``decode``, which all others call."""
FORBIDDEN = {("json", "decode"), ("json", "Decoder"), ("json", "loads"), ("json", "load")}


def decoding(tree: ast.AST) -> Iterator[str]:
    """Yield every call and import by which a module decodes JSON, apart from our own function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if (name, node.func.attr) in FORBIDDEN:
                yield ast.unparse(node.func)
            if node.func.attr == "json" and not node.args:
                yield ast.unparse(node.func)
        elif isinstance(node, ast.ImportFrom) and node.module in {"json", "msgspec.json"}:
            yield f"from {node.module}"


def test_answers_are_decoded_by_one_function() -> None:
    """Every other decoder raises ``RecursionError`` for an answer that is nested by the thousand."""
    sources = {file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")}
    found = {str(file.relative_to(ROOT)): [*decoding(ast.parse(file.read_text(encoding="utf-8")))] for file in sources}
    assert {file for file, uses in found.items() if uses} == ALLOWED


@pytest.mark.parametrize(
    "code",
    ["msgspec.json.decode(b)", "json.loads(b)", "msgspec.json.Decoder(int)", "answer.json()", "from json import loads"],
)
def test_another_way_is_found(code: str) -> None:
    """The search knows all ways to decode JSON that are in use."""
    assert list(decoding(ast.parse(code)))
