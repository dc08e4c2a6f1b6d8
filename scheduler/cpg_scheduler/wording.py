"""The sentences of conditions and events, made from the engine's reports.

Short, precise and stable: the same state gives the same sentence, so that a condition is written once and not at every
attempt. What hurts is said first, then where, then what to do.
"""

from collections.abc import Mapping, Sequence

from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.podgroup import PodGroup
from cpg_engine.gangs.unit import POD
from cpg_engine.verdicts import Explanation, Finding, NextStep, NodeReport, Reason, Status, Step

REASONS_TOLD = 4


def group_messages(explanation: Explanation) -> dict[GroupKey, str]:
    """Return for each group of a tree the sentence for its condition; empty for one whose minimum is placed."""
    reports = {report.key: report for report in explanation.reports}
    if explanation.finding is Finding.CONTRADICTION:
        return dict.fromkeys(reports, explanation.detail)
    if explanation.finding is Finding.PLACED:
        return {
            key: "" if report.status is Status.SUCCESS else _own(report, reports) for key, report in reports.items()
        }
    root = explanation.reports[0]
    advice = _advice(explanation.next_step)
    return {key: _failed(report, reports, root) + advice for key, report in reports.items()}


def _failed(report: NodeReport, reports: Mapping[GroupKey, NodeReport], root: NodeReport) -> str:
    """Say what is wrong with a group itself; if nothing is, what is wrong with its tree."""
    sore = report.blockers or report.reasons or report.candidates or report.refused or _short(report)
    if report is root or sore:
        return _own(report, reports)
    return f"{root.key} cannot be placed: {_own(root, reports)}"


def _own(report: NodeReport, reports: Mapping[GroupKey, NodeReport]) -> str:
    """Say what is wrong with a group itself."""
    if report.key.kind == POD:
        return _available(report)
    counts = report.counts
    noun = "pod" if report.key.kind == PodGroup.kind else "child group"
    name = "minCount" if report.key.kind == PodGroup.kind else "minGroupCount"
    have = counts.scheduled + counts.remaining
    if _short(report):
        missing = _some(counts.minimum - have, f"more {noun}")
        text = f"waiting for {missing}: {name} is {counts.minimum}, there are {have}"
    else:
        text = f"{name} {counts.minimum} cannot be met: room for {counts.scheduled} of {counts.minimum} {noun}s"
    if report.refused:
        text += f"; a pod cannot be scheduled at all: {report.refused[0].problems[0]}"
    if report.candidates:
        best = max(report.candidates, key=lambda candidate: candidate.fits)
        domain = best.domain
        text += f"; of the domains of {domain.key}, {domain.value} comes closest: {best.fits} of {best.wanted}"
        if best.reasons:
            text += f" ({_listed(best.reasons)})"
    if report.reasons:
        text += f"; {_available(report)}"
    if report.blockers:
        first = reports[report.blockers[0]]
        text += f"; {first.key}: {_own(first, reports)}"
    return text


def _short(report: NodeReport) -> bool:
    """Tell whether a group has too few members to be tried at all."""
    counts = report.counts
    tried = counts.unschedulable or report.reasons or report.candidates
    return not tried and counts.scheduled + counts.remaining < counts.minimum


def _available(report: NodeReport) -> str:
    if not report.nodes:
        return "no nodes available to schedule pods"
    return f"0/{report.nodes} nodes are available: {_listed(report.reasons)}"


def _listed(reasons: Sequence[Reason]) -> str:
    told = [f"{reason.nodes} {reason.text}" for reason in reasons[:REASONS_TOLD]]
    rest = len(reasons) - len(told)
    return ", ".join([*told, *([f"and {_some(rest, 'more reason')}"] if rest else [])])


def _some(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _advice(step: NextStep | None) -> str:
    """Say the next step, where the sentence does not say it by itself."""
    if step is None or step.group.kind == POD:
        return ""
    match step.step:
        case Step.MAKE_ROOM if step.domain is not None:
            return f". Next: make room for {_some(step.count, 'more pod')} in {step.domain.value}"
        case Step.RAISE_BUDGET:
            return ". Next: raise the scheduler's search budget, or ask for less"
        case Step.CHANGE_DEMANDS:
            return f". Next: change what {step.group} asks for; no eviction can help"
        case _:
            return ""
