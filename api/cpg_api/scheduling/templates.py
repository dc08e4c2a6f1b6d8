"""Where each template of a Workload stands."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.podgroup import PodGroup
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
