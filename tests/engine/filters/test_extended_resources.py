"""Pods that request extended resources which device classes back, through a whole cycle."""

from collections import Counter

import numpy as np
from msgspec.structs import replace

from cpg_api.core.devices import AllocationResult
from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Forest, key_of
from cpg_engine.cluster.axes import BY_DEVICES, own_amounts
from cpg_engine.cycle import decide
from cpg_engine.decisions import Decision, ExtendedAllocation, VolumeAllocation
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.gangs.unit import GroupPods, tree_unit
from cpg_engine.snapshot import Snapshot, new_snapshot
from cpg_engine.testing.builders import node, pod_group
from cpg_engine.testing.claim_builders import (
    allocated,
    asking,
    claiming,
    extended_claim,
    offer,
    with_extended,
    worker,
    zone_slice,
)
from cpg_engine.testing.device_builders import (
    GPU_DRIVER,
    alternative,
    device,
    device_claim,
    device_class,
    device_request,
    device_slice,
    first_available,
)
from cpg_engine.verdicts import DeviceSupply, Finding

GPU, NIC = "example.com/gpu", "example.com/nic"


def cluster(*, plugin: dict[str, int] | None = None, classes: bool = True, **gpus: int) -> Snapshot:
    """Return nodes with so many GPUs each: ``plugin`` by a device plugin, the others by a driver."""
    snapshot = new_snapshot()
    ledger = snapshot.ledger
    if classes:
        offer(ledger.devices, device_class("gpus", extended_resource_name=GPU))
    for name, number in gpus.items():
        ledger.put_node(node(name, cpu=64))
        if number:
            offer(ledger.devices, device_slice(*(f"gpu-{index}" for index in range(number)), node=name))
    for name, number in (plugin or {}).items():
        ledger.put_node(node(name, cpu=64, more={GPU: number}))
    return snapshot


def gang(number: int, **requests: int) -> list[Pod]:
    """Return the pods of a gang."""
    return [asking(f"p{index}", spec={"group": "pg"}, **requests) for index in range(number)]


def decided(snapshot: Snapshot, pods: list[Pod]) -> Decision:
    """Decide about a gang of these pods; the ledger is what it was afterwards."""
    group = pod_group("pg", gang=len(pods))
    tree = next(iter(Forest.of([group]).trees()))
    unit = tree_unit(tree, {key_of(group): GroupPods(pending=pods)}, snapshot.ledger)
    before = state(snapshot)
    decision = decide(snapshot, unit, SearchOptions(detail=True))
    assert state(snapshot) == before
    return decision


def state(snapshot: Snapshot) -> tuple[object, ...]:
    """Return what a cycle has to leave unchanged."""
    ledger = snapshot.ledger
    ledger.device_allocator.refresh()
    stock = ledger.device_allocator.stock
    return ledger.used.tolist(), {pool: stock.state(pool) for pool in sorted(stock.pools)}


def places(result: AllocationResult) -> str:
    """Return the devices of a result."""
    return " ".join(f"{one.pool}/{one.device}" for one in result.devices.results or ())


def given(decision: Decision) -> list[str]:
    """Return what pods get: their node, and their devices if these stand for a resource."""
    results = {
        bind.uid: [one.result for one in bind.allocations if isinstance(one, ExtendedAllocation)]
        for bind in decision.binds
    }
    return sorted(f"{bind.node}: {' '.join(map(places, results[bind.uid]))}" for bind in decision.binds)


def test_a_gang_is_given_devices_for_its_resources() -> None:
    """Four pods with two GPUs each, on nodes that offer none themselves."""
    decision = decided(cluster(a=4, b=5, c=0), gang(4, gpu=2))
    assert given(decision) == ["a: a/gpu-0 a/gpu-1", "a: a/gpu-2 a/gpu-3", "b: b/gpu-0 b/gpu-1", "b: b/gpu-2 b/gpu-3"]


def test_an_allocation_says_what_claim_to_make() -> None:
    """With the requests, and which container uses which of them."""
    (bind,) = decided(cluster(a=1), gang(1, gpu=1)).binds
    (one,) = bind.allocations
    assert isinstance(one, ExtendedAllocation)
    assert (one.owner, one.claim) == ("default/uid-default-p0", "<extended-resources>/default/uid-default-p0")
    assert [(found.name, found.exactly.count) for found in one.spec.devices.requests or () if found.exactly] == [
        ("container-0-request-1", 1)
    ]
    assert [(found.container_name, found.resource_name) for found in one.mappings] == [("main", GPU)]
    assert one.result.node_selector is not None


