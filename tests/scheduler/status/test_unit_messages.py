"""The status of units that cannot be attempted."""

import pytest

from cpg_api.problems import Problem
from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.validation import Fault, TreeProblem
from cpg_scheduler.inadmissible import (
    GroupKindsNotServed,
    GroupMissing,
    InconsistentMembership,
    InvalidTree,
    PodDeleted,
    PodGated,
    PreemptionPoliciesDiffer,
    SchedulerNamesDiffer,
    TemplateMissing,
    TreeGated,
    UnitProblem,
)
from cpg_scheduler.status.messages.units import inadmissible_text

PG = GroupKey("PodGroup", "default", "pg")


def test_the_message_about_many_invalid_pods_is_short() -> None:
    """It names the first problem and the number of the others, and pods have no number."""
    problems = tuple(
        TreeProblem(fault=Fault.PRIORITY_DIVERGES, group=PG, other=f"Pod {number}", message=f"Pod {number} is wrong")
        for number in range(99)
    )
    text = inadmissible_text(InvalidTree(problems))
    assert (text.reason, text.pod_message, text.cause) == ("Invalid", "Pod 0 is wrong", "PriorityDiverges")
    assert text.message == "Pod 0 is wrong (and 98 more problems)"


@pytest.mark.parametrize(
    ("problem", "group", "pods"),
    [
        (PodDeleted(GroupKey("Pod", "default", "p")), "Pod default/p does not exist any more", ""),
        (GroupMissing(PG), "waiting for PodGroup default/pg, which does not exist", ""),
        (GroupMissing(PG, "Job a"), "waiting for PodGroup default/pg, which the operator makes for Job a", ""),
        (GroupKindsNotServed(PG), "waiting for PodGroup default/pg: the API server serves no PodGroups", ""),
        (
            GroupKindsNotServed(PG, "scheduling.cpg.dev"),
            (
                "waiting for PodGroup default/pg: PodGroups of scheduling.cpg.dev are not served, or excluded by the"
                " setting api"
            ),
            "",
        ),
        (TemplateMissing("waiting for Workload w"), "waiting for Workload w", ""),
        (PodGated(), "waiting for its scheduling gates to be removed", ""),
        (
            TreeGated(("default/p", "default/q", "default/r")),
            "waiting for the scheduling gates of Pod default/p and 2 more to be removed",
            "waiting for scheduling gates in its tree to be removed",
        ),
    ],
)
def test_a_unit_that_waits_is_not_unschedulable(problem: UnitProblem, group: str, pods: str) -> None:
    """No node would help. Its groups say what it waits for, and its pods the same without numbers."""
    text = inadmissible_text(problem)
    assert (text.reason, text.message, text.pod_message) == ("WaitingForGroup", group, pods or group)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (InconsistentMembership(Problem("a", "two groups")), "a: two groups"),
        (
            SchedulerNamesDiffer("default/a", "other", "ours"),
            "all pods of a tree need one schedulerName: Pod default/a has other, others have ours",
        ),
        (
            PreemptionPoliciesDiffer({"Never": "default/a", "PreemptLowerPriority": "default/b"}),
            (
                "all pods of a tree need one preemptionPolicy: "
                "Pod default/a has Never, Pod default/b has PreemptLowerPriority"
            ),
        ),
    ],
)
def test_contradictory_pods_are_an_error(problem: UnitProblem, message: str) -> None:
    """The message names the pods that differ."""
    text = inadmissible_text(problem)
    assert (text.reason, text.message) == ("SchedulerError", message)
