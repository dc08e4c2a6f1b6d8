"""Two outcomes side by side."""

from collections.abc import Iterator

from msgspec import Struct

from cpg_cli.analysis.outcome import GroupOutcome, Outcome


class GroupDifference(Struct, frozen=True, kw_only=True, rename="camel"):
    """A group before and after; None where it does not exist."""

    before: GroupOutcome | None
    after: GroupOutcome | None

    @property
    def is_change(self) -> bool:
        """Return whether anything about its placement differs."""
        return _placement(self.before) != _placement(self.after)


class Difference(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a change of the cluster changes."""

    before: Outcome
    after: Outcome
    changed: tuple[GroupDifference, ...] = ()
    """The groups of which the placement differs."""


def difference_of(before: Outcome, after: Outcome) -> Difference:
    """Return the difference of two outcomes of the same units."""
    changed = tuple(one for one in group_differences(before, after) if one.is_change)
    return Difference(before=before, after=after, changed=changed)


def group_differences(before: Outcome, after: Outcome) -> Iterator[GroupDifference]:
    """Yield all groups, in the order of the trees."""
    known, later = (
        {(tree.flavour, tree.namespace, one.kind, one.name): one for tree in found.trees for one in tree.groups}
        for found in (before, after)
    )
    for key in dict.fromkeys([*known, *later]):
        yield GroupDifference(before=known.get(key), after=later.get(key))


def _placement(found: GroupOutcome | None) -> tuple[object, ...] | None:
    return (found.is_placed, found.placed, found.total, found.domain, found.nodes) if found is not None else None
