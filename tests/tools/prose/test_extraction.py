"""What counts as prose in a file."""

import pytest

from prose.extraction import Line, is_readable, prose

PYTHON = '''\
"""One line.

Another line.
"""

KEY = "identifier"
MESSAGE = f"a message about {', '.join(names)} pods"  # a comment
QUOTED = "the words of another project"  # prose: quotation
NAMED = "the field `spec.nodeName` is empty"
'''


def test_prose_of_python_is_comments_docstrings_and_strings() -> None:
    """Strings without a space are identifiers; expressions, names in backticks and quotations are left out."""
    assert [(line.number, line.text.split()) for line in prose("one.py", PYTHON) if line.text.split()] == [
        (1, ["One", "line."]),
        (3, ["Another", "line."]),
        (7, ["a", "message", "about", "pods"]),
        (7, ["#", "a", "comment"]),
        (9, ["the", "field", "is", "empty"]),
    ]


def test_prose_of_markdown_is_all_but_quotations() -> None:
    """Block quotations and lines with the mark are left out."""
    text = "# Title\n\n> quoted\n\nText with `a name` inside.\nPeople. <!-- prose: people -->\n"
    assert list(prose("one.md", text)) == [
        Line(1, "# Title"),
        Line(2, ""),
        Line(4, ""),
        Line(5, "Text with   inside."),
    ]


def test_prose_of_other_text_files_is_every_line() -> None:
    """Values are read by users as well as comments."""
    assert list(prose("one.yaml", "key: > text\n# comment\n")) == [Line(1, "key: > text"), Line(2, "# comment")]


@pytest.mark.parametrize(
    ("path", "expected"),
    [("a.py", True), ("docs/a.md", True), ("Makefile", True), ("go.sum", False), ("a.json", False), ("a.lock", False)],
)
def test_generated_data_holds_no_prose(path: str, expected: bool) -> None:  # noqa: FBT001 - a column of the table
    """Locks, sums and JSON are written by programs."""
    assert is_readable(path) is expected
