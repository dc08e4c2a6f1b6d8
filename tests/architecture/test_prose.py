"""Prose names its subjects: riddle words are rare, in every area and over all.

`python tools/check_prose.py PATH` shows where they stand, and `tools/prose/extraction.py` what is excepted.
"""

import pytest

from check_prose import densities
from prose.riddles import Density, total

PER_THOUSAND = 1.0
"""Riddle words that may stand among 1,000 words."""
OVER_THE_LIMIT: dict[str, float] = {
}
"""Areas that are over it today, and their own limits: they may only be lowered, and the table is to be empty."""

FOUND = densities()


@pytest.mark.parametrize("area", FOUND)
def test_an_area_keeps_to_its_limit(area: str) -> None:
    """Objects have names, and a pronoun for a person hides them."""
    assert FOUND[area].per_thousand <= OVER_THE_LIMIT.get(area, PER_THOUSAND), f"python tools/check_prose.py {area}"


def test_the_tree_keeps_to_its_limit() -> None:
    """Over all areas together."""
    assert total(FOUND.values()).per_thousand <= max([PER_THOUSAND, *OVER_THE_LIMIT.values()])


def test_the_whole_tree_is_searched() -> None:
    """The check does not pass because it found no prose."""
    assert total(FOUND.values()).words > 100_000
    assert Density(1, 1000).per_thousand == PER_THOUSAND
