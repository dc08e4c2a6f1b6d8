"""Where each template of a Workload stands."""

from collections.abc import Iterator, Mapping

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


def inherited_priority(
    group: PodGroup | CompositePodGroup, workloads: Mapping[tuple[str, str], Workload], classes: PriorityClasses
) -> dict[str, int | str]:
    """Return the fields of a group's spec that it takes from its template: priority and class, where it has neither.

    All else that a group may leave empty has a meaning of its own when it is, and may not be set later.
    """
    spec, ref = group.spec, group.spec.workload_ref
    if ref is None or spec.priority is not None or spec.priority_class_name:
        return {}
    workload = workloads.get((group.metadata.namespace, ref.workload_name))
    place = template_places(workload).get(ref.template_name) if workload is not None else None
    if place is None or (place.template.priority is None and not place.template.priority_class_name):
        return {}
    name = place.template.priority_class_name
    value = classes.resolve(name, place.template.priority)
    if value is None:
        return {}
    return {"priority": value, "priorityClassName": name} if name else {"priority": value}
