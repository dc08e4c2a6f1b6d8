"""What nodes lack of devices, as explanations of attempts have it."""

from collections.abc import Sequence
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from cpg_api.core.devices import DeviceRequest, ResourceSlice
from cpg_api.core.node import Taint
from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Forest, key_of
from cpg_engine.cycle import decide
from cpg_engine.devices.census import take_census
from cpg_engine.gangs import device_survey
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.gangs.unit import GroupPods, tree_unit
from cpg_engine.snapshot import Snapshot, new_snapshot
from cpg_engine.testing.builders import composite, node, pod_group
from cpg_engine.testing.claim_builders import allocated, claiming, offer, worker, zone_slice
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
from cpg_engine.verdicts import ClaimElsewhere, DeviceFinding, DeviceSupply, GroupReport

NUMA = f'device.attributes["{GPU_DRIVER}"].numa'
SUPPLY = DeviceSupply(request="r0", device_class="gpu", pods=1, needed=1)


def gpus(name: str, number: int, count: int = 1) -> ResourceSlice:
    """Return so many GPUs of a node, two at each NUMA node."""
    return device_slice(
        *(device(f"gpu-{index}", {"numa": index // 2}) for index in range(number)), node=name, count=count
    )


def cluster(**numbers: int) -> Snapshot:
    """Return nodes with so many GPUs each, in the zone of the last letter of their names."""
    snapshot = new_snapshot()
    offer(snapshot.ledger.devices, device_class())
    for name, number in numbers.items():
        snapshot.ledger.put_node(node(name, cpu=64, labels={"zone": name[-1]}))
        offer(snapshot.ledger.devices, *([gpus(name, number)] if number else []))
    return snapshot


def reports(snapshot: Snapshot, pods: Sequence[Pod], *, key: str | None = None, detail: bool = True) -> GroupReport:
    """Return the report of a gang of these pods that is not placed as a whole."""
    group = pod_group("pg", gang=len(pods), key=key)
    tree = next(iter(Forest.of([group]).trees()))
    unit = tree_unit(tree, {key_of(group): GroupPods(pending=list(pods))}, snapshot.ledger)
    return decide(snapshot, unit, SearchOptions(detail=detail)).explanation.reports[0]


def workers(snapshot: Snapshot, number: int, *, count: int = 1, match: str | None = None) -> list[Pod]:
    """Return pods of one group that claim so many GPUs each."""
    catalog, asked = snapshot.ledger.devices, device_request(count=count)
    return [worker(catalog, f"w{index}", asked, match=match, cpu=1, group="pg") for index in range(number)]


def missing(snapshot: Snapshot, *pods: Pod) -> DeviceFinding | None:
    """Return what nodes lack for a gang of pods without topology."""
    return reports(snapshot, pods).devices


def asking(snapshot: Snapshot, *requests: DeviceRequest) -> Pod:
    """Return a pod with a claim for these requests."""
    return worker(snapshot.ledger.devices, "w", *requests, cpu=1, group="pg")


def test_devices_of_the_unit_itself_count_as_free() -> None:
    """Its pods hold them only while the attempt lasts; those of other claims are taken."""
    snapshot = cluster(a=2, b=2)
    offer(snapshot.ledger.devices, allocated(device_claim("other"), "b", "gpu-1"))
    found = missing(snapshot, *workers(snapshot, 4))
    assert found == replace(SUPPLY, pods=4, most=2, free=3, taken=1)
    assert isinstance(found, DeviceSupply)
    assert found.total == 4


def test_the_closest_domain_is_counted() -> None:
    """Also where each of its nodes has room for one pod more, so that no node is rejected."""
    snapshot = cluster(n1a=2, n2a=1, n1b=2, n2b=2)
    closest, other = reports(snapshot, workers(snapshot, 6), key="zone").candidates
    assert (closest.domain.value, closest.devices) == ("b", replace(SUPPLY, pods=6, most=2, free=4))
    assert (other.reasons, other.devices) == ((), None)


def test_the_second_class_of_a_group_can_be_the_one_without_devices() -> None:
    """The first needs none."""
    snapshot = cluster(na=1)
    plain = claiming("plain", cpu=1, group="pg")
    closest, *_ = reports(snapshot, [plain, *workers(snapshot, 2)], key="zone").candidates
    assert closest.devices == replace(SUPPLY, pods=2, most=1, free=1)


def test_nothing_is_counted_without_detail_or_where_devices_are_enough() -> None:
    """CPU is missing."""
    snapshot = cluster(a=2)
    assert reports(snapshot, workers(snapshot, 3), detail=False).devices is None
    offer(snapshot.ledger.devices, gpus("a", 4))
    big = worker(snapshot.ledger.devices, "big", device_request(), cpu=65, group="pg")
    assert missing(snapshot, big) is None
    assert reports(snapshot, [big], key="zone").candidates[0].devices is None


def test_nodes_that_pods_cannot_use_do_not_count() -> None:
    """Their devices would be of no help; without any other node there is nothing to count."""
    snapshot = cluster(a=2, b=2)
    snapshot.ledger.put_node(node("b", cpu=64, taints=(Taint(key="k", effect="NoSchedule"),)))
    assert missing(snapshot, *workers(snapshot, 3)) == replace(SUPPLY, pods=3, most=2, free=2)
    snapshot.ledger.put_node(node("a", cpu=64, taints=(Taint(key="k", effect="NoSchedule"),)))
    assert missing(snapshot, *workers(snapshot, 3)) is None


def test_a_pod_can_need_more_devices_than_a_node_has() -> None:
    """By one request, by several of one kind, and because of a constraint."""
    snapshot = cluster(a=3, b=4)
    assert missing(snapshot, *workers(snapshot, 1, count=5)) == replace(SUPPLY, needed=5, most=4, free=7)
    several = asking(snapshot, device_request("x", count=3), device_request("y", count=3))
    assert missing(snapshot, several) == replace(SUPPLY, request="x", needed=6, most=4, free=7)
    snapshot, agree = cluster(a=3, b=4), f"agree in {GPU_DRIVER}/numa"
    assert missing(snapshot, *workers(snapshot, 1, count=3, match="numa")) == replace(
        SUPPLY, needed=3, most=4, free=7, constraint=agree
    )


def test_the_request_that_comes_least_close_is_counted() -> None:
    """By its best alternative, with the selectors of the request."""
    snapshot = cluster(a=2)
    absent = first_available(
        "r1", alternative("big", f"{NUMA} == 7", "true", count=2), alternative("small", f"{NUMA} == 7")
    )
    found = missing(snapshot, asking(snapshot, device_request(), absent))
    assert found == replace(SUPPLY, request="r1/small", unmatched=2, selector=f"{NUMA} == 7")


def test_failing_selectors_are_quoted() -> None:
    """The most frequent failure."""
    snapshot = cluster(a=2)
    offer(snapshot.ledger.devices, device_slice(device("x"), node="a", pool="other"))
    found = missing(snapshot, asking(snapshot, device_request("r0", f'{NUMA}.nothing == "a"')))
    assert isinstance(found, DeviceSupply)
    assert (found.failing, found.unmatched, bool(found.problem)) == (3, 0, True)


def test_an_incomplete_pool_is_named() -> None:
    """Nothing is allocated from it."""
    snapshot = cluster(a=0)
    offer(snapshot.ledger.devices, gpus("a", 2, count=2))
    found = missing(snapshot, *workers(snapshot, 1))
    assert found == replace(SUPPLY, problem=f"pool {GPU_DRIVER}/a is incomplete: its driver is updating it")


def test_devices_that_several_nodes_can_use_count_once() -> None:
    """Each node could have all of them."""
    snapshot = cluster(n1a=0, n2a=0)
    offer(snapshot.ledger.devices, zone_slice("a", "x", "y"))
    assert missing(snapshot, *workers(snapshot, 3)) == replace(SUPPLY, pods=3, most=2, free=2)


def test_of_many_nodes_some_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is said."""
    monkeypatch.setattr(device_survey, "MAX_NODES", 2)
    snapshot = cluster(a=1, b=1, c=1)
    assert missing(snapshot, *workers(snapshot, 4)) == replace(SUPPLY, pods=4, most=1, free=2, counted=2)


def test_a_claim_with_devices_elsewhere_is_named_with_its_nodes() -> None:
    """Those outside of the domain; none where the node is gone."""
    snapshot = cluster(na=1, nb=1)
    catalog = snapshot.ledger.devices
    offer(catalog, allocated(device_claim("shared"), "na", "gpu-0"), allocated(device_claim("lost"), "gone", "gpu-0"))
    pinned = claiming("p", "shared", cpu=1, group="pg", node_selector={"zone": "b"})
    assert missing(snapshot, pinned) == ClaimElsewhere("default/shared", "na", 1)
    lost = reports(snapshot, [claiming("q", "lost", cpu=1, group="pg")], key="zone").candidates[0]
    assert lost.devices == ClaimElsewhere("default/lost")


def test_a_shared_claim_that_has_just_been_allocated_is_known_in_the_first_attempt() -> None:
    """Although nothing has read the claims of the catalog before."""
    snapshot = cluster(na=1, nb=1)
    offer(snapshot.ledger.devices, allocated(device_claim("shared"), "na", "gpu-0"))
    pods = [claiming(name, "shared", cpu=1, group="pg", node_selector={"zone": "b"}) for name in "pq"]
    assert missing(snapshot, *pods) == ClaimElsewhere("default/shared", "na", 1)


def test_a_claim_in_reach_of_some_nodes_is_no_reason() -> None:
    """The node that has its devices lacks CPU. A second claim is in reach of none."""
    snapshot = cluster(na=1, nb=1)
    snapshot.ledger.put_node(node("na", cpu=1, labels={"zone": "a"}))
    catalog = snapshot.ledger.devices
    offer(catalog, allocated(device_claim("near"), "na", "gpu-0"), allocated(device_claim("lost"), "gone", "gpu-0"))
    assert missing(snapshot, claiming("p", "near", cpu=2, group="pg")) is None
    assert missing(snapshot, claiming("q", "near", "lost", cpu=1, group="pg")) == ClaimElsewhere("default/lost")


def test_a_claim_without_requests_lacks_nothing() -> None:
    """Another claim of the pod has its devices where the pod cannot go, beside a node that lacks CPU."""
    snapshot = cluster(na=1, nb=1)
    snapshot.ledger.put_node(node("na", cpu=1, labels={"zone": "a"}))
    catalog = snapshot.ledger.devices
    offer(catalog, allocated(device_claim("held"), "na", "gpu-0"), device_claim("empty", claim_spec()))
    assert missing(snapshot, claiming("p", "held", "empty", cpu=2, group="pg")) is None


def test_claims_that_can_never_be_satisfied_need_no_count() -> None:
    """The reason names what is missing."""
    snapshot = cluster(a=1)
    assert missing(snapshot, asking(snapshot, device_request(device_class_name="tpu"))) is None


def test_equal_requests_on_the_same_nodes_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although two groups of a tree report them."""
    taken = Mock(side_effect=take_census)
    monkeypatch.setattr(device_survey, "take_census", taken)
    snapshot = cluster(a=1)
    leaves = [pod_group(name, parent="root", gang=2) for name in ("x", "y")]
    pods = {key_of(leaf): GroupPods(pending=pair(snapshot, leaf.metadata.name)) for leaf in leaves}
    tree = next(iter(Forest.of([composite("root", gang=1), *leaves]).trees()))
    unit = tree_unit(tree, pods, snapshot.ledger)
    _, *found = decide(snapshot, unit, SearchOptions(detail=True)).explanation.reports
    assert [one.devices for one in found] == [replace(SUPPLY, pods=2, most=1, free=1)] * 2
    assert taken.call_count == 2


def pair(snapshot: Snapshot, group: str) -> list[Pod]:
    """Return two pods of a group that claim a GPU each."""
    catalog = snapshot.ledger.devices
    return [worker(catalog, f"{group}-{index}", device_request(), cpu=1, group=group) for index in range(2)]
