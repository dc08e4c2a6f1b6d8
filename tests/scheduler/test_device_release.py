"""Claims whose devices keep their pod from its place."""

from cpg_engine.testing.builders import node, pod, pod_group
from cpg_engine.testing.claim_builders import allocated, claiming, own_claim
from cpg_engine.testing.device_builders import device_class, device_slice
from cpg_scheduler.testing.stage import Stage


def test_a_claim_that_keeps_its_pod_from_every_node_is_released() -> None:
    """Nothing is evicted for it; once the claim shows no devices any more, the pod is placed elsewhere."""
    stage = Stage(node("a", cpu=1), node("b", cpu=1), device_class())
    stage.put(device_slice("gpu-0", node="a"), device_slice("gpu-0", node="b"))
    stage.put(pod("full", cpu=1, node_name="a", priority=0), allocated(own_claim("p"), "a", "gpu-0", users=("p",)))
    stage.put(claiming("p", made={"gpu": "p-gpu"}, cpu=1, priority=100))
    stage.run_passes()
    assert stage.binder.released == [("default/p-gpu", frozenset({"uid-default-p"}))]
    assert (stage.binder.batches, stage.executor.jobs) == ([], {})
    stage.put(own_claim("p"))
    stage.run_passes()
    assert [list(batch.nodes.values()) for batch in stage.binder.batches] == [["b"]]


def test_a_claim_that_keeps_a_pod_from_the_rest_of_its_gang_is_released() -> None:
    """The minimum runs already, so the gang counts as placed; the pod holds a device that it cannot use for nothing."""
    stage = Stage(node("a", cpu=1), node("b", cpu=2), device_class(), pod_group("pg", gang=1))
    stage.put(device_slice("gpu-0", node="a"), device_slice("gpu-0", node="b"))
    stage.put(pod("full", cpu=1, node_name="a", priority=1000), pod("pg-0", cpu=1, node_name="b", group="pg"))
    stage.put(allocated(own_claim("p"), "a", "gpu-0", users=("p",)))
    stage.put(claiming("p", made={"gpu": "p-gpu"}, cpu=1, group="pg"))
    stage.run_passes()
    assert stage.binder.released == [("default/p-gpu", frozenset({"uid-default-p"}))]
    stage.put(own_claim("p"))
    stage.run_passes()
    assert [list(batch.nodes.values()) for batch in stage.binder.batches] == [["b"]]
