"""The catalog of storage."""

from collections.abc import Callable

import pytest

from cpg_engine.cluster import storage
from cpg_engine.cluster.storage import NO_LIMIT, ResolvedVolumes, StorageCatalog
from cpg_engine.cluster.volumes import ClaimUse, PodVolumes, VolumeHandle, pod_volumes
from cpg_engine.testing import storage_builders
from cpg_engine.testing.builders import pod
from cpg_engine.testing.storage_builders import DRIVER, LOCAL, ephemeral, stock, using

Change = Callable[[StorageCatalog], None]
DELETED = "2026-01-01T00:00:00Z"


def asked(*claims: str) -> PodVolumes:
    """Return the volumes of a pod that uses these claims."""
    found = pod_volumes(pod("p", volumes=using(*claims)))
    assert found is not None
    return found


def resolved(*objects: storage_builders.Stored, volumes: PodVolumes | None = None) -> ResolvedVolumes:
    """Return the volumes of a pod, resolved with a catalog of these objects."""
    return stock(StorageCatalog(), *objects).resolve(volumes or asked("c"))


@pytest.mark.parametrize(
    ("put", "remove"),
    [
        (lambda one: one.put_claim(storage_builders.claim("c")), lambda one: one.remove_claim("default", "c")),
        (lambda one: one.put_volume(storage_builders.volume("v")), lambda one: one.remove_volume("v")),
        (lambda one: one.put_class(storage_builders.storage_class()), lambda one: one.remove_class(LOCAL)),
        (lambda one: one.put_csi_node(storage_builders.csi_node("n")), lambda one: one.remove_csi_node("n")),
    ],
)
def test_the_version_changes_with_every_change(put: Change, remove: Change) -> None:
    """An object that comes again unchanged, or is removed without having been there, is no change."""
    storage = StorageCatalog()
    versions = []
    for change in (remove, put, put, remove, remove):
        change(storage)
        versions.append(storage.version)
    assert versions == [0, 1, 1, 2, 2]


def test_fields_that_scheduling_does_not_read_are_no_change() -> None:
    """A claim's phase from Pending to Bound changes nothing without its binding."""
    storage = StorageCatalog()
    storage.put_claim(storage_builders.claim("c", phase="Pending"))
    storage.put_claim(storage_builders.claim("c", phase="Bound"))
    assert storage.version == 1


