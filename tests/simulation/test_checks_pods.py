"""The rules about pods at the end of a night: each with a state that breaks it and one that does not."""

import json
from typing import Any

import pytest

from cpg_simulation.checks.history import PREEMPTING, HandRequest, History

WHY = "Pending pods say why"


def waiting(cpu: str = "8", **spec: Any) -> History:
    """Return a history with a pod that waits for room, and says so."""
    history = History()
    history.node("n", cpu="4")
    history.pod("a", cpu=cpu, **spec)
    history.wait_for("a")
    return history


def test_a_pod_that_waits_for_room_is_in_order() -> None:
    """Nothing is broken where nothing fits."""
    assert waiting().settled() == []


def test_a_pod_that_fits_is_bound() -> None:
    """A pod that would fit must not wait."""
    assert waiting("2").settled() == ["What fits is bound"]


def test_a_gang_that_fits_is_bound_and_half_a_gang_waits() -> None:
    """Two pods of a gang of three wait for the third, and then all must be bound."""
    history = History()
    history.node("n", cpu="4")
    history.group("gang", 3)
    for name in "ab":
        history.pod(name, "gang")
        history.wait_for(name, "WaitingForGroup")
    assert [rule for rule in history.settled() if rule in {WHY, "What fits is bound"}] == []
    history.pod("c", "gang")
    history.wait_for("c", "WaitingForGroup")
    assert "What fits is bound" in history.settled()


@pytest.mark.parametrize(("priority", "broken"), [(100, ["Higher priorities get their room"]), (10, [])])
def test_a_pod_of_higher_priority_gets_its_room(priority: int, broken: list[str]) -> None:
    """A pod that could preempt must not wait."""
    history = waiting("4", priority=priority)
    history.pod("low", node="n", priority=10, cpu="4")
    assert history.settled() == broken


MARK = {"type": "DisruptionTarget", "status": "True", "message": f"{PREEMPTING} pod team/a uid"}


@pytest.mark.parametrize(
    ("method", "subresource", "condition", "is_left_out"),
    [
        ("DELETE", "", {}, True),
        ("PATCH", "/status", MARK, True),
        ("PATCH", "/status", {**MARK, "status": "False"}, False),
        ("PATCH", "/status", {"type": "PodScheduled"}, False),
        ("POST", "/binding", {}, False),
    ],
)
def test_victims_that_cannot_be_evicted_are_left_out(
    method: str,
    subresource: str,
    condition: dict[str, str],
    is_left_out: bool,  # noqa: FBT001 - a parameter
) -> None:
    """A refused mark or deletion excludes a victim for five minutes; nothing else does."""
    history = waiting("4", priority=100)
    history.pod("low", node="n", priority=10, cpu="4")
    history.checks.refused(_request(method, f"low{subresource}", condition), 0.0)
    assert ("Higher priorities get their room" not in history.settled()) is is_left_out
    history.now = 301.0
    assert "Higher priorities get their room" in history.settled()


def test_other_victims_than_a_refused_one_make_room() -> None:
    """A refusal says nothing about the other pods."""
    history = waiting("4", priority=100)
    for name in "nm":
        history.node(name, cpu="4")
        history.pod(f"low-{name}", node=name, priority=10, cpu="4")
    history.checks.refused(_request("PATCH", "low-n/status", MARK), 0.0)
    assert history.settled() == ["Higher priorities get their room"]
    assert "Pod team/low-m" in history.checks.violations[0].objects


def _request(method: str, path: str, condition: dict[str, str]) -> HandRequest:
    body = json.dumps({"status": {"conditions": [condition] if condition else []}}).encode()
    return HandRequest(method, f"/api/v1/namespaces/team/pods/{path}", "scheduler-0", body=body)


@pytest.mark.parametrize(
    ("reason", "message"), [("WaitingForGroup", "no room"), ("Unschedulable", ""), ("Strange", "no room")]
)
def test_reasons_are_true_and_have_a_message(reason: str, message: str) -> None:
    """A reason that is not the one of a new scheduler, no message, and a reason of no list."""
    history = waiting()
    history.wait_for("a", reason, message)
    assert history.settled() == [WHY]


def test_a_search_that_was_incomplete_may_be_complete_with_less_room() -> None:
    """Nothing leads to an attempt then, so the reason stays."""
    history = waiting()
    history.wait_for("a", "PlacementNotFound", "no room")
    assert history.settled() == []


def test_a_pending_pod_has_the_condition() -> None:
    """Silence is broken; a pod of another scheduler, with a gate, or that ends may be silent."""
    history = History()
    history.pod("a")
    assert history.settled() == [WHY]
    history = History()
    history.pod("foreign", schedulerName="other")
    history.pod("gated", schedulingGates=[{"name": "wait"}])
    history.pod("ending")
    history.evict("ending", "user")
    assert history.settled() == []


@pytest.mark.parametrize("is_ending", [True, False])
def test_a_nomination_needs_a_victim_that_ends(is_ending: bool) -> None:  # noqa: FBT001 - a parameter
    """While a victim terminates its preemptor is nominated; afterwards it is not."""
    history = waiting("4", priority=100)
    history.pod("low", node="n", priority=10, cpu="4")
    history.mark("low", "a")
    history.evict("low")
    history.status("pods", "a", "scheduler-0", nominatedNodeName="n")
    if not is_ending:
        history.remove("pods", "low", "kubelet")
    assert ("No nomination is left over" in history.settled()) is not is_ending


def test_a_nomination_of_others_is_theirs() -> None:
    """A user or an autoscaler may nominate a pod of ours."""
    history = waiting("4", priority=100)
    history.status("pods", "a", "user", nominatedNodeName="n")
    assert "No nomination is left over" not in history.settled()


@pytest.mark.parametrize("is_ending", [True, False])
def test_a_victim_ends(is_ending: bool) -> None:  # noqa: FBT001 - a parameter
    """A pod that says that it is evicted is being deleted."""
    history = waiting("4", priority=100)
    history.pod("low", node="n", priority=10, cpu="4")
    history.mark("low", "a")
    if is_ending:
        history.evict("low")
    assert ("No running pod calls itself a victim" in history.settled()) is not is_ending
