"""The docstrings of names in the source."""

import pytest
from msgspec import Struct

from cpg_api.scheduling import names
from reference.sources import UndocumentedError, docstring, docstrings_of, escaped


class Some(Struct):
    """A struct with two fields."""

    first: int = 1
    """The first, in
    two lines."""
    second: int = 2


def test_the_string_below_an_assignment_documents_it() -> None:
    """This holds in classes and modules, with and without annotations."""
    assert docstrings_of(Some) == {"first": "The first, in\ntwo lines."}
    assert docstrings_of(names)["MAX_TEMPLATES"] == "Entries of one list of templates."


def test_an_undocumented_name_is_an_error() -> None:
    """The reference cannot be generated with a setting left out."""
    with pytest.raises(UndocumentedError, match=r"Some\.second has no docstring"):
        docstring(docstrings_of(Some), "second", Some)


def test_a_text_is_escaped_for_a_cell() -> None:
    """Lines are joined, bars are escaped, and code is marked as in Markdown."""
    assert escaped("a\n  ``b`` | c") == "a `b` \\| c"
