"""Which changes of objects can make a difference to whom; most of what a watch brings makes none."""

from collections.abc import Iterable

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_api.scheduling.templates import Workloads, named_priority


def pod_matters(old: Pod, new: Pod) -> bool:
    """Tell whether a change of a pod can make a difference to its root; our own conditions do not."""
    return (
        old.spec != new.spec
        or old.metadata.labels != new.metadata.labels
        or old.metadata.annotations.get(POD_GROUP_LABEL) != new.metadata.annotations.get(POD_GROUP_LABEL)
        or old.is_terminal != new.is_terminal
        or old.is_terminating != new.is_terminating
    )


def node_matters(old: Node, new: Node) -> bool:
    """Tell whether a change of a node can let anybody in; its heartbeats and its images do not."""
    return (
        old.spec != new.spec
        or old.metadata.labels != new.metadata.labels
        or old.status.allocatable != new.status.allocatable
    )


def asks(group: Group, workloads: Workloads, classes: Iterable[PriorityClass]) -> bool:
    """Tell whether a group has its priority from one of these classes, or has to agree with it."""
    name, explicit = named_priority(group, workloads)
    return any(found.metadata.name == name if name else explicit is None and found.global_default for found in classes)
