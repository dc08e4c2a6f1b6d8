"""What claims have, and what becomes free when their consumers are ignored."""

import pytest
from msgspec.structs import replace

from cpg_api.core.devices import MAX_RESERVED_FOR, ConsumerReference, ResourceClaim
from cpg_api.core.pod import PodResourceClaimStatus
from cpg_engine.cluster.device_needs import claim_keys, pod_devices
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.decisions import DeviceAllocation
from cpg_engine.devices.values import FREE, PoolId, PoolState
from cpg_engine.testing.builders import node, pod
from cpg_engine.testing.claim_builders import allocated, claiming, offer, own_claim
from cpg_engine.testing.device_builders import GPU_DRIVER, device_claim, device_class, device_slice

POOL = PoolId(GPU_DRIVER, "n")
GONE = "2026-01-01T00:00:00Z"


@pytest.fixture
def ledger() -> Ledger:
    """Return a node with two GPUs."""
    found = Ledger()
    found.put_node(node("n"))
    offer(found.devices, device_class(), device_slice("gpu-0", "gpu-1", node="n"))
    return found


def taken(ledger: Ledger) -> int:
    """Return which devices are taken, as bits."""
    ledger.device_allocator.refresh()
    return ledger.device_allocator.stock.state(POOL).taken


def allocation(claim: ResourceClaim, gpu: str, uid: str = "") -> DeviceAllocation:
    """Return the decision that gives a claim a GPU."""
    result = allocated(claim, "n", gpu).status.allocation
    assert result is not None
    return DeviceAllocation(claim.metadata.key, uid or claim.metadata.uid, result)


def test_an_assumed_allocation_stands_until_the_api_shows_another(ledger: Ledger) -> None:
    """A change of the claim without an allocation is older than the decision; one with another is newer."""
    claim = device_claim("c")
    offer(ledger.devices, claim)
    ledger.allocators.assume([allocation(claim, "gpu-0")])
    assert taken(ledger) == 0b01
    offer(
        ledger.devices,
        replace(claim, metadata=replace(claim.metadata, owner_references=own_claim("p").metadata.owner_references)),
    )
    assert taken(ledger) == 0b01
    offer(ledger.devices, allocated(claim, "n", "gpu-1"))
    assert taken(ledger) == 0b10
    ledger.allocators.forget([allocation(claim, "gpu-0")])
    assert taken(ledger) == 0b10
    offer(ledger.devices, claim)
    assert taken(ledger) == 0


def test_what_the_api_shows_is_not_counted_twice(ledger: Ledger) -> None:
    """The claim that was assumed appears with the same devices, and a second decision about it changes nothing."""
    claim = device_claim("c")
    offer(ledger.devices, claim)
    ledger.allocators.assume([allocation(claim, "gpu-0")])
    offer(ledger.devices, allocated(claim, "n", "gpu-0"))
    ledger.allocators.assume([allocation(claim, "gpu-1")])
    assert taken(ledger) == 0b01
    ledger.devices.remove_claim("default", "c")
    assert taken(ledger) == 0


def test_another_claim_of_the_same_name_has_nothing(ledger: Ledger) -> None:
    """A decision is about the claim with its UID."""
    claim = device_claim("c")
    offer(ledger.devices, claim)
    ledger.allocators.assume([allocation(claim, "gpu-0", uid="other")])
    assert taken(ledger) == 0
    ledger.allocators.assume([allocation(claim, "gpu-0")])
    offer(ledger.devices, replace(claim, metadata=replace(claim.metadata, uid="new")))
    assert taken(ledger) == 0


def test_devices_are_free_once_all_consumers_are_ignored(ledger: Ledger) -> None:
    """The pods that hold the claim and those that it is reserved for; restoring any of them takes the devices back."""
    offer(ledger.devices, allocated(device_claim("c"), "n", "gpu-0", users=("p", "q")))
    for name in ("p", "q"):
        ledger.put_pod(claiming(name, "c", cpu=1, node_name="n"), "n")
    mark = ledger.mark()
    ledger.ignore(["uid-default-p"])
    assert taken(ledger) == 0b01
    ledger.ignore(["uid-default-q"])
    assert taken(ledger) == 0
    ledger.restore(["uid-default-p"])
    assert taken(ledger) == 0b01
    ledger.rollback(mark)
    assert taken(ledger) == 0b01


