"""Trees that wait for something say what it is, and are placed when it comes."""

from cpg_engine.testing.builders import composite, node, pod, pod_group
from cpg_scheduler.testing.stage import Stage


def tree() -> Stage:
    """Return a tree of two groups of two, both of which are needed."""
    stage = Stage(node("n1", cpu=8), composite("root", gang=2))
    stage.put(*(pod_group(name, gang=2, parent="root") for name in ("one", "two")))
    stage.put(*(pod(f"{name}-{number}", cpu=1, group=name) for name in ("one", "two") for number in range(2)))
    return stage


def test_a_tree_is_placed_when_its_root_is_created() -> None:
    """All else exists before."""
    stage = Stage(node("n1", cpu=8), pod_group("pg1", gang=2, parent="mid"), composite("mid", parent="root"))
    stage.put(*(pod(name, cpu=2, group="pg1") for name in ("p1", "p2")))
    stage.settle()
    expected = "WaitingForGroup", "waiting for CompositePodGroup default/root, which does not exist"
    assert stage.status.pods == {"p1": expected, "p2": expected}
    stage.put(composite("root"))
    stage.settle()
    assert stage.bound() == {"p1": "n1", "p2": "n1"}


def test_a_tree_is_placed_when_the_first_node_joins() -> None:
    """Its pods say that there are no nodes."""
    stage = tree()
    stage.delete(node("n1"))
    stage.settle()
    assert all("no nodes available" in message for _, message in stage.status.pods.values())
    stage.put(node("n2", cpu=8))
    stage.settle(60)
    assert len(stage.bound()) == 4


def test_a_tree_is_placed_when_its_second_child_is_created() -> None:
    """Pods of the missing child wait for their group, the others for more child groups."""
    stage = tree()
    stage.delete(pod_group("two", gang=2, parent="root"))
    stage.settle()
    assert stage.status.pods["two-0"][1] == "waiting for PodGroup default/two, which does not exist"
    assert stage.status.pods["one-0"][1] == (
        "CompositePodGroup default/root cannot be placed: waiting for more child groups: minGroupCount is 2"
    )
    stage.put(pod_group("two", gang=2, parent="root"))
    stage.settle()
    assert len(stage.bound()) == 4


def test_a_tree_is_placed_when_its_last_pod_is_created() -> None:
    """All pods say what is missing, and the group says how many."""
    stage = tree()
    last = stage.pod("two-1")
    stage.delete(last)
    stage.settle()
    assert stage.bound() == {}
    assert stage.status.pods["two-0"][1] == "waiting for more pods: minCount is 2"
    assert stage.status.groups["two"][2] == "waiting for 1 more pod: minCount is 2, there is 1"
    stage.put(last)
    stage.settle()
    assert len(stage.bound()) == 4


def test_a_tree_is_placed_when_a_minimum_deep_in_it_is_lowered() -> None:
    """No other pod is needed then."""
    stage = Stage(node("n1"), composite("root"), composite("mid", parent="root"))
    stage.put(pod_group("pg1", gang=2, parent="mid"), pod("p1", cpu=2, group="pg1"))
    stage.settle()
    stage.put(pod_group("pg1", gang=1, parent="mid"))
    stage.settle()
    assert stage.bound() == {"p1": "n1"}
