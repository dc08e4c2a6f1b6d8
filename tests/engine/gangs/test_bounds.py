"""Bounds: the room in domains, and how close they come to holding a group."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpg_engine.cluster.ledger import Ledger
from cpg_engine.gangs.bounds import (
    DomainSurvey,
    anti_affinity_bound,
    at_most,
    closest_first,
    exclusive_keys,
    rejected_counts,
    shortage,
)
from cpg_engine.gangs.domain_choice import DomainChoice
from cpg_engine.gangs.needs import Needs
from cpg_engine.testing.builders import node
from cpg_engine.testing.decision_case import DecisionCase, NamedDecision
from cpg_engine.verdicts import Finding, Status, StatusCounts
from cpg_engine.weights import Weights

Form = Mapping[str, Any]


def surveyed(nodes: Sequence[str], root: Form, pods: Sequence[str | Form]) -> tuple[DecisionCase, Needs, DomainSurvey]:
    """Return a tree with a root that requires a rack, and the survey of the racks."""
    trial = DecisionCase(nodes, {"root": {"key": "rack", **root}}, pods)
    needs = Needs(trial.unit)
    choices = DomainChoice(trial.snapshot, needs, Weights())
    choices.pin()
    survey = choices.required(0, trial.snapshot.topology.whole()).survey
    assert survey is not None
    return trial, needs, survey


def rejected(nodes: Sequence[str], root: Form, pods: Sequence[str | Form]) -> tuple[StatusCounts, str | None]:
    """Return the counts of the root, and the rack that they are about."""
    trial, needs, survey = surveyed(nodes, root, pods)
    order = closest_first(survey, shortage(needs, 0, survey))
    counts, place = rejected_counts(trial.snapshot, needs, 0, survey, order)
    return counts, None if place is None else survey.partition.scopes[place].chain[-1].value


def test_a_leaf_is_short_of_the_pods_that_do_not_fit() -> None:
    """Running members count towards its minimum; extra pods are no shortage."""
    _, needs, survey = surveyed(["n1 2 rack=a", "n2 4 rack=b"], {"gang": 4}, ["6x1@root"])
    assert shortage(needs, 0, survey).tolist() == [2, 0]
    _, needs, survey = surveyed(["n1 2 rack=a"], {"gang": 4}, ["1@root on n1", "3x1@root"])
    assert shortage(needs, 0, survey).tolist() == [2]


def test_a_group_is_short_of_pods_too() -> None:
    """It is short of the least that its children need, class by class."""
    root = {"gang": 2, "children": {"pg1": {"gang": 2}, "pg2": {"gang": 3}, "pg3": {"gang": 1}}}
    _, needs, survey = surveyed(["n1 2 rack=a", "n2 1 rack=b"], root, ["2x1@pg1", "3x1@pg2", "1@pg3"])
    assert shortage(needs, 0, survey).tolist() == [1, 2]


def test_the_closest_domain_has_the_least_shortage() -> None:
    """Of equal ones it has most room; then the name decides."""
    nodes = ["n1 1 rack=d", "n2 3 rack=c", "n3 2 rack=b", "n4 2 rack=a"]
    _, needs, survey = surveyed(nodes, {"gang": 4}, ["4x1@root"])
    order = closest_first(survey, shortage(needs, 0, survey))
    assert [survey.partition.scopes[place].chain[-1].value for place in order.tolist()] == ["c", "a", "b", "d"]


def test_domains_that_are_not_open_are_no_candidates() -> None:
    """Members run in another one."""
    _, needs, survey = surveyed(["n1 1 rack=a", "n2 9 rack=b"], {"gang": 2}, ["1@root on n1", "1@root"])
    assert closest_first(survey, shortage(needs, 0, survey)).tolist() == [0]


def test_children_that_need_least_are_counted_first() -> None:
    """As many as there is room for at once, of those that would fit alone."""
    root = {"gang": 2, "children": {"pg1": {"gang": 3}, "pg2": {"gang": 2}, "pg3": {"gang": 1}, "pg4": {"gang": 1}}}
    nodes = [f"n{cpu} {cpu} rack=r{cpu}" for cpu in range(1, 7)]
    _, needs, survey = surveyed(nodes, root, ["3x1@pg1", "2x1@pg2", "1@pg3"])
    assert at_most(needs, 0, survey.room, 6).tolist() == [1, 1, 2, 2, 2, 3]


@pytest.mark.parametrize(
    ("pods", "counts", "rack"),
    [
        (["2@x on n1", "2@x on n2"], StatusCounts(4, scheduled=2, unschedulable=2), "a"),
        (["1@x on n1"], StatusCounts(4, scheduled=3, unschedulable=1), "a"),
        (["4@x on n1"], StatusCounts(4, scheduled=0, unschedulable=4), "a"),
    ],
)
def test_full_domains_could_be_emptied(pods: list[str], counts: StatusCounts, rack: str) -> None:
    """What there is room for is scheduled, what there would be room for is unschedulable."""
    assert (counts, rack) == rejected(["n1 4 rack=a", "n2 3 rack=b"], {"gang": 4}, ["4x1@root", *pods])


def test_the_domain_that_evictions_could_help_is_reported() -> None:
    """Rack b has more room now, but never enough."""
    nodes, pods = ["n1 4 rack=a", "n2 3 rack=b"], ["4x1@root", "3@x on n1"]
    assert (StatusCounts(4, scheduled=1, unschedulable=3), "a") == rejected(nodes, {"gang": 4}, pods)


def test_a_group_larger_than_every_domain_is_unresolvable() -> None:
    """The pods beyond the largest domain are unresolvable, and so is the group."""
    counts, rack = rejected(["n1 4 rack=a", "n2 3 rack=b"], {"gang": 5}, ["6x1@root", "2@x on n1"])
    assert (StatusCounts(5, scheduled=3, unresolvable=3), "b") == (counts, rack)
    assert Status.UNRESOLVABLE is counts.status


def test_pods_without_a_feasible_node_are_unresolvable() -> None:
    """The others would fit, but the minimum needs all."""
    pods: list[str | Form] = ["2x1@root", {"pod": "1@root", "nodeSelector": {"disk": "none"}}]
    assert (StatusCounts(3, scheduled=2, unresolvable=1), "a") == rejected(["n1 4 rack=a"], {"gang": 3}, pods)


def test_children_are_counted_where_a_group_is_rejected() -> None:
    """Two children of three pods fit a rack of five one by one only, even if it is empty."""
    root = {"gang": 2, "children": {"pg1": {"gang": 3}, "pg2": {"gang": 3}}}
    pods = ["3x1@pg1", "3x1@pg2"]
    assert (StatusCounts(2, scheduled=1, unresolvable=1), "a") == rejected(["n1 5 rack=a"], root, pods)
    assert (StatusCounts(2, scheduled=1, unschedulable=1), "a") == rejected(["n1 6 rack=a"], root, [*pods, "1@x on n1"])


def test_without_an_open_domain_the_group_is_unresolvable() -> None:
    """No node has the label; members with a node stay in the counts, invalid pods are unresolvable, too."""
    bad = {"pod": "x@root", "more": {"cpu": "x"}}
    counts, rack = rejected([], {"gang": 3}, [{"pod": "1@root", "phase": "Succeeded"}, "2x1@root", bad])
    assert (StatusCounts(3, scheduled=1, unresolvable=3), None) == (counts, rack)


def rejecting(key: str, **labels: str) -> dict[str, Any]:
    """Return anti-affinity to pods with some labels."""
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def decision_about(nodes: list[str], root: dict[str, Any], *pods: dict[str, Any]) -> NamedDecision:
    """Return the decision about a tree with this root."""
    return DecisionCase(nodes, {"root": root}, pods).decide()


def test_anti_affinity_to_the_own_class_makes_a_key_exclusive() -> None:
    """Once for each label, whatever else the terms select; terms that select other pods alone do not."""
    own, others = rejecting("host", app="a"), rejecting("host", app="b")
    own["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] *= 2
    form = {"pod": "1@root", "labels": {"app": "a"}}
    trial = DecisionCase([], {"root": None}, [{**form, "affinity": own}, {**form, "affinity": others}])
    first, second = (member.pod_class for member in trial.unit.nodes[0].pending)
    assert exclusive_keys(first, trial.snapshot.ledger) == ("host",)
    assert exclusive_keys(second, trial.snapshot.ledger) == ()


@given(
    st.lists(st.tuples(st.sampled_from(["", "a", "b", "c"]), st.integers(0, 3)), min_size=1, max_size=8),
    st.data(),
)
def test_each_domain_has_room_for_one_pod_in_each_scope(nodes: list[tuple[str, int]], data: st.DataObject) -> None:
    """Summed over a scope it is one for each value with any room, and all room of the nodes without the label."""
    ledger = Ledger()
    for number, (value, _) in enumerate(nodes):
        ledger.put_node(node(f"n{number}", labels={"key": value} if value else {}))
    slots = np.array([room for _, room in nodes])
    cuts = sorted(data.draw(st.sets(st.integers(1, len(nodes) - 1)))) if len(nodes) > 1 else []
    found = anti_affinity_bound(slots, np.arange(len(nodes)), np.array([0, *cuts]), ("key",), ledger)
    for start, end in zip([0, *cuts], [*cuts, len(nodes)], strict=True):
        some = nodes[start:end]
        values = {value for value, room in some if value and room}
        assert found[start:end].sum() == len(values) + sum(room for value, room in some if not value)
    assert (found <= slots).all()


def test_a_domain_that_takes_too_few_of_them_is_not_tried() -> None:
    """No two pods of the class fit on one host; the bound proves it, and the report names the domain."""
    kind = {"labels": {"app": "a"}, "affinity": rejecting("host", app="a")}
    nodes = [f"n{number} 9 host=n{number} rack=r{number // 3}" for number in range(6)]
    found = decision_about(nodes, {"gang": 2, "key": "host"}, {"pod": "4x1@root", **kind})
    assert (found.finding, found.decision.placements.infeasible) == (Finding.IMPOSSIBLE, 0)
    (candidate,) = found.report("root").candidates
    assert (candidate.fits, candidate.wanted, candidate.shortage) == (1, 4, 1)
    assert len(decision_about(nodes, {"gang": 3, "key": "rack"}, {"pod": "3x1@root", **kind}).binds) == 3
    assert decision_about(nodes, {"gang": 4, "key": "rack"}, {"pod": "4x1@root", **kind}).finding is Finding.IMPOSSIBLE