def test_too_few_devices_leave_a_gang_unplaced() -> None:
    """Proved, because the room is a column."""
    decision = decided(cluster(a=3, b=3), gang(3, gpu=2))
    assert (decision.explanation.finding, decision.binds) == (Finding.IMPOSSIBLE, ())
    assert {one.text for one in decision.explanation.reports[-1].reasons} <= {"cannot allocate all claims"}


def test_a_node_with_a_device_plugin_uses_no_devices() -> None:
    """There, the resource is a column like any other; elsewhere it limits nothing."""
    snapshot = cluster(a=2, b=0, plugin={"x": 3})
    assert given(decided(snapshot, gang(5, gpu=1))) == ["a: a/gpu-0", "a: a/gpu-1", "x: ", "x: ", "x: "]
    assert decided(snapshot, gang(6, gpu=1)).explanation.finding is Finding.IMPOSSIBLE
    offer(snapshot.ledger.devices, device_slice("gpu-0", node="x"))
    assert decided(snapshot, gang(6, gpu=1)).explanation.finding is Finding.IMPOSSIBLE


def test_each_resource_is_had_from_where_the_node_has_it() -> None:
    """One of two from a device plugin, the other one as a device; a node with neither has no place."""
    snapshot = cluster(a=1, plugin={"x": 1})
    ledger = snapshot.ledger
    offer(ledger.devices, device_class("nics", extended_resource_name=NIC), zone_slice("z", "nic-0", "nic-1"))
    ledger.put_node(node("x", cpu=64, more={GPU: 1}, labels={"zone": "z"}))
    ledger.put_node(node("y", cpu=64, more={GPU: 1, NIC: 1}))
    ledger.put_node(node("w", cpu=64))
    assert given(decided(snapshot, gang(2, gpu=1, nic=1))) == ["x: pool-z/nic-0", "y: "]
    assert decided(snapshot, gang(3, gpu=1, nic=1)).binds == ()


def test_claims_and_resources_of_a_pod_get_different_devices() -> None:
    """Both at once, from the same pool."""
    snapshot = cluster(a=2, b=1)
    catalog = snapshot.ledger.devices
    offer(catalog, device_class())
    both = worker(catalog, "p0", device_request(), group="pg")
    both = replace(both, spec=replace(both.spec, containers=asking("p", gpu=1).spec.containers))
    (bind,) = decided(snapshot, [both]).binds
    assert [places(one.result) for one in bind.allocations if not isinstance(one, VolumeAllocation)] == [
        "a/gpu-0",
        "a/gpu-1",
    ]


def test_a_request_for_too_many_devices_fits_nowhere() -> None:
    """A claim has at most 32; a device plugin may offer more."""
    assert decided(cluster(a=40), gang(1, gpu=33)).explanation.finding is Finding.IMPOSSIBLE
    assert given(decided(cluster(a=40, plugin={"x": 40}), gang(1, gpu=33))) == ["x: "]


def test_without_a_class_a_resource_has_to_be_offered() -> None:
    """Classes come and go; the column has what nodes offer again."""
    snapshot = cluster(a=1, plugin={"x": 1}, classes=False)
    ledger = snapshot.ledger
    found = device_class("gpus", extended_resource_name=GPU)
    column = ledger.classes.axis.places[GPU]
    assert given(decided(snapshot, gang(1, gpu=1))) == ["x: "]
    offer(ledger.devices, found)
    assert len(decided(snapshot, gang(2, gpu=1)).binds) == 2
    assert set(ledger.allocatable[:, column].tolist()) == {0, 1, BY_DEVICES}
    ledger.devices.remove_class("gpus")
    assert decided(snapshot, gang(2, gpu=1)).binds == ()
    assert set(ledger.allocatable[:, column].tolist()) == {0, 1}


def test_a_class_that_appears_or_ends_recounts_running_pods() -> None:
    """A resource that no node offers counts as unoffered only while no class backs it."""
    snapshot = cluster(a=1, classes=False)
    ledger = snapshot.ledger
    ledger.put_pod(asking("running", gpu=1, spec={"node_name": "a"}), "a")
    used = ledger.used.tolist()
    offer(ledger.devices, device_class("gpus", extended_resource_name=GPU))
    ledger.class_of(asking("p", gpu=1))
    assert ledger.used.sum() == sum(map(sum, used)) - 1
    ledger.devices.remove_class("gpus")
    ledger.class_of(asking("p", gpu=1))
    assert ledger.used.tolist() == used


def test_a_column_that_no_node_offers_any_more_can_be_dropped() -> None:
    """What devices stand for is no offer."""
    snapshot = cluster(a=1, plugin={"x": 1})
    ledger = snapshot.ledger
    ledger.class_of(asking("p", gpu=1))
    ledger.put_node(node("x", cpu=64))
    ledger.put_node(node("many", more={f"example.com/r{index}": 1 for index in range(40)}))
    ledger.put_node(node("more", more={"example.com/last": 1}))
    assert GPU not in ledger.classes.axis.places
    assert given(decided(snapshot, gang(1, gpu=1))) == ["a: a/gpu-0"]


