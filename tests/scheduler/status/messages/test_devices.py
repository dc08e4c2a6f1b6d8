"""What is missing of devices, word for word."""

from typing import Any

import pytest
from msgspec.structs import replace

from cpg_api.scheduling.attempts import MAX_SENTENCE, MissingDevices
from cpg_api.scheduling.forest import GroupKey
from cpg_engine.verdicts import (
    CandidateDomain,
    ClaimElsewhere,
    DeviceFinding,
    DeviceSupply,
    Domain,
    Explanation,
    FilterReason,
    Finding,
    GroupReport,
    StatusCounts,
)
from cpg_scheduler.status.attempts import missing_devices
from cpg_scheduler.status.messages.attempts import group_messages, pod_messages
from cpg_scheduler.status.messages.devices import devices_sentence

ROOT, LEAF, SINGLE = (
    GroupKey("CompositePodGroup", "ml", "root"),
    GroupKey("PodGroup", "ml", "a"),
    GroupKey("Pod", "ml", "p"),
)
REASON = FilterReason("cannot allocate all claims", 2)
CLASS = "devices of class gpu.example.com"
FREE = f"{CLASS} are free in rack-1"


def supply(**counts: Any) -> DeviceSupply:
    """Return what nodes have for a pod that needs one GPU."""
    return DeviceSupply(**{"request": "gpu", "device_class": "gpu.example.com", "pods": 1, "needed": 1, **counts})


def leaf(devices: DeviceFinding | None, key: GroupKey = LEAF) -> GroupReport:
    """Return a report of a leaf that two nodes reject."""
    return GroupReport(key, StatusCounts(4, 3, 0, 1), nodes=2, reasons=(REASON,), devices=devices)


def domain(devices: DeviceFinding | None) -> GroupReport:
    """Return a report of a leaf for which a rack is closest."""
    rack = CandidateDomain(Domain("rack", "rack-1"), 2, 3, 4, 1, (REASON,), devices)
    return GroupReport(LEAF, StatusCounts(4, 3, 0, 1), candidates=(rack,), domains=3)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            supply(free=3, most=1, tainted=2, unmatched=3, selector='device.driver\n  == "x"', pods=4),
            f'3 of 8 {FREE} (2 tainted, 3 do not match request gpu: device.driver == "x"); 4 pods need 4',
        ),
        (
            supply(free=3, most=3, taken=4, used_up=1, too_small=2, pods=4),
            f"3 of 10 {FREE} (4 allocated, 1 used up, 2 too small for request gpu); 4 pods need 4",
        ),
        (supply(unmatched=1, taken=1), f"0 of 2 {FREE} (1 allocated, 1 does not match request gpu)"),
        (supply(), f"there are no {CLASS} in rack-1"),
        (supply(problem="pool d/n0 is incomplete"), f"there are no {CLASS} in rack-1 (pool d/n0 is incomplete)"),
        (
            supply(failing=2, problem="no such key: model"),
            f"0 of 2 {FREE} (2 cannot be matched with request gpu: no such key: model)",
        ),
        (supply(free=8, most=2, needed=4), f"8 of 8 {FREE}; a pod needs 4 on one node, which has at most 2"),
        (
            supply(free=8, most=8, needed=4, constraint="agree in gpu.example.com/numa"),
            f"8 of 8 {FREE}; those of a pod have to agree in gpu.example.com/numa",
        ),
        (
            supply(free=7, most=4, taken=1, needed=0),
            f"7 of 8 {FREE} (1 allocated); request gpu takes all devices of a node",
        ),
        (supply(free=7, most=4, pods=9, counted=1000), f"7 of 7 {FREE}, of 1000 nodes that were counted"),
        (ClaimElsewhere("ml/x", "a", 1), "resourceclaim ml/x is allocated on node a, outside rack-1"),
        (
            ClaimElsewhere("ml/x", "a", 4),
            "resourceclaim ml/x has devices that 4 nodes such as a can use, outside rack-1",
        ),
        (ClaimElsewhere("ml/x"), "resourceclaim ml/x has devices that no node can use"),
    ],
)
def test_a_sentence_counts_the_devices_of_the_class_in_the_domain(found: DeviceFinding, expected: str) -> None:
    """By the reason why they are not free; then comes what those that are free are not enough for."""
    assert devices_sentence(domain(found)) == expected


def test_a_sentence_is_bounded() -> None:
    """Whatever selectors and names there are."""
    found = supply(unmatched=1, failing=1, selector="x" * 10_000, problem="y" * 10_000)
    assert len(devices_sentence(domain(replace(found, device_class="c" * 253)))) == MAX_SENTENCE


def test_messages_name_the_devices_once() -> None:
    """After the nodes or domains, at the outermost group where it is known."""
    expected = "2 of 8 devices of class gpu.example.com are free (6 allocated); 4 pods need 4"
    found = supply(free=2, most=2, taken=6, pods=4)
    nodes = "0/2 nodes are available: 2 cannot allocate all claims"
    own = f"minCount (4) cannot be satisfied: room for 3 of 4 pods; {nodes}; {expected}"
    root = GroupReport(ROOT, StatusCounts(1, 0, 0, 1), blockers=(LEAF,))
    tree = Explanation(Finding.NOT_FOUND, (root, leaf(found)))
    assert group_messages(tree) == {
        ROOT: f"minGroupCount (1) cannot be satisfied: room for 0 of 1 child group; {LEAF}: {own}",
        LEAF: own,
    }
    closest = replace(domain(supply(free=2, most=2, taken=6)).candidates[0], shortage=0)
    inner = replace(tree, reports=(replace(root, candidates=(closest,), domains=3), leaf(found)))
    assert group_messages(inner)[ROOT].count("devices of class") == 1
    pod = Explanation(Finding.IMPOSSIBLE, (leaf(found, SINGLE),))
    assert pod_messages(pod) == {SINGLE: f"{nodes}; {expected}"}


def test_pods_beyond_the_minimum_name_the_devices() -> None:
    """Those that are left once the minimum is placed."""
    report = replace(leaf(supply(taken=8)), counts=StatusCounts(3, 3, 0, 1))
    assert pod_messages(Explanation(Finding.PLACED, (report,)))[LEAF] == (
        "the minimum of PodGroup ml/a is placed, there is no room for more: 0/2 nodes are available: 2 cannot allocate "
        "all claims; 0 of 8 devices of class gpu.example.com are free (8 allocated)"
    )


def test_the_status_has_the_counts_of_the_first_group_on_the_path() -> None:
    """And the sentence; of a claim elsewhere only that."""
    root = GroupReport(ROOT, StatusCounts(1, 0, 0, 1))
    assert missing_devices((root, domain(supply(taken=8)), leaf(supply()))) == MissingDevices(
        "gpu.example.com", 0, 8, "0 of 8 devices of class gpu.example.com are free in rack-1 (8 allocated)"
    )
    assert missing_devices((root, leaf(ClaimElsewhere("ml/x", "a", 1)))) == MissingDevices(
        text="resourceclaim ml/x is allocated on node a"
    )
    assert missing_devices((root, leaf(None))) is None
