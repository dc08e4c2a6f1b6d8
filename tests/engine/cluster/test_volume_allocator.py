"""Allocations for claims that are bound once their pod has a node."""

import numpy as np
import pytest

from cpg_api.core.volumes import CSINode, PersistentVolume, StorageClass
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PlacedPod, PodClass
from cpg_engine.cluster.volumes import NO_PROVISIONER
from cpg_engine.decisions import VolumeAllocation
from cpg_engine.testing import storage_builders
from cpg_engine.testing.builders import node, pod
from cpg_engine.testing.storage_builders import DRIVER, claim, csi_node, stock, storage_class, using, volume

HOST = "kubernetes.io/hostname"
SHARED = ("ReadWriteMany",)


@pytest.fixture
def ledger() -> Ledger:
    """Return three nodes, two of them in zone a, and a class without a provisioner."""
    ledger = Ledger()
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b")):
        ledger.put_node(node(name, labels={HOST: name, "zone": zone}))
    stock(ledger.storage, storage_class())
    return ledger


def class_of(ledger: Ledger, *claims: str) -> PodClass:
    """Return the class of a pod that uses these claims."""
    return ledger.class_of(pod("p", volumes=using(*claims)))


def open_to(ledger: Ledger, *claims: str) -> str:
    """Return the nodes on which all of these claims can be bound."""
    volumes = class_of(ledger, *claims).volumes
    assert volumes is not None
    flags = ledger.volume_allocator.room_for(ledger.storage.resolve(volumes).delayed)
    return " ".join(sorted(ledger.cluster.name(row) for row in np.flatnonzero(flags).tolist()))


def place(ledger: Ledger, name: str, *claims: str) -> str:
    """Place a pod that uses these claims; return its allocations, as claim=volume@node."""
    pod_class, row = class_of(ledger, *claims), ledger.cluster.row_of[name]
    ledger.place(pod_class, np.array([row]))
    (chosen,) = ledger.volume_allocator.allocations([PlacedPod(pod_class, row)])
    return short_form(*chosen)


def short_form(*choices: VolumeAllocation) -> str:
    """Return allocations in short."""
    return " ".join(f"{one.claim.removeprefix('default/')}={one.volume or 'new'}@{one.node}" for one in choices)


def test_a_volume_has_to_be_within_reach(ledger: Ledger) -> None:
    """A node that reaches no fitting volume is rejected where none can be provisioned."""
    stock(ledger.storage, claim("c"), volume("v", at={"zone": ["a"]}), volume("small", size="1Mi"))
    assert open_to(ledger, "c") == "n1 n2"


def test_the_smallest_volume_is_chosen(ledger: Ledger) -> None:
    """Among equals it is the first by name; a better fit may be reached from fewer nodes."""
    stock(ledger.storage, claim("c"), volume("big", size="3Gi"), volume("z"), volume("y", at={"zone": ["b"]}))
    assert place(ledger, "n1", "c") == "c=z@n1"
    ledger.rollback(0)
    assert place(ledger, "n3", "c") == "c=y@n3"


def test_a_volume_is_reserved_once(ledger: Ledger) -> None:
    """A volume that is reserved for one pod of a simulation is not free for another."""
    stock(ledger.storage, claim("c"), claim("d"), claim("e"), volume("v1"), volume("v2", at={HOST: ["n2"]}))
    assert place(ledger, "n1", "c") == "c=v1@n1"
    assert open_to(ledger, "d") == "n2"
    assert place(ledger, "n2", "d") == "d=v2@n2"
    assert open_to(ledger, "e") == ""
    ledger.rollback(1)
    assert open_to(ledger, "e") == "n2"


def test_pods_that_share_a_claim_share_its_allocation(ledger: Ledger) -> None:
    """The first pod reserves it, and the others go where the volume can be reached."""
    stock(ledger.storage, claim("c"), volume("v1", at={"zone": ["a"]}), volume("v3", at={"zone": ["b"]}))
    assert open_to(ledger, "c") == "n1 n2 n3"
    assert place(ledger, "n1", "c") == "c=v1@n1"
    assert open_to(ledger, "c") == "n1 n2"
    assert place(ledger, "n2", "c") == "c=v1@n1"
    ledger.rollback(1)
    assert open_to(ledger, "c") == "n1 n2"
    ledger.rollback(0)
    assert open_to(ledger, "c") == "n1 n2 n3"


def test_a_claim_gets_the_volume_that_is_reserved_for_it(ledger: Ledger) -> None:
    """No other claim may have it, and its claim gets it or a new one, but no other."""
    aside = volume("v", at={"zone": ["b"]}, claimed_by="c", modes=(), phase="Bound")
    stock(ledger.storage, claim("c"), claim("d"), aside, volume("w", at={"zone": ["a"]}))
    assert open_to(ledger, "c") == "n3"
    assert open_to(ledger, "d") == "n1 n2"
    assert place(ledger, "n3", "c") == "c=v@n3"
    assert open_to(ledger, "c") == "n3"
    ledger.rollback(0)
    stock(ledger.storage, storage_class(provisioner=DRIVER))
    assert open_to(ledger, "c") == "n1 n2 n3"
    assert place(ledger, "n1", "c") == "c=new@n1"


