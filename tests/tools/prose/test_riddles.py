"""Riddle words, where they stand and how many there are."""

import pytest

from prose.riddles import Density, Riddle, area, density, is_checked, riddles, total

TEXT = "A pod that waits.\nWhoever waits, and nobody else, whose turn it is.\nA whole group.\n"


def test_a_riddle_word_is_found_with_its_line_and_context() -> None:
    """In any case of letters, and only as a whole word."""
    found = list(riddles("a.md", TEXT))
    assert [(one.line, one.word) for one in found] == [(2, "Whoever"), (2, "nobody"), (2, "whose")]
    assert str(found[0]) == 'a.md:2: "Whoever" in "Whoever waits, and nobody else, whose turn it is."'


def test_a_search_can_be_limited_to_lines() -> None:
    """The other lines of the file do not matter."""
    assert list(riddles("a.md", TEXT, {1, 3})) == []
    assert list(riddles("a.md", "who\n", {1})) == [Riddle("a.md", 1, "who", "who")]


def test_density_counts_riddles_among_words() -> None:
    """Single letters and numbers are no words."""
    assert density("a.md", TEXT) == Density(3, 14)
    assert total([Density(1, 400), Density(0, 100)]).per_thousand == 2.0
    assert total([]).per_thousand == 0.0


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("README.md", "."),
        ("docs/concepts/a.md", "docs"),
        ("api/cpg_client/a.py", "api/cpg_client"),
        ("scheduler/cpg_engine/gangs/a.py", "scheduler/cpg_engine"),
        ("tests/engine/gangs/test_a.py", "tests/engine"),
        ("tests/conftest.py", "tests"),
    ],
)
def test_areas_are_packages_and_folders(path: str, expected: str) -> None:
    """Each area has a density of its own."""
    assert area(path) == expected


def test_the_licence_and_measurements_are_not_checked() -> None:
    """Neither is prose of this project."""
    assert not is_checked("LICENSE")
    assert not is_checked("bench/results/README.md")
    assert is_checked("bench/README.md")
