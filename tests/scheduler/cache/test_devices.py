"""Objects of dynamic resource allocation: which units they change, and what of them is kept."""

from typing import Any

import pytest
from msgspec import convert
from msgspec.structs import replace

from cpg_api.core.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from cpg_api.core.pod import Pod, PodExtendedResourceClaimStatus, PodResourceClaim, PodResourceClaimStatus
from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_api.parsing import Rejected
from cpg_client.stores import Rejection, Synced
from cpg_engine.testing.builders import node, pod, pod_group
from cpg_scheduler.cache.devices import device_claims_of
from cpg_scheduler.cache.projections import KEPT
from cpg_scheduler.testing.cache import events_of
from cpg_scheduler.testing.stage import KubeObject, Stage

ALLOCATION = {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "x"}]}}
USER = {"resource": "pods", "name": "p", "uid": "uid-default-p"}


def claim(name: str, version: str = "1", meta: dict[str, Any] | None = None, **status: Any) -> ResourceClaim:
    """Return a claim."""
    identity = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": version}
    return convert({"metadata": identity | (meta or {}), "status": status}, ResourceClaim)


def using(name: str, *claims: str, **fields: Any) -> Pod:
    """Return a pod that uses claims by their names."""
    found = pod(name, **fields)
    entries = tuple(PodResourceClaim(name=one, resource_claim_name=one) for one in claims)
    return replace(found, spec=replace(found.spec, resource_claims=entries))


def with_status(found: Pod, **status: Any) -> Pod:
    """Return a pod with fields in its status."""
    return replace(found, status=replace(found.status, **status))


def events(stage: Stage, *things: KubeObject) -> tuple[bool, set[str]]:
    """Put objects; return whether that was any event, and the names of the changed units."""
    found = events_of(stage, *things)
    return found.any_change, {unit.key.name for unit in found.changed_units}


def test_the_claims_of_a_pod_are_those_by_name_from_templates_and_for_extended_resources() -> None:
    """An entry whose claim is not made yet, or that needs none, has no claim."""
    entries = tuple(PodResourceClaim(name=one, resource_claim_template_name="t") for one in ("made", "none", "awaited"))
    found = using("p", "x")
    found = replace(found, spec=replace(found.spec, resource_claims=(*(found.spec.resource_claims or ()), *entries)))
    made = (PodResourceClaimStatus("made", "p-made-1"), PodResourceClaimStatus("none"))
    extended = PodExtendedResourceClaimStatus(resource_claim_name="p-extended")
    assert device_claims_of(found) == {"default/x"}
    found = with_status(found, resource_claim_statuses=made, extended_resource_claim_status=extended)
    assert device_claims_of(found) == {"default/x", "default/p-made-1", "default/p-extended"}
    assert device_claims_of(pod("p")) == frozenset()


