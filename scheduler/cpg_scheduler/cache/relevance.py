"""Which changes of objects can make a difference to whom; most of what a watch brings makes none."""

from collections.abc import Collection, Iterable

from cpg_api.conditions import find_condition
from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.names import POD_GROUP_LABEL, POD_SCHEDULED
from cpg_api.scheduling.templates import Workloads, named_priority
from cpg_api.selectors import Labels


def pod_matters(old: Pod, new: Pod, asked_labels: Collection[str] = ()) -> bool:
    """Tell whether a change of a pod can make a difference to its root; our own conditions do not, until erased.

    Of its labels, that of its group does, and those by which some pod's selector has asked for others: whoever asks for
    another key later looks at all pods anew.
    """
    return (
        old.spec != new.spec
        or _labels_matter(old.metadata.labels, new.metadata.labels, asked_labels)
        or old.metadata.annotations.get(POD_GROUP_LABEL) != new.metadata.annotations.get(POD_GROUP_LABEL)
        or old.is_terminal != new.is_terminal
        or old.is_terminating != new.is_terminating
        or (_is_told(old) and not _is_told(new))
    )


def node_matters(old: Node, new: Node) -> bool:
    """Tell whether a change of a node can let anybody in; its heartbeats and its images do not."""
    return (
        old.spec != new.spec
        or old.metadata.labels != new.metadata.labels
        or old.status.allocatable != new.status.allocatable
    )


def _is_told(pod: Pod) -> bool:
    return find_condition(pod.status.conditions, POD_SCHEDULED) is not None


def _labels_matter(old: Labels, new: Labels, asked_labels: Collection[str]) -> bool:
    changed = {key for key, _ in old.items() ^ new.items()}
    return POD_GROUP_LABEL in changed or any(key in asked_labels for key in changed)


def asks(group: Group, workloads: Workloads, classes: Iterable[PriorityClass]) -> bool:
    """Tell whether a group has its priority from one of these classes, or has to agree with it."""
    name, explicit = named_priority(group, workloads)
    return any(found.metadata.name == name if name else explicit is None and found.global_default for found in classes)
