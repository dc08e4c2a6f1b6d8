"""Preemptions for devices: which may be published late, and are free only a moment after their pod is gone."""

import pytest

from cpg_engine.testing.builders import node, pod_group
from cpg_engine.testing.claim_builders import allocated, claiming, own_claim
from cpg_engine.testing.device_builders import device_claim, device_class, device_slice
from cpg_scheduler.testing.preemption_setup import plans
from cpg_scheduler.testing.stage import Stage


@pytest.mark.parametrize("others", [0, 1])
def test_room_stays_reserved_until_devices_are_deallocated(others: int) -> None:
    """The victim is created anew before that: it does not take the room, and is not evicted again.

    Whether there are other pods that could be evicted makes no difference, nor that the gang is larger.
    """
    stage = Stage(node("n1", cpu=4), device_class(), device_slice("gpu-0", node="n1"))
    stage.put(*(claiming(f"other-{number}", cpu=1, priority=10, node_name="n1") for number in range(others)))
    stage.put(allocated(own_claim("low"), "n1", "gpu-0", users=("low",)))
    stage.put(claiming("low", made={"gpu": "low-gpu"}, cpu=1, priority=10, node_name="n1"))
    stage.put(pod_group("pg", gang=1, priority=100))
    for name in ("pg-0", "pg-1"):
        stage.put(own_claim(name), claiming(name, made={"gpu": f"{name}-gpu"}, group="pg", cpu=1, priority=100))
    stage.settle()
    assert (stage.evicted, stage.pod("pg-0").status.nominated_node_name) == (["low"], "n1")
    stage.delete(stage.cache.devices.claims["default/low-gpu"])
    stage.put(own_claim("low"), claiming("low", made={"gpu": "low-gpu"}, cpu=1, priority=10))
    stage.run_passes()
    assert [name for batch in stage.binder.batches for name in batch.nodes] in ([], ["uid-default-pg-0"])
    stage.settle(60)
    assert stage.pod("pg-0").spec.node_name == "n1"
    assert (len(plans(stage)), stage.evicted) == (1, ["low"])


def test_room_for_a_claim_that_others_may_use_stays_reserved() -> None:
    """The devices become free during the backoff of the gang: the victim that is created anew does not take them."""
    stage = Stage(node("n1", cpu=4), device_class(), device_slice("gpu-0", node="n1"), device_claim("shared"))
    stage.put(allocated(own_claim("low"), "n1", "gpu-0", users=("low",)))
    stage.put(claiming("low", made={"gpu": "low-gpu"}, cpu=1, priority=10, node_name="n1"))
    stage.put(pod_group("pg", gang=1, priority=100), claiming("pg-0", "shared", group="pg", cpu=1, priority=100))
    stage.settle()
    assert (stage.evicted, stage.pod("pg-0").status.nominated_node_name) == (["low"], "n1")
    stage.delete(stage.cache.devices.claims["default/low-gpu"])
    stage.put(own_claim("low"), claiming("low", made={"gpu": "low-gpu"}, cpu=1, priority=10))
    stage.run_passes()
    stage.settle(60)
    assert stage.pod("pg-0").spec.node_name == "n1"
    assert (len(plans(stage)), stage.evicted) == (1, ["low"])


def test_pods_that_share_a_claim_wait_for_one_device() -> None:
    """The second pod does not take the device that the first is to get for a missing one, and evicts nothing for it."""
    stage = Stage(node("n1", cpu=4), device_class(), device_slice("gpu-0", "gpu-1", node="n1"), device_claim("shared"))
    for number in range(2):
        low = f"low-{number}"
        stage.put(allocated(own_claim(low), "n1", f"gpu-{number}", users=(low,)))
        stage.put(claiming(low, made={"gpu": f"{low}-gpu"}, cpu=1, priority=10, node_name="n1"))
    stage.put(claiming("first", "shared", cpu=1, priority=100), claiming("second", "shared", cpu=1, priority=100))
    stage.settle()
    assert len(stage.evicted) == 1
    stage.delete(stage.cache.devices.claims[f"default/{stage.evicted[0]}-gpu"])
    stage.settle(60)
    assert [stage.pod(name).spec.node_name for name in ("first", "second")] == ["n1", "n1"]
    assert len(stage.evicted) == 1


def test_devices_that_are_published_late_are_preempted_for() -> None:
    """There were none when the pod was first attempted, so that no eviction could have helped; later there are."""
    stage = Stage(node("n1", cpu=4), device_class(), own_claim("p"))
    stage.put(claiming("p", made={"gpu": "p-gpu"}, cpu=1, priority=100))
    stage.settle()
    stage.put(device_slice("gpu-0", node="n1"), allocated(own_claim("low"), "n1", "gpu-0", users=("low",)))
    stage.put(claiming("low", made={"gpu": "low-gpu"}, cpu=1, priority=10, node_name="n1"))
    stage.settle(60)
    assert stage.evicted == ["low"]
