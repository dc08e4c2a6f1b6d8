"""The one next step: of everything that keeps a group from being placed, what a user should change first.

The path follows the blockers: from the group, usually the root, to a child that kept its parent below the minimum, and
on to the leaf that failed. Of several blockers it takes the first that has the parent's status, since that one has to
change for the parent to change. The counts at the end of the path decide what helps.
"""

from collections.abc import Mapping, Sequence

from cpg_api.scheduling.forest import GroupKey
from cpg_engine.verdicts import Domain, Finding, GroupReport, Lack, NextStep, Remedy, Status

REMEDIES_OF_LACKS = {
    Lack.MEMBERS: Remedy.ADD_MEMBERS,
    Lack.VOLUMES: Remedy.PROVIDE_VOLUMES,
    Lack.DEVICES: Remedy.PROVIDE_DEVICES,
}


def next_step(finding: Finding, reports: Sequence[GroupReport]) -> NextStep | None:
    """Return what would help, or None where the tree was placed."""
    if finding is Finding.PLACED:
        return None
    return step_for(finding, blocking_path({report.key: report for report in reports}, reports[0]))


def step_for(finding: Finding, path: Sequence[GroupReport]) -> NextStep:
    """Return what would help the group at the start of a path of blockers."""
    failed = path[-1]
    remedy = _remedy(finding, failed)
    match remedy:
        case Remedy.MEND_PODS:
            return NextStep(remedy, failed.key, count=len(failed.invalid))
        case Remedy.ADD_MEMBERS:
            return NextStep(remedy, failed.key, count=_lacking(failed) - failed.counts.remaining)
        case Remedy.MAKE_ROOM:
            return NextStep(remedy, failed.key, count=_shortage(failed), domain=_domain(path))
        case _:
            return NextStep(remedy, failed.key)


def blocking_path(reports: Mapping[GroupKey, GroupReport], start: GroupReport) -> tuple[GroupReport, ...]:
    """Return the reports from a group to the one at the end of the blockers' path."""
    path = [start]
    while (blocker := deciding_blocker(reports, path[-1])) is not None:
        path.append(blocker)
    return tuple(path)


def deciding_blocker(reports: Mapping[GroupKey, GroupReport], report: GroupReport) -> GroupReport | None:
    """Return the child that has to change for a group to change, or None where no child blocks it."""
    blockers = [reports[key] for key in report.blockers]
    first = blockers[0] if blockers else None
    return next((child for child in blockers if child.status is report.status), first)


def _remedy(finding: Finding, failed: GroupReport) -> Remedy:
    """Choose the remedy: what is wrong with the objects comes before what is wrong with the cluster."""
    if finding is Finding.CONTRADICTION:
        return Remedy.MOVE_MEMBERS
    if failed.invalid and failed.status is Status.UNRESOLVABLE:
        return Remedy.MEND_PODS
    if finding is Finding.INADMISSIBLE:
        return Remedy.ADD_MEMBERS
    if failed.lack is not None:
        return REMEDIES_OF_LACKS[failed.lack]
    if failed.status is Status.UNRESOLVABLE:
        return Remedy.CHANGE_DEMANDS
    return Remedy.RAISE_BUDGET if finding is Finding.OUT_OF_BUDGET else Remedy.MAKE_ROOM


def _domain(path: Sequence[GroupReport]) -> Domain | None:
    """Return the domain that the end of a path is in, or was closest to."""
    return next((report.candidates[0].domain for report in reversed(path) if report.candidates), None)


def _shortage(failed: GroupReport) -> int:
    """Return for how many more pods there should be room, at least: one for each child group that is missing."""
    return max(_lacking(failed), failed.candidates[0].shortage if failed.candidates else 0)


def _lacking(failed: GroupReport) -> int:
    return failed.counts.minimum - failed.counts.scheduled
