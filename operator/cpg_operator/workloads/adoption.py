"""Gives an owner, such as a JobSet, the Workload from which its groups are made."""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from cpg_api.integrations.policy import read_policy
from cpg_api.integrations.trees import Template
from cpg_api.manifests import to_manifest
from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_api.scheduling.names import DERIVED_FROM, EVENT_NOT_ADOPTED, INSTANTIATE
from cpg_api.scheduling.policies import CompositeGangSchedulingPolicy, GangSchedulingPolicy
from cpg_api.scheduling.templates import walk_templates
from cpg_api.scheduling.workload import PodGroupTemplate, Workload, WorkloadSpec
from cpg_client.flavours import CRD
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.view.owner_index import ServedOwner
from cpg_operator.writes import NOTHING, EventSpec, StepResult, TreeKey, Verb, Write

NATIVE_WITHOUT_REPLICAS = (
    "its tree has replicas, and templates of built-in Workloads have none; its pods wait until the kinds of"
    " scheduling.cpg.dev are installed, or its integration is off"
)


def adopt(view: ClusterView, key: TreeKey, scheduler_names: frozenset[str]) -> StepResult:
    """Return the writes that bring the Workload of an owner up to date; Kubernetes collects that of a deleted owner."""
    served, owner = view.owners.served(key.anchor.kind), view.owners.get(key.anchor)
    if served is None or owner is None or owner.metadata.deletion_timestamp is not None:
        return NOTHING
    policy = read_policy(owner.metadata.annotations)
    shape = served.kind.shape(owner, policy, scheduler_names)
    writes = [_event(served, owner.metadata, problem) for problem in (*policy.problems, *shape.problems)]
    if shape.spec is None:
        return StepResult(writes=tuple(writes))
    if key.flavour != CRD and _has_replicas(shape.spec):
        writes.append(_event(served, owner.metadata, NATIVE_WITHOUT_REPLICAS))
    else:
        wanted = _workload(served, owner.metadata, shape.spec)
        writes += _update(view, key.flavour, served, owner.metadata, wanted)
    return StepResult(writes=tuple(writes))


def _workload(served: ServedOwner, owner: ObjectMeta, spec: WorkloadSpec) -> Workload:
    reference = OwnerReference(
        api_version=served.resource.api_version,
        kind=served.kind.kind,
        name=owner.name,
        uid=owner.uid,
        controller=True,
    )
    metadata = ObjectMeta(
        name=f"{served.kind.prefix}.{owner.name}",
        namespace=owner.namespace,
        annotations={INSTANTIATE: "true", DERIVED_FROM: f"{served.kind.kind}/{owner.name}"},
        owner_references=(reference,),
    )
    return Workload(metadata=metadata, spec=spec)


def _update(
    view: ClusterView, flavour: str, served: ServedOwner, owner: ObjectMeta, wanted: Workload
) -> Iterator[Write]:
    """Yield the write that makes or resizes a Workload, or the event that says why that is not possible."""
    resource, meta = view.kinds[flavour][Workload], wanted.metadata
    found = view.workloads(flavour).get((meta.namespace, meta.name))
    if found is None:
        body = to_manifest(wanted, native=flavour != CRD) | {"apiVersion": resource.api_version}
        yield Write(verb=Verb.CREATE, resource=resource, target=meta, part="whole", body=body)
    elif not any(one.controller and one.uid == owner.uid for one in found.metadata.owner_references):
        yield _event(served, owner, f"Workload {meta.name} exists and was not made for it; it is left unchanged")
    elif found.spec == wanted.spec:
        return
    elif _without_sizes(found.spec) != _without_sizes(wanted.spec):
        note = f"only the sizes of its tree can change; delete Workload {meta.name} to have it made anew"
        yield _event(served, owner, note)
    else:
        body = {"spec": to_manifest(wanted, native=flavour != CRD)["spec"]}
        yield Write(verb=Verb.MERGE, resource=resource, target=found.metadata, part="templates", body=body)


def _has_replicas(spec: WorkloadSpec) -> bool:
    return any(place.template.replicas is not None for place in walk_templates(Workload(spec=spec)))


def _event(served: ServedOwner, owner: ObjectMeta, note: str) -> Write:
    spec = EventSpec(reason=EVENT_NOT_ADOPTED, note=note, warning=True)
    return Write(
        verb=Verb.EVENT, resource=served.resource, target=owner, part="adoption", body={"note": note}, event=spec
    )


def _without_sizes(spec: WorkloadSpec) -> WorkloadSpec:
    """Return templates without the fields that may change."""
    return WorkloadSpec(
        pod_group_templates=_all_without_sizes(spec.pod_group_templates),
        composite_pod_group_templates=_all_without_sizes(spec.composite_pod_group_templates),
    )


def _all_without_sizes(templates: tuple[Template, ...] | None) -> Any:  # noqa: ANN401  # of the type that is given
    return tuple(map(_template_without_sizes, templates)) if templates is not None else None


def _template_without_sizes(template: Template) -> Template:
    policy = template.scheduling_policy
    if isinstance(template, PodGroupTemplate):
        gang = GangSchedulingPolicy(1) if policy.gang is not None else None
        return replace(template, replicas=None, scheduling_policy=replace(policy, gang=gang))
    inner = CompositeGangSchedulingPolicy(1) if policy.gang is not None else None
    return replace(
        template,
        replicas=None,
        scheduling_policy=replace(policy, gang=inner),
        pod_group_templates=_all_without_sizes(template.pod_group_templates),
        composite_pod_group_templates=_all_without_sizes(template.composite_pod_group_templates),
    )
