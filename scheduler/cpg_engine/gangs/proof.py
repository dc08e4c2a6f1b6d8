"""What it proves that a search has found nothing."""

from collections.abc import Iterable

from cpg_engine.gangs.needs import Needs
from cpg_engine.gangs.placement import depends_on_other_pods
from cpg_engine.snapshot import Snapshot
from cpg_engine.verdicts import Finding, Limitation


def depends_on_others(snapshot: Snapshot, needs: Needs, classes: Iterable[int]) -> bool:
    """Return whether it matters to pods of any of these classes where other pods are."""
    return any(depends_on_other_pods(snapshot, needs.classes[found]) for found in classes)


def finding_without_placement(snapshot: Snapshot, needs: Needs, *, is_exhausted: bool) -> Finding:
    """Return the finding of a search that has found nothing, though the bounds allow a placement.

    It is exhaustive where all pods are alike, depend on no other pods, and require the same labels: then it does not
    matter which pod takes which node.
    """
    if is_exhausted:
        return Finding.OUT_OF_BUDGET
    is_exhaustive = needs.interchangeable and not depends_on_others(snapshot, needs, needs.classes)
    return Finding.IMPOSSIBLE if is_exhaustive else Finding.NOT_FOUND


def limitations(snapshot: Snapshot, needs: Needs, finding: Finding) -> tuple[Limitation, ...]:
    """Return why a finding proves nothing; empty for a finding that does."""
    if finding not in {Finding.NOT_FOUND, Finding.OUT_OF_BUDGET}:
        return ()
    found = {
        Limitation.SHAPES: len(needs.classes) > 1,
        Limitation.TOPOLOGY: not needs.requires_same_keys,
        Limitation.OTHER_PODS: depends_on_others(snapshot, needs, needs.classes),
        Limitation.BUDGET: finding is Finding.OUT_OF_BUDGET,
    }
    return tuple(limitation for limitation, holds in found.items() if holds)
