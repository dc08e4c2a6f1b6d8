"""Pods' volumes, claims, volumes and storage classes, compiled."""

import pytest

from cpg_api.core.pod import Pod
from cpg_api.core.volumes import PersistentVolume, PodVolume, StorageClass
from cpg_api.meta import ObjectMeta
from cpg_api.quantity import INT64_MAX
from cpg_engine.cluster.pod_classes import signature
from cpg_engine.cluster.volumes import (
    CLASS_ANNOTATION,
    ClaimInfo,
    ClaimUse,
    PodVolumes,
    StorageClassInfo,
    VolumeHandle,
    VolumeInfo,
    pod_volumes,
)
from cpg_engine.testing import storage_builders
from cpg_engine.testing.builders import pod
from cpg_engine.testing.storage_builders import DRIVER, ephemeral, inline, using

ZONE = "topology.kubernetes.io/zone"
OLD_REGION = "failure-domain.beta.kubernetes.io/region"


@pytest.mark.parametrize(
    ("volumes", "expected"),
    [
        (None, None),
        ((), None),
        ((PodVolume(name="scratch"),), None),
        (inline(""), None),
        (using("c"), PodVolumes("default", claims=(ClaimUse("c"),))),
        (using(""), PodVolumes("default", claims=(ClaimUse(""),))),
        (ephemeral("data"), PodVolumes("default", claims=(ClaimUse("p-data", owner="uid-default-p"),))),
        (inline("b", "a", "b"), PodVolumes("default", inline=(("a", 1), ("b", 2)))),
    ],
)
def test_the_claims_and_inline_volumes_of_a_pod(
    volumes: tuple[PodVolume, ...] | None, expected: PodVolumes | None
) -> None:
    """Kinds of volumes that no filter reads are left out."""
    assert expected == pod_volumes(pod("p", volumes=volumes))


def test_a_claim_used_twice_is_one_claim() -> None:
    """Mounting one claim as two volumes makes no second use of it."""
    found = pod_volumes(pod("p", volumes=using("c", "c")))
    assert found is not None
    assert found.keys == {"default/c"}


def test_pods_with_ephemeral_volumes_are_known_by_name_and_uid() -> None:
    """A recreated pod of the same name does not own the claims of the old one."""
    again = Pod(metadata=ObjectMeta(name="p", namespace="default", uid="other"), spec=pod("p").spec)
    assert signature(pod("p")) == signature(again)
    old, new = (pod("p", meta=found.metadata, volumes=ephemeral("data")) for found in (pod("p"), again))
    assert signature(old) != signature(new)


@pytest.mark.parametrize(
    ("size", "expected"),
    [("1Gi", 2**30), (None, 0), (5, 5), ("a lot", INT64_MAX), ("-1", -1), ("9e99", INT64_MAX)],
)
def test_the_size_of_a_claim(size: str | float | None, expected: int) -> None:
    """A malformed size fits into no volume."""
    assert ClaimInfo.compile(storage_builders.claim("c", size=size)).requirements.size == expected


@pytest.mark.parametrize(("size", "expected"), [("1Gi", 2**30), (None, 0), ("a lot", -1), ("-1", -1)])
def test_the_capacity_of_a_volume(size: str | None, expected: int) -> None:
    """A malformed capacity holds nothing."""
    assert VolumeInfo.compile(storage_builders.volume("v", size=size)).capacity == expected


def test_a_claim_is_bound_when_both_sides_say_so() -> None:
    """A volume name without the annotation is no binding."""
    wished = ClaimInfo.compile(storage_builders.claim("c"))
    assert not wished.is_bound
    assert ClaimInfo.compile(storage_builders.claim("c", bound_to="v")).is_bound
    bare = storage_builders.claim("c", bound_to="v")
    assert not ClaimInfo.compile(type(bare)(metadata=ObjectMeta(name="c"), spec=bare.spec)).is_bound


