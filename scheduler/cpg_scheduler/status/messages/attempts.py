"""Why a unit was not placed, group by group, from the engine's explanation of an attempt.

The message of a pod does not count the members of its group: otherwise each pod that joins a gang of a thousand would
have a thousand conditions rewritten.
"""

from collections.abc import Mapping

from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.podgroup import PodGroup
from cpg_engine.gangs.next_step import deciding_blocker
from cpg_engine.gangs.unit import POD
from cpg_engine.verdicts import (
    Contradiction,
    Explanation,
    Finding,
    GroupReport,
    Lack,
    Limitation,
    NextStep,
    Remedy,
    Status,
)
from cpg_scheduler.status.messages.devices import devices_sentence
from cpg_scheduler.status.messages.steps import step_sentence
from cpg_scheduler.status.messages.wording import counted, first_problem, listed_reasons, shortened
from cpg_scheduler.status.reasons import (
    REASON_PLACEMENT_NOT_FOUND,
    REASON_SCHEDULER_ERROR,
    REASON_UNSCHEDULABLE,
    REASON_WAITING_FOR_DEVICES,
    REASON_WAITING_FOR_GROUP,
    REASON_WAITING_FOR_VOLUMES,
)

MINIMUM_PLACED = "its minimum has been placed"
"""The event of a group that is scheduled; its condition has no message, as upstream."""
REASONS_OF_LACKS = {
    Lack.MEMBERS: REASON_WAITING_FOR_GROUP,
    Lack.VOLUMES: REASON_WAITING_FOR_VOLUMES,
    Lack.DEVICES: REASON_WAITING_FOR_DEVICES,
}
LIMITATIONS = {
    Limitation.SHAPES: "pods of several shapes",
    Limitation.TOPOLOGY: "PodGroups with different topology keys",
    Limitation.OTHER_PODS: "pods that depend on other pods",
    Limitation.DEVICES: "claims that devices can satisfy in several ways",
}

IMPLIED_REMEDIES = {Remedy.ADD_MEMBERS, Remedy.MEND_PODS}


def group_messages(explanation: Explanation, preemption: str = "") -> dict[GroupKey, str]:
    """Return the message of each group of a tree; it is empty if the minimum of the group is placed.

    ``preemption`` is what preemption does about it; it follows what is wrong.
    """
    return _AttemptText(explanation, preemption, counts_members=True).of_groups()


def pod_messages(explanation: Explanation, preemption: str = "") -> dict[GroupKey, str]:
    """Return the message of the pending pods of each group, or of a single pod; it is never empty."""
    text = _AttemptText(explanation, preemption, counts_members=False)
    return {key: message or text.of_pods_beyond_minimum(key) for key, message in text.of_groups().items()}


def invalid_pod_messages(explanation: Explanation) -> dict[str, str]:
    """Return the message of each invalid pod, by UID."""
    return {
        pod.uid: shortened(f"invalid pod: {first_problem(pod)}")
        for report in explanation.reports
        for pod in report.invalid
    }


def causes(explanation: Explanation, preemption: str = "") -> dict[GroupKey, str]:
    """Return the cause for each group and its pods, without the numbers and the names of others.

    It stays the same while nodes come and go, and while a thousand members arrive one by one.
    """
    return _AttemptText(explanation, preemption, counts_members=False).causes()


def failure_reasons(explanation: Explanation) -> dict[GroupKey, str]:
    """Return the reason of each group and its pods; autoscalers add nodes for pods that are unschedulable."""
    return _AttemptText(explanation, "", counts_members=False).reasons()


def contradiction_message(found: Contradiction) -> str:
    """Return how running members contradict the required topology of their tree."""
    if not found.domains:
        return f"a member of {found.group} runs on a node without the label {found.key}"
    listed = ", ".join(found.domains)
    return f"members of {found.group} run in {len(found.domains)} domains of {found.key}: {listed}"


def internal_error_message(error: Exception) -> str:
    """Return that an attempt failed in the scheduler's own code."""
    return f"internal error of the scheduler: {error!r}"


def report_to_blame(reports: Mapping[GroupKey, GroupReport], report: GroupReport) -> GroupReport:
    """Return the report that explains why a group has no place: its own, or that of its failed ancestor."""
    counts = report.counts
    failed = counts.unschedulable or counts.unresolvable or report.blockers or _lacks_members(report)
    if report.failed_ancestor is None or (failed and report.status is not Status.SUCCESS):
        return report
    return reports[report.failed_ancestor]


