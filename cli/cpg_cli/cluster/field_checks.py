"""The checks of groups and Workloads that the schema of their CRDs makes, for objects that no API server has seen."""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, inspect

from cpg_api.problems import Problem, child_path
from cpg_api.scheduling.names import MAX_DEPTH
from cpg_api.scheduling.policies import (
    CompositePodGroupSchedulingPolicy,
    DisruptionMode,
    PodGroupResourceClaim,
    PodGroupSchedulingPolicy,
)
from cpg_api.scheduling.templates import walk_templates
from cpg_api.scheduling.workload import Workload, WorkloadSpec
from cpg_api.schema import Mark

UNIONS: dict[type, tuple[str, str]] = {
    PodGroupSchedulingPolicy: ("basic", "gang"),
    CompositePodGroupSchedulingPolicy: ("basic", "gang"),
    DisruptionMode: ("single", "all"),
    PodGroupResourceClaim: ("resourceClaimName", "resourceClaimTemplateName"),
    WorkloadSpec: ("podGroupTemplates", "compositePodGroupTemplates"),
}
"""Structs of which exactly one of two fields is set."""


def spec_problems(plain: Any, kind: type[Struct]) -> Iterator[Problem]:  # noqa: ANN401 - plain data
    """Yield what the schema refuses in the spec of a group or Workload: unknown fields, limits, unions."""
    shape = inspect.type_info(kind)
    if isinstance(shape, inspect.StructType):
        (spec,) = (field.type for field in shape.fields if field.name == "spec")
        yield from _problems(plain, spec, "spec")


def template_problems(workload: Workload) -> Iterator[Problem]:
    """Yield what rules over all templates of a Workload refuse."""
    seen = set[str]()
    priorities = set[tuple[str, int | None]]()
    for place in walk_templates(workload):
        template = place.template
        if template.name in seen:
            yield Problem("spec", f"template names must be unique, and `{template.name}` is there more than once")
        if place.depth > MAX_DEPTH:
            yield Problem("spec", f"template `{template.name}`: maximum template hierarchy depth is {MAX_DEPTH}")
        seen.add(template.name)
        priorities.add((template.priority_class_name, template.priority))
    if len(priorities) > 1:
        yield Problem("spec", "all priority and priorityClassName values must be identical")


def _problems(plain: Any, kind: inspect.Type, path: str) -> Iterator[Problem]:  # noqa: ANN401 - plain data
    if isinstance(kind, inspect.Metadata):
        yield from _mark_problems(plain, (kind.extra or {}).get("mark", Mark()), path)
        yield from _problems(plain, kind.type, path)
    elif isinstance(kind, inspect.UnionType):
        (one,) = (member for member in kind.types if not isinstance(member, inspect.NoneType))
        yield from _problems(plain, one, path)
    elif isinstance(kind, inspect.VarTupleType):
        for number, item in enumerate(plain):
            yield from _problems(item, kind.item_type, f"{path}[{number}]")
    elif isinstance(kind, inspect.StructType):
        yield from _struct_problems(plain, kind, path)


def _struct_problems(plain: dict[str, Any], kind: inspect.StructType, path: str) -> Iterator[Problem]:
    fields = {field.encode_name: field for field in kind.fields}
    for name, value in plain.items():
        if name not in fields:
            yield Problem(child_path(path, name), "unknown field")
        elif value is not None:
            yield from _problems(value, fields[name].type, child_path(path, name))
    union = UNIONS.get(kind.cls)
    if union is not None:
        count = sum(plain.get(name) not in (None, []) for name in union)
        if count != 1:
            amount = "one" if count == 0 else "exactly one"
            yield Problem(path, f"must specify {amount} of: {', '.join(f'`{name}`' for name in union)}")


def _mark_problems(value: Any, mark: Mark, path: str) -> Iterator[Problem]:  # noqa: ANN401 - plain data
    if isinstance(value, int):
        if mark.minimum is not None and value < mark.minimum:
            yield Problem(path, f"{value} should be greater than or equal to {mark.minimum}")
        if mark.maximum is not None and value > mark.maximum:
            yield Problem(path, f"{value} should be less than or equal to {mark.maximum}")
    elif isinstance(value, str):
        if mark.enum and value not in mark.enum:
            yield Problem(path, f"{value!r} should be one of: {', '.join(mark.enum)}")
        is_long = mark.max_length is not None and len(value) > mark.max_length
        if is_long or (mark.pattern and not re.search(mark.pattern, value)):
            yield Problem(path, f"{value!r} is no valid name")
    elif isinstance(value, list) and mark.max_items is not None and len(value) > mark.max_items:
        yield Problem(path, f"has {len(value)} items, and may have {mark.max_items}")
