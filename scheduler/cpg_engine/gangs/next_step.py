"""The one next step: of everything that keeps a tree from being placed, what a user should change first.

The path follows the blockers: from the root to a child that kept its parent below the minimum, and on to the leaf that
failed. Of several blockers it takes the first that has the parent's status, since that one has to change for the parent
to change. The counts at the end of the path decide what helps.
"""

from collections.abc import Sequence

from cpg_engine.verdicts import Domain, Finding, GroupReport, NextStep, Remedy, Status


def next_step(finding: Finding, reports: Sequence[GroupReport]) -> NextStep | None:
    """Return what would help, or None where the tree was placed."""
    if finding is Finding.PLACED:
        return None
    failed, domain = _failed(reports)
    remedy = _remedy(finding, failed)
    match remedy:
        case Remedy.MEND_PODS:
            return NextStep(remedy, failed.key, count=len(failed.invalid))
        case Remedy.ADD_MEMBERS:
            return NextStep(remedy, failed.key, count=_lacking(failed) - failed.counts.remaining)
        case Remedy.MAKE_ROOM:
            return NextStep(remedy, failed.key, count=_shortage(failed), domain=domain)
        case _:
            return NextStep(remedy, failed.key)


def _remedy(finding: Finding, failed: GroupReport) -> Remedy:
    """Choose the remedy: what is wrong with the objects comes before what is wrong with the cluster."""
    if finding is Finding.CONTRADICTION:
        return Remedy.MOVE_MEMBERS
    if failed.invalid and failed.status is Status.UNRESOLVABLE:
        return Remedy.MEND_PODS
    if finding is Finding.INADMISSIBLE:
        return Remedy.ADD_MEMBERS
    if failed.status is Status.UNRESOLVABLE:
        return Remedy.CHANGE_DEMANDS
    return Remedy.RAISE_BUDGET if finding is Finding.OUT_OF_BUDGET else Remedy.MAKE_ROOM


def _failed(reports: Sequence[GroupReport]) -> tuple[GroupReport, Domain | None]:
    """Return the report at the end of the blockers' path, and the domain that it is in or was closest to."""
    by_key = {report.key: report for report in reports}
    here, domain = reports[0], None
    while True:
        domain = here.candidates[0].domain if here.candidates else domain
        blockers = [by_key[key] for key in here.blockers]
        if not blockers:
            return here, domain
        here = next((child for child in blockers if child.status is here.status), blockers[0])


def _shortage(failed: GroupReport) -> int:
    """Return for how many more pods there should be room, at least: one for each child group that is missing."""
    return max(_lacking(failed), failed.candidates[0].shortage if failed.candidates else 0)


def _lacking(failed: GroupReport) -> int:
    return failed.counts.minimum - failed.counts.scheduled
