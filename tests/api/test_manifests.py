"""Objects as manifests, and back."""

import json
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpg_api.manifests import EXTENSIONS, SchedulingObject, to_manifest
from cpg_api.meta import Condition
from cpg_api.parsing import convert_object, parse_object
from cpg_api.scheduling.compositepodgroup import CompositePodGroup, CompositePodGroupStatus
from cpg_api.scheduling.podgroup import PodGroup, PodGroupStatus
from cpg_api.scheduling.policies import SchedulingConstraints, TopologyConstraint
from cpg_api.scheduling.statuses import GroupCounts, PodCounts, TopologyDomain
from cpg_api.scheduling.workload import PodGroupTemplate, Workload, WorkloadSpec, WorkloadStatus
from cpg_engine.testing.builders import composite, inner_template, leaf_policy, leaf_template, pod_group, workload

RACK = (TopologyConstraint(key="rack"),)
EXTENDED = SchedulingConstraints(topology=(TopologyConstraint(key="block"),), preferred_topology=RACK)
HEALTHY = (Condition(type="Healthy", status="True", reason="Met"),)
DOMAIN = TopologyDomain(key="block", value="b1")


def extended_group() -> PodGroup:
    """Return a PodGroup with every extension, and a label with the name of one."""
    group = pod_group("g", parent="c")
    return PodGroup(
        metadata=msgspec.structs.replace(group.metadata, labels={"pods": "kept"}),
        spec=msgspec.structs.replace(group.spec, scheduling_constraints=EXTENDED),
        status=PodGroupStatus(conditions=HEALTHY, pods=PodCounts(desired=1), domain=DOMAIN),
    )


def test_a_manifest_has_version_and_kind() -> None:
    """Fields with their default value are left out."""
    assert to_manifest(pod_group("g", gang=2)) == {
        "apiVersion": "scheduling.cpg.dev/v1alpha3",
        "kind": "PodGroup",
        "metadata": {
            "name": "g",
            "namespace": "default",
            "uid": "uid-default-g",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": 2}},
            "disruptionMode": {"single": {}},
            "priority": 0,
        },
    }
    assert list(to_manifest(composite("c")))[:2] == ["apiVersion", "kind"]


@pytest.mark.parametrize(
    ("found", "kind"), [(pod_group("g"), "PodGroup"), (composite("c"), "CompositePodGroup"), (workload([]), "Workload")]
)
def test_every_kind_has_both_flavours(found: SchedulingObject, kind: str) -> None:
    """The flavours differ only by the API group."""
    ours, native = to_manifest(found), to_manifest(found, native=True)
    assert (ours["apiVersion"], native["apiVersion"]) == ("scheduling.cpg.dev/v1alpha3", "scheduling.k8s.io/v1alpha3")
    assert ours["kind"] == native["kind"] == kind
    assert {**ours, "apiVersion": ""} == {**native, "apiVersion": ""}


def test_extensions_are_kept_in_our_flavour() -> None:
    """The manifest decodes to the same object."""
    group = extended_group()
    assert to_manifest(group)["spec"]["schedulingConstraints"]["preferredTopology"] == [{"key": "rack"}]
    assert convert_object(to_manifest(group), PodGroup) == group


def test_extensions_are_left_out_of_the_native_flavour() -> None:
    """Other fields stay, including a label of the same name."""
    plain = to_manifest(extended_group(), native=True)
    assert plain["spec"]["schedulingConstraints"] == {"topology": [{"key": "block"}]}
    assert plain["status"] == {"conditions": [{"type": "Healthy", "status": "True", "reason": "Met"}]}
    assert plain["metadata"]["labels"] == {"pods": "kept"}
    counts = CompositePodGroupStatus(groups=GroupCounts(ready=1), pods=PodCounts(), domain=DOMAIN)
    assert to_manifest(CompositePodGroup(spec=composite("c").spec, status=counts), native=True)["status"] == {}


def test_a_native_workload_has_no_status_and_no_preferred_topology() -> None:
    """Both are extensions."""
    template = PodGroupTemplate(name="t", scheduling_policy=leaf_policy(1), scheduling_constraints=EXTENDED)
    found = Workload(spec=WorkloadSpec(pod_group_templates=(template,)), status=WorkloadStatus(conditions=HEALTHY))
    assert convert_object(to_manifest(found), Workload) == found
    plain = to_manifest(found, native=True)
    assert "status" not in plain
    (written,) = plain["spec"]["podGroupTemplates"]
    assert written["schedulingConstraints"] == {"topology": [{"key": "block"}]}


@pytest.mark.parametrize(
    "kind", [SchedulingConstraints, PodGroup, CompositePodGroup, Workload, PodGroupStatus, CompositePodGroupStatus]
)
def test_every_field_described_as_extension_is_listed(kind: type[msgspec.Struct]) -> None:
    """A new extension cannot be forgotten. The status of a Workload is handled separately."""
    hints = get_type_hints(kind, include_extras=True)
    described = {
        field.encode_name
        for field in msgspec.structs.fields(kind)
        if get_origin(hint := hints[field.name]) is Annotated
        and any(meta.description.startswith("kube-cpg extension") for meta in get_args(hint)[1:])
    }
    assert described - {"status"} <= EXTENSIONS
    assert ("status" in described) is (kind is Workload)


def test_a_manifest_is_plain_data() -> None:
    """It has dictionaries and lists only, which YAML and JSON write alike."""
    plain = to_manifest(workload([inner_template("top", [leaf_template("a"), leaf_template("b")])]))
    assert json.loads(json.dumps(plain)) == plain


KEYS = st.none() | st.sampled_from(["zone", "example.com/rack"])
GANGS = st.none() | st.integers(1, 2**31 - 1)
COMMON: dict[str, st.SearchStrategy[Any]] = {
    "gang": GANGS,
    "parent": st.none() | st.just("p"),
    "template": st.none() | st.just("t"),
    "key": KEYS,
    "all_": st.booleans(),
    "priority": st.none() | st.integers(-(2**31), 10**9),
}
GROUPS: st.SearchStrategy[SchedulingObject] = st.one_of(
    st.builds(pod_group, st.just("g"), workload=st.none() | st.just("w"), **COMMON),
    st.builds(composite, st.just("c"), workload=st.just("w"), **COMMON),
    st.builds(lambda gang: workload([inner_template("t", [leaf_template("l", gang=gang)], gang=gang)]), GANGS),
)
"""Objects of all three kinds."""


@given(GROUPS, st.booleans())
def test_any_object_survives_the_round_trip(found: SchedulingObject, native: bool) -> None:  # noqa: FBT001 - drawn
    """An object without extensions is the same in both flavours."""
    plain = to_manifest(found, native=native)
    assert convert_object(plain, type(found)) == found
    assert parse_object(json.dumps(plain).encode(), type(found)) == found
