"""The ``DisruptionTarget`` condition of a victim: its message names the preemptor, also for the leader after us."""

from cpg_api.conditions import find_condition
from cpg_api.core.pod import Pod, PodCondition
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Group, GroupKey
from cpg_api.scheduling.names import DISRUPTION_TARGET
from cpg_api.scheduling.podgroup import PodGroup
from cpg_engine.gangs.unit import POD
from cpg_scheduler.cache.conditions import is_disrupted
from cpg_scheduler.preemption.jobs import Preemptor

EVICTION_MANAGER = "cpg-scheduler-eviction"
"""The field manager of the condition of groups, apart from the manager that each status report applies with."""


def victim_message(scheduler_name: str, preemptor: Preemptor) -> str:
    """Return the message of a victim's condition; it ends with kind, name and UID of the preemptor."""
    return (
        f"{scheduler_name}: preempting to accommodate a higher priority {preemptor.kind} "
        f"{preemptor.name} {preemptor.uid}"
    )


def victim_condition(pod: Pod) -> PodCondition | None:
    """Return the condition of a pod that is a victim, or None."""
    return find_condition(pod.status.conditions, DISRUPTION_TARGET) if is_disrupted(pod) else None


def is_victim_of(pod: Pod, preemptor_uid: str) -> bool:
    """Return whether a pod is a victim of that preemptor."""
    condition = victim_condition(pod)
    return condition is not None and condition.message.endswith(f" {preemptor_uid}")


def is_evicted_by(scheduler_name: str, target: Pod | Group) -> bool:
    """Return whether a pod or group says that the scheduler of this name evicts it."""
    condition = find_condition(target.status.conditions or (), DISRUPTION_TARGET)
    return condition is not None and is_disrupted(target) and condition.message.startswith(f"{scheduler_name}: ")


def preemptor_in(scheduler_name: str, message: str) -> Preemptor | None:
    """Return the preemptor that a message of ours names, without its group, which may be gone; else None."""
    for kind in (POD, PodGroup.kind, CompositePodGroup.kind):
        beginning = victim_message(scheduler_name, Preemptor(GroupKey(kind, "", ""), "")).removesuffix("/ ")
        place, _, uid = message.removeprefix(beginning).partition(" ")
        namespace, _, name = place.partition("/")
        if message.startswith(beginning) and name:
            return Preemptor(GroupKey(kind, namespace, name), uid)
    return None
