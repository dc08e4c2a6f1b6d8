"""Plans as a whole; what holds for all of them is in ``properties/``."""

import pytest

from cpg_engine.gangs.search import SearchOptions
from cpg_engine.preemption.plan import _confirmed, cheapest_candidate, plan_preemption
from cpg_engine.preemption.simulation import PreemptionCandidate
from cpg_engine.preemption.values import PlanOutcome, PreemptionPlan
from cpg_engine.snapshot import Snapshot
from cpg_engine.testing.builders import pod
from cpg_engine.testing.call_counts import count_calls
from cpg_engine.testing.listed_budgets import ListedBudgets
from cpg_engine.testing.preemption_case import PRIORITY, PreemptionCase, names
from cpg_engine.testing.scenario_forms import BudgetForm
from cpg_engine.testing.scenario_wording import eviction_text

LOW = {"pod": "low=2x1 on a", "priority": 1}


def test_a_plan_has_evictions_and_nominations() -> None:
    """With the units considered, and the reasons."""
    found = PreemptionCase(["a 2"], [LOW, "1x1@high"], {"high": {"gang": 1}}).plan()
    assert (found.outcome, found.considered, found.domains, found.exhausted) == (PlanOutcome.PLANNED, 2, 1, False)
    (eviction,), (nomination,) = found.evictions, found.nominations
    assert (eviction.unit.key.name, eviction.violates) == ("low-2", ())
    assert eviction_text(eviction.reason) == "PodGroup default/high needs its 1 CPU on a"
    assert (nomination.uid, nomination.node) == ("uid-default-high-1", "a")


@pytest.mark.parametrize(
    ("pods", "group"),
    [
        (["1x1@high"], {"gang": 2}),
        (["2x3@high"], {"gang": 2}),
        (["1x1@high", "1x1@high on a", "1x1@high on b"], {"gang": 3, "key": "rack"}),
    ],
)
def test_where_no_eviction_helps_no_victims_are_searched(pods: list[object], group: dict[str, object]) -> None:
    """A quorum is missing, a pod is too large for any node, or members contradict their tree."""
    found = PreemptionCase(["a 2 rack=a", "b 2 rack=b"], [LOW, *pods], {"high": group}).plan()
    assert (found.outcome, found.considered, found.evictions) == (PlanOutcome.NOT_HELPFUL, 0, ())


def test_pods_that_fit_need_no_evictions() -> None:
    """All are nominated where they fit."""
    found = PreemptionCase(["a 4"], [LOW, "2x1@high"], {"high": {"gang": 1}}).plan()
    assert (found.outcome, found.evictions, len(found.nominations)) == (PlanOutcome.PLANNED, (), 2)


def test_a_running_tree_preempts_for_late_members() -> None:
    """Its minimum is met, and late members are placed by evictions; those that no eviction helps are not."""
    late = PreemptionCase(["a 3"], [LOW, "1x1@high on a", "2x1@high"], {"high": {"gang": 1}}).plan()
    assert (len(late.evictions), len(late.nominations)) == (2, 2)
    large = PreemptionCase(["a 3"], [LOW, "1x1@high on a", "1x9@high"], {"high": {"gang": 1}}).plan()
    assert large.outcome is PlanOutcome.NOT_HELPFUL


def test_a_plan_places_more_pods_than_fit_already() -> None:
    """Of two late members one fits, and a pod of equal priority rejects the other."""
    pods = [{"pod": "low=1 on b", "priority": 1, "more": {"x": 1}}, "strong=1 on a", "1x1@high on a", "2x1@high"]
    groups = {"high": {"gang": 1, "key": "rack"}}
    found = PreemptionCase(["a 3 rack=a", "b 1 rack=b"], pods, groups).plan()
    assert (found.outcome, found.evictions) == (PlanOutcome.NOT_ENOUGH, ())
    assert found.explanation is not None


