"""The one next step: of all that was found wrong, what a person should do first.

The way down follows the blockers: from the root to the first child that kept its parent below the minimum, and on to
the leaf where it hurts. What helps there is read off the counts; the words are found where it is shown.
"""

from collections.abc import Mapping, Sequence

from cpg_api.scheduling.forest import GroupKey
from cpg_engine.verdicts import Finding, NextStep, NodeReport, Status, Step


def next_step(finding: Finding, reports: Sequence[NodeReport]) -> NextStep | None:
    """Return what would help, or None where nothing is wrong."""
    if finding is Finding.PLACED:
        return None
    if finding is Finding.CONTRADICTION:
        return NextStep(Step.MOVE_MEMBERS, reports[0].key)
    sore = _sore({report.key: report for report in reports}, reports[0])
    step = _step(finding, sore)
    counts = sore.counts
    if step is Step.MEND_PODS:
        return NextStep(step, sore.key, count=len(sore.refused))
    if step is Step.ADD_MEMBERS:
        return NextStep(step, sore.key, count=counts.minimum - counts.scheduled - counts.remaining)
    if step is not Step.MAKE_ROOM:
        return NextStep(step, sore.key)
    best = max(sore.candidates, key=lambda candidate: candidate.fits, default=None)
    fits, domain = (best.fits, best.domain) if best else (counts.scheduled, None)
    return NextStep(step, sore.key, count=max(counts.minimum - fits, 1), domain=domain)


def _step(finding: Finding, sore: NodeReport) -> Step:
    """Choose what to do: what is wrong with the objects comes before what is wrong with the cluster."""
    if sore.refused:
        return Step.MEND_PODS
    if finding is Finding.INADMISSIBLE:
        return Step.ADD_MEMBERS
    if sore.status is Status.UNRESOLVABLE:
        return Step.CHANGE_DEMANDS
    return Step.RAISE_BUDGET if finding is Finding.OUT_OF_BUDGET else Step.MAKE_ROOM


def _sore(by_key: Mapping[GroupKey, NodeReport], root: NodeReport) -> NodeReport:
    """Return the report at the end of the blockers' way down."""
    here = root
    while here.blockers:
        here = by_key[here.blockers[0]]
    return here
