"""Templates of a Workload, and the fields that a group takes from its template.

A group without a schedulingPolicy takes every field that it leaves empty from its template, and waits for the template.
A group with a policy takes the priority alone, where it has none. The scheduler reads groups through
``effective_group``, so it does not wait for the operator to write the fields of ``fields_to_fill``.
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

POSITIONS = "template_positions"
"""Where a Workload keeps the positions of its templates: thousands of groups may name one of thousands of templates."""


class TemplatePosition(Struct, frozen=True):
    """A template, the kind of group that it is for, and the name of the template above it."""

    template: PodGroupTemplate | CompositePodGroupTemplate
    kind: str
    parent: str | None
    depth: int


def template_positions(workload: Workload) -> Mapping[str, TemplatePosition]:
    """Return the positions of all templates by name, computed once. Names are unique within a Workload."""
    kept = vars(workload)
    found: dict[str, TemplatePosition] | None = kept.get(POSITIONS)
    if found is None:
        found = kept[POSITIONS] = {place.template.name: place for place in walk_templates(workload)}
    return found


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
"""Fields that a group without a policy takes from its template where they are empty."""


def effective_group(group: Group, workloads: Workloads) -> Group:
    """Return the group with the fields from its template; unchanged where it takes none or the template is missing."""
    copied = _taken_fields(group, workloads)
    return replace(group, spec=replace(group.spec, **copied)) if copied else group


def effective_tree(tree: Tree, workloads: Workloads) -> Tree:
    """Return the tree with the effective groups."""
    if all(node.group.spec.scheduling_policy is not None for node in tree.nodes):
        return tree
    nodes = tuple(replace(node, group=effective_group(node.group, workloads)) for node in tree.nodes)
    return replace(tree, nodes=nodes)


def template_wait_message(group: Group) -> str:
    """Return what an effective group without a policy waits for; empty for a group with one."""
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
    """Return the priority class and number of a group, or those of its template where it has neither."""
    own = group.spec.priority_class_name, group.spec.priority
    place = _position(group, workloads) if own == ("", None) else None
    return own if place is None else (place.template.priority_class_name, place.template.priority)


def effective_class_name(group: Group, workloads: Workloads, classes: PriorityClasses) -> str | None:
    """Return the priority class of a group: its own, its template's, or the default; empty for a bare number.

    None while a missing template could still name one. The operator fills in the same name.
    """
    if _awaits_priority(group, workloads):
        return None
    name, explicit = named_priority(group, workloads)
    found = classes.applicable(name, explicit)
    return found.metadata.name if found is not None else name


def resolved_priority(group: Group, workloads: Workloads, classes: PriorityClasses) -> int | None:
    """Return the priority to schedule a group by; None where its class is unknown or its template is missing."""
    if group.spec.scheduling_policy is None and _awaits_priority(group, workloads):
        return None
    return classes.resolve(*named_priority(group, workloads))


def resolved_preemption_policy(group: Group, workloads: Workloads, classes: PriorityClasses) -> str | None:
    """Return the preemption policy of an effective group: its own, else that of its class; None for an unknown class.

    Without a class it is the default of Kubernetes.
    """
    name, explicit = named_priority(group, workloads)
    found = classes.applicable(name, explicit)
    if group.spec.preemption_policy is not None:
        return group.spec.preemption_policy
    if found is not None:
        return found.preempts
    return None if name else PREEMPT_LOWER_PRIORITY


def fields_to_fill(group: Group, workloads: Workloads, classes: PriorityClasses | None) -> dict[str, Any]:
    """Return the fields of a group's spec that the operator should fill in now.

    Each field is set once. So priorities stay open while a missing Workload could still set them, and where the
    PriorityClasses cannot be read (``classes`` is None).
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
    """Return the priority of a group that has none, and the name of its class where the group does not name it."""
    name, explicit = named_priority(group, workloads)
    value, found = classes.resolve(name, explicit), classes.applicable(name, explicit)
    if value is None or value > HIGHEST_USER_PRIORITY:
        return {}  # the field does not allow the numbers of system classes: the class name counts
    if found is not None:
        name = found.metadata.name
    return {"priority": value, **({"priorityClassName": name} if name != group.spec.priority_class_name else {})}


def _taken_fields(group: Group, workloads: Workloads) -> dict[str, Any]:
    """Return the fields that a group takes from its template, by name."""
    if group.spec.scheduling_policy is not None:
        return {}
    place = _position(group, workloads)
    if place is None:
        return {}
    given = {field: getattr(place.template, field, None) for field in TEMPLATE_FIELDS}
    return {field: value for field, value in given.items() if value is not None and getattr(group.spec, field) is None}


def _position(group: Group, workloads: Workloads) -> TemplatePosition | None:
    """Return the template that a group references, if it exists and is for groups of this kind."""
    ref = group.spec.workload_ref
    workload = workloads.get((group.metadata.namespace, ref.workload_name)) if ref is not None else None
    if ref is None or workload is None:
        return None
    place = template_positions(workload).get(ref.template_name)
    return place if place is not None and place.kind == group.kind else None


def _awaits_priority(group: Group, workloads: Workloads) -> bool:
    """Return whether a group has no priority, and its template, which could set one, is missing."""
    own = group.spec.priority_class_name, group.spec.priority
    return own == ("", None) and group.spec.workload_ref is not None and _position(group, workloads) is None