def test_the_room_of_ignored_pods_is_worth_a_plan() -> None:
    """Where no eviction helps, the minimum is placed there."""
    case = PreemptionCase(["a 2"], [LOW, "2x1@high", "1x9@high"], {"high": {"gang": 2}})
    simulator = case.simulator
    going = ["uid-default-low-1", "uid-default-low-2"]

    def planned(*ignored: str) -> PreemptionPlan:
        found = case.unit
        return plan_preemption(
            simulator.snapshot,
            found,
            simulator.options,
            priority=PRIORITY,
            units=(),
            budgets=ListedBudgets(),
            ignored=ignored,
        )

    found = planned(*going)
    assert (found.outcome, found.evictions, len(found.nominations)) == (PlanOutcome.PLANNED, (), 2)
    assert planned().outcome is not PlanOutcome.PLANNED


def test_ignored_pods_take_no_room() -> None:
    """Nominated pods give way to a unit that outranks them, and are no victims."""
    case = PreemptionCase(["a 2"], [LOW, "2x1@high"], {"high": {"gang": 2}})
    ledger = case.simulator.snapshot.ledger
    reserved = pod("reserved", cpu=2)
    ledger.put_pod(reserved, "a")
    case.simulator.delete("low-1")
    case.simulator.delete("low-2")

    def planned(snapshot: Snapshot, *ignored: str) -> PlanOutcome:
        found = plan_preemption(
            snapshot,
            case.unit,
            case.simulator.options,
            priority=PRIORITY,
            units=(),
            budgets=ListedBudgets(),
            ignored=ignored,
        )
        return found.outcome

    assert planned(case.simulator.snapshot) is PlanOutcome.NO_VICTIMS
    assert planned(case.simulator.snapshot, reserved.metadata.uid) is PlanOutcome.PLANNED
    assert ledger.mark() == 0


def mixed(wide: int, *, hosts: int = 20, key: str | None = None) -> PreemptionCase:
    """Return pods that all differ and depend on each other, among nodes full of pods of two lower levels."""
    pods: list[object] = [
        {"pod": f"low{number}-{place}=1 on n{number}", "priority": place % 2}
        for number in range(hosts)
        for place in range(8)
    ]
    pods += [f"{1000 + number}m@high" for number in range(wide)]
    nodes = [f"n{number} 8 rack=r{number // 5}" for number in range(hosts)]
    budgets = {"some": BudgetForm(labels={}, allowed=1)}
    return PreemptionCase(nodes, pods, {"high": {"gang": wide, **({"key": key} if key else {})}}, budgets=budgets)


@pytest.mark.parametrize("effort", [0, 1, 3, 10])
@pytest.mark.parametrize("key", [None, "rack"])
def test_a_plan_out_of_effort_is_still_right(monkeypatch: pytest.MonkeyPatch, effort: int, key: str | None) -> None:
    """It says so, and all pods have a place once its victims have gone."""
    whole = mixed(12, key=key).plan()
    monkeypatch.setattr("cpg_engine.preemption.simulation.MAX_EFFORT_PER_RETRY", effort)
    case = mixed(12, key=key)
    found = case.plan()
    assert (found.outcome, found.exhausted, len(found.nominations)) == (PlanOutcome.PLANNED, True, 12)
    assert len(found.evictions) >= len(whole.evictions)
    gone = {eviction.unit.key for eviction in found.evictions}
    simulation = case.simulation()
    assert len(simulation.assign([one for one in case.potential_victims() if one.unit.key in gone])) == 12