def test_a_claim_changes_the_units_that_use_it() -> None:
    """Those with pending pods: as it appears, is allocated or deallocated, has room for users again, or is deleted."""
    stage = Stage(node("n1"), pod_group("pg"), using("m", "x", group="pg"), using("p", "x"), using("q", "y"))
    stage.put(using("there", "x", node_name="n1"))
    full = [USER | {"uid": str(number)} for number in range(256)]
    for changed in (
        claim("x"),
        claim("x", allocation=ALLOCATION),
        claim("x", allocation=ALLOCATION, reservedFor=full),
        claim("x", allocation=ALLOCATION, reservedFor=full[1:]),
        claim("x", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        claim("x", meta={"uid": "another"}),
    ):
        assert events(stage, changed)[1] == {"pg", "p"}
    for same in (claim("x", "2", meta={"uid": "another"}), claim("x", meta={"uid": "another"}, reservedFor=[USER])):
        assert events(stage, same) == (False, set())
    stage.delete(claim("x"))
    assert {unit.key.name for unit in stage.cache.take_events().changed_units} == {"pg", "p"}


def test_devices_that_get_free_are_an_event_for_all() -> None:
    """An allocation is none: it takes devices, and the users of the claim are told."""
    stage = Stage()
    assert events(stage, claim("x")) == (False, set())
    assert events(stage, claim("x", allocation=ALLOCATION)) == (False, set())
    assert events(stage, claim("x")) == (True, set())
    stage.put(claim("x", allocation=ALLOCATION))
    stage.cache.take_events()
    stage.delete(claim("x"))
    assert stage.cache.take_events().any_change


def test_a_pod_of_which_a_claim_is_made_has_changed() -> None:
    """The controller makes it after the pod; so for the special claim of extended resources."""
    stage = Stage(pod("p"))
    made = with_status(pod("p"), resource_claim_statuses=(PodResourceClaimStatus("e", "p-e"),))
    assert events(stage, made)[1] == {"p"}
    extended = PodExtendedResourceClaimStatus(resource_claim_name="p-extended")
    assert events(stage, with_status(pod("p"), extended_resource_claim_status=extended))[1] == {"p"}
    assert stage.cache.devices._users == {"default/p-extended": {"uid-default-p"}}
    stage.delete(stage.pod("p"))
    assert stage.cache.devices._users == {}


@pytest.mark.parametrize("kind", [DeviceClass, ResourceSlice, DeviceTaintRule])
def test_slices_classes_and_taint_rules_are_events(kind: type[Any]) -> None:
    """If they change; their deletion too."""
    stage, found = Stage(), kind(metadata=ObjectMeta(name="x"))
    assert events(stage, found) == (True, set())
    assert events(stage, found) == (False, set())
    stage.delete(found)
    assert stage.cache.take_events().any_change
    catalog = stage.cache.devices.catalog
    assert (catalog.classes, catalog.slices, catalog.taint_rules) == ({}, {}, {})


def test_an_object_that_cannot_be_decoded_is_absent() -> None:
    """The end of the first list is no change."""
    stage = Stage(claim("x", allocation=ALLOCATION))
    stage.cache.take_events()
    stage.cache.devices.on_claim(Synced())
    assert not stage.cache.take_events().any_change
    stage.cache.devices.on_claim(Rejection("default/x", ()))
    assert (stage.cache.take_events().any_change, stage.cache.devices.catalog.claims) == (True, {})
    stage.cache.devices.on_claim(Rejection("", ()))  # its name cannot be read


def test_versions_finalizers_and_conditions_are_no_matter_of_the_catalog() -> None:
    """They are for what is written before a bind."""
    stage = Stage(claim("x"))
    version = stage.cache.devices.catalog.version
    devices = [{"driver": "d", "pool": "p", "device": "x"}]
    stage.put(changed := claim("x", "2", meta={"finalizers": ["f"]}, devices=devices))
    assert stage.cache.devices.catalog.version == version
    assert stage.cache.devices.claims == {"default/x": changed}
    assert [stage.cache.versions.is_seen("uid-x", number) for number in (2, 3)] == [True, False]
    stage.delete(changed)
    assert not stage.cache.versions.is_seen("uid-x", 1)


def test_what_is_kept_of_a_claim() -> None:
    """Its controller, finalizers and version; of one that is too large the devices that it has."""
    owners = (OwnerReference(name="p", controller=True), OwnerReference(name="q"))
    meta = ObjectMeta(name="x", labels={"a": "b"}, annotations={"a": "b"}, owner_references=owners, finalizers=("f",))
    found, kept = (
        claim("x", allocation=ALLOCATION | {"devices": {"config": [{"source": "FromClaim"}]}}),
        KEPT[ResourceClaim],
    )
    slim = kept.project(replace(found, metadata=meta))
    assert slim.metadata == replace(meta, labels={}, annotations={}, owner_references=owners[:1])
    assert kept.reduce is not None
    assert kept.reduce(found).status.allocation.devices.config is None
    assert isinstance(kept.reduce(claim("x")), Rejected)


def test_a_slice_is_kept_without_its_version() -> None:
    """A change of its metadata is none of its devices."""
    found = KEPT[ResourceSlice].project(
        ResourceSlice(metadata=ObjectMeta(name="s", resource_version="1", generation=2))
    )
    assert found == ResourceSlice(metadata=ObjectMeta(name="s"))
