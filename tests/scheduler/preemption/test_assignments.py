"""The room that is reserved for each pod of a gang, while the gang is placed in parts."""

import pytest

from cpg_engine.testing.builders import composite, node, pod, pod_group
from cpg_scheduler.testing.preemption_setup import gang, low, plans
from cpg_scheduler.testing.stage import DENIED, Stage


def two(*, minimum: int = 1) -> Stage:
    """Return a stage on which two pods are nominated, and the node of the second will be free first."""
    stage = Stage(node("n1", cpu=1), node("n2", cpu=1), low("v1", "n1"), low("v2", "n2"))
    stage.put(*gang(size=2, minimum=minimum))
    stage.victims_linger = True
    stage.settle()
    assert nominated(stage) == {"pg-0": "n1", "pg-1": "n2"}
    return stage


def nominated(stage: Stage) -> dict[str, str]:
    """Return the nodes that pending pods are nominated to, as the API server has them."""
    names = ("pg-0", "pg-1")
    return {name: stage.pod(name).status.nominated_node_name for name in names if name not in stage.bound()}


def reserved(stage: Stage) -> dict[str, str]:
    """Return the nodes on which room is reserved."""
    return {stage.cache.pods[uid].metadata.name: found.node for uid, found in stage.cache.reservations.items()}


def end_pod(stage: Stage, name: str) -> None:
    """Let a victim end, and time pass."""
    stage.delete(stage.pod(name))
    stage.settle(5)


def test_a_pod_bound_to_the_node_of_another_leaves_its_own_node_to_that_pod() -> None:
    """The node that is free first is used for the first pod, and the second is nominated to the other node."""
    stage = two()
    end_pod(stage, "v2")
    assert stage.bound() == {"v1": "n1", "pg-0": "n2"}
    assert reserved(stage) == nominated(stage) == {"pg-1": "n1"}
    end_pod(stage, "v1")
    stage.put(pod("quick", cpu=1, priority=1))
    stage.settle(20)
    assert stage.bound() == {"pg-0": "n2", "pg-1": "n1"}
    assert (sorted(stage.evicted), len(plans(stage))) == (["v1", "v2"], 1)


def test_a_pod_that_finds_room_elsewhere_moves_no_nomination() -> None:
    """No other pod has to move."""
    stage = two()
    stage.put(node("n3", cpu=1))
    stage.settle(5)
    assert (stage.bound()["pg-0"], reserved(stage)) == ("n3", {"pg-1": "n2"})


@pytest.mark.parametrize("minimum", [1, 2])
def test_a_failed_bind_keeps_its_room_while_victims_terminate(minimum: int) -> None:
    """Otherwise other pods would take it during the backoff, and would have to be evicted as well."""
    stage = two(minimum=minimum)
    for name in ("v1", "v2")[:minimum]:
        stage.delete(stage.pod(name))
    stage.now += 5
    stage.run_passes()
    stage.fail_binds(DENIED)
    assert reserved(stage) == {"pg-0": "n1", "pg-1": "n2"}
    stage.put(pod("quick", cpu=1, priority=1))
    stage.settle()
    assert "quick" not in stage.bound()
    stage.settle(30)
    if minimum == 1:
        end_pod(stage, "v2")
        stage.settle(30)
    assert (stage.bound(), sorted(stage.evicted)) == ({"pg-0": "n1", "pg-1": "n2"}, ["v1", "v2"])


def test_a_failed_bind_to_another_node_keeps_the_room_there() -> None:
    """The nominations are written anew."""
    stage = two()
    stage.delete(stage.pod("v2"))
    stage.now += 5
    stage.run_passes()
    stage.fail_binds(DENIED)
    stage.evict()
    assert reserved(stage) == nominated(stage) == {"pg-0": "n2", "pg-1": "n1"}


def test_a_failed_bind_keeps_no_room_on_a_node_that_is_gone() -> None:
    """The node was deleted while the bind was in flight."""
    stage = two()
    stage.delete(stage.pod("v1"))
    stage.now += 5
    stage.run_passes()
    stage.delete(node("n1", cpu=1))
    stage.fail_binds(DENIED)
    assert "pg-0" not in reserved(stage)


def test_a_failed_bind_keeps_no_room_for_a_pod_that_has_left_the_tree() -> None:
    """Its group was deleted while the bind was in flight."""
    stage = Stage(node("n1", cpu=1), node("n2", cpu=1), low("v1", "n1"), low("v2", "n2"))
    stage.put(composite("top", gang=1, priority=100))
    for name in ("a", "b"):
        stage.put(pod_group(name, parent="top", priority=100), pod(f"{name}-0", cpu=1, priority=100, group=name))
    stage.victims_linger = True
    stage.settle()
    reservation = stage.cache.reservations.get("uid-default-a-0")
    assert reservation is not None
    stage.delete(stage.pod("v1" if reservation.node == "n1" else "v2"))
    stage.now += 5
    stage.run_passes()
    ((uid, _),) = stage.binder.batches[0].nodes.items()
    stage.delete(pod_group(uid.removeprefix("uid-default-").removesuffix("-0"), parent="top", priority=100))
    stage.run_passes()
    stage.fail_binds(DENIED)
    stage.evict()
    assert uid not in dict(stage.cache.reservations.items())
    assert stage.cache.pods[uid].status.nominated_node_name == ""


def test_a_failed_bind_keeps_its_room_while_a_plan_for_other_pods_is_prepared() -> None:
    """A later member preempts; its plan is made anew afterwards."""
    stage = Stage(node("n1", cpu=1), node("n2", cpu=1), low("v1", "n1"), low("v2", "n2", priority=20))
    stage.put(*gang(size=1, minimum=1))
    stage.run_passes()
    stage.evict()
    stage.now += 5
    stage.run_passes()
    stage.put(pod("pg-1", group="pg", cpu=1, priority=100))
    stage.run_passes()
    assert len(stage.executor.preparing) == 1
    stage.fail_binds(DENIED)
    assert reserved(stage) == {"pg-0": "n1"}
    stage.put(pod("quick", cpu=1, priority=1))
    for _ in range(4):
        stage.settle(30)
    assert (stage.bound(), stage.evicted) == ({"pg-0": "n1", "pg-1": "n2"}, ["v1", "v2"])
