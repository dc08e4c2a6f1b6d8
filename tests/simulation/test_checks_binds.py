"""The rules about binds and the write fence: each with a history that breaks it and one that does not."""

from typing import Any

import pytest

from cpg_simulation.checks.history import HandRequest, History

OVER_COMMITTED = "No node is over-committed"
TAKES = "Nodes take the pods that they get"


def test_a_bind_beside_too_many_pods_over_commits() -> None:
    """Two pods of 1 CPU fit on a node with 2 CPU, a third does not; the sentence says how much is asked of it."""
    history = History()
    history.node("n", cpu="2")
    for name in "abc":
        history.pod(name)
    history.bind("a", "n")
    history.bind("b", "n")
    assert history.broken() == []
    history.bind("c", "n")
    assert history.broken() == [OVER_COMMITTED]
    (found,) = history.checks.violations
    assert found.sentence == "Pod team/c is bound to node n: its 3 pods request 3000 of 2000 cpu"


def test_the_number_of_pods_counts() -> None:
    """A node for one pod takes one, also of pods without requests."""
    history = History()
    history.node("n", pods=1)
    history.pod("a", cpu="0")
    history.pod("b", cpu="0")
    history.bind("a", "n")
    assert history.broken() == []
    history.bind("b", "n")
    assert history.broken() == [OVER_COMMITTED]


@pytest.mark.parametrize("ended", [True, False])
def test_pods_that_have_ended_take_no_room(ended: bool) -> None:  # noqa: FBT001 - a parameter
    """A pod that has succeeded gives its room back, one that is being deleted does not."""
    history = History()
    history.node("n", cpu="1")
    history.pod("a", node="n")
    history.pod("b")
    if ended:
        history.status("pods", "a", "kubelet", phase="Succeeded")
    else:
        history.meta("pods", "a", "user", deletionTimestamp="2026-11-20T00:00:00Z")
    history.bind("b", "n")
    assert history.broken() == ([] if ended else [OVER_COMMITTED])


@pytest.mark.parametrize(("received", "broken"), [(0.5, [OVER_COMMITTED]), (1.5, []), (None, [])])
def test_a_foreign_bind_counts_once_it_was_shown(received: float | None, broken: list[str]) -> None:
    """A bind that is sent at 2 s has to count what was received until 1 s, and nothing later."""
    history = History()
    history.node("n", cpu="1")
    history.pod("ours")
    for resource in ("nodes", "pods"):
        history.checks.received("scheduler-0", resource, history.revision, 0.0)
    history.pod("foreign", node="n", schedulerName="other")
    if received is not None:
        history.checks.received("scheduler-0", "pods", history.revision, received)
    history.now = 2.0
    history.bind("ours", "n")
    assert history.broken() == broken


def test_own_binds_count_before_the_watch_shows_them() -> None:
    """What a scheduler has bound itself it knows; what its predecessor bound it has to be shown."""
    history = History()
    history.node("n", cpu="1")
    history.pod("a")
    history.pod("b")
    for user in ("scheduler-0", "scheduler-1"):
        for resource in ("nodes", "pods"):
            history.checks.received(user, resource, history.revision, -5.0)
    history.bind("a", "n")
    history.lease("scheduler-0", holder="")
    history.lease("scheduler-1")
    history.bind("b", "n", user="scheduler-1")
    assert OVER_COMMITTED not in history.broken()
    history.pod("c")
    history.bind("c", "n", user="scheduler-1")
    assert OVER_COMMITTED in history.broken()


def test_a_repeated_bind_is_judged_by_its_first_request() -> None:
    """A bind without an answer is sent again without another decision."""
    history = History()
    history.node("n", cpu="1")
    history.pod("ours")
    for resource in ("nodes", "pods"):
        history.checks.received("scheduler-0", resource, history.revision, -5.0)
    history.bind("ours", "n", sent=0.0)
    again = History()
    again.node("n", cpu="1")
    again.pod("ours")
    for resource in ("nodes", "pods"):
        again.checks.received("scheduler-0", resource, again.revision, -5.0)
    again.checks.sent(_bind_request("ours"), 0.0)
    again.pod("foreign", node="n", schedulerName="other")
    again.checks.received("scheduler-0", "pods", again.revision, 1.0)
    again.now = 9.0
    again.lease("scheduler-0")
    again.bind("ours", "n")
    assert history.broken() == again.broken() == []


def _bind_request(name: str) -> HandRequest:
    return HandRequest("POST", f"/api/v1/namespaces/team/pods/{name}/binding", "scheduler-0")


