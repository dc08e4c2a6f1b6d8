"""Workloads: the templates that the groups of a tree are made from."""

from __future__ import annotations

from typing import Annotated, ClassVar

from cpg_api.meta import Condition, ObjectMeta
from cpg_api.scheduling.names import MAX_DEPTH, MAX_REPLICAS, MAX_TEMPLATES
from cpg_api.scheduling.policies import (
    LOWEST_PRIORITY,
    PREEMPTION_POLICIES,
    UNIT_NEEDS_GANG,
    CompositePodGroupSchedulingPolicy,
    DisruptionMode,
    PodGroupResourceClaim,
    PodGroupSchedulingPolicy,
    SchedulingConstraints,
    exactly_one,
    is_basic_unit,
)
from cpg_api.schema import (
    DNS_SUBDOMAIN,
    HIGHEST_USER_PRIORITY,
    MAX_SUBDOMAIN,
    PATH_SEGMENT,
    Nesting,
    Rule,
    describe,
    dns_label,
    dns_subdomain,
)
from cpg_api.structs import ApiStruct

TemplatePriorityClassName = Annotated[
    str, dns_subdomain("The PriorityClass; the same in all templates of the Workload.", immutable=True)
]
TemplatePriority = Annotated[
    int | None,
    describe(
        "The priority; the same in all templates of the Workload.",
        minimum=LOWEST_PRIORITY,
        maximum=HIGHEST_USER_PRIORITY,
        format="int32",
        immutable=True,
    ),
]
TemplatePreemptionPolicy = Annotated[
    str | None,
    describe("Whether pods of lower priority may be evicted for a group.", enum=PREEMPTION_POLICIES, immutable=True),
]
Replicas = Annotated[
    int | None,
    describe(
        "kube-cpg extension, not in scheduling.k8s.io. How many groups an instantiated Workload has of the template, "
        "for each group above; they are numbered from 0. Empty means one, without a number. May be changed.",
        minimum=0,
        maximum=MAX_REPLICAS,
        format="int32",
    ),
]

TEMPLATE_LISTS = ("podGroupTemplates", "compositePodGroupTemplates")
MANY_PRIORITIES = "all priority and priorityClassName values must be identical, detected multiple values"


def same_priority(list_: str, other: str) -> str:
    """Return CEL that compares the priority of every template in a list with that of another template."""
    return (
        f"!has(self.{list_}) || self.{list_}.all(t, "
        f"has(t.priority) == has({other}.priority) && (!has(t.priority) || t.priority == {other}.priority) && "
        f"has(t.priorityClassName) == has({other}.priorityClassName) && "
        f"(!has(t.priorityClassName) || t.priorityClassName == {other}.priorityClassName))"
    )


def all_below_all(list_: str) -> str:
    """Return CEL that requires the children of an All template to be All.

    An empty mode becomes Single at the group, so below All it is as invalid as Single.
    """
    return (
        f"!has(self.disruptionMode) || !has(self.disruptionMode.all) || !has(self.{list_}) || "
        f"self.{list_}.all(t, has(t.disruptionMode) && has(t.disruptionMode.all))"
    )


def names_below(template: str, levels: int) -> str:
    """Return CEL for a string with the names of all templates below one, each followed by an ampersand.

    ``dyn`` hides the type of the list from the cost estimator of the API server. The estimator takes the strings of a
    computed list for unbounded and would refuse the rule. The limit at run time still applies.
    """

    def joined(list_: str, item: str, names: str) -> str:
        return f"dyn(has({template}.{list_}) ? {template}.{list_}.map({item}, {names}) : []).join()"

    leaves = joined("podGroupTemplates", "p", "p.name + '&'")
    if not levels:
        return leaves
    child = f"c{levels}"
    below = names_below(child, levels - 1)
    return leaves + " + " + joined("compositePodGroupTemplates", child, f"{child}.name + '&' + {below}")


ALL_NAMES = names_below("self", MAX_DEPTH - 1)
MOST_NAMES = MAX_TEMPLATES + sum(2 * MAX_TEMPLATES**level for level in range(2, MAX_DEPTH)) + MAX_TEMPLATES**MAX_DEPTH
"""Only composite templates on the first level, both kinds on the levels between, and leaves on the last."""

AS_QUERY = "url('http://x/?' + names).getQuery()"
UNIQUE_NAMES = Rule(
    expression=f"[{ALL_NAMES}].all(names, {AS_QUERY}.size() == names.split('&').size() - 1)",
    message="template names must be unique in the whole Workload",
    message_expression=(
        "'template names must be unique in the whole Workload, and `' + "
        f"[{ALL_NAMES}].map(names, [{AS_QUERY}].map(query, names.split('&', {MOST_NAMES + 1})"
        ".filter(name, name in query && query[name].size() > 1)[0])[0])[0] + '` is there more than once'"
    ),
)
"""Names must be unique in the whole Workload, and comparing every pair exceeds the cost limit of the API server.

The query of a URL is the only hash map of strings in CEL, so the names become a query. 5,256 templates with names of 63
letters, the most that the lists admit, then take three quarters of the allowed cost. (Go's parser would read 10,000
parameters.) Where the longer message costs too much, the short one is used.
"""