@pytest.mark.parametrize(
    ("objects", "problem"),
    [
        ((), 'persistentvolumeclaim "c" not found'),
        (
            (storage_builders.claim("c", phase="Lost", bound_to="v"),),
            'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"',
        ),
        ((storage_builders.claim("c", deleted=DELETED),), 'persistentvolumeclaim "c" is being deleted'),
        ((storage_builders.claim("c"),), "pod has unbound immediate PersistentVolumeClaims"),
        ((storage_builders.claim("c", storage_class=None),), "pod has unbound immediate PersistentVolumeClaims"),
        (
            (storage_builders.claim("c"), storage_builders.storage_class(mode="Immediate")),
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        ((storage_builders.claim("c", bound_to="v"),), 'persistentvolume "v" not found'),
        ((storage_builders.claim("c", bound_to="v"), storage_builders.volume("v")), ""),
        ((storage_builders.claim("c"), storage_builders.storage_class()), ""),
    ],
)
def test_why_a_pod_has_to_wait(objects: tuple[storage_builders.Stored, ...], problem: str) -> None:
    """A pod can be scheduled only with claims that are bound, or wait for their first consumer."""
    assert resolved(*objects).problem == problem


def test_a_claim_that_names_its_volume_is_bound_by_others() -> None:
    """The scheduler does not bind a claim that names a volume, even if its class waits for the first consumer."""
    bare = storage_builders.claim("c", bound_to="v")
    wish = type(bare)(metadata=storage_builders.claim("c").metadata, spec=bare.spec)
    assert (
        resolved(wish, storage_builders.storage_class()).problem == "pod has unbound immediate PersistentVolumeClaims"
    )


def test_an_empty_claim_name_is_not_found() -> None:
    """Nothing in a pod's volumes breaks the catalog."""
    assert resolved(volumes=asked("")).problem == 'persistentvolumeclaim "" not found'


def test_the_first_problem_is_reported() -> None:
    """It is that of the pod's first volume with one."""
    assert (
        resolved(storage_builders.claim("c"), volumes=asked("c", "d", "e")).problem
        == 'persistentvolumeclaim "d" not found'
    )


def test_an_ephemeral_volume_has_a_claim_of_its_own() -> None:
    """The pod waits for it, and a claim with another owner is not used."""
    mine = pod("p", volumes=ephemeral("data"))
    volumes = pod_volumes(mine)
    late = storage_builders.storage_class()
    waits = resolved(late, volumes=volumes).problem
    assert waits == 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-data"'
    foreign = resolved(late, storage_builders.claim("p-data", owner=pod("q")), volumes=volumes).problem
    assert foreign == "PVC default/p-data was not created for the pod (pod is not owner)"
    assert resolved(late, storage_builders.claim("p-data", owner=mine), volumes=volumes).problem == ""


def test_delayed_claims_come_smallest_first() -> None:
    """So a small claim does not take the volume that a large one needs."""
    claims = (
        storage_builders.claim("a", size="3Gi"),
        storage_builders.claim("b", size="1Gi"),
        storage_builders.claim("c", size="1Gi"),
    )
    found = resolved(storage_builders.storage_class(), *claims, volumes=asked("c", "a", "b"))
    assert [claim.key for claim in found.delayed] == ["default/b", "default/c", "default/a"]


def test_exclusive_claims_are_returned() -> None:
    """They are those that only one pod may use."""
    exclusive, shared = storage_builders.claim("c", modes=("ReadWriteOncePod",)), storage_builders.claim("d")
    found = resolved(storage_builders.storage_class(), exclusive, shared, volumes=asked("c", "d"))
    assert found.exclusive == ("default/c",)


@pytest.mark.parametrize(
    ("objects", "handle"),
    [
        ((), None),
        (
            (storage_builders.claim("c", bound_to="v"), storage_builders.volume("v", handle="h")),
            VolumeHandle(DRIVER, "h"),
        ),
        ((storage_builders.claim("c", bound_to="v"), storage_builders.volume("v")), None),
        ((storage_builders.claim("c"),), None),
        ((storage_builders.claim("c"), storage_builders.storage_class(provisioner="")), None),
        (
            (storage_builders.claim("c"), storage_builders.storage_class(provisioner=DRIVER)),
            VolumeHandle(DRIVER, "default/c", made=False),
        ),
        (
            (storage_builders.claim("c", bound_to="gone"), storage_builders.storage_class(provisioner=DRIVER)),
            VolumeHandle(DRIVER, "default/c", made=False),
        ),
    ],
)
def test_what_a_claim_attaches(objects: tuple[storage_builders.Stored, ...], handle: VolumeHandle | None) -> None:
    """It is the volume by its handle, or, before there is one, a volume of the driver that would provision it."""
    assert stock(StorageCatalog(), *objects).handle_of("default/c") == handle


@pytest.mark.parametrize(("count", "limit"), [(None, NO_LIMIT), (3, 3), (0, 0), (-7, -1), (10**30, NO_LIMIT)])
def test_the_limit_of_a_driver(count: int | None, limit: int) -> None:
    """Limits beyond reason are reduced to what an array can hold."""
    storage = StorageCatalog()
    storage.put_csi_node(storage_builders.csi_node("n", limit=count, keys=("b", "a", "b")))
    assert storage.drivers["n"][DRIVER].limit == limit
    assert storage.drivers["n"][DRIVER].keys == ("a", "b")


def test_a_catalog_caches_its_answers() -> None:
    """They are kept until something changes."""
    storage = StorageCatalog()
    storage.put_claim(storage_builders.claim("c"))
    first = storage.resolve(asked("c"))
    assert storage.resolve(asked("c")) is first
    storage.put_class(storage_builders.storage_class())
    assert storage.resolve(asked("c")).problem == ""


def test_cached_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods may name claims that never exist, so that the catalog never changes."""
    monkeypatch.setattr(storage, "MAX_CACHED_VOLUMES", 5)
    catalog = StorageCatalog()
    for number in range(20):
        assert "not found" in catalog.resolve(PodVolumes("default", (ClaimUse(f"c{number}"),))).problem
        assert len(catalog._resolved) <= 5