def test_allocations_are_assumed_until_the_api_shows_a_claim() -> None:
    """The claim is made for the decision, so that it is found by its owner."""
    snapshot = cluster(a=2)
    ledger = snapshot.ledger
    (bind,) = decided(snapshot, gang(1, gpu=1)).binds
    ledger.allocators.assume(bind.allocations)
    ledger.allocators.assume(bind.allocations)
    held = ledger.device_allocator.claims.held
    assert list(held) == ["<extended-resources>/default/uid-default-p0"]
    made = extended_claim("p0")
    offer(ledger.devices, made)
    ledger.device_allocator.refresh()
    assert list(held) == ["<extended-resources>/default/uid-default-p0"]
    offer(ledger.devices, allocated(made, "a", "gpu-0", users=("p0",)))
    ledger.allocators.assume(bind.allocations)
    assert list(held) == [made.metadata.key]
    ledger.allocators.forget(bind.allocations)
    assert list(held) == [made.metadata.key]
    ledger.devices.remove_claim("default", made.metadata.name)
    ledger.allocators.assume(bind.allocations)
    ledger.allocators.forget(bind.allocations)
    assert held == {}


def test_a_pod_waits_until_the_claim_of_an_earlier_attempt_is_deleted() -> None:
    """Its spec may not suit another node."""
    snapshot = cluster(a=2)
    catalog = snapshot.ledger.devices
    (found,) = gang(1, gpu=1)
    offer(catalog, extended_claim("p0"), extended_claim("p0"))
    devices = snapshot.ledger.class_of(found).devices
    assert devices is not None
    assert devices.problem == "waiting for the ResourceClaim of an earlier attempt to be deleted"
    other = extended_claim("p0")
    offer(catalog, replace(other, metadata=replace(other.metadata, name="other")))
    catalog.remove_claim("default", "p0-extended-resources-x")
    assert catalog.extended_claims == {"default/uid-default-p0": "default/other"}
    catalog.remove_claim("default", "other")
    assert catalog.extended_claims == {}
    assert given(decided(snapshot, [found])) == ["a: a/gpu-0"]


def test_a_claim_of_another_namespace_is_none_of_a_pod() -> None:
    """It could be made to keep the pod waiting."""
    snapshot = cluster(a=1)
    made = extended_claim("p0")
    offer(snapshot.ledger.devices, replace(made, metadata=replace(made.metadata, namespace="other")))
    assert given(decided(snapshot, gang(1, gpu=1))) == ["a: a/gpu-0"]


def test_a_pod_whose_status_names_a_claim_needs_one() -> None:
    """The API server keeps that name, and the kubelet starts no such pod without a claim."""
    snapshot = cluster(a=1, plugin={"x": 8})
    (found,) = gang(1, gpu=1)
    again = with_extended(found)
    assert given(decided(snapshot, [again])) == ["a: a/gpu-0"]
    snapshot.ledger.devices.remove_slice("gpu.example.com-a")
    assert given(decided(snapshot, [found])) == ["x: "]
    assert decided(snapshot, [again]).binds == ()
    snapshot.ledger.devices.remove_class("gpus")
    devices = snapshot.ledger.class_of(again).devices
    assert devices is not None
    assert devices.problem == "has a ResourceClaim for extended resources that no device class backs any more"


def test_nominated_pods_keep_devices_for_themselves() -> None:
    """On the nodes that do not offer the resource."""
    snapshot = cluster(a=2, plugin={"x": 1})
    ledger = snapshot.ledger
    for name, at in (("n0", "a"), ("n1", "x")):
        nominated = asking(name, gpu=1)
        meta = replace(nominated.metadata, uid=f"nominated/{nominated.metadata.uid}")
        ledger.put_pod(replace(nominated, metadata=meta), at)
    assert given(decided(snapshot, gang(1, gpu=1))) == ["a: a/gpu-1"]
    assert decided(snapshot, gang(2, gpu=1)).binds == ()
    ledger.remove_pod("nominated/uid-default-n0")
    assert Counter(given(decided(snapshot, gang(2, gpu=1)))) == {"a: a/gpu-0": 1, "a: a/gpu-1": 1}