class PodGroupTemplate(ApiStruct, frozen=True, kw_only=True):
    """The template of PodGroups."""

    name: Annotated[str, dns_label("Identifies the template inside the whole Workload.")]
    replicas: Replicas = None
    scheduling_policy: Annotated[PodGroupSchedulingPolicy, describe("How the pods of a group are scheduled.")]
    scheduling_constraints: Annotated[
        SchedulingConstraints | None, describe("Where the pods of a group may run.", immutable=True)
    ] = None
    resource_claims: Annotated[
        tuple[PodGroupResourceClaim, ...] | None,
        describe(
            "The device claims that the pods share, as in the native API. Kubernetes makes them for native groups "
            "alone: pods of this group share a claim by resourceClaimName in their own spec. At most 4.",
            max_items=4,
            map_keys=("name",),
            immutable=True,
        ),
    ] = None
    disruption_mode: Annotated[
        DisruptionMode | None,
        describe("How pods of a group may be disrupted; empty means single.", immutable=True),
    ] = None
    priority_class_name: TemplatePriorityClassName = ""
    priority: TemplatePriority = None
    preemption_policy: TemplatePreemptionPolicy = None


class CompositePodGroupTemplate(ApiStruct, frozen=True, kw_only=True):
    """The template of CompositePodGroups, with the templates of their children."""

    NESTING: ClassVar = Nesting(levels=MAX_DEPTH - 1, message=f"maximum template hierarchy depth is {MAX_DEPTH}")
    RULES: ClassVar = (
        Rule(
            expression=" || ".join(f"has(self.{list_}) && self.{list_}.size() > 0" for list_ in TEMPLATE_LISTS),
            message="must have at least one child PodGroupTemplate or CompositePodGroupTemplate",
        ),
        *(
            Rule(
                expression=all_below_all(list_),
                message="children of a template with disruption mode `all` must have disruption mode `all` too",
                path=f".{list_}",
                descends_into=list_,
            )
            for list_ in TEMPLATE_LISTS
        ),
        *(
            Rule(expression=same_priority(list_, "self"), message=MANY_PRIORITIES, descends_into=list_)
            for list_ in TEMPLATE_LISTS
        ),
    )

    name: Annotated[str, dns_label("Identifies the template inside the whole Workload.")]
    replicas: Replicas = None
    scheduling_policy: Annotated[CompositePodGroupSchedulingPolicy, describe("How the child groups are scheduled.")]
    scheduling_constraints: Annotated[
        SchedulingConstraints | None, describe("Where all pods below a group may run.", immutable=True)
    ] = None
    disruption_mode: Annotated[
        DisruptionMode | None,
        describe("How child groups may be disrupted; empty means single.", immutable=True),
    ] = None
    priority_class_name: TemplatePriorityClassName = ""
    priority: TemplatePriority = None
    preemption_policy: TemplatePreemptionPolicy = None
    pod_group_templates: Annotated[
        tuple[PodGroupTemplate, ...] | None,
        describe(
            "The templates of child PodGroups. At most 8; none may be added or removed later.",
            max_items=MAX_TEMPLATES,
            map_keys=("name",),
            fixed_items=True,
        ),
    ] = None
    composite_pod_group_templates: Annotated[
        tuple[CompositePodGroupTemplate, ...] | None,
        describe(
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
        describe(
            "The API group; empty for the core group.",
            pattern=f"^$|{DNS_SUBDOMAIN}",
            max_length=MAX_SUBDOMAIN,
        ),
    ] = ""
    kind: Annotated[str, describe("The kind.", pattern=PATH_SEGMENT, min_length=1, max_length=MAX_SUBDOMAIN)]
    name: Annotated[str, describe("The name.", pattern=PATH_SEGMENT, min_length=1, max_length=MAX_SUBDOMAIN)]


class WorkloadSpec(ApiStruct, frozen=True):
    """The templates of a tree: flat ones, or composite ones that nest."""

    RULES: ClassVar = (
        *exactly_one(*TEMPLATE_LISTS, present="(has(self.{0}) && self.{0}.size() > 0)"),
        Rule(
            expression=same_priority("podGroupTemplates", "self.podGroupTemplates[0]"),
            message="detected multiple priority configurations",
        ),
        Rule(
            expression=same_priority("compositePodGroupTemplates", "self.compositePodGroupTemplates[0]"),
            message=MANY_PRIORITIES,
        ),
        Rule(
            expression=f"!has(self.podGroupTemplates) || self.podGroupTemplates.all(t, !({is_basic_unit('t')}))",
            message=UNIT_NEEDS_GANG,
            path=".podGroupTemplates",
        ),
        UNIQUE_NAMES,
    )

    controller_ref: Annotated[
        TypedLocalObjectReference | None,
        describe("The object the Workload describes, such as a Job. For people and tools.", immutable=True),
    ] = None
    pod_group_templates: Annotated[
        tuple[PodGroupTemplate, ...] | None,
        describe(
            "The templates of PodGroups without a parent. At most 8; none may be added or removed later. Exactly one "
            "of the two lists is set.",
            max_items=MAX_TEMPLATES,
            map_keys=("name",),
            fixed_items=True,
        ),
    ] = None
    composite_pod_group_templates: Annotated[
        tuple[CompositePodGroupTemplate, ...] | None,
        describe(
            "The templates of trees of groups. At most 8; none may be added or removed later. A tree has at most 4 "
            "levels, its PodGroups included. Exactly one of the two lists is set.",
            max_items=MAX_TEMPLATES,
            map_keys=("name",),
            fixed_items=True,
        ),
    ] = None


class WorkloadStatus(ApiStruct, frozen=True):
    """kube-cpg extension: the observed state of a Workload."""

    conditions: Annotated[
        tuple[Condition, ...] | None,
        describe("Observations about the Workload.", max_items=16, map_keys=("type",)),
    ] = None


class Workload(ApiStruct, frozen=True, kw_only=True, dict=True, gc=True):
    """The scheduling policy of a workload, as templates for its groups."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[WorkloadSpec, describe("The templates.")]
    status: Annotated[WorkloadStatus, describe("kube-cpg extension: what has become of it.")] = WorkloadStatus()

    kind: ClassVar = "Workload"
