"""Names that are similar to an unknown one, in a time that their content cannot make long.

Users choose the names of pods, so a comparison that takes the square of their length must be bounded.
"""

import heapq
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import takewhile

MAX_NAMES_COMPARED = 50
"""Names that are compared letter by letter: those with the longest common beginning and end."""
MAX_LETTERS_COMPARED = 64
"""Letters from the beginning of a name, and from its end."""


def similar_names(name: str, names: Iterable[str]) -> list[str]:
    """Return the names that are most similar to one."""
    nearest = heapq.nlargest(MAX_NAMES_COMPARED, dict.fromkeys(names), key=lambda other: _common_ends(name, other))
    by_beginning = {other[:MAX_LETTERS_COMPARED]: other for other in reversed(nearest)}
    return [by_beginning[found] for found in get_close_matches(name[:MAX_LETTERS_COMPARED], by_beginning)]


def _common_ends(name: str, other: str) -> int:
    """Return how many letters two names have in common at their beginning and at their end."""
    ends = name[: -MAX_LETTERS_COMPARED - 1 : -1], other[: -MAX_LETTERS_COMPARED - 1 : -1]
    return _common_beginning(name[:MAX_LETTERS_COMPARED], other[:MAX_LETTERS_COMPARED]) + _common_beginning(*ends)


def _common_beginning(name: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(name, other, strict=False)))
