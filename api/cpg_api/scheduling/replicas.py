"""Replicas of templates in an annotation: templates of the built-in API have no such field.

An entry names a template and how many groups it has for each group above: ``workers=2,replica=4``. A template without
an entry has one group, without a number.
"""

from collections.abc import Mapping
from typing import TypeVar

from msgspec.structs import replace

from cpg_api.scheduling.names import MAX_REPLICAS, REPLICAS
from cpg_api.scheduling.templates import walk_templates
from cpg_api.scheduling.workload import CompositePodGroupTemplate, PodGroupTemplate, Workload, WorkloadSpec

T = TypeVar("T", PodGroupTemplate, CompositePodGroupTemplate)
S = TypeVar("S", CompositePodGroupTemplate, WorkloadSpec)

_MAX_DIGITS = 4


def format_replicas(workload: Workload) -> str:
    """Return the annotation for the replicas of a Workload; empty where no template has any."""
    templates = [place.template for place in walk_templates(workload)]
    return ",".join(f"{one.name}={one.replicas}" for one in templates if one.replicas is not None)


def with_replicas(workload: Workload) -> Workload | None:
    """Return a Workload with the replicas of its annotation; None where the annotation cannot be read."""
    text = workload.metadata.annotations.get(REPLICAS)
    if text is None:
        return workload
    given = _parse(text)
    names = {place.template.name for place in walk_templates(workload)}
    if given is None or not given.keys() <= names:
        return None
    return replace(workload, spec=_filled(workload.spec, given))


def _parse(text: str) -> Mapping[str, int] | None:
    found: dict[str, int] = {}
    for entry in filter(None, text.split(",")):
        name, _, number = entry.strip().partition("=")
        is_number = number.isascii() and number.isdigit() and len(number) <= _MAX_DIGITS
        if not is_number or int(number) > MAX_REPLICAS or name in found:
            return None
        found[name] = int(number)
    return found


def _filled(parent: S, given: Mapping[str, int]) -> S:
    """Return a template or spec with replicas in its templates, on all levels."""
    leaves, inner = parent.pod_group_templates, parent.composite_pod_group_templates
    return replace(
        parent,
        pod_group_templates=None if leaves is None else tuple(_numbered(one, given) for one in leaves),
        composite_pod_group_templates=(
            None if inner is None else tuple(_filled(_numbered(one, given), given) for one in inner)
        ),
    )


def _numbered(template: T, given: Mapping[str, int]) -> T:
    return replace(template, replicas=given.get(template.name))
