"""The rules about the groups above a pod that is bound: each with a history that breaks it and one that does not."""

from typing import Any

import pytest

from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_simulation.checks.gangs import BATCH_SECONDS
from cpg_simulation.checks.history import POD_GROUPS, HandRequest, History

ALL_OR_NOTHING = "All or nothing"
ONE_DOMAIN = "Each group is in one domain"
ZONE = {"topology": [{"key": "zone"}]}


def gang(minimum: int = 2, **spec: Any) -> History:
    """Return a history with a gang of three pods and nodes in two zones, one pod of which is bound to the first."""
    history = History()
    for name in ("a", "b"):
        history.node(f"{name}1", labels={"zone": name})
        history.node(f"{name}2", labels={"zone": name})
    history.composite("root", 1, **spec)
    history.group("gang", minimum, parent="root")
    for name in "xyz":
        history.pod(name, "gang")
    history.bind("x", "a1")
    return history


def pass_time(history: History, seconds: float = BATCH_SECONDS + 1) -> None:
    """Let time pass."""
    history.now += seconds
    history.checks.advance(history.now)


def test_half_a_gang_is_found_in_time() -> None:
    """A pod below its minimum is found after some seconds; with the second pod the gang has its minimum."""
    history = gang()
    pass_time(history, BATCH_SECONDS - 1)
    assert history.broken() == []
    pass_time(history, 2)
    assert history.broken() == [ALL_OR_NOTHING]
    history = gang()
    history.bind("y", "b1")
    pass_time(history)
    assert history.broken() == []


def test_every_level_has_its_minimum() -> None:
    """A root that needs two children is not placed with one; the finding names the level."""
    history = gang(1)
    history.composite("root", 2)
    history.bind("y", "a1")
    pass_time(history)
    assert history.broken() == [ALL_OR_NOTHING]
    assert "CompositePodGroup team/root is below its minimum" in history.checks.violations[0].sentence


@pytest.mark.parametrize("lost", ["fails", "is deleted", "is removed", "moves", "needs more"])
def test_a_tree_that_loses_pods_may_be_below_its_minimum(lost: str) -> None:
    """A pod that fails, ends, goes away or moves, and a higher minimum, are no fault of the scheduler."""
    history = gang()
    if lost == "fails":
        history.status("pods", "x", "kubelet", phase="Failed")
    elif lost == "is deleted":
        history.evict("y", "user")
    elif lost == "is removed":
        history.remove("pods", "y")
    elif lost == "moves":
        history.meta("pods", "y", "user", labels={POD_GROUP_LABEL: "other"})
    else:
        history.group("gang", 3, parent="root")
    pass_time(history)
    assert history.broken() == []


@pytest.mark.parametrize(("sent", "broken"), [(0.5, []), (1.5, [ALL_OR_NOTHING])])
def test_pods_may_leave_while_a_bind_is_under_way(sent: float, broken: list[str]) -> None:
    """A bind that was sent before another pod of the tree left is excused, and one that was sent later is not."""
    history = gang(3)
    history.bind("y", "a1")
    history.now = 1.0
    history.evict("y", "user")
    history.now = 2.0
    history.bind("z", "a2", sent=sent)
    pass_time(history)
    assert history.broken() == broken


@pytest.mark.parametrize("left", ["is deleted", "is removed", "fails", "moves"])
@pytest.mark.parametrize(
    ("shown", "minimum", "broken"),
    [(7.0, 3, []), (7.0, 4, [ALL_OR_NOTHING]), (5.5, 3, [ALL_OR_NOTHING])],
)
def test_pods_that_have_left_count_until_that_is_shown(
    left: str, shown: float, minimum: int, broken: list[str]
) -> None:
    """A late watch excuses a gang that lacks the pods that have left, and none that lacks others."""
    history = gang(minimum)
    history.bind("y", "a1")
    history.checks.received("scheduler-0", "pods", history.revision, 4.0)
    history.now = 5.0
    if left == "is deleted":
        history.evict("y", "user")
    elif left == "is removed":
        history.remove("pods", "y")
    elif left == "fails":
        history.status("pods", "y", "kubelet", phase="Failed")
    else:
        history.meta("pods", "y", "user", labels={POD_GROUP_LABEL: "other"})
    history.checks.received("scheduler-0", "pods", history.revision, shown)
    history.now = 7.0
    history.bind("z", "a2")
    pass_time(history)
    assert history.broken() == broken


@pytest.mark.parametrize(("first", "broken"), [(0.5, []), (1.5, [ALL_OR_NOTHING])])
def test_pods_may_leave_before_a_bind_is_repeated(first: float, broken: list[str]) -> None:
    """The first request counts: a bind without an answer is repeated, as it may still arrive."""
    history = gang(3)
    history.bind("y", "a1")
    history.now = 1.0
    history.evict("y", "user")
    history.send_bind("z", sent=first)
    history.now = 6.0
    history.bind("z", "a2")
    pass_time(history)
    assert history.broken() == broken


