"""The oracle itself, on cases that can be checked by hand."""

import pytest
from msgspec.structs import replace

from cpg_api.core.node import Taint
from cpg_api.core.pod import Pod, PodStatus
from cpg_api.scheduling.forest import Group
from cpg_engine.testing.builders import composite, node, pod, pod_group
from cpg_engine.testing.oracle import Situation, contradicts, find, violations
from cpg_engine.testing.simulator import ClusterSimulator
from cpg_engine.testing.strategies import situation

RACKS = (node("a", cpu=2, labels={"rack": "r1"}), node("b", cpu=1, labels={"rack": "r2"}), node("c", cpu=9))


def gang(*pods: Pod, minimum: int = 2, key: str | None = "rack") -> Situation:
    """Return a gang ``g`` on three nodes, the large one without a rack."""
    return situation(RACKS, [pod_group("g", gang=minimum, key=key)], pods)


def member(name: str, cpu: str = "1", node_name: str = "") -> Pod:
    """Return a member of the gang."""
    return pod(name, group="g", cpu=cpu, node_name=node_name)


def uid(name: str) -> str:
    """Return the UID of a pod."""
    return f"uid-default-{name}"


TWO = gang(member("p1"), member("p2"))


@pytest.mark.parametrize(
    ("situation", "expected"),
    [
        (TWO, {"p1": "a", "p2": "a"}),
        (gang(member("p1"), member("p2"), member("p3"), minimum=3), None),
        (gang(member("p1"), member("p2"), member("p3"), minimum=3, key=None), {"p1": "a", "p2": "a", "p3": "b"}),
        (gang(member("p1"), member("p2"), member("run", node_name="b"), minimum=1), {}),
        (gang(member("p1"), member("p2"), member("run", node_name="a")), {"p1": "a"}),
        (gang(member("p1"), member("p2"), member("run", node_name="b")), None),
        (gang(member("p1"), replace(member("done"), status=PodStatus(phase="Succeeded"))), {"p1": "a"}),
        (gang(member("p1", "2"), member("p2", "1"), minimum=1), {"p2": "a"}),
    ],
)
def test_a_placement_is_found_if_there_is_one(situation: Situation, expected: dict[str, str] | None) -> None:
    """Everything is tried, with domains and pins."""
    found = find(situation)
    assert found == (None if expected is None else {uid(name): where for name, where in expected.items()})


def test_enough_children_are_chosen() -> None:
    """A child that does not fit is left out where the minimum allows."""
    groups: list[Group] = [
        composite("root", gang=1),
        pod_group("big", parent="root"),
        pod_group("small", parent="root"),
    ]
    pods = [pod("b", group="big", cpu=99), pod("s", group="small", cpu=1)]
    assert find(situation(RACKS, groups, pods)) == {uid("s"): "a"}
    assert find(situation(RACKS, groups, pods[:1])) is None


@pytest.mark.parametrize(
    ("binds", "rule"),
    [
        ({"p1": "a", "p2": "a"}, None),
        ({}, None),
        ({"p1": "a"}, "below its minimum"),
        ({"p1": "a", "p2": "b"}, "not in one domain"),
        ({"p1": "c", "p2": "c"}, "not in one domain"),
        ({"p1": "b", "p2": "b"}, "b is short of cpu"),
        ({"p1": "gone", "p2": "gone"}, "not there"),
        ({"stranger": "a"}, "not for this tree"),
    ],
)
def test_a_broken_rule_is_named(binds: dict[str, str], rule: str | None) -> None:
    """Each rule by itself."""
    found = violations(TWO, {uid(name): where for name, where in binds.items()})
    assert found == [] if rule is None else any(rule in text for text in found)


def test_an_unsuitable_node_is_reported() -> None:
    """For taints, cordons and selectors."""
    nodes = [node("a", taints=[Taint(key="x", effect="NoSchedule")]), node("b", unschedulable=True), node("c")]
    picky = pod("p", group="g", node_selector={"disk": "ssd"})
    found = situation(nodes, [pod_group("g")], [picky])
    for name in ("a", "b", "c"):
        assert violations(found, {uid("p"): name}) == [f"{uid('p')} may not run on {name}"]
    assert find(found) is None


def test_members_in_two_domains_contradict() -> None:
    """A member on a node without the label does, too; a member on an unknown node does not."""
    assert contradicts(gang(member("x", node_name="a"), member("y", node_name="b")))
    assert contradicts(gang(member("x", node_name="c")))
    assert not contradicts(gang(member("x", node_name="a"), member("y", node_name="gone")))


def test_malformed_amounts_count_as_zero() -> None:
    """The oracle has to handle malformed objects, too."""
    assert find(gang(member("p1", "many"), member("p2", "1"))) == {uid("p1"): "a", uid("p2"): "a"}


def test_the_simulator_checks_decisions_with_the_oracle() -> None:
    """Whatever it plays is checked against the rules."""
    simulator = ClusterSimulator.of(TWO)
    simulator.settle()
    assert simulator.broken == []
    assert [found.spec.node_name for found in simulator.pods.values()] == ["a", "a"]
