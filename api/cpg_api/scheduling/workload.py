"""Workloads: the templates that the groups of a tree are made from."""

from __future__ import annotations

from typing import Annotated, ClassVar

from cpg_api.meta import Condition, ObjectMeta
from cpg_api.scheduling.names import MAX_TEMPLATES
from cpg_api.scheduling.policies import (
    LOWEST_PRIORITY,
    PREEMPTION_POLICIES,
    CompositePodGroupSchedulingPolicy,
    DisruptionMode,
    PodGroupResourceClaim,
    PodGroupSchedulingPolicy,
    SchedulingConstraints,
    exactly_one,
)
from cpg_api.schema import (
    DNS_SUBDOMAIN,
    HIGHEST_USER_PRIORITY,
    MAX_SUBDOMAIN,
    PATH_SEGMENT,
    Rule,
    described,
    dns_label,
    dns_subdomain,
)
from cpg_api.structs import ApiStruct

TemplatePriorityClassName = Annotated[
    str, dns_subdomain("The PriorityClass; the same in all templates of the Workload.", immutable=True)
]
TemplatePriority = Annotated[
    int | None,
    described(
        "The priority; the same in all templates of the Workload.",
        minimum=LOWEST_PRIORITY,
        maximum=HIGHEST_USER_PRIORITY,
        format="int32",
        immutable=True,
    ),
]
TemplatePreemptionPolicy = Annotated[
    str | None,
    described("Whether pods of lower priority may be evicted for a group.", enum=PREEMPTION_POLICIES, immutable=True),
]

CHILDREN_SHARE_PRIORITY = (
    "(!has(self.{children}) || self.{children}.all(t, "
    "has(t.priority) == has(self.priority) && (!has(t.priority) || t.priority == self.priority) && "
    "has(t.priorityClassName) == has(self.priorityClassName) && "
    "(!has(t.priorityClassName) || t.priorityClassName == self.priorityClassName)))"
)
SIBLINGS_SHARE_PRIORITY = (
    "!has(self.{list}) || self.{list}.all(t, "
    "has(t.priority) == has(self.{list}[0].priority) && "
    "(!has(t.priority) || t.priority == self.{list}[0].priority) && "
    "has(t.priorityClassName) == has(self.{list}[0].priorityClassName) && "
    "(!has(t.priorityClassName) || t.priorityClassName == self.{list}[0].priorityClassName))"
)
ALL_BELOW_ALL = (
    "!has(self.disruptionMode) || !has(self.disruptionMode.all) || ("
    "(!has(self.podGroupTemplates) || self.podGroupTemplates.all(t, "
    "has(t.disruptionMode) && has(t.disruptionMode.all))) && "
    "(!has(self.compositePodGroupTemplates) || self.compositePodGroupTemplates.all(t, "
    "has(t.disruptionMode) && has(t.disruptionMode.all))))"
)
"""What a template leaves empty becomes Single at the group, so empty is no better than Single below All."""


class PodGroupTemplate(ApiStruct, frozen=True, kw_only=True):
    """What PodGroups are made from."""

    name: Annotated[str, dns_label("Identifies the template inside the whole Workload.")]
    scheduling_policy: Annotated[PodGroupSchedulingPolicy, described("How the pods of a group are scheduled.")]
    scheduling_constraints: Annotated[
        SchedulingConstraints | None, described("Where the pods of a group may run.", immutable=True)
    ] = None
    resource_claims: Annotated[
        tuple[PodGroupResourceClaim, ...] | None,
        described(
            "The device claims that the pods share. At most 4.",
            max_items=4,
            map_keys=("name",),
            immutable=True,
        ),
    ] = None
    disruption_mode: Annotated[
        DisruptionMode | None,
        described("How pods of a group may be disrupted; empty means single.", immutable=True),
    ] = None
    priority_class_name: TemplatePriorityClassName = ""
    priority: TemplatePriority = None
    preemption_policy: TemplatePreemptionPolicy = None