@pytest.mark.parametrize(
    "aside",
    [
        volume("v", claimed_by="c", size="1Mi"),
        volume("v", claimed_by="c", volume_mode="Block"),
        volume("v", claimed_by="c", storage_class="other"),
        volume("v", claimed_by="c", deleted="2026-01-01T00:00:00Z"),
        volume("v", claimed_by="c", claim_uid="of the one before"),
    ],
)
def test_a_reserved_volume_that_does_not_fit_is_not_used(ledger: Ledger, aside: PersistentVolume) -> None:
    """The claim then gets any other volume that fits."""
    stock(ledger.storage, claim("c"), aside, volume("w"))
    assert place(ledger, "n1", "c") == "c=w@n1"


def test_a_volume_is_provisioned_where_the_class_can(ledger: Ledger) -> None:
    """An existing volume is preferred."""
    made = storage_class(provisioner=DRIVER, at=[{"zone": ["a"]}])
    stock(ledger.storage, made, claim("c"), claim("d"), claim("e"), volume("v", at={HOST: ["n2", "n3"]}))
    assert open_to(ledger, "c") == "n1 n2 n3"
    assert place(ledger, "n1", "c") == "c=new@n1"
    assert place(ledger, "n2", "d") == "d=v@n2"
    assert open_to(ledger, "e") == "n1 n2"


@pytest.mark.parametrize(
    ("modes", "drivers", "expected"),
    [
        (("ReadWriteOnce",), (csi_node("n1", keys=["zone"]),), "n1"),
        (SHARED, (), "n1"),
        (SHARED, (csi_node("n1", keys=["zone"]),), "n1 n2"),
        (SHARED, (csi_node("n1", keys=["zone", "rack"]),), "n1"),
        (SHARED, (csi_node("n1"),), "n1 n2 n3"),
        (SHARED, (csi_node("n1", driver="other"),), "n1"),
        (("ReadWriteOnce", "ReadOnlyMany"), (csi_node("n1", keys=["zone"]),), "n1 n2"),
    ],
)
def test_the_nodes_that_reach_a_volume_being_provisioned(
    ledger: Ledger, modes: tuple[str, ...], drivers: tuple[CSINode, ...], expected: str
) -> None:
    """Pods on the same node can use it; if the claim may be shared, so can nodes of the same driver topology."""
    stock(ledger.storage, storage_class(provisioner=DRIVER), claim("c", modes=modes), *drivers)
    assert place(ledger, "n1", "c") == "c=new@n1"
    assert open_to(ledger, "c") == expected
    assert place(ledger, expected.rsplit(maxsplit=1)[-1], "c") == "c=new@n1"


@pytest.mark.parametrize(
    ("selected", "found", "expected"),
    [
        ("n1", storage_class(provisioner=DRIVER), "n1"),
        ("n1", storage_class(provisioner=DRIVER, at=[{"zone": ["b"]}]), ""),
        ("n1", storage_class(provisioner=NO_PROVISIONER), ""),
        ("gone", storage_class(provisioner=DRIVER), ""),
        ("", storage_class(provisioner=DRIVER), ""),
    ],
)
def test_a_claim_with_a_selected_node_keeps_to_it(
    ledger: Ledger, selected: str, found: StorageClass, expected: str
) -> None:
    """Its volume is being provisioned there, so no other is chosen."""
    stock(ledger.storage, found, claim("c", node=selected), volume("v"))
    assert open_to(ledger, "c") == expected
    assert place(ledger, "n1", "c") == ""


@pytest.mark.parametrize(
    ("volumes", "expected"),
    [
        ((), ""),
        ((volume("v1"),), ""),
        ((volume("v1"), volume("v2")), ""),
        ((volume("v1"), volume("v2", size="2Gi")), "n1 n2 n3"),
        ((volume("v1", size="2Gi"), volume("v2", size="2Gi", at={"zone": ["a"]})), "n1 n2"),
        ((volume("v2", size="2Gi"), volume("v3", size="9Gi", at={HOST: ["n3"]})), "n3"),
    ],
)
def test_two_claims_of_a_pod_need_two_volumes(
    ledger: Ledger, volumes: tuple[PersistentVolume, ...], expected: str
) -> None:
    """A node passes only if each claim has a volume of its own."""
    stock(ledger.storage, claim("c"), claim("d", size="2Gi"), *volumes)
    assert open_to(ledger, "c", "d") == expected


@pytest.mark.parametrize(
    ("volumes", "expected"),
    [
        ((volume("v1", modes=(*SHARED, "ReadWriteOnce")),), ""),
        ((volume("v1", modes=(*SHARED, "ReadWriteOnce")), volume("v2")), "n1 n2 n3"),
        ((volume("v1", modes=(*SHARED, "ReadWriteOnce"), at={HOST: ["n1"]}), volume("v2", at={"zone": ["a"]})), "n1"),
    ],
)
def test_two_claims_of_different_kinds(ledger: Ledger, volumes: tuple[PersistentVolume, ...], expected: str) -> None:
    """It is simulated, as the allocation will be."""
    stock(ledger.storage, claim("c"), claim("d", size="1Ki", modes=SHARED), *volumes)
    assert open_to(ledger, "c", "d") == expected


