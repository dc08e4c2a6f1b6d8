"""No name in the tests is a number in a document outside of the repository."""

import re
from pathlib import Path

import pytest

from prose.repository import files

ROOT = Path(__file__).parents[2]
CITATION = re.compile(r"\b[A-L][0-9]{2}\b")
NUMBERED = re.compile(r"/[a-l][0-9]{2}-[^/]+$")
TEXTS = {".py", ".yaml", ".md"}


def citations(path: str, text: str) -> list[str]:
    """Return the lines of a file that cite a document, and its path if that does."""
    lines = [f"{path}:{number}" for number, line in enumerate(text.splitlines(), 1) if CITATION.search(line)]
    return [*lines, *([path] if NUMBERED.search(path) else [])]


def test_tests_cite_no_document_outside_of_the_repository() -> None:
    """A reader cannot look up a number such as F and 35, so the behaviour has a name."""
    found = [
        citation
        for path in files()
        if path.startswith("tests/") and Path(path).suffix in TEXTS
        for citation in citations(path, (ROOT / path).read_text("utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("a.py", "one\ncase {}\n".format("F" + "35"), ["a.py:2"]),
        ("a/{}-room.yaml".format("c" + "03"), "x", ["a/c" + "03-room.yaml"]),
        ("a.py", "x  # noqa: S603 - A100, v1.30, node-1", []),
    ],
)
def test_citations_are_found(path: str, text: str, expected: list[str]) -> None:
    """In text and in names of files; codes of ruff are longer."""
    assert citations(path, text) == expected