def is_placed(report: GroupReport) -> bool:
    """Return whether the minimum of a group is placed, in a tree that is."""
    return report.status is Status.SUCCESS and report.failed_ancestor is None


class _AttemptText:
    """The messages about one attempt."""

    def __init__(self, explanation: Explanation, preemption: str, *, counts_members: bool) -> None:
        self._explanation = explanation
        self._preemption = f"; {preemption}" if preemption else ""
        self._reports = {report.key: report for report in explanation.reports}
        self._counts_members = counts_members

    def of_groups(self) -> dict[GroupKey, str]:
        explanation = self._explanation
        if explanation.finding is Finding.PLACED:
            return {
                key: "" if is_placed(report) else shortened(self._failure(report), self._preemption)
                for key, report in self._reports.items()
            }
        next_step = _next_step(explanation.next_step)
        if explanation.contradiction:
            message = shortened(contradiction_message(explanation.contradiction), next_step)
            return dict.fromkeys(self._reports, message)
        ending = f"{self._preemption}{_doubt(explanation)}{next_step}"
        return {key: shortened(self._failure(report), ending) for key, report in self._reports.items()}

    def of_pods_beyond_minimum(self, key: GroupKey) -> str:
        """Return why pods beyond the minimum of a group were not placed with it."""
        report = self._reports[key]
        why = f": {_no_node_for_pod(report)}" if report.reasons else ""
        return shortened(f"the minimum of {key} is placed, there is no room for more{why}", self._preemption)

    def causes(self) -> dict[GroupKey, str]:
        """Return the cause of each group: its own, or that of the ancestor that it failed with.

        The result of the whole tree is no part of it: a gang with members that are still to come has the same cause
        before and after a sibling of it is placed.
        """
        explanation = self._explanation
        if explanation.contradiction:
            return dict.fromkeys(self._reports, contradiction_message(explanation.contradiction))
        found = ((key, report_to_blame(self._reports, report)) for key, report in self._reports.items())
        return {key: f"{self._cause(report)}{self._preemption}" for key, report in found}

    def reasons(self) -> dict[GroupKey, str]:
        """Return the reason of each group: its own, or that of the ancestor that it failed with."""
        finding = self._explanation.finding
        if finding is Finding.CONTRADICTION:
            return dict.fromkeys(self._reports, REASON_SCHEDULER_ERROR)
        is_unproven = finding in {Finding.NOT_FOUND, Finding.OUT_OF_BUDGET}
        other = REASON_PLACEMENT_NOT_FOUND if is_unproven else REASON_UNSCHEDULABLE
        found = {key: report_to_blame(self._reports, report).lack for key, report in self._reports.items()}
        return {key: REASONS_OF_LACKS.get(lack, other) if lack else other for key, lack in found.items()}

    def _cause(self, report: GroupReport) -> str:
        """Return why a group is below its minimum, or why its other pods are not placed, without numbers."""
        reasons = report.candidates[0].reasons if report.candidates else report.reasons
        parts = [report.status.value, "short" if _lacks_members(report) else ""]
        parts += [str(pod.problems[0]) for pod in report.invalid[:1]]
        parts += sorted(reason.text for reason in reasons)
        blocker = deciding_blocker(self._reports, report)
        parts += [self._cause(blocker)] if blocker is not None else []
        return ", ".join(filter(None, parts))

    def _failure(self, report: GroupReport) -> str:
        """Return what is wrong with a group, or with the ancestor that it failed with."""
        to_blame = report_to_blame(self._reports, report)
        own = self._own_failure(to_blame)
        return own if to_blame is report else f"{to_blame.key} cannot be placed: {own}"

    def _own_failure(self, report: GroupReport, *, names_devices: bool = True) -> str:
        """Return what is wrong with a group itself, and with the child that blocks it; devices are named once."""
        if report.key.kind == POD:
            return f"invalid pod: {first_problem(report.invalid[0])}" if report.invalid else _no_node_for_pod(report)
        parts = [self._shortfall(report)]
        if report.invalid:
            parts.append(f"{counted(len(report.invalid), 'invalid pod')}: {first_problem(report.invalid[0])}")
        if report.candidates and not _lacks_room(report):
            parts.append(_no_domain(report))
        elif not report.candidates and (report.nodes or _has_no_node(report)):
            parts.append(_no_node(report))
        devices = devices_sentence(report) if names_devices else ""
        parts += [devices] if devices else []
        if (blocker := deciding_blocker(self._reports, report)) is not None:
            failure = self._own_failure(blocker, names_devices=names_devices and not devices)
            parts.append(f"{blocker.key}: {failure}")
        return "; ".join(parts)

    def _shortfall(self, report: GroupReport) -> str:
        """Return how far a group is from its minimum."""
        counts = report.counts
        is_leaf = report.key.kind == PodGroup.kind
        noun, field = ("pod", "minCount") if is_leaf else ("child group", "minGroupCount")
        if not _lacks_members(report):
            unmet = f"{field} ({counts.minimum}) cannot be satisfied"
            if _lacks_room(report):
                return f"{unmet}: {_no_domain(report)}"
            return f"{unmet}: room for {counts.scheduled} of {counted(counts.minimum, noun)}"
        able = " that can be scheduled" if counts.unresolvable else ""
        if not self._counts_members:
            return f"waiting for more {noun}s{able}: {field} is {counts.minimum}"
        existing = counts.scheduled + counts.remaining
        missing = counted(counts.minimum - existing, f"more {noun}")
        return f"waiting for {missing}{able}: {field} is {counts.minimum}, {_there_are(existing)}"


