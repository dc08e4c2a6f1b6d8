"""Search for placements: domains in vain, and constraints that are costly to check."""

import pytest
from msgspec.structs import replace

from cpg_engine.cycle import decide
from cpg_engine.gangs.search import PlacementSearch, SearchOptions
from cpg_engine.testing.call_counts import count_calls
from cpg_engine.testing.decision_case import DecisionCase, NamedDecision
from cpg_engine.verdicts import Finding


def hostile(hosts: int, wide: int, **root: str) -> DecisionCase:
    """Return a tree that requires one host, with pods that all differ and reject each other."""
    term = {"labelSelector": {}, "topologyKey": "host"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    nodes = [f"n{number:04} 1000 host=h{number:04}" for number in range(hosts)]
    below = {f"pg{number:03}": {"gang": 1} for number in range(wide)}
    pods = [{"pod": f"{1 + number}@pg{number:03}", "affinity": apart} for number in range(wide)]
    return DecisionCase(nodes, {"root": {"gang": wide, "children": below, "key": "host", **root}}, pods)


@pytest.mark.parametrize("root", [{}, {"preferred": "host"}])
def test_domains_that_fail_one_after_the_other_are_not_all_tried(root: dict[str, str]) -> None:
    """Each counts as wasted effort, so that ten times the hosts are hardly more work."""
    few, many = hostile(100, 20, **root), hostile(1000, 20, **root)
    assert few.decide(SearchOptions(budget=3)).finding is Finding.OUT_OF_BUDGET
    assert count_calls(lambda: many.decide(SearchOptions(budget=3))) < 2 * count_calls(
        lambda: few.decide(SearchOptions(budget=3))
    )


def test_a_larger_budget_tries_more_domains() -> None:
    """That is the next step where it was too small, and with enough of it all are tried."""
    trial = hostile(100, 5)
    tries = [trial.decide(SearchOptions(budget=budget)).decision.placements.infeasible for budget in (0, 5, 100)]
    assert 1 < tries[0] < tries[1] < tries[2]
    enough = trial.decide(SearchOptions(budget=200))
    assert enough.decision.placements.infeasible == 2 * 100  # in their own order, and with the larger pods first
    assert enough.finding is Finding.NOT_FOUND


def spreading(constraints: int, *, distinct: bool, nodes: int = 200) -> DecisionCase:
    """Return a gang of 45 in one of 20 racks, with spread constraints of which the last one cannot be met."""
    forms = [
        {"node": f"n{number} 64 rack=r{number % 20} zone=z{number % 3}", "memory": "9Gi"} for number in range(nodes)
    ]
    app = {"matchLabels": {"app": "web"}}
    spread = {"maxSkew": 99, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": app}
    never = {**spread, "maxSkew": 1, "minDomains": 9}
    pods = [
        {
            "pod": f"p{number}=1@root",
            "labels": {"app": "web"},
            "memory": f"{1 + number * distinct}Mi",
            "topologySpreadConstraints": [*[spread] * constraints, *([never] * (number == 44))],
        }
        for number in range(45)
    ]
    return DecisionCase(forms, {"root": {"gang": 45, "key": "rack"}}, pods)


@pytest.mark.parametrize("distinct", [False, True])
def test_constraints_are_charged_to_the_budget(*, distinct: bool) -> None:
    """Ten times as many constraints are hardly more work in all, since fewer domains are tried."""
    few, many = spreading(30, distinct=distinct), spreading(300, distinct=distinct)
    found = list[NamedDecision]()
    calls = count_calls(lambda: found.append(many.decide()))
    assert found[0].finding is Finding.OUT_OF_BUDGET
    assert calls < 3 * count_calls(few.decide)


def test_a_long_search_pauses_between_its_steps() -> None:
    """At least once per domain and pod that it tries, with the same decision as without pauses."""
    trial, pauses = spreading(30, distinct=True), list[int]()
    paused = replace(trial.snapshot, pause=lambda: pauses.append(trial.snapshot.ledger.version))
    without = decide(trial.snapshot, trial.unit, SearchOptions())
    assert decide(paused, trial.unit, SearchOptions()) == without
    assert without.placements.infeasible > 1
    assert len(pauses) > 45 * without.placements.infeasible


def test_a_leaf_is_cut_when_the_effort_is_used_up() -> None:
    """Also if it is the only group, and in one scope."""
    trial = spreading(300, distinct=True)
    flat = DecisionCase(["n1 999 rack=r zone=z"], {"root": {"gang": 1}}, ["1@root"])
    search = PlacementSearch(trial.snapshot, trial.unit, SearchOptions(budget=0))
    search._budget.effort = search._budget.effort_left + 1
    assert search._place_pods(trial.snapshot.topology.whole(), trial.unit.nodes[0].pending, 45).is_cut
    assert search._budget.is_exhausted
    assert not flat.decide(SearchOptions(budget=0)).decision.explanation.limitations
