"""The rules about what pods require of other pods: each with a history that breaks it and one that does not."""

from typing import Any

import pytest

from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_simulation.checks.history import History

PORTS, APART = "Host ports are free", "Anti-affinity holds both ways"
NEAR, SPREAD = "Required affinity holds", "Pods are spread"
ZONE = "zone"


def terms(kind: str, group: str, key: str = ZONE) -> dict[str, Any]:
    """Return an affinity or anti-affinity to the pods of a group."""
    term = {"labelSelector": {"matchLabels": {POD_GROUP_LABEL: group}}, "topologyKey": key}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread(group: str) -> list[dict[str, Any]]:
    """Return a constraint that spreads the pods of a group over the zones."""
    selector = {"matchLabels": {POD_GROUP_LABEL: group}}
    return [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]


def two_zones() -> History:
    """Return a history with two nodes in zone a, and one in zone b."""
    history = History()
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b")):
        history.node(name, labels={ZONE: zone})
    return history


def port(number: int, **fields: str) -> list[dict[str, Any]]:
    """Return a container with a host port."""
    return [{"name": "main", "ports": [{"containerPort": 80, "hostPort": number, **fields}]}]


@pytest.mark.parametrize(
    ("other", "broken"),
    [
        (port(80), True),
        (port(81), False),
        (port(80, protocol="UDP"), False),
        (port(80, hostIP="10.0.0.1"), True),
    ],
)
def test_a_host_port_is_used_once(other: list[dict[str, Any]], broken: bool) -> None:  # noqa: FBT001 - a parameter
    """A port of a node is another one with another number or protocol; all addresses include each one."""
    history = two_zones()
    history.pod("a", containers=port(80))
    history.pod("b", containers=other)
    history.bind("a", "n1")
    history.bind("b", "n1")
    assert history.broken() == ([PORTS] if broken else [])


def test_host_ports_of_other_nodes_and_of_unseen_pods_are_free() -> None:
    """A port that another client has taken a moment ago is the matter of the kubelet."""
    history = two_zones()
    history.pod("a", containers=port(80))
    history.pod("b", containers=port(80))
    for resource in ("nodes", "pods"):
        history.checks.received("scheduler-0", resource, history.revision, -5.0)
    history.pod("foreign", node="n2", containers=port(80), schedulerName="other")
    history.bind("a", "n1")
    history.bind("b", "n2")
    assert history.broken() == []


@pytest.mark.parametrize("order", ["ab", "ba"])
@pytest.mark.parametrize("node", ["n2", "n3"])
def test_anti_affinity_holds_both_ways(order: str, node: str) -> None:
    """Only a has a term; it keeps b out of its zone whichever comes first."""
    history = two_zones()
    history.group("g")
    history.group("h")
    history.pod("a", "g", affinity=terms("podAntiAffinity", "h"))
    history.pod("b", "h")
    nodes = {"a": "n1", "b": node}
    for name in order:
        history.bind(name, nodes[name])
    assert history.broken() == ([APART] if node == "n2" else [])


def test_a_zone_that_has_changed_unseen_keeps_nothing_apart() -> None:
    """The scheduler was shown both nodes in other zones."""
    history = two_zones()
    history.group("g")
    history.pod("a", "g", affinity=terms("podAntiAffinity", "g"))
    history.pod("b", "g")
    for resource in ("nodes", "pods"):
        history.checks.received("scheduler-0", resource, history.revision, -5.0)
    history.node("n3", labels={ZONE: "a"})
    history.bind("a", "n1")
    history.bind("b", "n3")
    assert history.broken() == []


@pytest.mark.parametrize(("node", "broken"), [("n1", []), ("n2", []), ("n3", [NEAR])])
def test_the_second_pod_of_a_kind_goes_near_the_first(node: str, broken: list[str]) -> None:
    """The first one may go anywhere."""
    history = two_zones()
    history.group("g")
    for name in "ab":
        history.pod(name, "g", affinity=terms("podAffinity", "g"))
    history.bind("a", "n1")
    assert history.broken() == []
    history.bind("b", node)
    assert history.broken() == broken


@pytest.mark.parametrize("leader", ["", "n1", "n3"])
def test_pods_of_another_kind_have_to_be_there(leader: str) -> None:
    """A worker never is the first of what it has to be near."""
    history = two_zones()
    history.group("leaders")
    history.group("workers")
    history.pod("worker", "workers", affinity=terms("podAffinity", "leaders"))
    if leader:
        history.pod("leader", "leaders", node=leader)
    history.bind("worker", "n2")
    history.checks.advance(20.0)
    assert history.broken() == ([] if leader == "n1" else [NEAR])


