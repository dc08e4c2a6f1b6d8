"""Gangs that claim devices, through a whole cycle."""

from collections import Counter

import pytest
from msgspec.structs import replace

from cpg_api.core.devices import ResourceSlice
from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Forest, Group, GroupKey, key_of
from cpg_engine.cluster import device_solver
from cpg_engine.cluster.pod_classes import NOMINATED
from cpg_engine.cycle import decide
from cpg_engine.decisions import Decision, DeviceAllocation
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.gangs.unit import GroupPods, tree_unit
from cpg_engine.snapshot import Snapshot, new_snapshot
from cpg_engine.testing.builders import composite, metadata, node, pod, pod_group
from cpg_engine.testing.claim_builders import allocated, claiming, offer, own_claim, worker, zone_slice
from cpg_engine.testing.device_builders import (
    GPU_DRIVER,
    alternative,
    claim_spec,
    device,
    device_claim,
    device_class,
    device_request,
    device_slice,
    first_available,
)
from cpg_engine.verdicts import Finding, Lack, Limitation


def cluster(**gpus: int) -> Snapshot:
    """Return nodes of 64 CPU with so many GPUs each, in the zone of the last letter of their names."""
    snapshot = new_snapshot()
    ledger = snapshot.ledger
    offer(ledger.devices, device_class())
    for name, number in gpus.items():
        ledger.put_node(node(name, cpu=64, labels={"zone": name[-1]}))
        if number:
            offer(ledger.devices, gpus_of(name, number))
    return snapshot


