"""Changes of objects, to ask what a cluster would do if they were made.

A change is a value: the object before and after. ``applied`` makes changes in a cache for as long as its block runs, so
that a question costs a decision and no second cache, however large the cluster is. The functions below return changed
objects; they change nothing themselves.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from cpg_api.core.disruption import PodDisruptionBudget
from cpg_api.core.namespace import Namespace
from cpg_api.core.node import Node
from cpg_api.core.pod import Pod, PodStatus
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.core.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.policies import (
    CompositeGangSchedulingPolicy,
    CompositePodGroupSchedulingPolicy,
    GangSchedulingPolicy,
    PodGroupSchedulingPolicy,
    SchedulingConstraints,
    TopologyConstraint,
)
from cpg_api.scheduling.workload import Workload
from cpg_client.stores import Added, Deleted, Modified
from cpg_scheduler.cache.cluster import ClusterCache

HOSTNAME = "kubernetes.io/hostname"


class ObjectChange(Struct, frozen=True):
    """An object before and after a change; None where it does not exist."""

    before: Any
    after: Any
    flavour: str = ""
    """That of a group or Workload."""


HANDLERS: Mapping[type, Callable[[ClusterCache, str], Callable[[Any], None]]] = {
    Node: lambda cache, _: cache.on_node,
    Namespace: lambda cache, _: cache.on_namespace,
    PriorityClass: lambda cache, _: cache.on_priority_class,
    PodDisruptionBudget: lambda cache, _: cache.on_budget,
    StorageClass: lambda cache, _: cache.storage.on_storage_class,
    CSINode: lambda cache, _: cache.storage.on_csi_node,
    PersistentVolume: lambda cache, _: cache.storage.on_volume,
    PersistentVolumeClaim: lambda cache, _: cache.storage.on_claim,
    DeviceClass: lambda cache, _: cache.devices.on_class,
    ResourceSlice: lambda cache, _: cache.devices.on_slice,
    DeviceTaintRule: lambda cache, _: cache.devices.on_taint_rule,
    ResourceClaim: lambda cache, _: cache.devices.on_claim,
    Pod: lambda cache, _: cache.on_pod,
    PodGroup: lambda cache, flavour: cache.on_group(flavour),
    CompositePodGroup: lambda cache, flavour: cache.on_group(flavour),
    Workload: lambda cache, flavour: cache.on_workload(flavour),
}


def apply(cache: ClusterCache, changes: Sequence[ObjectChange]) -> None:
    """Make changes in a cache."""
    for change in changes:
        _put(cache, change.before, change.after, change.flavour)


@contextmanager
def applied(cache: ClusterCache, changes: Sequence[ObjectChange]) -> Iterator[None]:
    """Make changes in a cache, and undo them afterwards, the last one first."""
    apply(cache, changes)
    try:
        yield
    finally:
        for change in reversed(changes):
            _put(cache, change.after, change.before, change.flavour)


def group_with_minimum(group: Group, minimum: int) -> Group:
    """Return an effective group that is a gang with another minimum."""
    if isinstance(group, PodGroup):
        return group_with(group, scheduling_policy=PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(minimum)))
    gang = CompositeGangSchedulingPolicy(minimum)
    return group_with(group, scheduling_policy=CompositePodGroupSchedulingPolicy(gang=gang))


def group_with_topology(group: Group, key: str | None) -> Group:
    """Return an effective group that requires another topology key, or none."""
    before = group.spec.scheduling_constraints or SchedulingConstraints()
    required = (TopologyConstraint(key=key),) if key else None
    return group_with(group, scheduling_constraints=replace(before, topology=required))


def node_like(node: Node, name: str, labels: Mapping[str, str] | None = None) -> Node:
    """Return a further node of the shape of another, with some other labels."""
    named = {HOSTNAME: name} if HOSTNAME in node.metadata.labels else {}
    meta = replace(node.metadata, name=name, uid=name, labels={**node.metadata.labels, **named, **(labels or {})})
    return replace(node, metadata=meta, spec=replace(node.spec, unschedulable=False))


def pod_like(pod: Pod, name: str) -> Pod:
    """Return a further pod of the shape of another, that waits."""
    meta = replace(pod.metadata, name=name, uid=f"{pod.metadata.namespace}/{name}", deletion_timestamp=None)
    return replace(pod, metadata=meta, spec=replace(pod.spec, node_name=""), status=PodStatus(phase="Pending"))


def pod_with(pod: Pod, **fields: Any) -> Pod:
    """Return a pod with other fields in its spec."""
    return replace(pod, spec=replace(pod.spec, **fields))


def group_with(group: Group, **fields: Any) -> Group:
    """Return a group with other fields in its spec."""
    return replace(group, spec=replace(group.spec, **fields))


def _put(cache: ClusterCache, before: Any, after: Any, flavour: str) -> None:  # noqa: ANN401 - any object of a cache
    known = after if before is None else before
    key, handle = known.metadata.key, HANDLERS[type(known)](cache, flavour)
    if before is None:
        handle(Added(key, after))
    elif after is None:
        handle(Deleted(key, before))
    else:
        handle(Modified(key, before, after))
