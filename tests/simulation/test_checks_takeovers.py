"""A new leader has to know what was bound before."""

import pytest

from cpg_simulation.checks.history import History

RULE = "Leaders catch up first"
STOPPED = "Stopped leaders catch up first"


def history() -> History:
    """Return a history in which one scheduler binds a pod, and another one takes the lease over."""
    found = History()
    found.node("node-0")
    found.pod("first")
    found.pod("second")
    found.checks.received("scheduler-1", "pods", found.revision, 0.0)
    found.bind("first", "node-0")
    found.now = 20.0
    found.lease("scheduler-1")
    return found


def test_a_leader_that_was_not_shown_an_earlier_bind_breaks_the_rule() -> None:
    """It may think that the node is empty."""
    found = history()
    found.bind("second", "node-0", user="scheduler-1")
    assert found.broken() == [RULE]


def test_a_leader_that_was_shown_all_binds_keeps_it() -> None:
    """What it was shown at the last moment counts as well."""
    found = history()
    found.checks.received("scheduler-1", "pods", found.revision, 20.0)
    found.bind("second", "node-0", user="scheduler-1")
    assert found.broken() == []


def test_a_leader_need_not_know_what_is_bound_later() -> None:
    """What another scheduler binds meanwhile is shown when the watch delivers it."""
    found = history()
    found.checks.received("scheduler-1", "pods", found.revision, 20.0)
    found.pod("third")
    found.bind("third", "node-0", user="kube-scheduler")
    found.bind("second", "node-0", user="scheduler-1")
    assert found.broken() == []


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_bind_is_judged_by_what_its_sender_knew(is_shown: bool) -> None:  # noqa: FBT001 - a parameter
    """When it arrives, its process may have ended, and the next one of its name was shown other things."""
    found = history()
    shown, unseen = found.revision, 1
    found.checks.received("scheduler-1", "pods", shown if is_shown else unseen, 20.0)
    request = found.send_bind("second", user="scheduler-1")
    found.checks.ended("scheduler-1", 20.0)
    found.now = 26.0
    found.checks.received("scheduler-1", "pods", unseen if is_shown else shown, 21.0)
    found.arrive(request, "second", "node-0")
    assert found.broken() == ([] if is_shown else [RULE])


def stopped(seconds: float) -> History:
    """Return a history in which a node is cordoned while the leader is stopped."""
    found = History()
    found.node("node-0")
    found.pod("pod")
    for resource in ("nodes", "pods"):
        found.checks.received("scheduler-0", resource, found.revision, 0.0)
    found.node("node-0", unschedulable=True)
    found.now = seconds
    found.checks.resumed("scheduler-0", seconds)
    return found


def test_a_leader_that_was_stopped_is_shown_all_that_happened_before_it_binds() -> None:
    """Otherwise a pod gets a node that was cordoned meanwhile."""
    found = stopped(4.0)
    found.bind("pod", "node-0")
    assert found.broken() == [STOPPED]
    found = stopped(4.0)
    found.checks.received("scheduler-0", "nodes", found.revision, 4.0)
    found.send_bind("pod")
    assert found.broken() == []


def test_a_short_stop_is_as_a_late_watch() -> None:
    """It may be too short to be noticed."""
    found = stopped(2.0)
    found.bind("pod", "node-0")
    assert found.broken() == []


def test_a_process_that_starts_anew_has_not_been_stopped() -> None:
    """It has listed everything."""
    found = stopped(4.0)
    found.checks.ended("scheduler-0", 4.0)
    found.lease("scheduler-0")
    found.bind("pod", "node-0")
    assert STOPPED not in found.broken()
