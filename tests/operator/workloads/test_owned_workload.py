"""The Workload of each kind of owner, in both flavours."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from cpg_api.integrations import job, jobset, leaderworkerset, ray
from cpg_api.integrations.policy import (
    PREFERRED,
    REPLICA_BY,
    REPLICA_PREFERRED,
    REPLICA_REQUIRED,
    REQUIRED,
    read_policy,
)
from cpg_api.integrations.trees import OwnerKind
from cpg_api.manifests import to_manifest
from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.forest import Group, key_of, parent_of
from cpg_api.scheduling.names import API_VERSION, REPLICAS, SCHEDULER_NAME, TEMPLATE_HASH
from cpg_api.scheduling.policies import SchedulingConstraints
from cpg_api.scheduling.replicas import with_replicas
from cpg_api.scheduling.templates import walk_templates
from cpg_api.scheduling.workload import Workload
from cpg_client.flavours import CRD, NATIVE
from cpg_client.resources import Resource
from cpg_operator.workloads.owned_workload import has_other_templates, sizes, workload_of
from cpg_operator.workloads.plan import desired_groups

Plain = dict[str, Any]
POD: Plain = {"spec": {"schedulerName": SCHEDULER_NAME}}
JOB: Plain = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": POD}
JOBSET: Plain = {
    "replicatedJobs": [{"name": name, "replicas": 2, "template": {"spec": JOB}} for name in ("driver", "workers")]
}
LWS: Plain = {"replicas": 3, "leaderWorkerTemplate": {"size": 2, "workerTemplate": POD}}
SUBGROUPS: Plain = {
    "replicas": 2,
    "leaderWorkerTemplate": {"size": 5, "workerTemplate": POD, "subGroupPolicy": {"subGroupSize": 2}},
}
RAY: Plain = {
    "headGroupSpec": {"template": POD},
    "workerGroupSpecs": [{"groupName": "cpu", "replicas": 2, "template": POD}],
}
OWNERS = [
    (job.KIND, JOB, {}),
    (jobset.KIND, JOBSET, {}),
    (jobset.KIND, JOBSET, {REPLICA_BY: "job-index"}),
    (leaderworkerset.KIND, LWS, {}),
    (leaderworkerset.KIND, SUBGROUPS, {leaderworkerset.SUBGROUP_TOPOLOGY: "rack"}),
    (ray.KIND, RAY, {}),
]


def made(kind: OwnerKind, spec: Plain, annotations: dict[str, str], *, native: bool) -> Workload:
    """Return the Workload of an owner, as the API server would give it back."""
    meta = ObjectMeta(name="o", namespace="default", uid="u", annotations=annotations)
    owner = msgspec.convert({"spec": spec}, kind.type)
    shape = kind.shape(replace(owner, metadata=meta), read_policy(annotations), frozenset({SCHEDULER_NAME}))
    assert shape.spec is not None
    resource = Resource(kind.group, kind.versions[0], kind.plural, kind.kind)
    found = workload_of(meta, resource, kind, f"{kind.prefix}.{meta.name}", shape, native=native)
    return msgspec.convert(to_manifest(found, native=native), Workload)


def tree(workload: Workload | None) -> list[tuple[object, ...]]:
    """Return what matters of each group."""
    assert workload is not None
    groups: list[Group] = list(desired_groups(workload, api_version=API_VERSION, native=False))
    return [(key_of(one), parent_of(one), one.minimum, one.spec.scheduling_constraints) for one in groups]


@pytest.mark.parametrize(("kind", "spec", "annotations"), OWNERS)
def test_every_kind_gets_the_same_tree_in_both_flavours(
    kind: OwnerKind, spec: Plain, annotations: dict[str, str]
) -> None:
    """Though templates of the built-in API have no replicas."""
    annotations = {**annotations, REQUIRED: "block", REPLICA_REQUIRED: "rack"}
    ours, native = (made(kind, spec, annotations, native=native) for native in (False, True))
    assert all(place.template.replicas is None for place in walk_templates(native))
    assert REPLICAS not in ours.metadata.annotations
    assert tree(with_replicas(native)) == tree(ours)


def test_a_preferred_topology_is_not_for_the_built_in_api() -> None:
    """It has no field for it; the required one stays."""
    annotations = {PREFERRED: "rack", REPLICA_REQUIRED: "rack", REPLICA_PREFERRED: "host"}
    native = made(jobset.KIND, JOBSET, annotations, native=True)
    constraints = {place.template.name: place.template.scheduling_constraints for place in walk_templates(native)}
    assert constraints["root"] is None
    assert isinstance(constraints["workers"], SchedulingConstraints)
    assert constraints["workers"].preferred_topology is None


LARGER: Plain = {**LWS, "leaderWorkerTemplate": {"size": 4, "workerTemplate": POD}}


@pytest.mark.parametrize(
    ("spec", "annotations", "change"),
    [({**LWS, "replicas": 5}, {}, "sizes"), (LARGER, {}, "sizes"), (LWS, {REQUIRED: "block"}, "templates")],
)
@pytest.mark.parametrize("flavour", [CRD, NATIVE])
def test_sizes_are_told_from_the_rest(spec: Plain, annotations: dict[str, str], change: str, flavour: str) -> None:
    """By the hash, or by the templates of a Workload without one."""
    native = flavour == NATIVE
    found = made(leaderworkerset.KIND, LWS, {}, native=native)
    wanted = made(leaderworkerset.KIND, spec, annotations, native=native)
    bare = {name: value for name, value in found.metadata.annotations.items() if name != TEMPLATE_HASH}
    for one in (found, replace(found, metadata=replace(found.metadata, annotations=bare))):
        assert has_other_templates(one, wanted) == (change == "templates")
        assert not has_other_templates(one, found)
    assert (sizes(found) != sizes(wanted)) == (change == "sizes")
