"""The sentences of conditions and events, made from the engine's reports.

Short, precise and stable: the same state gives the same sentence, so that a condition is written once and not at every
attempt. What hurts is said first, then where, then what to do; what can be counted on a group is not counted again on
each of its pods, or every pod that joins a gang of a thousand would have a thousand conditions rewritten.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from cpg_api.quantity import format_quantity
from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.podgroup import PodGroup
from cpg_engine.gangs.unit import POD
from cpg_engine.preemption.values import EvictionReason
from cpg_engine.verdicts import (
    Contradiction,
    Explanation,
    FilterReason,
    Finding,
    GroupReport,
    InvalidPod,
    NextStep,
    Remedy,
    Status,
)
from cpg_scheduler.binding.batch import (
    BindInDoubt,
    BindProblem,
    BindRefused,
    PreBindFailed,
    PreBindPending,
)
from cpg_scheduler.observability.overcommit import OvercommittedNode
from cpg_scheduler.outlook import PreemptionOutlook, PreemptionVerdict
from cpg_scheduler.status.reasons import (
    PRE_BIND_REASONS,
    REASON_BIND_IN_DOUBT,
    REASON_SCHEDULER_ERROR,
    REASON_UNSCHEDULABLE,
)

MINIMUM_PLACED = "its minimum has been placed"
RECOVERED = "its minimum has been placed again"
MAX_PODS_NAMED = 3
REASONS_TOLD = 4
LONGEST_VAIN = 300
_AMOUNTS = {"cpu": "{} CPU", "memory": "{} of memory", "ephemeral-storage": "{} of ephemeral storage", "pods": "room"}
LONGEST = 1000
"""Characters of a sentence: an event takes a little more, and nobody reads so much."""


def group_messages(explanation: Explanation, outlook: str = "") -> dict[GroupKey, str]:
    """Return for each group of a tree the sentence for its condition; empty for one whose minimum is placed.

    ``outlook`` is what preemption does about it, and said after what is wrong.
    """
    return _Sentences(explanation, outlook, counted=True).of_groups()


def pod_messages(explanation: Explanation, outlook: str = "") -> dict[GroupKey, str]:
    """Return for each group of a tree, or for a pod that is alone, what its pods that wait are told; never empty."""
    sentences = _Sentences(explanation, outlook, counted=False)
    told = sentences.of_groups()
    return {key: message or sentences.of_others(key) for key, message in told.items()}


def causes(explanation: Explanation, outlook: str = "") -> dict[GroupKey, str]:
    """Return for each group what is wrong, for it and its pods, without the numbers and the names of others.

    So what is wrong stays the same while nodes come and go, and while a thousand members arrive one by one.
    """
    return _Sentences(explanation, outlook.partition(" (")[0], counted=False).causes()


def refusals(explanation: Explanation) -> dict[str, str]:
    """Return for each pod that nobody could schedule, by UID, what is wrong with it."""
    return {
        refused.uid: _cut(f"invalid pod: {_problems(refused)}")
        for report in explanation.reports
        for refused in report.invalid
    }


def preemption_message(outlook: PreemptionOutlook | None) -> str:
    """Return what preemption does about it, in kube-scheduler's words; up to the first bracket, it is the cause."""
    if outlook is None:
        return ""
    return f"{'' if outlook.kind == POD else 'pod group '}preemption: {_outlook(outlook)}"


def _outlook(outlook: PreemptionOutlook) -> str:
    match outlook.verdict:
        case PreemptionVerdict.ONGOING if outlook.victims is not None:
            what = "pod" if outlook.kind == POD else "podgroup"
            return f"found a placement for {what}, preempting {outlook.victims} victims"
        case PreemptionVerdict.ONGOING:
            return "ongoing preemption on nominated nodes"
        case PreemptionVerdict.FORBIDDEN:
            return "not eligible due to preemptionPolicy=Never."
        case PreemptionVerdict.NO_VICTIMS:
            return "No preemption victims found for incoming preemptor"
        case PreemptionVerdict.NOT_ENOUGH if outlook.explanation is not None:
            root = outlook.explanation.reports[0].key
            why = pod_messages(replace(outlook.explanation, next_step=None))[root]
            return f"it would not help to evict all who are less important ({why[:LONGEST_VAIN]})"
        case _:
            return "no eviction can help"