def test_two_claims_where_volumes_are_provisioned(ledger: Ledger) -> None:
    """A claim without a volume has one provisioned, on the nodes where that is possible."""
    stock(ledger.storage, storage_class(provisioner=DRIVER, at=[{"zone": ["b"]}]), claim("c"), claim("d"), volume("v"))
    assert open_to(ledger, "c", "d") == "n3"
    assert place(ledger, "n3", "c", "d") == "c=v@n3 d=new@n3"


def test_an_assumed_allocation_stands_until_the_catalog_shows_it(ledger: Ledger) -> None:
    """The next cycle counts it before the API server does."""
    stock(ledger.storage, claim("c"), claim("d"), volume("v"))
    choice = VolumeAllocation(claim="default/c", volume="v", node="n1")
    ledger.volume_allocator.assume([choice, choice])
    assert open_to(ledger, "d") == ""
    assert place(ledger, "n2", "c") == "c=v@n1"
    ledger.rollback(0)
    stock(ledger.storage, claim("unrelated"))
    assert open_to(ledger, "d") == ""
    stock(ledger.storage, volume("v", claimed_by="c", claim_uid="uid-c"))
    assert open_to(ledger, "c") == "n1 n2 n3"
    stock(ledger.storage, claim("c", bound_to="v"))
    assert open_to(ledger, "d") == ""
    assert ledger.volume_allocator.allocated == {}


def test_a_failed_allocation_is_forgotten(ledger: Ledger) -> None:
    """The volume is free again; an allocation that is unknown or different is left alone."""
    stock(ledger.storage, claim("c"), claim("d"), volume("v"), volume("w"))
    choice = VolumeAllocation(claim="default/c", volume="v", node="n1")
    ledger.volume_allocator.forget([choice])
    ledger.volume_allocator.assume([choice])
    ledger.volume_allocator.forget([VolumeAllocation(claim="default/c", volume="w", node="n1")])
    assert ledger.volume_allocator.allocated == {"default/c": choice}
    ledger.volume_allocator.forget([choice])
    assert ledger.volume_allocator.allocated == {}
    assert place(ledger, "n1", "d") == "d=v@n1"


@pytest.mark.parametrize(
    "news",
    [
        (claim("c", bound_to="v"),),
        (volume("v", claimed_by="d"),),
        (volume("v", claimed_by="c", claim_uid="other"),),
        (volume("v", deleted="2026-01-01T00:00:00Z"),),
    ],
)
def test_the_catalog_overrules_what_is_assumed(ledger: Ledger, news: tuple[storage_builders.Stored, ...]) -> None:
    """An allocation that has become true, or impossible, is dropped."""
    stock(ledger.storage, claim("c"), claim("d"), volume("v"))
    ledger.volume_allocator.assume([VolumeAllocation(claim="default/c", volume="v", node="n1")])
    stock(ledger.storage, *news)
    open_to(ledger, "d")
    assert ledger.volume_allocator.allocated == {}


def test_an_allocation_of_a_deleted_object_is_dropped(ledger: Ledger) -> None:
    """Neither a volume nor a claim comes back because an allocation names it."""
    stock(ledger.storage, storage_class(provisioner=DRIVER), claim("c"), claim("d"), claim("e"), volume("v"))
    there = [VolumeAllocation("default/c", "v", "n1"), VolumeAllocation("default/d", None, "n1")]
    new = VolumeAllocation("default/e", None, "n2")
    ledger.volume_allocator.assume(
        [*there, new, VolumeAllocation("default/x", None, "n1"), VolumeAllocation("default/y", "w", "n1")]
    )
    assert list(ledger.volume_allocator.allocated.values()) == [*there, new]
    ledger.storage.remove_volume("v")
    ledger.storage.remove_claim("default", "d")
    assert open_to(ledger, "e") == "n2"
    assert list(ledger.volume_allocator.allocated.values()) == [new]
    stock(ledger.storage, claim("e", node="n3"))
    assert open_to(ledger, "e") == "n3"
    ledger.storage.remove_class(storage_builders.LOCAL)
    assert not ledger.volume_allocator.room_for([ledger.volume_allocator._storage.claims["default/e"]]).any()


def test_pods_placed_by_force_reserve_what_is_free(ledger: Ledger) -> None:
    """A nominated pod reserves room on its node, whether its claims can be bound there or not."""
    stock(ledger.storage, claim("c"), claim("d"), volume("v"))
    assert place(ledger, "n1", "c", "d") == "c=v@n1"


def test_pods_without_volumes_have_no_allocations(ledger: Ledger) -> None:
    """There is nothing to do for them."""
    assert list(ledger.allocators.allocations([PlacedPod(ledger.class_of(pod("p")), 0)])) == [()]
