"""What the conditions of cached objects say."""

from cpg_api.conditions import find_condition
from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.names import DISRUPTION_TARGET, REASON_PREEMPTION


def is_being_evicted(pod: Pod) -> bool:
    """Return whether a pod says that it is evicted, and has not ended by itself meanwhile."""
    return is_disrupted(pod) and (pod.is_terminating or not pod.is_terminal)


def is_disrupted(target: Pod | Group) -> bool:
    """Return whether a pod or group says that it is evicted by preemption."""
    found = find_condition(target.status.conditions or (), DISRUPTION_TARGET)
    return found is not None and (found.status, found.reason) == ("True", REASON_PREEMPTION)
