"""Where each template of a Workload stands, and what a group takes from its own.

A group without a schedulingPolicy leaves everything to its template that it does not say itself, and waits for it. One
that has a policy is whole: of its template it takes the priority alone, where it has none. The scheduler reads groups
as ``effective`` gives them, so that it waits for no one to write down what ``fields_to_fill`` says.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.priorityclass import PREEMPT_LOWER_PRIORITY
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Group, Tree, key_of
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.policies import DisruptionMode, SingleDisruptionMode
from cpg_api.scheduling.priority import PriorityClasses
from cpg_api.scheduling.workload import CompositePodGroupTemplate, PodGroupTemplate, Workload
from cpg_api.schema import HIGHEST_USER_PRIORITY


class TemplatePosition(Struct, frozen=True):
    """A template, the kind of group it is for, and the name of the template it stands below."""

    template: PodGroupTemplate | CompositePodGroupTemplate
    kind: str
    parent: str | None
    depth: int


def template_positions(workload: Workload) -> Mapping[str, TemplatePosition]:
    """Return the places of all templates by name; names are unique in the whole Workload."""
    return {place.template.name: place for place in walk_templates(workload)}


def walk_templates(workload: Workload) -> Iterator[TemplatePosition]:
    """Yield every template of a Workload, parents before children, without recursion."""
    spec = workload.spec
    yield from (TemplatePosition(flat, PodGroup.kind, None, 1) for flat in spec.pod_group_templates or ())
    stack = [
        TemplatePosition(top, CompositePodGroup.kind, None, 1)
        for top in reversed(spec.composite_pod_group_templates or ())
    ]
    while stack:
        place = stack.pop()
        yield place
        template = place.template
        if not isinstance(template, CompositePodGroupTemplate):
            continue
        children: list[TemplatePosition] = [
            TemplatePosition(leaf, PodGroup.kind, template.name, place.depth + 1)
            for leaf in template.pod_group_templates or ()
        ] + [
            TemplatePosition(inner, CompositePodGroup.kind, template.name, place.depth + 1)
            for inner in template.composite_pod_group_templates or ()
        ]
        stack.extend(reversed(children))


Workloads: TypeAlias = Mapping[tuple[str, str], Workload]
"""Workloads by namespace and name."""

TEMPLATE_FIELDS = (
    "scheduling_policy",
    "scheduling_constraints",
    "resource_claims",
    "disruption_mode",
    "preemption_policy",
)
"""What a group without a policy takes from its template, where it is empty."""


def effective_group(group: Group, workloads: Workloads) -> Group:
    """Return a group with what it takes from its template; as it is where it takes nothing, or cannot yet."""
    copied = _taken_fields(group, workloads)
    return replace(group, spec=replace(group.spec, **copied)) if copied else group


def effective_tree(tree: Tree, workloads: Workloads) -> Tree:
    """Return a tree of such groups."""
    if all(node.group.spec.scheduling_policy is not None for node in tree.nodes):
        return tree
    nodes = tuple(replace(node, group=effective_group(node.group, workloads)) for node in tree.nodes)
    return replace(tree, nodes=nodes)


def template_wait_message(group: Group) -> str:
    """Say what a group waits for that is still without a policy, as ``effective`` gives it; else nothing."""
    key, ref = key_of(group), group.spec.workload_ref
    if group.spec.scheduling_policy is not None:
        return ""
    if ref is None:
        return f"{key} has no schedulingPolicy, and no workloadRef to take one from"
    return (
        f"waiting for Workload {key.namespace}/{ref.workload_name} with a template {ref.template_name} "
        f"for a {group.kind}: {key} takes its schedulingPolicy from there"
    )


def named_priority(group: Group, workloads: Workloads) -> tuple[str, int | None]:
    """Return the class and the number that count for a group: those of its template, where it has neither."""
    own = group.spec.priority_class_name, group.spec.priority
    place = _position(group, workloads) if own == ("", None) else None
    return own if place is None else (place.template.priority_class_name, place.template.priority)


def resolved_priority(group: Group, workloads: Workloads, classes: PriorityClasses) -> int | None:
    """Return the number that a group is scheduled by, or None where its class, or all of it, is not known yet."""
    if group.spec.scheduling_policy is None and _awaits_priority(group, workloads):
        return None
    return classes.resolve(*named_priority(group, workloads))


def known_priority(group: Group, workloads: Workloads, classes: PriorityClasses) -> int | None:
    """Return the number of a group, or None where a Workload or class that is not there has the last word on it."""
    return None if _awaits_priority(group, workloads) else resolved_priority(group, workloads, classes)


def resolved_preemption_policy(group: Group, workloads: Workloads, classes: PriorityClasses) -> str | None:
    """Return whether others may be evicted for a group, or None where its class is not known.

    It is what the group says, as ``effective`` gives it, else its class.
    """
    name, explicit = named_priority(group, workloads)
    found = classes.applicable(name, explicit)
    if group.spec.preemption_policy is not None:
        return group.spec.preemption_policy
    if found is not None:
        return found.preempts
    return None if name else PREEMPT_LOWER_PRIORITY


def fields_to_fill(group: Group, workloads: Workloads, classes: PriorityClasses | None) -> dict[str, Any]:
    """Return the fields of a group's spec that are still to be filled in; none where nothing is to be done or known.

    Each is filled in once. So nothing is said of a priority that a Workload could still name which is not there, nor by
    who may not see the ``classes``.
    """
    spec = group.spec
    if None not in {spec.scheduling_policy, spec.disruption_mode, spec.priority, spec.preemption_policy}:
        return {}
    copied = _taken_fields(group, workloads)
    names = dict(zip(spec.__struct_fields__, spec.__struct_encode_fields__, strict=True))
    due: dict[str, Any] = {names[field]: value for field, value in copied.items()}
    whole = effective_group(group, workloads)
    if whole.spec.scheduling_policy is not None and whole.spec.disruption_mode is None:
        due["disruptionMode"] = DisruptionMode(single=SingleDisruptionMode())
    if classes is None or _awaits_priority(group, workloads):
        return due
    if spec.priority is None:
        due |= _priority_fields(group, workloads, classes)
    policy = resolved_preemption_policy(whole, workloads, classes)
    if whole.spec.scheduling_policy is not None and whole.spec.preemption_policy is None and policy is not None:
        due["preemptionPolicy"] = policy
    return due


def _priority_fields(group: Group, workloads: Workloads, classes: PriorityClasses) -> dict[str, Any]:
    """Return the number of a group that has none, and the name of its class where that is not its own."""
    name, explicit = named_priority(group, workloads)
    value, found = classes.resolve(name, explicit), classes.applicable(name, explicit)
    if value is None or value > HIGHEST_USER_PRIORITY:
        return {}  # the number of a class of the system is not for a field: who asks goes by its name
    if found is not None:
        name = found.metadata.name
    return {"priority": value, **({"priorityClassName": name} if name != group.spec.priority_class_name else {})}


def _taken_fields(group: Group, workloads: Workloads) -> dict[str, Any]:
    """Return what a group takes from its template, by the names of the fields."""
    if group.spec.scheduling_policy is not None:
        return {}
    place = _position(group, workloads)
    if place is None:
        return {}
    given = {field: getattr(place.template, field, None) for field in TEMPLATE_FIELDS}
    return {field: value for field, value in given.items() if value is not None and getattr(group.spec, field) is None}


def _position(group: Group, workloads: Workloads) -> TemplatePosition | None:
    """Return the template that a group names, where it is there and for groups of its kind."""
    ref = group.spec.workload_ref
    workload = workloads.get((group.metadata.namespace, ref.workload_name)) if ref is not None else None
    if ref is None or workload is None:
        return None
    wanted = (ref.template_name, group.kind)
    return next((place for place in walk_templates(workload) if (place.template.name, place.kind) == wanted), None)


def _awaits_priority(group: Group, workloads: Workloads) -> bool:
    """Tell whether a group names no priority, and its template, which could, is not there."""
    own = group.spec.priority_class_name, group.spec.priority
    return own == ("", None) and group.spec.workload_ref is not None and _position(group, workloads) is None