def _lacks_members(report: GroupReport) -> bool:
    """Return whether a group has too few members to be attempted, whatever room there is."""
    return report.lack is Lack.MEMBERS


def _lacks_room(report: GroupReport) -> bool:
    """Return whether no domain has room for a PodGroup, which says more than how many of its pods were placed."""
    is_leaf, has_members = report.key.kind == PodGroup.kind, not _lacks_members(report)
    return is_leaf and has_members and bool(report.candidates) and report.candidates[0].shortage > 0


def _has_no_node(report: GroupReport) -> bool:
    """Return whether a group could not be tried on any node."""
    has_other_cause = report.blockers or report.invalid or _lacks_members(report)
    return not has_other_cause and report.counts.unresolvable > 0


def _no_domain(report: GroupReport) -> str:
    """Return that no domain will do, and how close the closest one is: by its room, if room is what is missing."""
    closest = report.candidates[0]
    key, needed = closest.domain.key, closest.fits + closest.shortage
    if closest.shortage:
        verdict, details = f"have room for {counted(needed, 'pod')}", [f"{closest.fits} of {needed}"]
    else:
        verdict, details = "are available", []
    details += [listed_reasons(closest.reasons)] if closest.reasons else []
    distance = f": {', '.join(details)}" if details else ""
    return f"0/{report.domains} domains of {key} {verdict} ({closest.domain.value} is closest{distance})"


def _no_node(report: GroupReport) -> str:
    """Return that no node will do, in kube-scheduler's words, which autoscalers and users know."""
    if not report.nodes:
        return "no nodes available to schedule pods"
    why = f": {listed_reasons(report.reasons)}" if report.reasons else ""
    return f"0/{report.nodes} nodes are available{why}"


def _no_node_for_pod(report: GroupReport) -> str:
    """Return that no node will do, and what the nodes lack of devices."""
    return "; ".join(filter(None, [_no_node(report), devices_sentence(report)]))


def _there_are(number: int) -> str:
    return {0: "there is none", 1: "there is 1"}.get(number, f"there are {number}")


def _doubt(explanation: Explanation) -> str:
    """Return why a failed search proves nothing, if it does not."""
    found = explanation.limitations
    if not found:
        return ""
    if Limitation.BUDGET in found:
        return ". A placement may exist: the search has used up its budget"
    listed = " and ".join(text for limitation, text in LIMITATIONS.items() if limitation in found)
    return f". A placement may exist: the search is not exhaustive for {listed}"


def _next_step(step: NextStep | None) -> str:
    """Return what would help, where the message does not imply it."""
    if step is None or step.group.kind == POD:
        return ""
    is_implied = step.remedy in IMPLIED_REMEDIES or (step.remedy is Remedy.MAKE_ROOM and step.domain is None)
    return "" if is_implied else f". Next: {step_sentence(step)}"