def test_a_consumer_that_is_unknown_keeps_the_devices(ledger: Ledger) -> None:
    """It may be a pod that another scheduler is binding."""
    offer(ledger.devices, allocated(device_claim("c"), "n", "gpu-0", users=("p", "other")))
    ledger.put_pod(claiming("p", "c", cpu=1, node_name="n"), "n")
    ledger.ignore(["uid-default-p"])
    assert taken(ledger) == 0b01
    ledger.remove_pod("uid-default-p")
    ledger.remove_pod("uid-default-p")


def test_the_devices_of_pods_that_are_gone_are_about_to_be_free(ledger: Ledger) -> None:
    """Those that are reserved for pods alone, none of which is known."""
    claims = ledger.device_allocator.claims
    offer(
        ledger.devices,
        allocated(device_claim("c"), "n", "gpu-0", users=("gone",)),
        allocated(device_claim("d"), "n", "gpu-1"),
    )
    with claims.without_released():
        assert taken(ledger) == 0b10
    assert taken(ledger) == 0b11
    ledger.put_pod(claiming("p", "c", cpu=1, node_name="n"), "n")
    with claims.without_released():
        assert taken(ledger) == 0b11


def test_the_claims_of_a_held_pod_can_become_known_later(ledger: Ledger) -> None:
    """kube-controller-manager writes the names of claims from templates into the status of a pod."""
    found = claiming("p", made={"gpu": "p-gpu"}, cpu=1, node_name="n")
    ledger.put_pod(replace(found, status=replace(found.status, resource_claim_statuses=None)), "n")
    ledger.put_pod(found, "n")
    offer(ledger.devices, allocated(own_claim("p"), "n", "gpu-0", users=("p",)))
    ledger.ignore(["uid-default-p"])
    assert taken(ledger) == 0


def test_the_states_of_pools_follow_slices(ledger: Ledger) -> None:
    """What is taken counts for the devices that there are, in whatever order everything appears."""
    offer(ledger.devices, allocated(device_claim("c"), "n", "gpu-1", "gpu-7"))
    assert taken(ledger) == 0b10
    offer(ledger.devices, device_slice("gpu-1", node="n"))
    assert taken(ledger) == 0b1
    ledger.devices.remove_slice(f"{GPU_DRIVER}-n")
    ledger.device_allocator.refresh()
    assert ledger.device_allocator.stock.targets(0) == ()
    ledger.devices.remove_claim("default", "c")
    offer(ledger.devices, device_slice("gpu-1", node="n"))
    assert taken(ledger) == 0


def test_another_scheduler_can_give_the_same_device_to_another_claim(ledger: Ledger) -> None:
    """The API server does not prevent it, so a decision is compared with the claims before it is carried out."""
    mine, other = device_claim("mine"), device_claim("other")
    offer(ledger.devices, mine)
    ledger.allocators.assume([allocation(mine, "gpu-0")])
    claims = ledger.device_allocator.claims
    assert claims.contested(["default/mine", "default/unknown"]) is None
    offer(ledger.devices, allocated(other, "n", "gpu-0"))
    assert claims.contested(["default/mine"]) == "default/mine"


def test_a_claim_stays_in_use_while_any_of_its_pods_is_held(ledger: Ledger) -> None:
    """It may have devices of a pool that is not known yet."""
    offer(ledger.devices, allocated(device_claim("c"), "later", "gpu-0"))
    for name in ("p", "q"):
        ledger.put_pod(claiming(name, "c", cpu=1, node_name="n"), "n")
    ledger.remove_pod("uid-default-p")
    assert (taken(ledger), ledger.device_allocator.claims.consumers("default/c")) == (0, 1)