def eviction_message(reason: EvictionReason) -> str:
    """Return why a pod is evicted: what the preemptor needs of it, and where."""
    where = f" ({reason.domain.key} {reason.domain.value})" if reason.domain else ""
    if reason.resource:
        amount = format_quantity(reason.resource, reason.amount)
        words = _AMOUNTS.get(reason.resource, "{} " + reason.resource).format(amount)
        return f"{reason.preemptor} needs its {words} on {reason.node}{where}"
    if reason.victim_node:
        return f"{reason.preemptor} cannot run on {reason.node} while it runs on {reason.victim_node}{where}"
    return f"{reason.preemptor} cannot run beside it on {reason.node}{where}"


def resumed_eviction_message(preemptor: GroupKey) -> str:
    """Return why a pod is evicted whose eviction a previous leader has begun."""
    return f"{preemptor} needs its place"


def contradiction_message(found: Contradiction) -> str:
    """Return how running members contradict the required topology of their tree."""
    if not found.domains:
        return f"a member of {found.group} runs on a node without the label {found.key}"
    listed = ", ".join(found.domains)
    return f"members of {found.group} run in {len(found.domains)} domains of {found.key}: {listed}"


class _Sentences:
    """The sentences about one tree; ``counted`` says how many members there are where more are waited for."""

    def __init__(self, explanation: Explanation, outlook: str, *, counted: bool) -> None:
        self._explanation = explanation
        self._outlook = f"; {outlook}" if outlook else ""
        self._reports = {report.key: report for report in explanation.reports}
        self._counted = counted

    def of_groups(self) -> dict[GroupKey, str]:
        explanation = self._explanation
        if explanation.finding is Finding.PLACED:
            return {
                key: "" if _is_placed(report) else _cut(self._failed(report), self._outlook)
                for key, report in self._reports.items()
            }
        advice = _advice(explanation.next_step)
        if explanation.contradiction:
            return dict.fromkeys(self._reports, _cut(contradiction_message(explanation.contradiction), advice))
        return {key: _cut(self._failed(report), self._outlook + advice) for key, report in self._reports.items()}

    def causes(self) -> dict[GroupKey, str]:
        """Return what is wrong with each group itself; if nothing is, with the one that it is lost with.

        What became of the tree is no cause: a gang that gathers does so before and after a sibling of it is placed.
        """
        explanation = self._explanation
        if explanation.contradiction:
            return dict.fromkeys(self._reports, contradiction_message(explanation.contradiction))
        found = ((key, self._culprit(report)) for key, report in self._reports.items())
        return {key: f"{self._cause(report)}{self._outlook}" for key, report in found}

    def _cause(self, report: GroupReport) -> str:
        """Return why a group is below its minimum, or why its other pods are not placed, without numbers."""
        reasons = report.candidates[0].reasons if report.candidates else report.reasons
        parts = [report.status.value, "short" if self._is_short(report) else ""]
        parts += [str(refused.problems[0]) for refused in report.invalid[:1]]
        parts += sorted(reason.text for reason in reasons)
        parts += [self._cause(self._reports[blocker]) for blocker in report.blockers[:1]]
        return ", ".join(filter(None, parts))

    def of_others(self, key: GroupKey) -> str:
        """Say why pods beyond the minimum of a group were not placed with it."""
        report = self._reports[key]
        why = f": {_available(report)}" if report.reasons else ""
        return _cut(f"the minimum of {key} is placed, there is no room for more{why}", self._outlook)

    def _failed(self, report: GroupReport) -> str:
        """Say what is wrong with a group itself; if nothing is, what is wrong with the one that it is lost with."""
        culprit = self._culprit(report)
        own = self._own(culprit)
        return own if culprit is report else f"{culprit.key} cannot be placed: {own}"

    def _culprit(self, report: GroupReport) -> GroupReport:
        """Return the report that tells why a group has no place: its own, or that of the one that it is lost with."""
        counts = report.counts
        sore = counts.unschedulable or counts.unresolvable or report.blockers or self._is_short(report)
        if report.failed_ancestor is None or (sore and report.status is not Status.SUCCESS):
            return report
        return self._reports[report.failed_ancestor]

    def _own(self, report: GroupReport) -> str:
        """Say what is wrong with a group itself, and with the first of the children that keep it waiting."""
        if report.key.kind == POD:
            return f"invalid pod: {_problems(report.invalid[0])}" if report.invalid else _available(report)
        parts = [self._lack(report)]
        if report.invalid:
            parts.append(f"{_some(len(report.invalid), 'invalid pod')}: {_problems(report.invalid[0])}")
        if report.candidates and not self._lacks_room(report):
            parts.append(_no_domain(report))
        elif not report.candidates and (report.nodes or self._has_no_node(report)):
            parts.append(_available(report))
        if report.blockers:
            first = self._reports[report.blockers[0]]
            parts.append(f"{first.key}: {self._own(first)}")
        return "; ".join(parts)

    def _lack(self, report: GroupReport) -> str:
        """Say how far a group is from its minimum."""
        counts = report.counts
        is_leaf = report.key.kind == PodGroup.kind
        noun, field = ("pod", "minCount") if is_leaf else ("child group", "minGroupCount")
        if not self._is_short(report):
            lack = f"{field} ({counts.minimum}) cannot be satisfied"
            if self._lacks_room(report):
                return f"{lack}: {_no_domain(report)}"
            return f"{lack}: room for {counts.scheduled} of {_some(counts.minimum, noun)}"
        able = " that can be scheduled" if counts.unresolvable else ""
        if not self._counted:
            return f"waiting for more {noun}s{able}: {field} is {counts.minimum}"
        have = counts.scheduled + counts.remaining
        missing = _some(counts.minimum - have, f"more {noun}")
        return f"waiting for {missing}{able}: {field} is {counts.minimum}, {_there(have)}"

    def _lacks_room(self, report: GroupReport) -> bool:
        """Return whether no domain has room for a PodGroup, which says more than how many of its pods were placed."""
        is_leaf, is_short = report.key.kind == PodGroup.kind, self._is_short(report)
        return is_leaf and not is_short and bool(report.candidates) and report.candidates[0].shortage > 0

    def _is_short(self, report: GroupReport) -> bool:
        """Tell whether a group has too few members to be tried at all, wherever there may be room."""
        counts = report.counts
        have = counts.scheduled + counts.remaining + counts.unschedulable
        if self._explanation.finding is not Finding.INADMISSIBLE:
            have += counts.unresolvable - len(report.invalid)
        return have < counts.minimum

    def _has_no_node(self, report: GroupReport) -> bool:
        """Tell whether a group could not even be tried on a node."""
        return not (report.blockers or report.invalid or self._is_short(report)) and report.counts.unresolvable > 0


