"""Where each template of a Workload stands, and what a group takes from its own."""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct

from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.priority import PriorityClasses
from cpg_api.scheduling.workload import CompositePodGroupTemplate, PodGroupTemplate, Workload


class TemplatePlace(Struct, frozen=True):
    """A template, the kind of group it is for, and the name of the template it stands below."""

    template: PodGroupTemplate | CompositePodGroupTemplate
    kind: str
    parent: str | None
    depth: int


def template_places(workload: Workload) -> Mapping[str, TemplatePlace]:
    """Return the places of all templates by name; names are unique in the whole Workload."""
    return {place.template.name: place for place in walk_templates(workload)}


def walk_templates(workload: Workload) -> Iterator[TemplatePlace]:
    """Yield every template of a Workload, parents before children, without recursion."""
    spec = workload.spec
    yield from (TemplatePlace(flat, PodGroup.kind, None, 1) for flat in spec.pod_group_templates or ())
    stack = [
        TemplatePlace(top, CompositePodGroup.kind, None, 1)
        for top in reversed(spec.composite_pod_group_templates or ())
    ]
    while stack:
        place = stack.pop()
        yield place
        template = place.template
        if not isinstance(template, CompositePodGroupTemplate):
            continue
        children: list[TemplatePlace] = [
            TemplatePlace(leaf, PodGroup.kind, template.name, place.depth + 1)
            for leaf in template.pod_group_templates or ()
        ] + [
            TemplatePlace(inner, CompositePodGroup.kind, template.name, place.depth + 1)
            for inner in template.composite_pod_group_templates or ()
        ]
        stack.extend(reversed(children))


Workloads: TypeAlias = Mapping[tuple[str, str], Workload]
"""Workloads by namespace and name."""


def named_priority(group: PodGroup | CompositePodGroup, workloads: Workloads) -> tuple[str, int | None]:
    """Return the class and the number that count for a group: those of its template, where it has neither.

    All else that a group may leave empty has a meaning of its own when it is, and may not be set later.
    """
    spec, ref = group.spec, group.spec.workload_ref
    own = spec.priority_class_name, spec.priority
    if ref is None or own != ("", None):
        return own
    workload = workloads.get((group.metadata.namespace, ref.workload_name))
    place = template_places(workload).get(ref.template_name) if workload is not None else None
    return own if place is None else (place.template.priority_class_name, place.template.priority)


def resolved_priority(
    group: PodGroup | CompositePodGroup, workloads: Workloads, classes: PriorityClasses
) -> int | None:
    """Return the number that a group is scheduled by, or None where its class is not known."""
    return classes.resolve(*named_priority(group, workloads))


def due_priority(
    group: PodGroup | CompositePodGroup, workloads: Workloads, classes: PriorityClasses
) -> dict[str, int | str]:
    """Return the fields of a group's spec that are still to be filled in; none where nothing is to be done or known."""
    name, explicit = named_priority(group, workloads)
    value = classes.resolve(name, explicit)
    if group.spec.priority is not None or value is None:
        return {}
    if explicit is None and not name and classes.default is not None:
        name = classes.default.metadata.name
    return {"priority": value, **({"priorityClassName": name} if name != group.spec.priority_class_name else {})}
