"""Pods of high and low priority on a stage that is too small for both."""

from typing import Any

from cpg_api.core.disruption import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from cpg_api.core.pod import Pod
from cpg_api.meta import LabelSelector
from cpg_engine.testing.builders import metadata, node, pod, pod_group
from cpg_scheduler.testing.stage import Stage

FOUND = "pod group preemption: found a placement for podgroup, preempting {} victims"
ONGOING = "pod group preemption: ongoing preemption on nominated nodes"


def low(name: str, where: str = "n1", *, cpu: int = 1, priority: int = 10, **more: Any) -> Pod:
    """Return a running pod of low priority."""
    return pod(name, cpu=cpu, priority=priority, node_name=where, **more)


def gang(name: str = "pg", *, size: int = 2, minimum: int = 2, cpu: int = 1, priority: int = 100) -> list[Any]:
    """Return a gang of high priority."""
    members = [pod(f"{name}-{number}", group=name, cpu=cpu, priority=priority) for number in range(size)]
    return [pod_group(name, gang=minimum, priority=priority), *members]


def budget(allowed: int) -> PodDisruptionBudget:
    """Return a budget for the pods of the app foo."""
    return PodDisruptionBudget(
        metadata=metadata("pdb"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "foo"})),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
    )


def foo(name: str, where: str) -> Pod:
    """Return a running pod of low priority that the budget covers."""
    return low(name, where, meta=metadata(name, app="foo"))


def full(size: int = 2, **more: Any) -> Stage:
    """Return a stage with a node full of low-priority pods, and a gang that needs it."""
    return Stage(node("n1", cpu=size), *(low(f"low-{number}") for number in range(size)), *gang(size=size, **more))


def plans(stage: Stage) -> list[dict[str, Any]]:
    """Return the logged plans."""
    return [call.kwargs for call in stage.log.calls if call.kwargs.get("event") == "preempting"]


def message(stage: Stage, name: str = "pg") -> str:
    """Return the message of a group."""
    return stage.status.groups[name][2]


def terminating(*more: Any, **given: Any) -> Stage:
    """Return a stage on which the victims of a gang are terminating."""
    stage = full(**given)
    stage.put(*more)
    stage.victims_linger = True
    stage.settle()
    return stage