def test_the_old_annotation_names_the_storage_class() -> None:
    """It overrides the field, as everywhere in Kubernetes."""
    claim = storage_builders.claim("c", storage_class="new", annotations={CLASS_ANNOTATION: "old"})
    assert ClaimInfo.compile(claim).requirements.storage_class == "old"
    assert ClaimInfo.compile(storage_builders.claim("c", storage_class=None)).requirements.storage_class == ""


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, ()),
        ({ZONE: "a"}, ((ZONE, {"a"}),)),
        ({ZONE: "a__b"}, ((ZONE, {"a", "b"}),)),
        ({ZONE: "a__ b "}, ((ZONE, {"a", "b"}),)),
        ({ZONE: "a__"}, ()),
        ({ZONE: ""}, ()),
        ({ZONE: "a", OLD_REGION: "r"}, ((OLD_REGION, {"r"}), (ZONE, {"a"}))),
    ],
)
def test_the_zones_of_a_volume(labels: dict[str, str], expected: tuple[tuple[str, set[str]], ...]) -> None:
    """Labels name one zone or several; a set with an empty part is ignored."""
    assert dict(VolumeInfo.compile(storage_builders.volume("v", labels=labels)).zones) == dict(expected)


def test_the_handle_of_a_volume() -> None:
    """A CSI volume has a driver and a handle, others have none."""
    assert VolumeInfo.compile(storage_builders.volume("v", handle="h")).handle == VolumeHandle(DRIVER, "h")
    assert VolumeInfo.compile(storage_builders.volume("v")).handle is None


@pytest.mark.parametrize(
    ("volume", "fits"),
    [
        (storage_builders.volume("v"), True),
        (storage_builders.volume("v", size="2Gi"), True),
        (storage_builders.volume("v", size="1Mi"), False),
        (storage_builders.volume("v", modes=("ReadWriteOnce", "ReadOnlyMany")), True),
        (storage_builders.volume("v", modes=("ReadOnlyMany",)), False),
        (storage_builders.volume("v", volume_mode="Filesystem"), True),
        (storage_builders.volume("v", volume_mode="Block"), False),
        (storage_builders.volume("v", phase="Released"), False),
        (storage_builders.volume("v", deleted="2026-01-01T00:00:00Z"), False),
        (storage_builders.volume("v", claimed_by="c"), False),
    ],
)
def test_which_volumes_any_claim_may_have(volume: PersistentVolume, *, fits: bool) -> None:
    """A volume has to be available, large enough, of the volume mode, and offer all access modes that are requested."""
    assert VolumeInfo.compile(volume).fits(ClaimInfo.compile(storage_builders.claim("c")).requirements) is fits


@pytest.mark.parametrize(
    ("name", "uid", "expected"), [("c", "", True), ("c", "uid-c", True), ("c", "other", False), ("d", "", False)]
)
def test_for_which_claim_a_volume_is_reserved(name: str, uid: str, *, expected: bool) -> None:
    """The name has to be that of the claim, and so has the UID if there is one."""
    volume = VolumeInfo.compile(storage_builders.volume("v", claimed_by=name, claim_uid=uid))
    assert volume.is_for(ClaimInfo.compile(storage_builders.claim("c"))) is expected


@pytest.mark.parametrize(
    ("found", "late", "makes"),
    [
        (storage_builders.storage_class(), True, False),
        (storage_builders.storage_class(provisioner=""), True, False),
        (storage_builders.storage_class(provisioner=DRIVER), True, True),
        (storage_builders.storage_class(provisioner=DRIVER, mode="Immediate"), False, True),
        (storage_builders.storage_class(mode=""), False, False),
    ],
)
def test_what_a_storage_class_does(found: StorageClass, *, late: bool, makes: bool) -> None:
    """It binds at once or waits for the first consumer, and provisions volumes if it names a provisioner."""
    compiled = StorageClassInfo.compile(found)
    assert (compiled.is_delayed, compiled.can_provision) == (late, makes)
