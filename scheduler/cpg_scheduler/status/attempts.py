"""What an attempt says about a group, from which the field ``status.attempt`` is made when it is written.

A group shows the same cause as the message of its condition: its own, or that of the ancestor it failed with, followed
to the group that has to be helped. What is larger than ``MAX_ATTEMPT_BYTES`` is made again with fewer domains and
reasons.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from cpg_api.problems import truncate
from cpg_api.scheduling.attempts import (
    MAX_ATTEMPT_BYTES,
    MAX_CLOSEST_DOMAINS,
    MAX_DOMAIN_REASONS,
    MAX_REASON,
    MAX_REASONS,
    MAX_SENTENCE,
    AttemptFinding,
    AttemptPreemption,
    BlockingGroup,
    ClosestDomain,
    ConsideredDomains,
    LastAttempt,
    MissingDevices,
    NodeRejection,
)
from cpg_api.scheduling.forest import GroupKey
from cpg_engine.gangs.next_step import blocking_path, step_for
from cpg_engine.verdicts import (
    CandidateDomain,
    DeviceSupply,
    Explanation,
    FilterReason,
    Finding,
    GroupReport,
    Lack,
    Status,
)
from cpg_scheduler.inadmissible import GroupKindsNotServed, GroupMissing, InvalidTree, PrioritiesDiffer
from cpg_scheduler.outlook import PreemptionOutlook
from cpg_scheduler.status.messages.attempts import is_placed, report_to_blame
from cpg_scheduler.status.messages.devices import devices_of, devices_sentence
from cpg_scheduler.status.messages.preemption import preemption_message
from cpg_scheduler.status.messages.steps import AttemptProblem, step_after, suggested_step


class _Amounts(Struct, frozen=True):
    """How many items an attempt shows."""

    domains: int
    reasons_of_domain: int
    reasons: int


AMOUNTS = (
    _Amounts(MAX_CLOSEST_DOMAINS, MAX_DOMAIN_REASONS, MAX_REASONS),
    _Amounts(MAX_CLOSEST_DOMAINS, 1, 1),
    _Amounts(1, 1, 1),
    _Amounts(1, 0, 0),
)
"""From the most to the least; the first that makes an attempt small enough is used."""


class AttemptResult(Struct, frozen=True):
    """An attempt at a tree: its explanation, or the problem it ended with. With neither, the minimum is placed."""

    number: int | None = None
    explanation: Explanation | None = None
    reports: Mapping[GroupKey, GroupReport] = {}
    """Those of the explanation, by their groups."""
    outlook: PreemptionOutlook | None = None
    problem: AttemptProblem | None = None

    def finding(self, group: GroupKey) -> AttemptFinding:
        """Return what the attempt has found for a group."""
        if isinstance(self.problem, Exception):
            return AttemptFinding.SCHEDULER_ERROR
        if self.problem is not None:
            return AttemptFinding(type(self.problem).__name__)
        if self.explanation is None:
            return AttemptFinding.PLACED
        if self.explanation.finding is not Finding.PLACED or is_placed(self.reports[group]):
            return AttemptFinding(self.explanation.finding.value)
        return _finding_in_placed_tree(report_to_blame(self.reports, self.reports[group]))


def search_result(
    explanation: Explanation, outlook: PreemptionOutlook | None = None, number: int | None = None
) -> AttemptResult:
    """Return the result of an attempt that searched a placement."""
    return AttemptResult(number, explanation, {report.key: report for report in explanation.reports}, outlook)


def last_attempt(result: AttemptResult, group: GroupKey, time: str) -> LastAttempt:
    """Return what a group shows of an attempt."""
    if result.explanation is None or result.finding(group) is AttemptFinding.PLACED:
        return _without_search(result, group, time)
    made = _of_search(result, result.explanation, group, time, AMOUNTS[0])
    for fewer in AMOUNTS[1:]:
        if len(msgspec.json.encode(made)) <= MAX_ATTEMPT_BYTES:
            break
        made = _of_search(result, result.explanation, group, time, fewer)
    return made


def _finding_in_placed_tree(blamed: GroupReport) -> AttemptFinding:
    """Return what was found for a group beyond the minimum of a placed tree; such groups are placed greedily."""
    if blamed.lack is Lack.MEMBERS:
        return AttemptFinding.INADMISSIBLE
    return AttemptFinding.IMPOSSIBLE if blamed.status is Status.UNRESOLVABLE else AttemptFinding.NOT_FOUND


def _without_search(result: AttemptResult, group: GroupKey, time: str) -> LastAttempt:
    problem, blocking = result.problem, None
    match problem:
        case GroupMissing(group=found) | GroupKindsNotServed(group=found):
            blocking = BlockingGroup(found.kind, found.name)
        case InvalidTree(problems=problems) | PrioritiesDiffer(problems=problems):
            blocking = BlockingGroup(problems[0].group.kind, problems[0].group.name)
    step = step_after(problem) if problem is not None else None
    return LastAttempt(result.finding(group), time, result.number, blocked_at=blocking, next_step=step)


def _of_search(
    result: AttemptResult, explanation: Explanation, group: GroupKey, time: str, amounts: _Amounts
) -> LastAttempt:
    path = blocking_path(result.reports, report_to_blame(result.reports, result.reports[group]))
    blocking, outlook = path[-1], result.outlook
    has_nodes = not blocking.candidates and (blocking.nodes or blocking.reasons)
    return LastAttempt(
        finding=result.finding(group),
        time=time,
        number=result.number,
        blocked_at=BlockingGroup(
            blocking.key.kind, blocking.key.name, blocking.counts.minimum, blocking.counts.scheduled
        ),
        nodes=blocking.nodes if has_nodes else None,
        reasons=_reasons(blocking.reasons[: amounts.reasons]) if has_nodes else None,
        domains=_domains(path, amounts),
        devices=missing_devices(path) if amounts.reasons else None,
        preemption=_preemption(outlook) if outlook is not None else None,
        next_step=suggested_step(step_for(explanation.finding, path)),
    )


def missing_devices(path: Sequence[GroupReport]) -> MissingDevices | None:
    """Return what is missing of devices for the first group on a path of which it is known."""
    for report in path:
        match devices_of(report):
            case DeviceSupply() as found:
                return MissingDevices(found.device_class, found.free, found.total, devices_sentence(report))
            case None:
                continue
            case _:
                return MissingDevices(text=devices_sentence(report))
    return None


def _domains(path: Sequence[GroupReport], amounts: _Amounts) -> ConsideredDomains | None:
    """Return the domains of the last group on a path of which any were considered."""
    report = next((found for found in reversed(path) if found.candidates), None)
    if report is None:
        return None
    closest = tuple(_domain(found, amounts) for found in report.candidates[: amounts.domains])
    return ConsideredDomains(report.candidates[0].domain.key, report.domains, closest)


def _domain(found: CandidateDomain, amounts: _Amounts) -> ClosestDomain:
    reasons = _reasons(found.reasons[: amounts.reasons_of_domain])
    return ClosestDomain(found.domain.value, found.nodes, found.fits, found.wanted, found.shortage, reasons)


def _reasons(found: Sequence[FilterReason]) -> tuple[NodeRejection, ...] | None:
    return tuple(NodeRejection(truncate(reason.text, MAX_REASON), reason.nodes) for reason in found) or None


def _preemption(outlook: PreemptionOutlook) -> AttemptPreemption:
    text = truncate(preemption_message(outlook), MAX_SENTENCE)
    return AttemptPreemption(outlook.verdict.value, outlook.victims, text)
