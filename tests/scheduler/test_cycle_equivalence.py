"""Equivalent units share the result of one attempt."""

from cpg_api.core.pod import SchedulingGate
from cpg_engine.testing.builders import metadata, node, pod
from cpg_scheduler.testing.gangs import gang, logged_attempts
from cpg_scheduler.testing.stage import Stage


def crowd(number: int) -> Stage:
    """Return a full cluster and pods that request more than any node has, older than all others."""
    stage = Stage(*(node(f"n{place}", cpu=2) for place in range(4)))
    stage.put(*(pod(f"runs{place}", cpu=2, node_name=f"n{place}") for place in range(4)))
    stage.put(*(pod(f"big{place}", cpu=9, meta=metadata(f"big{place}", created="2020")) for place in range(number)))
    stage.settle()
    return stage


def test_equivalent_pods_cost_one_attempt() -> None:
    """All of them get the same condition."""
    stage = crowd(500)
    assert len(logged_attempts(stage)) == 1
    assert len({stage.status.pods[f"big{place}"] for place in range(500)}) == 1


def test_equivalent_pods_that_do_not_fit_delay_no_other_unit() -> None:
    """A unit that fits the freed room is attempted, and none of the crowd."""
    stage = crowd(500)
    before = len(logged_attempts(stage))
    stage.now += 60
    for place in range(4):
        stage.delete(stage.pod(f"runs{place}"))
    stage.put(*gang("pg", cpu=2))
    stage.run_passes()
    assert logged_attempts(stage)[before:] == [("PodGroup default/pg", "Placed")]


def test_equivalent_pods_are_placed_one_by_one_while_there_is_room() -> None:
    """The oldest first; the hint of the others does not hold any more then."""
    stage = crowd(50)
    before = len(logged_attempts(stage))
    stage.put(node("huge", cpu=27))
    stage.settle(60)
    assert [name for name in sorted(stage.bound()) if name.startswith("big")] == ["big0", "big1", "big10"]
    assert len(logged_attempts(stage)) - before == 3


def test_equivalent_gangs_share_one_result() -> None:
    """With the names of their own groups."""
    stage = Stage(node("n1", cpu=1), *gang("one"), *gang("two"))
    stage.settle()
    assert len(logged_attempts(stage)) == 1
    assert stage.status.groups["one"] == stage.status.groups["two"]
    assert {"one-0", "one-1", "two-0", "two-1"} == stage.status.pods.keys()


def test_equivalent_pods_get_a_new_condition_for_a_new_cause() -> None:
    """Once each; one more node of the same kind is no new cause."""
    stage = crowd(5)
    written = stage.status.count
    stage.put(node("n9", cpu=3))
    stage.settle(60)
    assert stage.status.count == written
    stage.put(node("huge", cpu=9, labels={"gpu": "no"}), pod("guest", cpu=9, priority=1, node_selector={"gpu": "no"}))
    stage.settle(60)
    assert stage.bound()["guest"] == "huge"
    assert stage.status.count <= written + 5


def test_a_unit_that_became_inadmissible_does_not_share_a_result() -> None:
    """The result of the others is not about it any more."""
    stage = crowd(1)
    stage.put(pod("big9", cpu=9))
    stage.loop._requeuer.take_events(stage.now)
    root = stage.queue.pop(stage.now)
    assert root is not None
    stage.loop._schedule(root)
    gated = pod("big9", cpu=9, scheduling_gates=(SchedulingGate(name="wait"),))
    stage.cache._pods.replace(None, gated)
    assert stage.loop._report_shared()
    assert "big9" not in stage.status.pods