def test_a_plan_for_pods_that_all_differ_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as many of them are not four times the work, since all searches share one effort."""
    monkeypatch.setattr("cpg_engine.preemption.simulation.MAX_EFFORT_PER_RETRY", 5)
    few, many = mixed(40), mixed(80)
    assert count_calls(many.plan) < 3 * count_calls(few.plan)


WEB = {"app": "web"}
NONE = {"web": BudgetForm(WEB, 0)}


@pytest.mark.parametrize(
    ("victims", "expected"),
    [
        ([("a", 1, {}), ("b", 2, {})], ["a"]),
        ([("a", 1, WEB), ("b", 2, {})], ["b"]),
        ([("a", 1, WEB), ("b", 2, WEB)], ["a"]),
        ([("a", 2, WEB), ("b", 1, WEB), ("c", 50, {})], ["c"]),
    ],
)
def test_budgets_come_before_priorities(victims: list[tuple[str, int, dict[str, str]]], expected: list[str]) -> None:
    """A node is freed of units that no budget covers first, then of the least important."""
    pods = [{"pod": f"{name}=1 on {name}", "priority": at, "labels": labels} for name, at, labels in victims]
    case = PreemptionCase([f"{name} 1" for name, _, _ in victims], [*pods, "1x1@high"], {"high": {"gang": 1}}, NONE)
    assert names(cheapest_candidate(case.problem(1), case.potential_victims()).best.victims) == expected


def test_a_lower_priority_must_not_cost_more_violations() -> None:
    """Node a has one violator and one unit of priority 9; node b has two violators of priority 1."""
    pods = [
        {"pod": "a1=1 on a", "priority": 1, "labels": WEB},
        {"pod": "a2=1 on a", "priority": 9},
        {"pod": "b=2x1 on b", "priority": 1, "labels": WEB},
        "1x2@high",
    ]
    case = PreemptionCase(["a 2", "b 2"], pods, {"high": {"gang": 1}}, NONE)
    assert names(cheapest_candidate(case.problem(1), case.potential_victims()).best.victims) == ["a2", "a1"]


def test_where_violations_are_equal_the_highest_priority_is_the_lowest() -> None:
    """One violator has to be evicted anyway; beside it the unit of priority 2 is, not that of priority 9."""
    pods = [
        {"pod": "a1=1 on a", "priority": 1, "labels": WEB},
        {"pod": "a2=1 on a", "priority": 9},
        {"pod": "b1=1 on b", "priority": 1, "labels": WEB},
        {"pod": "b2=1 on b", "priority": 2},
        "1x2@high",
    ]
    case = PreemptionCase(["a 2", "b 2"], pods, {"high": {"gang": 1}}, NONE)
    assert names(cheapest_candidate(case.problem(1), case.potential_victims()).best.victims) == ["b2", "b1"]


def test_an_allowance_is_used_where_it_helps() -> None:
    """One eviction is allowed. That evicting the less important unit would not help makes the other no violator."""
    pods = [
        {"pod": "useless=1 on a", "priority": 1, "labels": WEB},
        "strong=1 on a",
        {"pod": "useful=2 on b", "priority": 2, "labels": WEB},
        {"pod": "other=2 on c", "priority": 50},
        "1x2@high",
    ]
    case = PreemptionCase(["a 2", "b 2", "c 2"], pods, {"high": {"gang": 1}}, {"web": BudgetForm(WEB, 1)})
    problem = case.problem(1)
    best = cheapest_candidate(problem, case.potential_victims()).best
    assert (names(best.victims), problem.violations(best.victims)) == (["useful"], [False])
    assert problem.cost(best.victims)[:4] == (0, 2, 1, 1)
    assert problem.cost([]) < problem.cost(best.victims)


def test_assignments_in_a_domain_stand_when_the_free_search_misses_them() -> None:
    """Each node gets one of the large pods, so that the last small pod finds no room."""
    pods = [{"pod": "left=1 on a", "priority": 2}, {"pod": "large=2x3@high"}, {"pod": "small=3x2@high"}]
    case = PreemptionCase(["a 6", "b 6"], pods, {"high": {"gang": 5}}, options=SearchOptions(budget=0))
    problem, victims = case.problem(5), case.potential_victims()
    assignments = tuple((pod, int(pod.uid.startswith("uid-default-large"))) for pod in case.unit.nodes[0].pending)
    assert not problem.is_solved_by(problem.simulation.assign(victims))
    assert _confirmed(problem, PreemptionCandidate(victims, assignments)).assignments == assignments
