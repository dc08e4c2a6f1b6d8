"""Which changes of objects matter to scheduling; most of what a watch brings does not."""

from collections.abc import Collection, Iterable
from typing import TypeVar

from cpg_api.conditions import find_condition
from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.names import POD_GROUP_LABEL, POD_SCHEDULED
from cpg_api.scheduling.templates import Workloads, named_priority
from cpg_api.selectors import Labels
from cpg_client.stores import Added, Change, Deleted, Modified

S = TypeVar("S")


def old_state(change: Change[S]) -> S | None:
    """Return an object before a change, or None where it did not exist."""
    return change.old if isinstance(change, Modified | Deleted) else None


def new_state(change: Change[S]) -> S | None:
    """Return an object after a change, or None where it does not exist any more."""
    return change.new if isinstance(change, Added | Modified) else None


def pod_change_matters(old: Pod, new: Pod, asked_labels: Collection[str] = ()) -> bool:
    """Return whether a change of a pod can change what becomes of its unit.

    Our own conditions do not, until they are erased. Of the labels, that of the group does, and those that a selector
    of some pod asks for: a selector that asks for a new label later has all pods classified anew.
    """
    return (
        old.spec != new.spec
        or _labels_matter(old.metadata.labels, new.metadata.labels, asked_labels)
        or old.metadata.annotations.get(POD_GROUP_LABEL) != new.metadata.annotations.get(POD_GROUP_LABEL)
        or old.is_terminal != new.is_terminal
        or old.is_terminating != new.is_terminating
        or old.status.resource_claim_statuses != new.status.resource_claim_statuses
        or old.status.extended_resource_claim_status != new.status.extended_resource_claim_status
        or (_has_verdict(old) and not _has_verdict(new))
    )


def node_change_matters(old: Node, new: Node) -> bool:
    """Return whether a change of a node can make a pod fit; heartbeats and images cannot."""
    return (
        old.spec != new.spec
        or old.metadata.labels != new.metadata.labels
        or old.status.allocatable != new.status.allocatable
    )


def uses_priority_class(group: Group, workloads: Workloads, classes: Iterable[PriorityClass]) -> bool:
    """Return whether a group has its priority from one of these classes, or has to agree with it."""
    name, explicit = named_priority(group, workloads)
    return any(found.metadata.name == name if name else explicit is None and found.global_default for found in classes)


def _has_verdict(pod: Pod) -> bool:
    return find_condition(pod.status.conditions, POD_SCHEDULED) is not None


def _labels_matter(old: Labels, new: Labels, asked_labels: Collection[str]) -> bool:
    changed = {key for key, _ in old.items() ^ new.items()}
    return POD_GROUP_LABEL in changed or any(key in asked_labels for key in changed)
