"""An index of label selectors, which finds all that select some labels at once.

A namespace may have thousands of PodDisruptionBudgets, each with a selector of its own, and every plan asks which of
them cover its victims. Selectors are numbered, and a set of them is an integer with bit n for selector n. For each
label of a pod a few lookups return the selectors that it rules out, so a pod costs much the same with one selector or
with five thousand.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeVar

from cpg_api.selectors import Expression, LabelMatcher, Labels

K = TypeVar("K", bound=Hashable)


class SelectorIndex:
    """Numbered selectors."""

    def __init__(self) -> None:
        """Start empty."""
        self._all = 0
        self._uses: Counter[str] = Counter()
        """How many selectors name each key."""
        self._excluded: dict[str, int] = {}
        """Selectors with DoesNotExist, by key."""
        self._rejected: dict[tuple[str, str], int] = {}
        """Selectors with NotIn, by key and value."""
        self._listing: dict[str, int] = {}
        """Selectors with In, by key."""
        self._listed: dict[tuple[str, str], int] = {}
        """Selectors with In, by key and value."""
        self._required: dict[tuple[int, str], int] = {}
        """Selectors whose first, second, ... required key is this one."""
        self._requiring: dict[int, int] = {}
        """Selectors with a first, second, ... required key."""

    def add(self, number: int, matcher: LabelMatcher) -> None:
        """Add a selector under a number that is not in use."""
        self._flip(number, matcher, 1)

    def remove(self, number: int, matcher: LabelMatcher) -> None:
        """Remove the selector that was added under a number."""
        self._flip(number, matcher, -1)

    def selecting(self, labels: Labels) -> int:
        """Return the selectors that select some labels."""
        known = [item for item in labels.items() if item[0] in self._uses] if self._uses else []
        failed = 0
        for item in known:
            key = item[0]
            failed |= self._excluded.get(key, 0) | self._rejected.get(item, 0)
            failed |= self._listing.get(key, 0) & ~self._listed.get(item, 0)
        for place, selectors in self._requiring.items():
            for key, _ in known:
                selectors &= ~self._required.get((place, key), 0)  # noqa: PLW2901 - those without the key are left
            failed |= selectors
        return self._all & ~failed

    def _flip(self, number: int, matcher: LabelMatcher, uses: int) -> None:
        """Add a selector, or remove it: the same bits change."""
        if matcher.matches_nothing:
            return
        bit = 1 << number
        listed = _listed_values(matcher)
        rejected = {(found.key, value) for found in _with("NotIn", matcher) for value in found.values}
        excluded = {found.key for found in _with("DoesNotExist", matcher)}
        required = sorted(listed.keys() | {found.key for found in _with("Exists", matcher)})
        self._all ^= bit
        _toggle(self._excluded, excluded, bit)
        _toggle(self._rejected, rejected, bit)
        _toggle(self._listing, listed, bit)
        _toggle(self._listed, {(key, value) for key, values in listed.items() for value in values}, bit)
        _toggle(self._required, enumerate(required), bit)
        _toggle(self._requiring, range(len(required)), bit)
        for key in {*required, *excluded, *(key for key, _ in rejected)}:
            self._uses[key] += uses
            if not self._uses[key]:
                del self._uses[key]


def _listed_values(matcher: LabelMatcher) -> dict[str, frozenset[str]]:
    """Return by key the values of which a label must have one."""
    found = {key: frozenset({value}) for key, value in matcher.equal}
    for one in _with("In", matcher):
        found[one.key] = one.values & found.get(one.key, one.values)
    return found


def _with(operator: str, matcher: LabelMatcher) -> list[Expression]:
    return [found for found in matcher.expressions if found.operator == operator]


def _toggle(table: dict[K, int], keys: Iterable[K], bit: int) -> None:
    """Flip a bit of the entries of these keys, which are all different."""
    for key in keys:
        entry = table.pop(key, 0) ^ bit
        if entry:
            table[key] = entry
