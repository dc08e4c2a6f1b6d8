"""Objects with good defaults, so that a test names only what matters to it."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from cpg_api.core.node import Node, NodeSpec, NodeStatus, Taint
from cpg_api.core.pod import Container, Pod, PodSpec, PodStatus
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.core.resources import ResourceList, ResourceRequirements
from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.compositepodgroup import CompositePodGroup, CompositePodGroupSpec
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.names import POD_GROUP_LABEL, SCHEDULER_NAME
from cpg_api.scheduling.podgroup import PodGroup, PodGroupSpec
from cpg_api.scheduling.policies import (
    AllDisruptionMode,
    BasicSchedulingPolicy,
    CompositeGangSchedulingPolicy,
    CompositePodGroupSchedulingPolicy,
    DisruptionMode,
    GangSchedulingPolicy,
    PodGroupSchedulingPolicy,
    SchedulingConstraints,
    SingleDisruptionMode,
    TopologyConstraint,
    WorkloadReference,
)
from cpg_api.scheduling.workload import CompositePodGroupTemplate, PodGroupTemplate, Workload, WorkloadSpec

NAMESPACE = "default"
BORN = "2026-01-01T00:00:00Z"


def metadata(name: str, *, namespace: str = NAMESPACE, created: str = BORN, **labels: str) -> ObjectMeta:
    """Return metadata with a UID made from namespace and name, so that two builds are equal."""
    return ObjectMeta(
        name=name, namespace=namespace, uid=f"uid-{namespace}-{name}", creation_timestamp=created, labels=labels
    )


def leaf_policy(gang: int | None) -> PodGroupSchedulingPolicy:
    """Return a gang of that minimum; basic for None."""
    if gang is None:
        return PodGroupSchedulingPolicy(basic=BasicSchedulingPolicy())
    return PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=gang))


def inner_policy(gang: int | None) -> CompositePodGroupSchedulingPolicy:
    """Return a gang of that minimum of groups; basic for None."""
    if gang is None:
        return CompositePodGroupSchedulingPolicy(basic=BasicSchedulingPolicy())
    return CompositePodGroupSchedulingPolicy(gang=CompositeGangSchedulingPolicy(min_group_count=gang))


def disruption(*, all_: bool) -> DisruptionMode:
    """Return the disruption mode ``all`` or ``single``."""
    return DisruptionMode(all=AllDisruptionMode()) if all_ else DisruptionMode(single=SingleDisruptionMode())


def constraints(key: str | None, preferred: str | None = None) -> SchedulingConstraints | None:
    """Return required and preferred topology by node labels, or None without either."""
    if not key and not preferred:
        return None
    return SchedulingConstraints(
        topology=(TopologyConstraint(key=key),) if key else None,
        preferred_topology=(TopologyConstraint(key=preferred),) if preferred else None,
    )


def reference(workload_name: str | None, template: str) -> WorkloadReference | None:
    """Return the reference to a template, or None."""
    return WorkloadReference(workload_name=workload_name, template_name=template) if workload_name else None


def pod_group(
    name: str,
    *,
    gang: int | None = 1,
    parent: str | None = None,
    workload: str | None = None,
    template: str | None = None,
    key: str | None = None,
    preferred: str | None = None,
    all_: bool = False,
    priority: int | None = 0,
    meta: ObjectMeta | None = None,
) -> PodGroup:
    """Return a PodGroup; below a parent it is made from Workload ``w`` unless another is named."""
    return PodGroup(
        metadata=meta or metadata(name),
        spec=PodGroupSpec(
            parent_composite_pod_group_name=parent,
            workload_ref=reference(workload or ("w" if parent else None), template or name),
            scheduling_policy=leaf_policy(gang),
            scheduling_constraints=constraints(key, preferred),
            disruption_mode=disruption(all_=all_),
            priority=priority,
        ),
    )


def composite(
    name: str,
    *,
    gang: int | None = 1,
    parent: str | None = None,
    workload: str = "w",
    template: str | None = None,
    key: str | None = None,
    preferred: str | None = None,
    all_: bool = False,
    priority: int | None = 0,
    meta: ObjectMeta | None = None,
) -> CompositePodGroup:
    """Return a CompositePodGroup made from Workload ``w`` unless another is named."""
    return CompositePodGroup(
        metadata=meta or metadata(name),
        spec=CompositePodGroupSpec(
            parent_composite_pod_group_name=parent,
            workload_ref=reference(workload, template or name),
            scheduling_policy=inner_policy(gang),
            scheduling_constraints=constraints(key, preferred),
            disruption_mode=disruption(all_=all_),
            priority=priority,
        ),
    )


def bare(group: Group) -> Group:
    """Return a group that leaves everything to its template."""
    empty = {"scheduling_policy": None, "disruption_mode": None, "priority": None}
    return replace(group, spec=replace(group.spec, **empty))


def leaf_template(name: str, *, gang: int | None = 1) -> PodGroupTemplate:
    """Return a template of PodGroups."""
    return PodGroupTemplate(name=name, scheduling_policy=leaf_policy(gang))


def inner_template(
    name: str, children: Sequence[PodGroupTemplate | CompositePodGroupTemplate], *, gang: int | None = 1
) -> CompositePodGroupTemplate:
    """Return a template of CompositePodGroups over the templates of its children."""
    return CompositePodGroupTemplate(
        name=name,
        scheduling_policy=inner_policy(gang),
        pod_group_templates=tuple(child for child in children if isinstance(child, PodGroupTemplate)) or None,
        composite_pod_group_templates=tuple(child for child in children if isinstance(child, CompositePodGroupTemplate))
        or None,
    )


def workload(templates: Sequence[PodGroupTemplate | CompositePodGroupTemplate], *, name: str = "w") -> Workload:
    """Return a Workload over its top templates."""
    return Workload(
        metadata=metadata(name),
        spec=WorkloadSpec(
            pod_group_templates=tuple(top for top in templates if isinstance(top, PodGroupTemplate)) or None,
            composite_pod_group_templates=tuple(top for top in templates if isinstance(top, CompositePodGroupTemplate))
            or None,
        ),
    )


def node(
    name: str,
    *,
    cpu: str | float | None = 4,
    memory: str | None = None,
    pods: int | None = 110,
    more: ResourceList | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    unschedulable: bool = False,
) -> Node:
    """Return a node; it has no memory unless given, so that a test of CPU counts CPU alone."""
    offered = {"cpu": cpu, "memory": memory, "pods": pods, **(more or {})}
    return Node(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", creation_timestamp=BORN, labels=dict(labels or {})),
        spec=NodeSpec(unschedulable=unschedulable, taints=tuple(taints) or None),
        status=NodeStatus(allocatable={key: amount for key, amount in offered.items() if amount is not None}),
    )


def pod(
    name: str,
    *,
    group: str | None = None,
    priority: int | None = 0,
    cpu: str | float | None = None,
    memory: str | None = None,
    node_name: str = "",
    meta: ObjectMeta | None = None,
    **spec: Any,
) -> Pod:
    """Return a pod of the scheduler, in a group by its label; it runs where a node is named, else it is pending.

    All other arguments are fields of the spec.
    """
    requests: ResourceList = {key: amount for key, amount in (("cpu", cpu), ("memory", memory)) if amount is not None}
    spec.setdefault("containers", (Container(name="main", resources=ResourceRequirements(requests=requests or None)),))
    return Pod(
        metadata=meta or metadata(name, **({POD_GROUP_LABEL: group} if group else {})),
        spec=PodSpec(scheduler_name=SCHEDULER_NAME, priority=priority, node_name=node_name, **spec),
        status=PodStatus(phase="Running" if node_name else ""),
    )


def priority_class(name: str, value: int, *, default: bool = False) -> PriorityClass:
    """Return a PriorityClass."""
    return PriorityClass(metadata=ObjectMeta(name=name), value=value, global_default=default)
