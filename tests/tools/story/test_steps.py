"""What each step waits for."""

from typing import Any

from story.sights import Sight, sight_of
from story.steps import PODS, has_given_way, is_placed, is_waiting


def sight(*, node: str = "", message: str = "", health: str = "", verdict: str = "", scheduled: int = 0) -> Sight:
    """Return a tree of one group, as the API server shows it."""
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
        {"type": "PodGroupInitiallyScheduled", "reason": verdict, "message": message},
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
    return sight_of([*pods, leaving, group, nodes])


def test_a_tree_waits_that_says_why_and_has_no_node() -> None:
    """Neither one that nobody has tried, nor one with a pod on a node."""
    assert is_waiting(sight(verdict="Unschedulable"), "train")
    assert not is_waiting(sight(verdict="Pending"), "train")
    assert not is_waiting(sight(verdict="Unschedulable", node="n"), "train")
    assert not is_waiting(sight(verdict="Unschedulable"), "other")


def test_a_tree_is_placed_when_all_have_nodes_and_it_says_so() -> None:
    """Pods on nodes are not enough while the counts in its status are behind."""
    assert is_placed(sight(node="n", health="MinimumMet", scheduled=PODS), "train")
    assert not is_placed(sight(node="n", health="Starting", scheduled=PODS), "train")
    assert not is_placed(sight(node="n", health="MinimumMet", scheduled=PODS - 1), "train")


def test_a_tree_has_given_way_when_its_new_pods_say_why_they_wait() -> None:
    """Pods that are on their way out do not count."""
    assert has_given_way(sight(health="Pending", message="no room"), "train")
    assert not has_given_way(sight(health="Pending"), "train")
    assert not has_given_way(sight(health="MinimumMet", node="n", message="no room"), "train")


def test_nodes_outside_racks_are_not_shown() -> None:
    """The node of the chart's own pods is in no rack."""
    assert sight().nodes == ()
