"""Scenarios: how they are read, and what they report."""

from typing import Any

import pytest

from cpg_engine.testing.scenario_expectations import Expected, unmet
from cpg_engine.testing.scenario_forms import ScenarioError
from cpg_engine.testing.scenarios import play
from cpg_engine.verdicts import Finding

BASE = {"about": "One pod fits, one does not.", "nodes": ["n1 1 rack=r1"], "groups": {"pg1": {}}, "pods": ["2x1@pg1"]}

WRONG: dict[str, dict[str, Any]] = {
    "bound": {"pg1": 2},
    "nodes": {"pg1-1": "n2", "pg1-2": ["n1", "n2"], "unknown": "n1"},
    "together": {"pg1": "zone"},
    "domain": {"pg1": "rack=r1"},
    "finding": {"pg1": "Impossible", "pg2": "Placed"},
    "detail": {"pg1": "more than one", "pg2": "more than one"},
    "status": {"pg1": "Wait M=2 S=2 R=1 U=0 UU=1", "pg2": "Wait"},
    "reasons": {"pg1": ["2 Insufficient cpu"]},
    "candidates": {"pg1": ["rack=r1 1/2"]},
    "blockers": {"pg1": ["pg2"]},
    "held": {"pg1": "gated"},
    "refused": {"pg1-1": "requests"},
    "plan": {"pg1": "Planned", "pg2": "Planned"},
    "because": {"pg1-1": "needs"},
    "conditions": {"unknown": "True Scheduled"},
}


@pytest.mark.parametrize("kind", WRONG)
def test_unmet_expectations_are_reported(kind: str) -> None:
    """There is a complaint for every expectation that is not met, which names it."""
    complaints = play({**BASE, "expect": {kind: WRONG[kind]}}).complaints
    assert [complaint.split(": ")[:3] for complaint in complaints] == [["step 0", kind, name] for name in WRONG[kind]]


def test_evictions_are_compared() -> None:
    """All victims and no others, their reasons, and the outcome of the plan."""
    low = {"pod": "low=2x1 on n1", "priority": -1}
    expect = {"victims": ["low-2"], "because": {"low-2": "needs its 1 CPU on n1"}, "plan": {"pg1": "Planned"}}
    plain = {**BASE, "nodes": ["n1 3"], "budgets": {"none": {"labels": {"app": "web"}}}, "pods": ["2x1@pg1", low]}
    assert play({**plain, "groups": {"pg1": {"gang": 2}}, "expect": expect}).complaints == ()
    (wrong,) = play({**plain, "groups": {"pg1": {"gang": 2}}, "expect": {"victims": ["low-1"]}}).complaints
    assert wrong == "step 0: victims: expected ['low-1'], found ['low-2']"
    assert play({**plain, "groups": {"pg1": {"gang": 2}}, "expect": {"nominated": ["pg1"]}}).complaints == ()
    (wrong,) = play({**plain, "groups": {"pg1": {"gang": 2}}, "expect": {"nominated": []}}).complaints
    assert wrong == "step 0: nominated: expected [], found ['pg1-1', 'pg1-2']"


@pytest.mark.parametrize(
    ("wanted", "complaints"),
    [
        ("False Unschedulable room", 0),
        ("False Unschedulable rooms", 2),
        ("False SchedulerError room", 2),
        ("True Unschedulable room", 2),
        ("False Unschedulable", 2),
        ("True Scheduled", 2),
    ],
)
def test_a_condition_is_its_status_its_reason_and_a_part_of_its_message(wanted: str, complaints: int) -> None:
    """All objects that the pattern matches are compared; an unexpected or missing message is a complaint."""
    simulator = play(BASE).simulator
    expected = Expected(conditions={"pg1-*": wanted})
    assert list(unmet(expected, simulator)) == []
    simulator.reported = dict.fromkeys(("pg1-1", "pg1-2"), "False Unschedulable there is no room")
    assert len(list(unmet(expected, simulator))) == complaints
    simulator.reported = {"pg1-1": "True Scheduled"}
    assert len(list(unmet(Expected(conditions={"pg1-1": "True Scheduled", "pg1-2": "True Scheduled"}), simulator))) == 1