def _is_placed(report: GroupReport) -> bool:
    return report.status is Status.SUCCESS and report.failed_ancestor is None


def _no_domain(report: GroupReport) -> str:
    """Return that no domain will do, and which one comes closest: by its room, as far as room is what is missing."""
    closest = report.candidates[0]
    key, needed = closest.domain.key, closest.fits + closest.shortage
    if closest.shortage:
        verdict, near = f"have room for {_some(needed, 'pod')}", [f"{closest.fits} of {needed}"]
    else:
        verdict, near = "are available", []
    near += [_listed(closest.reasons)] if closest.reasons else []
    distance = f": {', '.join(near)}" if near else ""
    return f"0/{report.domains} domains of {key} {verdict} ({closest.domain.value} is closest{distance})"


def _available(report: GroupReport) -> str:
    """Say what is wrong with the nodes, in the words that autoscalers and people know."""
    if not report.nodes:
        return "no nodes available to schedule pods"
    why = f": {_listed(report.reasons)}" if report.reasons else ""
    return f"0/{report.nodes} nodes are available{why}"


def _listed(reasons: Sequence[FilterReason]) -> str:
    told = [f"{reason.nodes} {reason.text}" for reason in reasons[:REASONS_TOLD]]
    rest = len(reasons) - len(told)
    return ", ".join([*told, *([f"and {_some(rest, 'more reason')}"] if rest else [])])


