"""What would help a tree that is not placed, as a demand."""

from typing import TypeAlias

from cpg_api.problems import truncate
from cpg_api.scheduling.attempts import MAX_SENTENCE, SuggestedStep
from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.podgroup import PodGroup
from cpg_engine.verdicts import NextStep, Remedy
from cpg_scheduler.binding.batch import BindProblem
from cpg_scheduler.inadmissible import (
    GroupKindsNotServed,
    GroupMissing,
    InvalidTree,
    PreemptionPoliciesDiffer,
    PrioritiesDiffer,
    SchedulerNamesDiffer,
    TemplateMissing,
    TreeGated,
    UnitProblem,
)

AttemptProblem: TypeAlias = UnitProblem | BindProblem | Exception
"""Why there was no search, or why its result came to nothing."""


SENTENCES = {
    Remedy.ADD_MEMBERS: "create {count} more {members} for {group}",
    Remedy.MAKE_ROOM: "make room for {count} more {pods}{where}",
    Remedy.PROVIDE_VOLUMES: "provide the volumes that the pods of {group} claim",
    Remedy.PROVIDE_DEVICES: "create or correct the resource claims of the pods of {group}, or their device classes",
    Remedy.MEND_PODS: "correct {count} invalid {pods} of {group}",
    Remedy.CHANGE_DEMANDS: "add nodes, or change the requests or constraints of {group}; evictions would not help",
    Remedy.MOVE_MEMBERS: "delete the members outside one of these domains",
    Remedy.RAISE_BUDGET: "raise the scheduler's search budget, or request less",
}


def step_sentence(step: NextStep) -> str:
    """Return what would help, as a demand."""
    plural = "" if step.count == 1 else "s"
    return SENTENCES[step.remedy].format(
        count=step.count,
        pods=f"pod{plural}",
        members=f"{'pod' if step.group.kind == PodGroup.kind else 'child group'}{plural}",
        where=f" in {step.domain.value}" if step.domain is not None else "",
        group=step.group,
    )


def suggested_step(step: NextStep) -> SuggestedStep:
    """Return the next step of a tree that was attempted."""
    return SuggestedStep(
        remedy=step.remedy.value,
        kind=step.group.kind,
        name=step.group.name,
        count=step.count or None,
        domain=step.domain.value if step.domain else "",
        text=truncate(step_sentence(step), MAX_SENTENCE),
    )


def step_after(problem: AttemptProblem) -> SuggestedStep | None:
    """Return the next step of a tree that cannot be attempted or bound, if there is one to suggest."""
    step: SuggestedStep | None = None
    match problem:
        case GroupMissing(group=group, owner=owner):
            text = f"see the events of {owner}, and whether the operator runs" if owner else f"create {group}"
            step = _group_step("CreateGroup", group, text)
        case GroupKindsNotServed(group=group):
            step = _group_step("ServeGroups", group, f"serve the API of {group}, and let the scheduler read it")
        case TemplateMissing(message=message):
            awaited = message.removeprefix("waiting for ")
            step = SuggestedStep("CreateTemplate", text=truncate(f"create what is missing: {awaited}", MAX_SENTENCE))
        case TreeGated(pods=pods):
            step = _pod_step("RemoveGates", pods[0], "remove the scheduling gates of all pods of the tree")
        case InvalidTree(problems=problems):
            step = _group_step("MendTree", problems[0].group, problems[0].message)
        case PrioritiesDiffer(problems=problems):
            step = _group_step("MendPods", problems[0].group, problems[0].message)
        case SchedulerNamesDiffer(pod=pod, ours=ours):
            step = _pod_step("MendPods", pod, f"give all pods of the tree the schedulerName {ours}")
        case PreemptionPoliciesDiffer():
            step = SuggestedStep("MendPods", text="give all pods of the tree one preemptionPolicy")
    return step


def _group_step(remedy: str, group: GroupKey, text: str) -> SuggestedStep:
    return SuggestedStep(remedy, group.kind, group.name, text=truncate(text, MAX_SENTENCE))


def _pod_step(remedy: str, pod: str, text: str) -> SuggestedStep:
    """Return a step at a pod, by its key."""
    return SuggestedStep(remedy, "Pod", pod.rpartition("/")[2], text=truncate(text, MAX_SENTENCE))