def test_a_pod_on_a_removed_node_is_in_no_domain() -> None:
    """It has no node to read labels from."""
    plain = {**BASE, "steps": [{"delete": ["n1"], "expect": {"together": {"pg1": "rack"}}}]}
    assert play(plain).complaints == ("step 1: together: pg1: expected one value of rack, found ['None']",)


def test_an_expectation_about_missing_pods_is_not_met() -> None:
    """Even one about all of them."""
    assert play({**BASE, "expect": {"bound": {"pg2": "all"}}}).complaints != ()


def test_an_unexpected_problem_of_an_invalid_pod_is_reported() -> None:
    """An invalid pod with another problem than expected is a complaint."""
    plain = {**BASE, "pods": ["p1=many"], "expect": {"refused": {"p1": "negative"}}}
    assert len(play(plain).complaints) == 1


@pytest.mark.parametrize(
    ("plain", "complaint"),
    [
        ({"unknown": 1}, "unknown"),
        ({"expect": {"bonud": {}}}, "bonud"),
        ({"nodes": ["n1 1 rack"]}, "LABEL=VALUE"),
        ({"nodes": [{"node": "n1 1", "taints": ["red"]}]}, "KEY=VALUE:EFFECT"),
        ({"pods": ["1 2 3"]}, "NAME=COUNTxCPU"),
        ({"pods": [{"pod": "1", "nodeSelecter": {}}]}, "nodeSelecter"),
        ({"pods": [{"pod": "1", "nodeSelector": 1}]}, "nodeSelector"),
        ({"pods": [{"pod": 1}]}, "pod"),
        ({"steps": [{"delete": ["unknown"]}]}, "unknown"),
        ({"steps": [{"minimum": {"unknown": 1}}]}, "unknown"),
        ({"steps": [{"finish": {"unknown": "Failed"}}]}, "unknown"),
    ],
)
def test_a_malformed_scenario_is_an_error(plain: dict[str, Any], complaint: str) -> None:
    """It never counts as a success."""
    with pytest.raises(ScenarioError, match=complaint):
        play({**BASE, **plain})


def test_a_count_makes_several_nodes() -> None:
    """They are of one kind; a node may leave out its CPU, and have all fields of a node."""
    form = {"node": "n rack=r1", "count": 2, "memory": "1Gi", "pods": 3, "more": {"gpu": 1}, "taints": ["a:NoSchedule"]}
    nodes = play({"about": "Nodes.", "nodes": [form, "m 2"]}).simulator.nodes
    assert list(nodes) == ["n-1", "n-2", "m"]
    assert nodes["n-1"].status.allocatable == {"memory": "1Gi", "pods": 3, "gpu": 1}
    assert nodes["m"].status.allocatable == {"cpu": "2", "pods": 110}


def test_pods_are_named_by_group_or_prefix() -> None:
    """Numbers go on from one form to the next."""
    pods = play({"about": "Pods.", "pods": ["2x1@g", "1@g", "a=2x1", "b=1", "1"]}).simulator.pods
    assert list(pods) == ["g-1", "g-2", "g-3", "a-1", "a-2", "b", "pod-1"]


def test_a_minimum_may_change_at_any_level() -> None:
    """The minimum of pods or of groups."""
    plain = {
        "about": "Minimums.",
        "nodes": ["n1 2"],
        "groups": {"root": {"gang": 2, "children": {"pg1": {"gang": 2}}}},
        "pods": ["1@pg1"],
        "steps": [{"minimum": {"root": 1, "pg1": 1}, "expect": {"bound": {"root": 1}}}],
    }
    result = play(plain)
    assert result.complaints == ()
    assert result.simulator.decisions["root"].explanation.finding is Finding.PLACED