def test_claims_are_full(ledger: Ledger) -> None:
    """A claim has 256 consumers at most; a native group that has it stands for all of its pods."""
    users = tuple(ConsumerReference("", "pods", f"u{number}", f"u{number}") for number in range(MAX_RESERVED_FOR))
    full = allocated(device_claim("c"), "n", "gpu-0")
    full = replace(full, status=replace(full.status, reserved_for=users))
    offer(ledger.devices, full)
    devices = ledger.class_of(claiming("p", "c")).devices
    assert devices is not None
    assert not ledger.device_allocator.has_room_for_consumers(devices)
    group = ConsumerReference("scheduling.k8s.io", "podgroups", "g", "g")
    offer(ledger.devices, replace(full, status=replace(full.status, reserved_for=(*users[1:], group))))
    assert ledger.device_allocator.has_room_for_consumers(devices)


def test_what_pods_need() -> None:
    """Claims by name and claims that were made for them, those that are not needed left out."""
    ledger = Ledger()
    assert pod_devices(pod("p"), "", ledger.devices) is None
    assert claim_keys(pod("p")) == ()
    waiting = claiming("p", made={"gpu": "x"})
    waiting = replace(waiting, status=replace(waiting.status, resource_claim_statuses=None))
    found = pod_devices(waiting, "uid-default-p", ledger.devices)
    assert found is not None
    assert found.problem == 'waiting for the ResourceClaim of "gpu" to be created'
    assert claim_keys(waiting) == ()
    nothing = replace(waiting, status=replace(waiting.status, resource_claim_statuses=(PodResourceClaimStatus("gpu"),)))
    assert pod_devices(nothing, "uid-default-p", ledger.devices) is None


def test_claims_that_are_deleted_cannot_be_used(ledger: Ledger) -> None:
    """And a claim that was made for a native group serves its pods."""
    claim = own_claim("p")
    offer(ledger.devices, replace(claim, metadata=replace(claim.metadata, deletion_timestamp=GONE)))
    found = ledger.class_of(claiming("p", made={"gpu": "p-gpu"})).devices
    assert found is not None
    assert found.problem == 'resourceclaim "p-gpu" is being deleted'
    owner = replace(claim.metadata.owner_references[0], kind="PodGroup", uid="g")
    offer(ledger.devices, replace(claim, metadata=replace(claim.metadata, owner_references=(owner,))))
    found = ledger.class_of(claiming("p", made={"gpu": "p-gpu"})).devices
    assert found is not None
    assert [need.claim for need in found.needs] == ["default/p-gpu"]


def test_a_state_without_holders_is_free(ledger: Ledger) -> None:
    """Shares of a device add up, and nothing of them is left behind."""
    ledger.device_allocator.refresh()
    stock = ledger.device_allocator.stock
    shared = allocated(device_claim("c"), "n", "gpu-0").status.allocation
    assert shared is not None
    results = tuple(replace(one, share_id="s", consumed_capacity={"m": "2"}) for one in shared.devices.results or ())
    claim = device_claim("c")
    status = replace(claim.status, allocation=replace(shared, devices=replace(shared.devices, results=results)))
    offer(ledger.devices, replace(claim, status=status))
    ledger.device_allocator.refresh()
    assert stock.state(POOL) == PoolState(0, ((0, (("m", 2 * 10**9),)),))
    assert not stock.is_overcommitted(0)
    offer(ledger.devices, allocated(device_claim("d"), "n", "gpu-0"))
    ledger.device_allocator.refresh()
    assert stock.is_overcommitted(0)
    for name in ("c", "d"):
        ledger.devices.remove_claim("default", name)
    ledger.device_allocator.refresh()
    assert stock.state(POOL) == FREE


def test_a_claim_that_two_entries_name_is_needed_once(ledger: Ledger) -> None:
    """Its devices are allocated to the pod, however often the pod names it."""
    offer(ledger.devices, device_claim("c"))
    once = claiming("p", "c")
    (entry,) = once.spec.resource_claims or ()
    twice = replace(once, spec=replace(once.spec, resource_claims=(entry, replace(entry, name="again"))))
    assert claim_keys(twice) == ("default/c",)
    assert pod_devices(twice, "uid-default-p", ledger.devices) == pod_devices(once, "uid-default-p", ledger.devices)
