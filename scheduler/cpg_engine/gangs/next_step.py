"""The one next step: of all that was found wrong, what a person should do first.

The way down follows the blockers: from the root to a child that kept its parent below the minimum, and on to the leaf
where it hurts. Of several blockers it takes the first that would have to change for the parent to change: where an
eviction could help the parent, one that an eviction could help. What helps at the end of the way is read off the
counts; the words are found where it is shown.
"""

from collections.abc import Sequence

from cpg_engine.verdicts import Domain, Finding, GroupReport, NextStep, Remedy, Status


def next_step(finding: Finding, reports: Sequence[GroupReport]) -> NextStep | None:
    """Return what would help, or None where nothing is wrong."""
    if finding is Finding.PLACED:
        return None
    sore, domain = _sore(reports)
    step = _step(finding, sore)
    match step:
        case Remedy.MEND_PODS:
            return NextStep(step, sore.key, count=len(sore.invalid))
        case Remedy.ADD_MEMBERS:
            return NextStep(step, sore.key, count=_lacking(sore) - sore.counts.remaining)
        case Remedy.MAKE_ROOM:
            return NextStep(step, sore.key, count=_short(sore), domain=domain)
        case _:
            return NextStep(step, sore.key)


def _step(finding: Finding, sore: GroupReport) -> Remedy:
    """Choose what to do: what is wrong with the objects comes before what is wrong with the cluster."""
    if finding is Finding.CONTRADICTION:
        return Remedy.MOVE_MEMBERS
    if sore.invalid and sore.status is Status.UNRESOLVABLE:
        return Remedy.MEND_PODS
    if finding is Finding.INADMISSIBLE:
        return Remedy.ADD_MEMBERS
    if sore.status is Status.UNRESOLVABLE:
        return Remedy.CHANGE_DEMANDS
    return Remedy.RAISE_BUDGET if finding is Finding.OUT_OF_BUDGET else Remedy.MAKE_ROOM


def _sore(reports: Sequence[GroupReport]) -> tuple[GroupReport, Domain | None]:
    """Return the report at the end of the blockers' way down, and the domain that it is in or was closest to."""
    by_key = {report.key: report for report in reports}
    here, domain = reports[0], None
    while True:
        domain = here.candidates[0].domain if here.candidates else domain
        blockers = [by_key[key] for key in here.blockers]
        if not blockers:
            return here, domain
        here = next((child for child in blockers if child.status is here.status), blockers[0])


def _short(sore: GroupReport) -> int:
    """Return for how many pods more there should be room, at the least: one for each child group that is missing."""
    return max(_lacking(sore), sore.candidates[0].short if sore.candidates else 0)


def _lacking(sore: GroupReport) -> int:
    return sore.counts.minimum - sore.counts.scheduled