def _problems(refused: InvalidPod) -> str:
    """Name the first problem of a pod, and how many more there are."""
    rest = len(refused.problems) - 1
    more = f" (and {_some(rest, 'more problem')})" if rest else ""
    return f"{refused.problems[0]}{more}"


def _some(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _there(number: int) -> str:
    return {0: "there is none", 1: "there is 1"}.get(number, f"there are {number}")


def _advice(step: NextStep | None) -> str:
    """Say the next step, where the sentence does not say it by itself."""
    if step is None or step.group.kind == POD:
        return ""
    match step.remedy:
        case Remedy.MAKE_ROOM if step.domain is not None:
            return f". Next: make room for {_some(step.count, 'more pod')} in {step.domain.value}"
        case Remedy.RAISE_BUDGET:
            return ". Next: raise the scheduler's search budget, or request less"
        case Remedy.CHANGE_DEMANDS:
            return f". Next: add nodes, or change the requests or constraints of {step.group}; evictions would not help"
        case Remedy.MOVE_MEMBERS:
            return ". Next: delete the members outside one of these domains"
        case _:
            return ""


def _cut(text: str, advice: str = "") -> str:
    """Cut a text between two words where it is too long; what is said after it stays whole."""
    room = LONGEST - len(advice)
    if len(text) <= room:
        return text + advice
    return text[: room - 1].rsplit(" ", 1)[0].rstrip(",;:.") + "…" + advice


def overcommit_message(node: OvercommittedNode, scheduler_name: str) -> str:
    """Return how much more the pods of a node request than it has, and which of them are ours."""
    excess = ", ".join(f"{resource} by {format_quantity(resource, extra)}" for resource, extra in node.excess.items())
    rest = len(node.pods) - MAX_PODS_NAMED
    named = ", ".join(node.pods[:MAX_PODS_NAMED]) + (f" and {rest} more" if rest > 0 else "")
    return f"its pods request more than it has: {excess}; of {scheduler_name} are {named}"


def internal_error_message(error: Exception) -> str:
    """Return that an attempt failed in the scheduler's own code."""
    return f"internal error of the scheduler: {error!r}"


def bind_problem(problem: BindProblem) -> tuple[str, str, str]:
    """Return reason, message and cause of the condition of a pod that is not bound to the node that it was given."""
    match problem:
        case PreBindFailed():
            return REASON_UNSCHEDULABLE, f"{problem.plugin}: {problem.problem}", problem.problem
        case PreBindPending():
            more = f" and {len(problem.objects) - 1} more" if len(problem.objects) > 1 else ""
            message = f"waiting for {problem.objects[0]}{more} to be bound"
            return PRE_BIND_REASONS[problem.plugin], message, ""
        case BindRefused():
            more = f" (and {problem.more} more)" if problem.more else ""
            message = f"Pod {problem.pod}{more} cannot be bound to node {problem.node}: {problem.answer}"
            return REASON_SCHEDULER_ERROR, message, problem.answer
        case BindInDoubt():
            message = f"the outcome of the bind to node {problem.node} is unknown: {problem.error}"
            return REASON_BIND_IN_DOUBT, message, problem.error