class CompositePodGroupTemplate(ApiStruct, frozen=True, kw_only=True):
    """What CompositePodGroups are made from, with the templates of their children."""

    RULES: ClassVar = (
        Rule(
            expression=(
                "has(self.podGroupTemplates) && self.podGroupTemplates.size() > 0 || "
                "has(self.compositePodGroupTemplates) && self.compositePodGroupTemplates.size() > 0"
            ),
            message="must have at least one child PodGroupTemplate or CompositePodGroupTemplate",
        ),
        Rule(
            expression=ALL_BELOW_ALL,
            message="a template with disruption mode `all` can only have children whose disruption mode is `all` too",
            path=".disruptionMode",
        ),
        Rule(
            expression=" && ".join(
                CHILDREN_SHARE_PRIORITY.format(children=children)
                for children in ("podGroupTemplates", "compositePodGroupTemplates")
            ),
            message="all priority and priorityClassName values must be identical, detected multiple values",
        ),
    )

    name: Annotated[str, dns_label("Identifies the template inside the whole Workload.")]
    scheduling_policy: Annotated[CompositePodGroupSchedulingPolicy, described("How the child groups are scheduled.")]
    scheduling_constraints: Annotated[
        SchedulingConstraints | None, described("Where all pods below a group may run.", immutable=True)
    ] = None
    disruption_mode: Annotated[
        DisruptionMode | None,
        described("How child groups may be disrupted; empty means single.", immutable=True),
    ] = None
    priority_class_name: TemplatePriorityClassName = ""
    priority: TemplatePriority = None
    preemption_policy: TemplatePreemptionPolicy = None
    pod_group_templates: Annotated[
        tuple[PodGroupTemplate, ...] | None,
        described(
            "The templates of child PodGroups. At most 8; none may be added or removed later.",
            max_items=MAX_TEMPLATES,
            map_keys=("name",),
            fixed_items=True,
        ),
    ] = None
    composite_pod_group_templates: Annotated[
        tuple[CompositePodGroupTemplate, ...] | None,
        described(
            "The templates of child CompositePodGroups. At most 8; none may be added or removed later.",
            max_items=MAX_TEMPLATES,
            map_keys=("name",),
            fixed_items=True,
        ),
    ] = None


class TypedLocalObjectReference(ApiStruct, frozen=True, kw_only=True):
    """An object of the same namespace."""

    api_group: Annotated[
        str,
        described(
            "The API group; empty for the core group.",
            pattern=f"^$|{DNS_SUBDOMAIN}",
            max_length=MAX_SUBDOMAIN,
        ),
    ] = ""
    kind: Annotated[str, described("The kind.", pattern=PATH_SEGMENT, min_length=1, max_length=MAX_SUBDOMAIN)]
    name: Annotated[str, described("The name.", pattern=PATH_SEGMENT, min_length=1, max_length=MAX_SUBDOMAIN)]


class WorkloadSpec(ApiStruct, frozen=True):
    """The templates of a tree: either flat, or composite ones that nest."""

    RULES: ClassVar = (
        *exactly_one("podGroupTemplates", "compositePodGroupTemplates"),
        Rule(
            expression=SIBLINGS_SHARE_PRIORITY.format(list="podGroupTemplates"),
            message="detected multiple priority configurations",
        ),
        Rule(
            expression=SIBLINGS_SHARE_PRIORITY.format(list="compositePodGroupTemplates"),
            message="all priority and priorityClassName values must be identical, detected multiple values",
        ),
    )

    controller_ref: Annotated[
        TypedLocalObjectReference | None,
        described("The object the Workload describes, such as a Job. For people and tools.", immutable=True),
    ] = None
    pod_group_templates: Annotated[
        tuple[PodGroupTemplate, ...] | None,
        described(
            "The templates of flat groups. At most 8; none may be added or removed later.",
            max_items=MAX_TEMPLATES,
            map_keys=("name",),
            fixed_items=True,
        ),
    ] = None
    composite_pod_group_templates: Annotated[
        tuple[CompositePodGroupTemplate, ...] | None,
        described(
            "The templates of composite groups. At most 8; none may be added or removed later.",
            max_items=MAX_TEMPLATES,
            map_keys=("name",),
            fixed_items=True,
        ),
    ] = None


class WorkloadStatus(ApiStruct, frozen=True):
    """kube-cpg extension: what has become of a Workload."""

    conditions: Annotated[
        tuple[Condition, ...] | None,
        described("Observations about the Workload.", max_items=16, map_keys=("type",)),
    ] = None


class Workload(ApiStruct, frozen=True, kw_only=True):
    """The scheduling policy of a workload, as templates for its groups."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[WorkloadSpec, described("The templates.")]
    status: Annotated[WorkloadStatus, described("kube-cpg extension: what has become of it.")] = WorkloadStatus()

    kind: ClassVar = "Workload"
