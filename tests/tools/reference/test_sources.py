"""What the source says about a name."""

import pytest
from msgspec import Struct

from cpg_api.scheduling import names
from reference.sources import UndocumentedError, escaped, need, told_about


class Some(Struct):
    """A struct with fields."""

    first: int = 1
    """The first, in
    two lines."""
    second: int = 2


def test_what_stands_below_an_assignment_is_about_it() -> None:
    """In a class and in a module, with or without an annotation."""
    assert told_about(Some) == {"first": "The first, in\ntwo lines."}
    assert told_about(names)["MAX_TEMPLATES"] == "Entries of any one list of templates."


def test_a_name_without_a_word_is_an_error() -> None:
    """Nobody documents half of the settings by mistake."""
    with pytest.raises(UndocumentedError, match=r"Some\.second has no docstring"):
        need(told_about(Some), "second", Some)


def test_a_text_fits_into_a_cell() -> None:
    """Lines become one, bars do not end the cell, and code is marked as in Markdown."""
    assert escaped("a\n  ``b`` | c") == "a `b` \\| c"
