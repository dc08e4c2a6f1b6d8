"""Prose names its subjects: riddle words are rare, in every area and over all.

`python tools/check_prose.py PATH` shows where they stand, and `tools/prose/extraction.py` says what is excepted.
"""

import pytest

from check_prose import densities
from prose.riddles import Density, total

PER_THOUSAND = 1.0
"""Riddle words that may stand among 1,000 words."""


@pytest.fixture(scope="module")
def found() -> dict[str, Density]:
    """Return the density of every area."""
    return densities()


def test_every_area_keeps_to_the_limit(found: dict[str, Density]) -> None:
    """Objects have names, and a pronoun for a person hides them."""
    assert {area: str(one) for area, one in found.items() if one.per_thousand > PER_THOUSAND} == {}


def test_the_tree_keeps_to_the_limit(found: dict[str, Density]) -> None:
    """Over all areas together, and the check does not pass because it found no prose."""
    everything = total(found.values())
    assert everything.per_thousand <= PER_THOUSAND
    assert everything.words > 100_000