def test_init_containers_and_overhead_count() -> None:
    """The peak of the init containers counts, and the overhead on top of it."""
    history = History()
    history.node("n", cpu="3")
    init = [{"name": "init", "resources": {"requests": {"cpu": "2"}}}]
    history.pod("a", initContainers=init, overhead={"cpu": "1"})
    history.pod("b", initContainers=init, overhead={"cpu": "1"}, cpu="3")
    history.bind("a", "n")
    assert history.broken() == []
    history.remove("pods", "a")
    history.bind("b", "n")
    assert history.broken() == [OVER_COMMITTED]


@pytest.mark.parametrize(
    ("spec", "broken"),
    [
        ({"nodeSelector": {"zone": "a"}}, False),
        ({"nodeSelector": {"zone": "b"}}, True),
        ({"tolerations": [{"key": "bad", "operator": "Exists"}]}, False),
        ({}, False),
    ],
)
def test_node_selectors_hold(spec: dict[str, Any], broken: bool) -> None:  # noqa: FBT001 - a parameter
    """A pod with a node selector is bound to a node with these labels."""
    history = History()
    history.node("n", labels={"zone": "a"})
    history.pod("a", **spec)
    history.bind("a", "n")
    assert history.broken() == ([TAKES] if broken else [])


@pytest.mark.parametrize("tolerations", [[], [{"key": "bad", "operator": "Exists"}]])
def test_taints_hold(tolerations: list[object]) -> None:
    """A taint keeps pods away that do not tolerate it."""
    history = History()
    history.node("n", taints=[{"key": "bad", "effect": "NoSchedule"}])
    history.pod("a", tolerations=tolerations)
    history.bind("a", "n")
    assert history.broken() == ([] if tolerations else [TAKES])


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_cordon_counts_once_it_was_shown(is_shown: bool) -> None:  # noqa: FBT001 - a parameter
    """A scheduler that has not been shown a cordon may bind to the node."""
    history = History()
    history.node("n")
    history.pod("a")
    history.checks.received("scheduler-0", "nodes", history.revision, -5.0)
    history.node("n", unschedulable=True)
    if is_shown:
        history.checks.received("scheduler-0", "nodes", history.revision, -4.0)
    history.bind("a", "n")
    assert history.broken() == ([TAKES] if is_shown else [])


def test_a_second_node_is_found() -> None:
    """A pod that has a node keeps it."""
    history = History()
    history.node("n")
    history.node("m")
    history.pod("a")
    history.bind("a", "n")
    assert history.broken() == []
    history.bind("a", "m")
    assert history.broken() == ["A pod is bound once"]


@pytest.mark.parametrize(
    "spec", [{"schedulerName": "other"}, {"schedulingGates": [{"name": "wait"}]}, {"schedulerName": "cpg-scheduler"}]
)
def test_pods_of_others_and_gated_pods_are_not_ours_to_bind(spec: dict[str, Any]) -> None:
    """The last pod is an ordinary one."""
    history = History()
    history.node("n")
    history.pod("a", **spec)
    history.bind("a", "n")
    assert history.broken() == ([] if spec == {"schedulerName": "cpg-scheduler"} else ["Only own pods are bound"])


@pytest.mark.parametrize(("sent", "broken"), [(9.0, False), (11.0, True)])
def test_writes_are_sent_under_the_lease(sent: float, broken: bool) -> None:  # noqa: FBT001 - a parameter
    """A lease of 10 s lets a request be sent until then, whenever it arrives."""
    history = History()
    history.node("n")
    history.pod("a")
    history.now = 12.0
    history.bind("a", "n", sent=sent)
    assert history.broken() == (["Only the leader writes"] if broken else [])


@pytest.mark.parametrize("user", ["scheduler-0", "scheduler-1"])
@pytest.mark.parametrize("is_restarted", [True, False])
def test_a_standby_writes_nothing(user: str, *, is_restarted: bool) -> None:
    """The other replica has no lease, and neither has the leader after a restart."""
    history = History()
    history.node("n")
    history.pod("a")
    if is_restarted:
        history.checks.ended(user, 0.0)
    history.bind("a", "n", user=user)
    is_leader = user == "scheduler-0" and not is_restarted
    assert history.broken() == ([] if is_leader else ["Only the leader writes"])


def test_a_lease_that_another_client_changed_says_nothing() -> None:
    """A process may not know yet that its lease was taken away by hand."""
    history = History()
    history.node("n")
    history.pod("a")
    history.lease("user", holder="")
    history.bind("a", "n")
    assert history.broken() == []