def test_nodes_that_offer_the_resource_are_a_kind_of_their_own() -> None:
    """A node with devices is like another one with as many; one with a device plugin is like no such node."""
    snapshot = cluster(a=2, b=2, c=1, plugin={"x": 2, "y": 2})
    ledger = snapshot.ledger
    rows = np.array([ledger.cluster.row_of[name] for name in "abcxy"])
    groups = snapshot.score_cache.of(ledger.class_of(asking("p", gpu=1))).device_groups(rows)
    assert groups is not None
    a, b, c, x, y = groups.tolist()
    assert (a == b, x == y, len({a, c, x})) == (True, True, 3)


def test_pods_that_share_a_claim_have_resources_of_their_own() -> None:
    """They follow the claim to a node with room for all, whether it has a device plugin or devices."""
    for devices, place in ((2, "x"), (3, "a")):
        snapshot = cluster(a=devices, plugin={"x": 2 if place == "x" else 1})
        catalog = snapshot.ledger.devices
        offer(catalog, device_class(), device_claim("shared"), device_slice("gpu-0", node="x"))
        pods = [claiming(f"p{index}", "shared", group="pg") for index in range(2)]
        asked = asking("p", gpu=1).spec.containers
        pods = [replace(one, spec=replace(one.spec, containers=asked)) for one in pods]
        assert {bind.node for bind in decided(snapshot, pods).binds} == {place}


def test_a_class_that_changes_otherwise_backs_the_same() -> None:
    """No room is computed again for that."""
    snapshot = cluster(a=1)
    ledger = snapshot.ledger
    ledger.class_of(asking("p", gpu=1))
    axis = ledger.classes.axis
    offer(ledger.devices, device_class("gpus", 'device.driver == "other"', extended_resource_name=GPU))
    ledger.class_of(asking("p", gpu=1))
    assert ledger.classes.axis is axis
    assert decided(snapshot, gang(1, gpu=1)).binds == ()


def test_early_alternatives_are_preferred_among_nodes_of_several_kinds() -> None:
    """A claim has alternatives, and the resource is had in two ways."""
    snapshot = cluster(a=1, plugin={"x": 1, "y": 1})
    ledger = snapshot.ledger
    first, second = (
        alternative(name, f"device.attributes['{GPU_DRIVER}'].kind == '{name}'") for name in ("fast", "slow")
    )
    offer(ledger.devices, device_class())
    for name, kind in (("a", "slow"), ("x", "slow"), ("y", "fast")):
        offer(ledger.devices, device_slice(device("gpu-0", {"kind": ""}), device("net-0", {"kind": kind}), node=name))
    both = worker(ledger.devices, "p0", first_available("r0", first, second), group="pg")
    both = replace(both, spec=replace(both.spec, containers=asking("p", gpu=1).spec.containers))
    assert [bind.node for bind in decided(snapshot, [both]).binds] == ["y"]


def test_the_overhead_of_a_pod_has_no_devices() -> None:
    """No container would have them, so the pod waits."""
    snapshot = cluster(a=1, plugin={"x": 8})
    found = asking("p", gpu=1)
    devices = snapshot.ledger.class_of(replace(found, spec=replace(found.spec, overhead={GPU: 1}))).devices
    assert devices is not None
    assert devices.problem == "no devices are given for example.com/gpu in the overhead of a pod"


def test_what_devices_stand_for_is_no_amount_of_a_node() -> None:
    """For reports about nodes."""
    snapshot = cluster(a=1, plugin={"x": 3})
    ledger = snapshot.ledger
    ledger.class_of(asking("p", gpu=1))
    column = ledger.classes.axis.places[GPU]
    assert sorted(set(own_amounts(ledger.allocatable, ledger.classes.axis)[:, column].tolist())) == [0, 3]


def test_what_nodes_lack_for_extended_resources_is_counted() -> None:
    """Of the nodes that do not offer the resource themselves."""
    snapshot = cluster(plugin={"a": 1}, b=2, c=1)
    group = pod_group("pg", gang=6)
    tree = next(iter(Forest.of([group]).trees()))
    unit = tree_unit(tree, {key_of(group): GroupPods(pending=gang(6, gpu=1))}, snapshot.ledger)
    found = decide(snapshot, unit, SearchOptions(detail=True)).explanation.reports[0].devices
    assert isinstance(found, DeviceSupply)
    assert (found.request, found.device_class, found.free) == (GPU, "gpus", 3)


def test_nodes_that_come_later_have_room_too() -> None:
    """For the same class of pods, in a cluster that grows."""
    snapshot = cluster(a=1)
    pods = gang(2, gpu=1)
    assert decided(snapshot, pods).binds == ()
    for index in range(100):
        snapshot.ledger.put_node(node(f"n{index}", cpu=64))
    offer(snapshot.ledger.devices, device_slice("gpu-0", node="n99"))
    assert given(decided(snapshot, pods)) == ["a: a/gpu-0", "n99: n99/gpu-0"]
