"""The conditions that the steps wait for."""

from typing import Any

from story.state import ClusterState, state_of
from story.steps import PODS, is_placed, is_preempted, is_waiting


def state(*, node: str = "", message: str = "", health: str = "", reason: str = "", scheduled: int = 0) -> ClusterState:
    """Return the state of a tree of one group."""
    waits = {"type": "PodScheduled", "status": "False", "message": message}
    pods: list[dict[str, Any]] = [
        {
            "kind": "Pod",
            "metadata": {"name": f"p{number}", "labels": {"scheduling.cpg.dev/pod-group": "train"}},
            "spec": {"nodeName": node} if node else {},
            "status": {"conditions": [waits] if message else []},
        }
        for number in range(PODS)
    ]
    conditions = [
        {"type": "PodGroupInitiallyScheduled", "reason": reason, "message": message},
        {"type": "Healthy", "reason": health},
    ]
    group = {
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {},
        "status": {"conditions": conditions, "pods": {"desired": PODS, "scheduled": scheduled}},
    }
    leaving = {**pods[0], "metadata": {**pods[0]["metadata"], "deletionTimestamp": "now"}}
    nodes = {"kind": "Node", "metadata": {"name": "system", "labels": {}}}
    return state_of([*pods, leaving, group, nodes])


def test_a_tree_waits_if_it_says_why_and_has_no_node() -> None:
    """A tree without an attempt, or with a pod on a node, is not waiting."""
    assert is_waiting(state(reason="Unschedulable"), "train")
    assert not is_waiting(state(reason="Pending"), "train")
    assert not is_waiting(state(reason="Unschedulable", node="n"), "train")
    assert not is_waiting(state(reason="Unschedulable"), "other")


def test_a_tree_is_placed_if_all_pods_have_nodes_and_its_status_says_so() -> None:
    """Pods on nodes are not enough while the counts of the status are behind."""
    assert is_placed(state(node="n", health="MinimumMet", scheduled=PODS), "train")
    assert not is_placed(state(node="n", health="Starting", scheduled=PODS), "train")
    assert not is_placed(state(node="n", health="MinimumMet", scheduled=PODS - 1), "train")


def test_a_tree_is_preempted_if_its_new_pods_say_why_they_wait() -> None:
    """Terminating pods do not count."""
    assert is_preempted(state(health="Pending", message="no room"), "train")
    assert not is_preempted(state(health="Pending"), "train")
    assert not is_preempted(state(health="MinimumMet", node="n", message="no room"), "train")


def test_nodes_outside_racks_are_not_shown() -> None:
    """The node of the chart's own pods is in no rack."""
    assert state().nodes == ()
