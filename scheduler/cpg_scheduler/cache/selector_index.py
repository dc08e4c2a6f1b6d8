"""An index of label selectors, which finds all that select some labels at once.

A namespace may have thousands of PodDisruptionBudgets, each with a selector of its own, and every plan asks which of
them cover its victims; thousands of pods may wait for a node, each with an affinity of its own. Selectors are numbered,
and a set of them is an integer with bit n for selector n. For each label a few lookups return the selectors that it
rules out, so a question costs much the same with one selector or with five thousand.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeAlias, TypeVar

from cpg_api.selectors import Expression, LabelMatcher, Labels

K = TypeVar("K", bound=Hashable)
Numbers: TypeAlias = int | tuple[int, ...]
"""Selectors: a set of them as an integer, or few of them by number, since most values are named by few selectors."""

MAX_LISTED = 64
"""Selectors that are listed by number; more are an integer."""


class SelectorIndex:
    """Numbered selectors."""

    def __init__(self) -> None:
        """Start empty."""
        self._all = 0
        self._uses: Counter[str] = Counter()
        """How many selectors name each key."""
        self._excluded: dict[str, Numbers] = {}
        """Selectors with DoesNotExist, by key."""
        self._rejected: dict[tuple[str, str], Numbers] = {}
        """Selectors with NotIn, by key and value."""
        self._listing: dict[str, Numbers] = {}
        """Selectors with In, by key."""
        self._listed: dict[tuple[str, str], Numbers] = {}
        """Selectors with In, by key and value."""
        self._bounded: dict[str, dict[Expression, Numbers]] = {}
        """Selectors with Gt or Lt, by key and condition."""
        self._out_of_bounds: dict[tuple[str, str], int] = {}
        """The selectors whose bounds a value does not meet, as far as they have been asked for."""
        self._required: dict[tuple[int, str], Numbers] = {}
        """Selectors whose first, second, ... required key is this one."""
        self._requiring: dict[int, Numbers] = {}
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
            failed |= _bits(self._excluded.get(key, 0)) | _bits(self._rejected.get(item, 0))
            if key in self._listing:
                failed |= _bits(self._listing[key]) & ~_bits(self._listed.get(item, 0))
            if key in self._bounded:
                failed |= self._failing_bounds(item)
        for place, requiring in self._requiring.items():
            lacking = _bits(requiring)
            for key, _ in known:
                lacking &= ~_bits(self._required.get((place, key), 0))
            failed |= lacking
        return self._all & ~failed

    def _failing_bounds(self, item: tuple[str, str]) -> int:
        if item not in self._out_of_bounds:
            key, labels, failed = item[0], dict((item,)), 0
            for one, numbers in self._bounded[key].items():
                if not one.matches(labels):
                    failed |= _bits(numbers)
            self._out_of_bounds[item] = failed
        return self._out_of_bounds[item]

    def _flip(self, number: int, matcher: LabelMatcher, uses: int) -> None:
        """Add a selector, or remove it: the same entries change."""
        if matcher.matches_nothing:
            return
        listed = _listed_values(matcher)
        rejected = {(found.key, value) for found in _with("NotIn", matcher) for value in found.values}
        excluded = {found.key for found in _with("DoesNotExist", matcher)}
        bounded = {*_with("Gt", matcher), *_with("Lt", matcher)}
        required = sorted(listed.keys() | {found.key for found in (*bounded, *_with("Exists", matcher))})
        self._all ^= 1 << number
        _toggle(self._excluded, excluded, number)
        _toggle(self._rejected, rejected, number)
        _toggle(self._listing, listed, number)
        _toggle(self._listed, {(key, value) for key, values in listed.items() for value in values}, number)
        _toggle(self._required, enumerate(required), number)
        _toggle(self._requiring, range(len(required)), number)
        for found in bounded:
            _toggle(self._bounded.setdefault(found.key, {}), (found,), number)
            if not self._bounded[found.key]:
                del self._bounded[found.key]
        if bounded:
            self._out_of_bounds.clear()
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


def _toggle(table: dict[K, Numbers], keys: Iterable[K], number: int) -> None:
    """Add a selector to the entries of these keys, or remove it; the keys are all different."""
    for key in keys:
        entry = table.pop(key, ())
        if isinstance(entry, int):
            entry ^= 1 << number
        elif number in entry:
            entry = tuple(other for other in entry if other != number)
        else:
            entry = (*entry, number) if len(entry) < MAX_LISTED else _bits(entry) | 1 << number
        if entry:
            table[key] = entry


def _bits(numbers: Numbers) -> int:
    if isinstance(numbers, int):
        return numbers
    found = 0
    for number in numbers:
        found |= 1 << number
    return found
