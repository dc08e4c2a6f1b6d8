"""Devices that nominated pods wait for, where several pods may use a claim."""

import numpy as np
import pytest
from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import NOMINATED
from cpg_engine.testing.builders import node
from cpg_engine.testing.claim_builders import allocated, claiming, offer, own_claim, worker
from cpg_engine.testing.device_builders import device_claim, device_class, device_slice

SHARED = device_claim("shared")


def cluster(gpus: int) -> Ledger:
    """Return two nodes with so many GPUs each, and a claim that several pods may use."""
    ledger = Ledger()
    offer(ledger.devices, device_class(), SHARED)
    for name in ("a", "b"):
        ledger.put_node(node(name))
        offer(ledger.devices, device_slice(*(f"gpu-{number}" for number in range(gpus)), node=name))
    return ledger


def nominate(ledger: Ledger, pod: Pod) -> None:
    """Nominate a pod to the first node."""
    ledger.put_pod(replace(pod, metadata=replace(pod.metadata, uid=NOMINATED + pod.metadata.uid)), "a")


def slots(ledger: Ledger, pod: Pod) -> list[int]:
    """Return for how many pods like this one each node has devices."""
    devices = ledger.class_of(pod).devices
    assert devices is not None
    room = ledger.device_allocator.room(devices)
    assert room is not None
    found: list[int] = room.slots(np.arange(2)).tolist()
    return found


def private(ledger: Ledger) -> Pod:
    """Return a pod with a claim of its own."""
    return worker(ledger.devices, "other")


def test_nominated_pods_that_share_a_claim_wait_for_its_devices_once() -> None:
    """What is to be allocated for each of them alone counts besides; the devices are there for others that share it."""
    ledger = cluster(gpus=3)
    offer(ledger.devices, own_claim("one"))
    nominate(ledger, claiming("one", "shared", made={"gpu": "one-gpu"}))
    nominate(ledger, claiming("two", "shared"))
    assert slots(ledger, private(ledger)) == [1, 3]
    assert slots(ledger, claiming("three", "shared")) == [2, 3]


def test_nominated_pods_wait_for_a_shared_claim_until_it_has_devices() -> None:
    """That the claim gets them at another node is noted at the node of the nomination as well."""
    ledger = cluster(gpus=1)
    nominate(ledger, claiming("one", "shared"))
    assert slots(ledger, private(ledger)) == [0, 1]
    offer(ledger.devices, allocated(SHARED, "b", "gpu-0"))
    assert slots(ledger, private(ledger)) == [1, 0]
    offer(ledger.devices, SHARED)
    assert slots(ledger, private(ledger)) == [0, 1]


@pytest.mark.parametrize("is_node_gone", [False, True])
def test_nominations_that_end_wait_for_nothing(*, is_node_gone: bool) -> None:
    """Their node may have been gone meanwhile."""
    ledger = cluster(gpus=1)
    pods = [claiming("one", "shared"), claiming("two", "shared")]
    for pod in pods:
        nominate(ledger, pod)
    if is_node_gone:
        ledger.remove_node("a")
        assert not ledger.device_allocator.stock.followers
        ledger.put_node(node("a"))
    for pod in pods:
        assert slots(ledger, private(ledger)) == [0, 1]
        ledger.remove_pod(NOMINATED + pod.metadata.uid)
    assert slots(ledger, private(ledger)) == [1, 1]
    assert not ledger.device_allocator.stock.followers