@pytest.mark.parametrize(("shown", "broken"), [(-5.0, [ALL_OR_NOTHING]), (0.5, [])])
def test_a_minimum_that_is_raised_before_a_bind_counts_once_it_is_shown(shown: float, broken: list[str]) -> None:
    """Also if the batch was decided before: it is validated just before its first bind."""
    history = gang()
    history.checks.received("scheduler-0", POD_GROUPS, history.revision, -9.0)
    history.group("gang", 3, parent="root")
    history.checks.received("scheduler-0", POD_GROUPS, history.revision, shown)
    history.bind("y", "b1", sent=1.0)
    pass_time(history)
    assert history.broken() == broken


@pytest.mark.parametrize(
    ("path", "refused", "broken"),
    [
        ("y/binding", -5.0, []),
        ("y/binding", 1.0, []),
        ("y/binding", -15.0, [ALL_OR_NOTHING]),
        ("other/binding", -5.0, [ALL_OR_NOTHING]),
        ("y/status", -5.0, [ALL_OR_NOTHING]),
    ],
)
def test_other_binds_of_a_batch_may_have_been_refused(path: str, refused: float, broken: list[str]) -> None:
    """The rest is attempted again after a back-off; no excuse are binds of other trees, or those of long ago."""
    history = gang()
    history.pod("other")
    history.checks.refused(HandRequest("POST", f"/api/v1/namespaces/team/pods/{path}", "scheduler-0"), refused)
    pass_time(history)
    assert history.broken() == broken


def test_a_fault_meanwhile_ends_the_expectation() -> None:
    """After a fault there may be no room for the rest: the end of the night says whether there is."""
    history = gang()
    history.checks.disturbed(1.0)
    pass_time(history, 60.0)
    assert history.broken() == []


@pytest.mark.parametrize(("node", "broken"), [("a2", False), ("b1", True)])
def test_a_tree_stays_in_its_domain(node: str, broken: bool) -> None:  # noqa: FBT001 - a parameter
    """The second pod joins the zone of the first one."""
    history = gang(schedulingConstraints=ZONE)
    history.bind("y", node)
    assert history.broken() == ([ONE_DOMAIN] if broken else [])


def test_members_on_a_node_that_is_gone_pin_no_domain() -> None:
    """Nothing says where that node was; its pods are deleted soon."""
    history = gang(1, schedulingConstraints=ZONE)
    history.remove("nodes", history.get("pods", "x")["spec"]["nodeName"], "node-controller")
    history.bind("y", "b1")
    assert history.broken() == []


@pytest.mark.parametrize(("shown", "broken"), [(-0.1, []), (0.1, [ONE_DOMAIN])])
def test_a_node_that_goes_shortly_before_a_bind_pins_until_that_is_shown(shown: float, broken: list[str]) -> None:
    """The deletion may be shown just before the bind is sent; one that is shown later is no reason for it."""
    history = gang(1, schedulingConstraints=ZONE)
    history.checks.received("scheduler-0", "nodes", history.revision, -5.0)
    history.remove("nodes", "a1", "node-controller")
    history.checks.received("scheduler-0", "nodes", history.revision, shown)
    history.bind("y", "b1")
    assert history.broken() == broken


def test_a_node_without_the_label_is_in_no_domain() -> None:
    """A pod that is bound there is in no domain, even if it is the first one."""
    history = gang()
    history.node("plain")
    history.group("other", 1, schedulingConstraints=ZONE)
    history.pod("p", "other")
    history.bind("p", "plain")
    assert history.broken() == [ONE_DOMAIN]


def test_members_that_end_pin_no_domain() -> None:
    """A pod that is being deleted, or has failed, leaves the domain free."""
    for ends in ("deleted", "failed"):
        history = gang(1, schedulingConstraints=ZONE)
        if ends == "deleted":
            history.evict("x", "user")
        else:
            history.status("pods", "x", "kubelet", phase="Failed")
        history.bind("y", "b1")
        assert history.broken() == []


def test_a_node_that_changes_its_zone_counts_as_it_was_shown() -> None:
    """A scheduler that has not been shown the new label binds by the old one."""
    for is_shown in (True, False):
        history = gang(1, schedulingConstraints=ZONE)
        history.checks.received("scheduler-0", "nodes", history.revision, -5.0)
        history.node("b1", labels={"zone": "a"})
        history.node("a2", labels={"zone": "b"})
        if is_shown:
            history.checks.received("scheduler-0", "nodes", history.revision, -4.0)
        history.bind("y", "a2")
        assert history.broken() == ([ONE_DOMAIN] if is_shown else [])