def test_pods_of_another_kind_may_arrive_later() -> None:
    """The binds of one batch arrive in any order."""
    history = two_zones()
    history.group("g")
    history.pod("leader", "leaders")
    history.pod("worker", "workers", affinity=terms("podAffinity", "leaders"))
    history.bind("worker", "n2")
    history.bind("leader", "n1")
    history.checks.advance(20.0)
    assert history.broken() == []


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_pod_that_is_gone_was_near_until_this_was_shown(is_shown: bool) -> None:  # noqa: FBT001 - a parameter
    """What the scheduler took for a neighbour may have gone a moment ago."""
    history = two_zones()
    history.group("leaders")
    history.pod("leader", "leaders", node="n1")
    history.pod("worker", "workers", affinity=terms("podAffinity", "leaders"))
    for resource in ("nodes", "pods"):
        history.checks.received("scheduler-0", resource, history.revision, -5.0)
    history.remove("pods", "leader")
    if is_shown:
        history.checks.received("scheduler-0", "pods", history.revision, -4.0)
    history.bind("worker", "n2")
    history.checks.advance(20.0)
    assert history.broken() == ([NEAR] if is_shown else [])


@pytest.mark.parametrize(
    ("nodes", "broken"), [(["n1", "n3"], []), (["n1", "n2"], [SPREAD]), (["n1", "n2", "n3"], []), (["n1"], [])]
)
def test_pods_are_spread_once_all_of_them_are_bound(nodes: list[str], broken: list[str]) -> None:
    """The binds of a batch arrive in any order, and at most one pod more is in one zone than in the other."""
    history = two_zones()
    history.group("g")
    for name in "abc"[: len(nodes)]:
        history.pod(name, "g", topologySpreadConstraints=spread("g"))
    for name, node in zip("abc", nodes, strict=False):
        history.bind(name, node)
    history.checks.advance(20.0)
    assert history.broken() == broken


@pytest.mark.parametrize("event", ["refused", "gone", "disturbed", "unseen", "relabelled", "excluded"])
def test_nothing_uneven_is_the_fault_of_a_scheduler_that_did_not_know(event: str) -> None:
    """A refused bind, a pod or a node that has changed, and a node that does not count."""
    history = two_zones()
    history.group("g")
    selector: dict[str, Any] = {"nodeSelector": {ZONE: "a"}} if event == "excluded" else {}
    for name in "abc":
        history.pod(name, "g", topologySpreadConstraints=spread("g"), **selector)
    history.pod("d", "g", node="n3" if event == "gone" else "n2" if event == "unseen" else "")
    for resource in ("nodes", "pods"):
        seen = history.revision - (event == "unseen")
        history.checks.received("scheduler-0", resource, seen, -5.0)
    if event == "gone":
        history.remove("pods", "d")
    elif event == "refused":
        history.checks.refused(history.send_bind("c"), 0.0)
    elif event == "relabelled":
        history.node("n3", labels={ZONE: "c"})
    history.bind("a", "n1")
    if event != "unseen":
        history.bind("b", "n2")
    if event == "disturbed":
        history.checks.disturbed(5.0)
    history.checks.advance(20.0)
    assert history.broken() == []


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({"containers": port(80)}, False),
        ({"containers": port(81)}, True),
        ({"affinity": terms("podAntiAffinity", "g")}, False),
        ({"affinity": terms("podAntiAffinity", "h")}, True),
        ({"affinity": terms("podAffinity", "h")}, False),
        ({"affinity": terms("podAffinity", "g")}, True),
        ({"topologySpreadConstraints": spread("g")}, False),
        ({"topologySpreadConstraints": spread("h")}, True),
    ],
)
def test_what_fits_by_these_rules_is_bound(spec: dict[str, Any], fits: bool) -> None:  # noqa: FBT001 - a parameter
    """A pod that waits although it fits breaks a promise at the end, and one that other pods rule out does not."""
    history = History()
    history.node("n1", labels={ZONE: "a"})
    history.node("n2", labels={ZONE: "b"}, unschedulable=True)
    history.group("g", minimum=1)
    history.pod("there", "g", node="n1", containers=port(80))
    history.pod("waits", "g", **spec)
    assert ("What fits is bound" in history.settled()) == fits