def gpus_of(name: str, number: int) -> ResourceSlice:
    """Return so many GPUs of a node, two at each NUMA node."""
    return device_slice(*(device(f"gpu-{index}", {"numa": index // 2}) for index in range(number)), node=name)


def workers(
    snapshot: Snapshot, number: int, *, gpus: int = 1, group: str = "pg", match: str | None = None
) -> list[Pod]:
    """Return pods with a claim of their own each, for so many GPUs, which match in an attribute if one is named."""
    catalog, asked = snapshot.ledger.devices, device_request(count=gpus)
    return [worker(catalog, f"{group}-{index}", asked, match=match, cpu=1, group=group) for index in range(number)]


def decided(snapshot: Snapshot, pods: list[Pod], *, gang: int | None = None, key: str | None = None) -> Decision:
    """Decide about a gang of these pods."""
    group = pod_group("pg", gang=gang or len(pods), key=key)
    return decided_tree(snapshot, [group], {key_of(group): GroupPods(pending=pods)})


def decided_tree(snapshot: Snapshot, groups: list[Group], pods: dict[GroupKey, GroupPods]) -> Decision:
    """Decide about a tree; check that the ledger is unchanged afterwards, and that no device is given twice."""
    tree = next(iter(Forest.of(groups).trees()))
    unit = tree_unit(tree, pods, snapshot.ledger)
    before = state(snapshot)
    decision = decide(snapshot, unit, SearchOptions(detail=True))
    assert state(snapshot) == before
    given = {
        (one.claim, result.pool, result.device)
        for bind in decision.binds
        for one in bind.allocations
        if isinstance(one, DeviceAllocation) and one.is_new
        for result in one.result.devices.results or ()
    }
    assert max(Counter(place[1:] for place in given).values(), default=1) == 1
    return decision


def state(snapshot: Snapshot) -> tuple[object, ...]:
    """Return what a cycle has to leave unchanged."""
    ledger = snapshot.ledger
    allocator = ledger.device_allocator
    allocator.refresh()
    states = {pool: allocator.stock.state(pool) for pool in sorted(allocator.stock.pools)}
    return ledger.used.tolist(), states, dict(allocator.claims.held), dict(allocator.claims.simulated)


def nodes_of(decision: Decision) -> dict[str, int]:
    """Return how many pods are bound to each node."""
    return dict(sorted(Counter(bind.node for bind in decision.binds).items()))


def devices_of(decision: Decision) -> dict[str, str]:
    """Return the devices of each claim, as ``pool/device``."""
    return {
        one.claim.removeprefix("default/"): " ".join(
            f"{result.pool}/{result.device}" for result in one.result.devices.results or ()
        )
        for bind in decision.binds
        for one in bind.allocations
        if isinstance(one, DeviceAllocation)
    }


def reasons_of(decision: Decision) -> dict[str, int]:
    """Return the reasons for rejected nodes."""
    return {reason.text: reason.nodes for reason in decision.explanation.reports[-1].reasons}


def test_each_pod_gets_devices_of_its_own() -> None:
    """A gang with a claim for each pod fills the devices of the nodes and takes none twice."""
    snapshot = cluster(a=2, b=3, c=0)
    decision = decided(snapshot, workers(snapshot, 5))
    assert nodes_of(decision) == {"a": 2, "b": 3}
    assert sorted(devices_of(decision).values()) == ["a/gpu-0", "a/gpu-1", "b/gpu-0", "b/gpu-1", "b/gpu-2"]


def test_a_gang_without_enough_devices_is_not_placed() -> None:
    """One device too few, and no pod is bound."""
    snapshot = cluster(a=2, b=2)
    decision = decided(snapshot, workers(snapshot, 5))
    assert (decision.explanation.finding, decision.binds) == (Finding.IMPOSSIBLE, ())
    assert reasons_of(decision) == {"cannot allocate all claims": 2}


def test_devices_count_by_domain() -> None:
    """A gang goes to the only zone that has enough devices."""
    snapshot = cluster(n1a=2, n2a=1, n1b=2, n2b=2)
    decision = decided(snapshot, workers(snapshot, 4), key="zone")
    assert nodes_of(decision) == {"n1b": 2, "n2b": 2}


def test_pods_with_equal_claims_are_one_class() -> None:
    """A thousand workers with claims of their own stay alike; one that asks for more does not."""
    snapshot = cluster(a=4)
    pods = [*workers(snapshot, 3), *workers(snapshot, 1, gpus=2, group="other")]
    classes = [snapshot.ledger.class_of(one) for one in pods]
    assert len({found.index for found in classes}) == 2


def test_devices_of_one_claim_share_an_attribute() -> None:
    """Two devices of one NUMA node for each pod: of three free ones on a node, two at most serve."""
    snapshot = cluster(a=3, b=4)
    decision = decided(snapshot, workers(snapshot, 3, gpus=2, match="numa"))
    assert sorted(devices_of(decision).values()) == ["a/gpu-0 a/gpu-1", "b/gpu-0 b/gpu-1", "b/gpu-2 b/gpu-3"]
    assert decided(snapshot, workers(snapshot, 4, gpus=2, match="numa")).explanation.finding is Finding.IMPOSSIBLE


def test_pods_of_a_node_are_given_devices_that_leave_enough_for_the_others() -> None:
    """Any partition serves a pod. The whole device is the first, and would leave nothing for the second pod."""
    snapshot = cluster(a=0)
    parts = [
        device(name, counters={"memory": {"slices": slices}})
        for name, slices in (("whole", 4), ("left", 2), ("right", 2), ("small", 1))
    ]
    counters = device_slice(node="a", name="counters", count=2, counters={"memory": {"slices": 4}})
    offer(snapshot.ledger.devices, counters, device_slice(*parts, node="a", name="parts", count=2))
    assert list(devices_of(decided(snapshot, workers(snapshot, 1))).values()) == ["a/whole"]
    decision = decided(snapshot, workers(snapshot, 2))
    assert sorted(devices_of(decision).values()) == ["a/left", "a/right"]
    assert decided(snapshot, workers(snapshot, 3)).explanation.finding is Finding.IMPOSSIBLE


def test_a_search_that_is_given_up_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their number, the devices would be enough for two pods. That they are not takes a search for both."""
    snapshot = cluster(a=0)
    devices = (device(f"gpu-{index}", {"numa": index // 3}) for index in range(4))
    offer(snapshot.ledger.devices, device_slice(*devices, node="a"))
    pods = workers(snapshot, 2, gpus=2, match="numa")
    assert decided(snapshot, pods).explanation.finding is Finding.IMPOSSIBLE
    monkeypatch.setattr(device_solver, "MAX_TOGETHER", 1)
    offer(snapshot.ledger.devices, device_class("other"))
    explanation = decided(snapshot, pods).explanation
    assert (explanation.finding, explanation.limitations) == (Finding.NOT_FOUND, (Limitation.DEVICES,))


def test_a_claim_of_the_whole_group_holds_it_together() -> None:
    """Pods that share a claim for devices of a node go to that node, one that has room for all of them."""
    snapshot = cluster(a=1, b=1)
    snapshot.ledger.put_node(node("a", cpu=2))
    offer(snapshot.ledger.devices, device_claim("shared"))
    decision = decided(snapshot, [claiming(f"p{index}", "shared", cpu=1, group="pg") for index in range(3)])
    assert nodes_of(decision) == {"b": 3}
    assert devices_of(decision) == {"shared": "b/gpu-0"}


def test_a_claim_over_the_network_holds_a_group_in_its_zone() -> None:
    """Of two zones with a device that all their nodes can use, the one with room for all pods is found."""
    snapshot = cluster(n1a=0, n1b=0, n2b=0)
    for name in ("n1a", "n1b", "n2b"):
        snapshot.ledger.put_node(node(name, cpu=2, labels={"zone": name[-1]}))
    offer(snapshot.ledger.devices, device_claim("fabric"), zone_slice("a", "link"), zone_slice("b", "link"))
    pods = [claiming(f"p{index}", "fabric", cpu=1, group="pg") for index in range(4)]
    decision = decided(snapshot, pods)
    assert nodes_of(decision) == {"n1b": 2, "n2b": 2}
    assert devices_of(decision) == {"fabric": "pool-b/link"}


def test_devices_over_the_network_are_counted_across_nodes() -> None:
    """Pods with a claim each for one of two devices of a zone: the third waits."""
    snapshot = cluster(n1a=0, n2a=0)
    offer(snapshot.ledger.devices, zone_slice("a", "x", "y"))
    assert len(decided(snapshot, workers(snapshot, 3), gang=2).binds) == 2
    assert decided(snapshot, workers(snapshot, 3)).binds == ()


def test_allocated_claims_pin_their_pods() -> None:
    """A claim that has a device of a node already leaves its pod that node alone, and is not allocated again."""
    snapshot = cluster(a=1, b=1)
    offer(snapshot.ledger.devices, allocated(device_claim("old"), "b", "gpu-0"))
    decision = decided(snapshot, [claiming("p", "old", cpu=1)])
    assert nodes_of(decision) == {"b": 1}
    (bind,) = decision.binds
    assert [one.is_new for one in bind.allocations if isinstance(one, DeviceAllocation)] == [False]
    snapshot.ledger.remove_node("b")
    assert reasons_of(decided(snapshot, [claiming("p", "old", cpu=1)])) == {
        "resourceclaim not available on the node": 1
    }


def test_allocated_devices_are_taken() -> None:
    """What any claim of the API has is not given again; once the claim is gone it is."""
    snapshot = cluster(a=2)
    offer(snapshot.ledger.devices, allocated(device_claim("old"), "a", "gpu-0"))
    assert devices_of(decided(snapshot, workers(snapshot, 1))) == {"pg-0-gpu": "a/gpu-1"}
    assert decided(snapshot, workers(snapshot, 2)).binds == ()
    snapshot.ledger.devices.remove_claim("default", "old")
    assert len(decided(snapshot, workers(snapshot, 2)).binds) == 2


def test_assumed_devices_are_taken_until_they_are_forgotten() -> None:
    """A decision counts until the API shows another state of the claim, or the scheduler forgets it."""
    snapshot = cluster(a=2)
    allocators = snapshot.ledger.allocators
    first = decided(snapshot, workers(snapshot, 1)).binds[0].allocations
    allocators.assume(first)
    allocators.assume(first)
    again = decided(snapshot, workers(snapshot, 1, group="other"))
    assert devices_of(again) == {"other-0-gpu": "a/gpu-1"}
    allocators.forget(first)
    allocators.forget(first)
    assert devices_of(decided(snapshot, workers(snapshot, 1, group="other"))) == {"other-0-gpu": "a/gpu-0"}


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (claiming("p", "missing"), 'resourceclaim "missing" not found'),
        (
            claiming("p", made={"gpu": "q-gpu"}),
            "ResourceClaim default/q-gpu was not created for the pod (pod is not owner)",
        ),
        (claiming("p", "unknown-class"), "device class tpu does not exist"),
    ],
)
def test_claims_that_cannot_be_allocated_are_named(pod: Pod, reason: str) -> None:
    """What is wrong with the claims of a pod is said, and that no node would help."""
    snapshot = cluster(a=1)
    tpu = device_claim("unknown-class", claim_spec(device_request(device_class_name="tpu")))
    offer(snapshot.ledger.devices, own_claim("q"), tpu)
    decision = decided(snapshot, [pod])
    assert reasons_of(decision) == {reason: 1}
    assert decision.explanation.reports[0].lack is Lack.DEVICES


def test_a_tree_takes_devices_across_its_groups() -> None:
    """Two gangs below one root, each in a zone of its own, never share a device."""
    snapshot = cluster(n1a=4, n1b=3)
    root = composite("root", gang=2)
    leaves = [pod_group(name, gang=3, parent="root", key="zone") for name in ("x", "y")]
    pods = {key_of(leaf): GroupPods(pending=workers(snapshot, 3, group=leaf.metadata.name)) for leaf in leaves}
    decision = decided_tree(snapshot, [root, *leaves], pods)
    assert nodes_of(decision) == {"n1a": 3, "n1b": 3}


def test_claims_for_shares_and_administrators_take_no_device_from_others() -> None:
    """What a node has of a device that can be shared limits its pods; admin access limits none."""
    snapshot = cluster(a=0, b=0)
    shared = device("card", capacity={"memory": "10Gi"}, allow_multiple_allocations=True)
    offer(snapshot.ledger.devices, device_slice(shared, node="a"))
    part = device_request(capacity={"memory": "4Gi"})
    pods = [worker(snapshot.ledger.devices, f"p{number}", part, cpu=1, group="pg") for number in range(3)]
    decision = decided_shares(snapshot, pods)
    assert (decision.explanation.finding, len(decided_shares(snapshot, pods[:2]).binds)) == (Finding.IMPOSSIBLE, 2)
    watching = [
        worker(snapshot.ledger.devices, f"w{number}", device_request(admin_access=True), cpu=1, group="pg")
        for number in range(5)
    ]
    assert nodes_of(decided_shares(snapshot, watching)) == {"a": 5}


def decided_shares(snapshot: Snapshot, pods: list[Pod]) -> Decision:
    """Decide about a gang whose pods may be given the same device."""
    group = pod_group("pg", gang=len(pods))
    tree = next(iter(Forest.of([group]).trees()))
    unit = tree_unit(tree, {key_of(group): GroupPods(pending=pods)}, snapshot.ledger)
    before = state(snapshot)
    decision = decide(snapshot, unit, SearchOptions(detail=True))
    assert state(snapshot) == before
    return decision


def test_all_devices_of_a_node() -> None:
    """One pod gets all of them, and is kept from a node where one is taken."""
    snapshot = cluster(a=3, b=2)
    offer(snapshot.ledger.devices, allocated(device_claim("old"), "a", "gpu-1"))
    every = device_request(allocation_mode="All")
    pods = [worker(snapshot.ledger.devices, "p", every, cpu=1, group="pg")]
    assert devices_of(decided(snapshot, pods)) == {"p-gpu": "b/gpu-0 b/gpu-1"}


def test_pods_with_private_and_shared_claims() -> None:
    """A claim of the whole group and one of each pod are allocated together."""
    snapshot = cluster(a=3, b=4)
    offer(snapshot.ledger.devices, device_claim("shared"))
    pods = []
    for index in range(3):
        offer(snapshot.ledger.devices, own_claim(f"p{index}"))
        pods.append(claiming(f"p{index}", "shared", made={"gpu": f"p{index}-gpu"}, cpu=1, group="pg"))
    decision = decided(snapshot, pods)
    assert nodes_of(decision) == {"b": 3}
    assert sorted(devices_of(decision)) == ["p0-gpu", "p1-gpu", "p2-gpu", "shared"]


def test_a_node_that_is_gone_or_unknown_has_no_devices() -> None:
    """Slices may come before their node and stay after it."""
    snapshot = cluster(a=1)
    offer(snapshot.ledger.devices, device_slice("gpu-0", node="later"))
    pods = workers(snapshot, 2)
    assert decided(snapshot, pods).binds == ()
    snapshot.ledger.put_node(node("later", cpu=64))
    assert nodes_of(decided(snapshot, pods)) == {"a": 1, "later": 1}
    snapshot.ledger.remove_node("a")
    assert decided(snapshot, pods).binds == ()


def test_a_new_class_or_slice_changes_what_fits() -> None:
    """What was computed for earlier devices is not used for later ones."""
    snapshot = cluster(a=1)
    pods = workers(snapshot, 2)
    assert decided(snapshot, pods).binds == ()
    offer(snapshot.ledger.devices, device_slice("gpu-0", "gpu-1", node="a"))
    assert len(decided(snapshot, pods).binds) == 2
    snapshot.ledger.devices.remove_class("gpu")
    assert reasons_of(decided(snapshot, pods)) == {"device class gpu does not exist": 1}


def test_selectors_decide_which_devices_serve() -> None:
    """A selector that cannot be evaluated for a device rejects the node, with the reason, and no other."""
    snapshot = cluster(a=1, b=1, c=1)
    offer(snapshot.ledger.devices, device_slice(device("gpu-0", {"numa": "text"}), node="a"))
    wanted = device_request("r0", f'device.attributes["{GPU_DRIVER}"].numa == 0', count=1)
    pods = [worker(snapshot.ledger.devices, f"p{number}", wanted, cpu=1, group="pg") for number in range(2)]
    assert nodes_of(decided(snapshot, pods)) == {"b": 1, "c": 1}


def test_nominated_pods_of_several_shapes() -> None:
    """Each takes what it would be given; one whose claim is gone, or that finds nothing, takes nothing."""
    snapshot = cluster(a=3)
    ledger = snapshot.ledger
    for name, number in (("one", 1), ("two", 1), ("many", 9), ("gone", 2)):
        found = worker(ledger.devices, name, device_request(count=number), cpu=1)
        uid = f"{NOMINATED}uid-default-{name}"
        ledger.put_pod(replace(found, metadata=replace(found.metadata, uid=uid)), "a")
        if name == "gone":
            ledger.devices.remove_claim("default", "gone-gpu")
    ledger.put_pod(replace(claiming("named", "x"), metadata=replace(metadata("named"), uid=f"{NOMINATED}x")), "a")
    assert len(decided(snapshot, workers(snapshot, 1)).binds) == 1
    assert decided(snapshot, workers(snapshot, 2)).binds == ()


def test_a_node_selector_of_all_nodes() -> None:
    """A claim without a node selector can be used everywhere."""
    snapshot = cluster(a=1, b=1)
    claim = allocated(device_claim("old"), "b", "gpu-0")
    assert claim.status.allocation is not None
    everywhere = replace(claim.status, allocation=replace(claim.status.allocation, node_selector=None))
    offer(snapshot.ledger.devices, replace(claim, status=everywhere))
    pods = [claiming(f"p{number}", "old", cpu=64, group="pg") for number in range(2)]
    assert nodes_of(decided(snapshot, pods)) == {"a": 1, "b": 1}


def test_a_claim_with_too_many_consumers() -> None:
    """The 257th pod that would share a claim waits."""
    snapshot = cluster(a=1)
    offer(snapshot.ledger.devices, device_claim("shared"))
    snapshot.ledger.put_node(node("a", cpu=600, pods=600))
    pods = [claiming(f"p{number}", "shared", cpu=1, group="pg") for number in range(257)]
    decision = decided(snapshot, pods, gang=256)
    assert len(decision.binds) == 256
    assert reasons_of(decision) == {"resourceclaim has too many consumers": 1}


def test_early_alternatives_are_preferred() -> None:
    """Of two nodes, the one with the device that the request names first; the other one serves as well."""
    snapshot = cluster(a=0, b=0, c=0)
    catalog = snapshot.ledger.devices
    offer(catalog, device_slice(device("small", {"size": 1}), node="a"))
    offer(catalog, device_slice(device("large", {"size": 2}), node="b"))
    sizes = [f'device.attributes["{GPU_DRIVER}"].size == {size}' for size in (2, 1)]
    wanted = first_available("r0", *(alternative(f"s{number}", one) for number, one in enumerate(sizes)))
    pods = [worker(catalog, f"p{number}", wanted, cpu=1, group="pg") for number in range(2)]
    assert devices_of(decided(snapshot, pods[:1])) == {"p0-gpu": "b/large"}
    assert devices_of(decided(snapshot, pods)) == {"p0-gpu": "b/large", "p1-gpu": "a/small"}
    assert decided(snapshot, [*pods, worker(catalog, "p2", wanted, cpu=1, group="pg")]).binds == ()


def test_claims_that_keep_a_gang_from_its_place_are_released() -> None:
    """If only its pods use them, and if it could be placed without their devices."""
    snapshot = cluster(a=1, b=1)
    catalog = snapshot.ledger.devices
    snapshot.ledger.put_pod(pod("full", cpu=64, node_name="a"), "a")
    pods = workers(snapshot, 1)
    claim = own_claim("pg-0")
    offer(catalog, allocated(claim, "a", "gpu-0", users=("pg-0",)))
    decision = decided(snapshot, pods)
    assert (decision.binds, [one.claim for one in decision.released]) == ((), ["default/pg-0-gpu"])
    offer(catalog, claim)
    assert nodes_of(decided(snapshot, pods)) == {"b": 1}
    offer(catalog, allocated(claim, "a", "gpu-0", users=("pg-0", "other")))
    assert decided(snapshot, pods).released == ()
    offer(catalog, allocated(claim, "a", "gpu-0"), allocated(device_claim("busy"), "b", "gpu-0"))
    assert decided(snapshot, pods).released == ()
    snapshot.ledger.remove_pod("uid-default-full")
    assert (nodes_of(decided(snapshot, pods)), decided(snapshot, pods).released) == ({"a": 1}, ())


def test_room_for_expected_pods_is_kept_by_resources_alone() -> None:
    """Their claims do not exist before they do, and must not keep the pods that exist from their place."""
    snapshot = cluster(a=1)
    group = pod_group("pg", gang=1)
    coming = claiming("coming", made={"gpu": None}, cpu=1, group="pg")
    coming = replace(coming, status=replace(coming.status, resource_claim_statuses=None))
    members = GroupPods(pending=workers(snapshot, 1), expected=(coming,), needed=1)
    decision = decided_tree(snapshot, [group], {key_of(group): members})
    assert (len(decision.binds), len(decision.reserved)) == (1, 1)
