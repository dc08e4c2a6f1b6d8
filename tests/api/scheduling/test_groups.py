"""Workloads and groups on the wire, in both flavours."""

import json
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from cpg_api.parsing import Rejected, parse_list, parse_object
from cpg_api.scheduling.compositepodgroup import CompositePodGroup, CompositePodGroupSpec
from cpg_api.scheduling.podgroup import PodGroup, PodGroupSpec
from cpg_api.scheduling.policies import (
    AllDisruptionMode,
    CompositeGangSchedulingPolicy,
    CompositePodGroupSchedulingPolicy,
    DisruptionMode,
    GangSchedulingPolicy,
    PodGroupSchedulingPolicy,
    SchedulingConstraints,
    TopologyConstraint,
    WorkloadReference,
)
from cpg_api.scheduling.workload import CompositePodGroupTemplate, PodGroupTemplate, Workload
from cpg_engine.testing.builders import composite, leaf_policy, pod_group

T = TypeVar("T", Workload, PodGroup, CompositePodGroup)

NATIVE: dict[str, Any] = json.loads(Path(__file__).with_name("native.json").read_bytes())
"""Three LISTs as kube-apiserver 1.37.1 served them in ``scheduling.k8s.io/v1alpha3``, unchanged except for blanks."""

ALL = DisruptionMode(all=AllDisruptionMode())
ZONE = SchedulingConstraints(topology=(TopologyConstraint(key="topology.kubernetes.io/zone"),))


def native(plural: str, kind: type[T]) -> T:
    """Return the only object of a native LIST."""
    page = parse_list(json.dumps(NATIVE[plural]).encode(), kind)
    assert page.rejected == ()
    (found,) = page.items
    return found


@pytest.mark.parametrize(("gang", "minimum"), [(4, 4), (1, 1), (None, 1)])
def test_the_minimum_of_a_basic_group_is_one(gang: int | None, minimum: int) -> None:
    """The minimum of a gang counts pods in a PodGroup, and child groups above."""
    assert pod_group("g", gang=gang).minimum == minimum
    assert composite("c", gang=gang).minimum == minimum


def test_a_group_is_encoded_with_the_names_of_the_contract() -> None:
    """They are the native ones: moving to native is a change of apiVersion."""
    leaf = pod_group("g", gang=2, parent="c", key="zone", all_=True)
    assert json.loads(msgspec.json.encode(leaf))["spec"] == {
        "parentCompositePodGroupName": "c",
        "workloadRef": {"workloadName": "w", "templateName": "g"},
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "schedulingConstraints": {"topology": [{"key": "zone"}]},
        "disruptionMode": {"all": {}},
        "priority": 0,
    }
    inner = json.loads(msgspec.json.encode(composite("c", gang=3)))["spec"]
    assert inner["schedulingPolicy"] == {"gang": {"minGroupCount": 3}}
    assert inner["disruptionMode"] == {"single": {}}


def test_a_basic_policy_is_an_empty_object() -> None:
    """The member of a union is set by its presence."""
    assert msgspec.json.encode(leaf_policy(None)) == b'{"basic":{}}'
    assert msgspec.json.decode(b'{"basic":{}}', type=PodGroupSchedulingPolicy) == leaf_policy(None)


def test_a_native_pod_group_is_decoded() -> None:
    """Every field of a real object."""
    found = native("podgroups", PodGroup)
    assert (found.metadata.key, found.metadata.finalizers, found.minimum) == (
        "default/replica-0-workers",
        ("scheduling.k8s.io/podgroup-protection",),
        4,
    )
    assert found.spec == PodGroupSpec(
        parent_composite_pod_group_name="replica-0",
        workload_ref=WorkloadReference(workload_name="training", template_name="workers"),
        scheduling_policy=PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=4)),
        disruption_mode=ALL,
        priority=0,
        preemption_policy="PreemptLowerPriority",
    )


def test_a_native_composite_pod_group_is_decoded() -> None:
    """Every field of a real object."""
    found = native("compositepodgroups", CompositePodGroup)
    assert (found.metadata.key, found.minimum) == ("default/replica-0", 2)
    assert found.spec == CompositePodGroupSpec(
        workload_ref=WorkloadReference(workload_name="training", template_name="replica"),
        scheduling_policy=CompositePodGroupSchedulingPolicy(gang=CompositeGangSchedulingPolicy(min_group_count=2)),
        scheduling_constraints=ZONE,
        disruption_mode=ALL,
        priority=0,
        preemption_policy="PreemptLowerPriority",
    )


def test_a_native_workload_is_decoded_with_its_nulls() -> None:
    """Kubernetes writes null for absent lists and constraints."""
    assert NATIVE["workloads"]["items"][0]["spec"]["podGroupTemplates"] is None
    found = native("workloads", Workload)
    leaf = PodGroupTemplate(
        name="workers",
        scheduling_policy=PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=4)),
        scheduling_constraints=None,
        disruption_mode=ALL,
    )
    top = CompositePodGroupTemplate(
        name="replica",
        scheduling_policy=CompositePodGroupSchedulingPolicy(gang=CompositeGangSchedulingPolicy(min_group_count=2)),
        scheduling_constraints=ZONE,
        disruption_mode=ALL,
        pod_group_templates=(leaf,),
    )
    assert (found.spec.pod_group_templates, found.spec.composite_pod_group_templates) == (None, (top,))
    assert found.spec.controller_ref is not None
    assert (found.spec.controller_ref.api_group, found.spec.controller_ref.kind) == ("batch", "Job")


@pytest.mark.parametrize("kind", [PodGroup, CompositePodGroup])
def test_every_optional_field_may_be_null(kind: type[PodGroup | CompositePodGroup]) -> None:
    """Clients in Go, and users, write nulls."""
    field = "minCount" if kind is PodGroup else "minGroupCount"
    bare = f'{{"spec":{{"schedulingPolicy":{{"gang":{{"{field}":2}}}}}}}}'.encode()
    names = [one.encode_name for one in msgspec.structs.fields(kind.__annotations__["spec"].__origin__)]
    nulls = {name: None for name in names if name != "schedulingPolicy"}
    spec = {**nulls, "schedulingPolicy": {"basic": None, "gang": {field: 2}}}
    found = parse_object(json.dumps({"metadata": None, "spec": spec, "status": None}).encode(), kind)
    assert found == parse_object(bare, kind)
    assert not isinstance(found, Rejected)


@pytest.mark.parametrize("kind", [PodGroup, CompositePodGroup])
def test_a_group_may_have_only_a_template_reference(kind: type[PodGroup | CompositePodGroup]) -> None:
    """Its minimum is one until it takes the policy from its template."""
    spec = '{"workloadRef":{"workloadName":"w","templateName":"t"}}'
    found = parse_object(f'{{"metadata":{{"name":"g"}},"spec":{spec}}}'.encode(), kind)
    assert not isinstance(found, Rejected)
    assert (found.spec.scheduling_policy, found.minimum) == (None, 1)
