"""Why a unit cannot be attempted.

Its pods get a message without counts, or each pod that is corrected or deleted would change the condition of all
others. The cause is the same for as long as only counts and names change.
"""

from collections.abc import Sequence
from typing import NamedTuple

from cpg_api.scheduling.validation import TreeProblem, summarize
from cpg_scheduler.inadmissible import (
    GroupKindsNotServed,
    GroupMissing,
    InconsistentMembership,
    InvalidTree,
    PodDeleted,
    PodGated,
    PreemptionPoliciesDiffer,
    PrioritiesDiffer,
    SchedulerNamesDiffer,
    TemplateMissing,
    TreeGated,
    UnitProblem,
)
from cpg_scheduler.status.reasons import REASON_INVALID, REASON_SCHEDULER_ERROR, REASON_WAITING_FOR_GROUP


class InadmissibleText(NamedTuple):
    """The reason, message and cause for groups, and the message for pods."""

    reason: str
    message: str
    pod_message: str
    cause: str


def inadmissible_text(problem: UnitProblem) -> InadmissibleText:
    """Return why a unit cannot be attempted, in words."""
    match problem:
        case InvalidTree(problems=problems):
            return _faults(REASON_INVALID, problems)
        case PrioritiesDiffer(problems=problems):
            return _faults(REASON_SCHEDULER_ERROR, problems)
        case SchedulerNamesDiffer(pod=pod, theirs=theirs, ours=ours):
            return _broken_rule("one schedulerName", f"Pod {pod} has {theirs}, others have {ours}")
        case PreemptionPoliciesDiffer(pod_of=pod_of):
            found = ", ".join(f"Pod {pod} has {policy}" for policy, pod in pod_of.items())
            return _broken_rule("one preemptionPolicy", found)
        case InconsistentMembership(problem=found):
            return InadmissibleText(REASON_SCHEDULER_ERROR, str(found), str(found), "")
        case _:
            return _waiting(problem)


def _faults(reason: str, problems: Sequence[TreeProblem]) -> InadmissibleText:
    message = summarize([found.message for found in problems])
    return InadmissibleText(reason, message, problems[0].message, ", ".join(sorted({one.fault for one in problems})))


def _broken_rule(needed: str, found: str) -> InadmissibleText:
    rule = f"all pods of a tree need {needed}"
    return InadmissibleText(REASON_SCHEDULER_ERROR, f"{rule}: {found}", f"{rule}: {found}", rule)


def _waiting(
    problem: PodDeleted | PodGated | GroupKindsNotServed | GroupMissing | TemplateMissing | TreeGated,
) -> InadmissibleText:
    if not isinstance(problem, TreeGated):
        message = _missing(problem)
        return InadmissibleText(REASON_WAITING_FOR_GROUP, message, message, "")
    more = f" and {len(problem.pods) - 1} more" if len(problem.pods) > 1 else ""
    message = f"waiting for the scheduling gates of Pod {problem.pods[0]}{more} to be removed"
    uncounted = "waiting for scheduling gates in its tree to be removed"
    return InadmissibleText(REASON_WAITING_FOR_GROUP, message, uncounted, uncounted)


def _missing(problem: PodDeleted | PodGated | GroupKindsNotServed | GroupMissing | TemplateMissing) -> str:
    """Return what a unit waits for."""
    match problem:
        case PodDeleted(pod=pod):
            return f"{pod} does not exist any more"
        case PodGated():
            return "waiting for its scheduling gates to be removed"
        case GroupKindsNotServed(group=group, api=""):
            return f"waiting for {group}: the API server serves no PodGroups"
        case GroupKindsNotServed(group=group, api=api):
            return f"waiting for {group}: PodGroups of {api} are not served, or excluded by the setting api"
        case GroupMissing(group=group, owner=owner):
            fact = f"the operator makes for {owner}" if owner else "does not exist"
            return f"waiting for {group}, which {fact}"
        case TemplateMissing(message=message):
            return message
