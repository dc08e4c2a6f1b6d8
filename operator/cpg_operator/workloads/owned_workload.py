"""The Workload of an owner, such as a JobSet, in either flavour. Pure."""

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from cpg_api.integrations.trees import OwnerKind, Shape, Template
from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_api.scheduling.expected import encode_expected_pods
from cpg_api.scheduling.names import DERIVED_FROM, EXPECTED_PODS, INSTANTIATE, REPLICAS, TEMPLATE_HASH
from cpg_api.scheduling.policies import CompositeGangSchedulingPolicy, GangSchedulingPolicy, SchedulingConstraints
from cpg_api.scheduling.replicas import format_replicas
from cpg_api.scheduling.templates import walk_templates
from cpg_api.scheduling.workload import CompositePodGroupTemplate, PodGroupTemplate, Workload, WorkloadSpec
from cpg_client.resources import Resource

SIZES = (EXPECTED_PODS, REPLICAS)
"""Annotations that follow an owner."""
_HASH_DIGITS = 16
S = TypeVar("S", CompositePodGroupTemplate, WorkloadSpec)


def workload_of(
    owner: ObjectMeta, resource: Resource, kind: OwnerKind, name: str, shape: Shape, *, native: bool
) -> Workload:
    """Return a Workload of an owner with the templates of a shape.

    In the built-in API an annotation has the replicas, and a preferred topology is left out.
    """
    reference = OwnerReference(
        api_version=resource.api_version, kind=kind.kind, name=owner.name, uid=owner.uid, controller=True
    )
    metadata = ObjectMeta(
        name=name,
        namespace=owner.namespace,
        annotations={
            INSTANTIATE: "true",
            DERIVED_FROM: f"{kind.kind.lower()}/{owner.name}",
            **({EXPECTED_PODS: encode_expected_pods(shape.expected)} if shape.expected else {}),
        },
        owner_references=(reference,),
    )
    workload = Workload(metadata=metadata, spec=shape.spec or WorkloadSpec())
    if native:
        workload = _native(workload)
    annotations = workload.metadata.annotations | {TEMPLATE_HASH: _hash(without_sizes(workload.spec))}
    return replace(workload, metadata=replace(workload.metadata, annotations=annotations))


def has_other_templates(found: Workload, wanted: Workload) -> bool:
    """Return whether more than sizes of a Workload has to change.

    The hash decides, and the templates only where there is none: an API server may drop a field, and the next Workload
    would have no more of it than the last.
    """
    known = found.metadata.annotations.get(TEMPLATE_HASH) or _hash(without_sizes(found.spec))
    return known != wanted.metadata.annotations[TEMPLATE_HASH]


def sizes(workload: Workload) -> tuple[object, ...]:
    """Return what can change in a Workload: replicas, minimums and expected pods."""
    templates = [place.template for place in walk_templates(workload)]
    gangs = [(one.name, one.replicas, one.scheduling_policy.gang) for one in templates]
    return gangs, *(workload.metadata.annotations.get(name) for name in SIZES)


def without_sizes(spec: WorkloadSpec) -> WorkloadSpec:
    """Return templates without the fields that can change."""
    return _each(spec, _without_size)


def _without_size(template: Template) -> Template:
    policy = template.scheduling_policy
    least: Any = GangSchedulingPolicy(1) if isinstance(template, PodGroupTemplate) else CompositeGangSchedulingPolicy(1)
    gang = least if policy.gang is not None else None
    return replace(template, replicas=None, scheduling_policy=replace(policy, gang=gang))


def _hash(spec: WorkloadSpec) -> str:
    return hashlib.sha256(msgspec.json.encode(spec)).hexdigest()[:_HASH_DIGITS]


def _native(workload: Workload) -> Workload:
    text = format_replicas(workload)
    annotations = {**workload.metadata.annotations, **({REPLICAS: text} if text else {})}
    metadata = replace(workload.metadata, annotations=annotations)
    return Workload(metadata=metadata, spec=_each(workload.spec, _without_extensions))


def _without_extensions(template: Template) -> Template:
    """Return a template without the fields that the built-in API does not have."""
    constraints = template.scheduling_constraints
    kept = SchedulingConstraints(topology=constraints.topology) if constraints and constraints.topology else None
    return replace(template, replicas=None, scheduling_constraints=kept)


def _each(parent: S, change: Callable[[Any], Any]) -> S:
    """Return a spec or template with changed templates, on all levels."""
    leaves, inner = parent.pod_group_templates, parent.composite_pod_group_templates
    return replace(
        parent,
        pod_group_templates=None if leaves is None else tuple(map(change, leaves)),
        composite_pod_group_templates=None if inner is None else tuple(_each(change(one), change) for one in inner),
    )
