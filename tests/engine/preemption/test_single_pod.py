"""Preemption for a single pod, node by node."""

import numpy as np

from cpg_engine.cluster.axes import CPU, PODS
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.preemption.budgets import BudgetAllowances
from cpg_engine.preemption.single_pod import (
    VictimTable,
    by_importance,
    lowest_level,
    not_reprieved,
    victim_table,
    violating,
)
from cpg_engine.preemption.values import PlanOutcome, PreemptionPlan
from cpg_engine.testing.listed_budgets import DisruptionBudget, ListedBudgets
from cpg_engine.testing.preemption_case import PreemptionCase
from cpg_engine.testing.scenario_forms import BudgetForm
from cpg_engine.testing.scenario_wording import eviction_text
from cpg_engine.testing.victim_units import units_of

AWAY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "rival"}}, "topologyKey": "host"}
        ]
    }
}
RIVAL = {"app": "rival"}


def node_and_victims(found: PreemptionPlan) -> tuple[str, list[str]]:
    """Return the node of the only pod, and the victims."""
    return found.nominations[0].node, [eviction.unit.key.name for eviction in found.evictions]


def test_the_latest_start_of_the_oldest_victim_decides_last() -> None:
    """Where all else is equal, the node with the youngest oldest victim is chosen, then the first by name."""
    pods = [{"pod": f"{name}=1 on {name}", "priority": 1, "created": at} for name, at in (("a", 3), ("b", 5), ("c", 5))]
    case = PreemptionCase(["c 1", "b 1", "a 1"], [*pods, "high=1"])
    assert node_and_victims(case.plan()) == ("b", ["b"])


def test_two_pods_of_a_low_priority_cost_more_than_one() -> None:
    """The sum of priorities counts each pod, however low it is."""
    pods = [{"pod": "two=2x1 on a", "priority": -5}, {"pod": "one=2 on b", "priority": -5}]
    assert node_and_victims(PreemptionCase(["a 2", "b 2"], [*pods, "high=2"]).plan()) == ("b", ["one"])


def test_a_budget_is_used_up_node_by_node() -> None:
    """On the node where one of two may be evicted the other is put back, so no budget is violated there."""
    pods = [
        {"pod": "a=2x1 on a", "priority": 1, "labels": {"app": "web"}},
        {"pod": "b=2 on b", "priority": 2},
    ]
    case = PreemptionCase(["a 2", "b 2"], [*pods, "high=1"], budgets={"web": BudgetForm({"app": "web"}, 1)})
    assert node_and_victims(case.plan()) == ("a", ["a-1"])
    assert case.plan().evictions[0].violates == ()


def test_a_dependent_pod_simulates_node_after_node() -> None:
    """A pod that rejects it is evicted whatever the room; an important rejecting pod keeps its node closed."""
    pods = [
        {"pod": "rival=1 on a", "priority": 1, "labels": RIVAL},
        {"pod": "mate=1 on a", "priority": 1},
        {"pod": "strong=1 on b", "labels": RIVAL},
        {"pod": "b=1 on b", "priority": 1},
        {"pod": "high=1", "affinity": AWAY},
    ]
    found = PreemptionCase(["a 2 host=a", "b 2 host=b"], pods).plan()
    assert node_and_victims(found) == ("a", ["rival"])
    assert (found.considered, found.domains, found.exhausted) == (3, 2, False)


def test_of_several_simulated_nodes_the_best_is_chosen() -> None:
    """By the same rules, down to the start and the name."""
    rivals = [
        {"pod": f"{name}=1 on {name}", "priority": 1, "labels": RIVAL, "created": at}
        for name, at in (("a", 3), ("b", 5), ("c", 5))
    ]
    nodes = [f"{name} 2 host={name}" for name in "abc"]
    high = {"pod": "high=1", "affinity": AWAY}
    assert node_and_victims(PreemptionCase(nodes, [*rivals, high]).plan()) == ("b", ["b"])
    found = PreemptionCase(nodes, [*rivals, high], options=SearchOptions(budget=1)).plan()
    assert (node_and_victims(found)[1], found.domains, found.exhausted) == (["a"], 1, True)


def test_where_no_node_can_be_freed_pods_elsewhere_are_evicted() -> None:
    """A pod on an infeasible node rejects it in the whole zone; kube-scheduler would leave it pending."""
    zone = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": RIVAL}, "topologyKey": "zone"}
            ]
        }
    }
    pods = [
        {"pod": "rival=1 on b", "priority": 1, "labels": RIVAL},
        {"pod": "high=1", "affinity": zone, "nodeSelector": {"host": "a"}},
    ]
    found = PreemptionCase(["a 2 host=a zone=z", "b 2 host=b zone=z"], pods).plan()
    assert node_and_victims(found) == ("a", ["rival"])
    assert eviction_text(found.evictions[0].reason) == "Pod default/high cannot run on a while it runs on b"


def test_a_pod_that_fits_is_nominated() -> None:
    """The caller need not have checked."""
    found = PreemptionCase(["a 2"], ["high=1"]).plan()
    assert (found.outcome, node_and_victims(found)) == (PlanOutcome.PLANNED, ("a", []))


def test_without_pods_of_lower_priority_there_are_no_victims() -> None:
    """Pods of equal priority are not considered."""
    assert PreemptionCase(["a 2"], ["other=2 on a", "high=1"]).plan().outcome is PlanOutcome.NO_VICTIMS


def test_evicting_all_is_not_enough() -> None:
    """The reason is that of the cluster without them."""
    pods = [{"pod": "low=1 on a", "priority": 1}, "strong=1 on a", "high=2"]
    found = PreemptionCase(["a 2"], pods).plan()
    assert (found.outcome, found.considered, found.evictions) == (PlanOutcome.NOT_ENOUGH, 1, ())
    assert found.explanation is not None


COLUMNS = np.array([CPU, PODS])


def table_of(*pods: object) -> tuple[PreemptionCase, VictimTable]:
    """Return the victim table of some pods on the nodes ``a`` and ``b``."""
    case = PreemptionCase(["a 4", "b 4"], pods, {"whole": {"gang": 1, "whole": True, "priority": 5}})
    units = units_of(case.simulator.groups.values(), case.simulator.pods.values())
    return case, victim_table(case.simulator.snapshot, units, COLUMNS)


def entries(table: VictimTable) -> list[tuple[str, int]]:
    """Return units by name and row."""
    return [(unit.key.name, row) for unit, row in zip(table.entry_units(), table.rows.tolist(), strict=True)]


def test_a_unit_has_one_entry_per_node() -> None:
    """With what all of its pods there hold; pods on unknown nodes hold nothing."""
    lines = ["w=1@whole on a", "x=2@whole on a", "y=1@whole on b", "z=1 on b", "gone=1 on nowhere"]
    _, found = table_of(*({"pod": line, "priority": 5} for line in lines))
    assert entries(found) == [("whole", 0), ("whole", 1), ("z", 1)]
    assert found.amounts.tolist() == [[3000, 2], [1000, 1], [1000, 1]]
    assert (found.sizes().tolist(), found.units_at(1)) == ([3, 3, 1], found.entry_units()[1:])
    assert found.total(3).tolist() == [[3000, 2], [2000, 2], [0, 0]]


def test_the_most_important_of_a_row_is_the_first() -> None:
    """Priority, kind, size and age decide, and the name between those that are equal in all."""
    lines = [("p=1 on a", 1, 1), ("q=1 on a", 9, 2), ("s=1 on a", 5, 1), ("r=1 on a", 5, 1), ("t=1 on b", 5, 1)]
    pods = [{"pod": line, "priority": priority, "created": at} for line, priority, at in lines]
    _, found = table_of(*pods, {"pod": "w=1@whole on a", "priority": 5, "created": 3})
    assert [name for name, _ in entries(by_importance(found))] == ["q", "whole", "r", "s", "p", "t"]
    _, clear = table_of(*pods[:2])
    assert [name for name, _ in entries(by_importance(clear))] == ["q", "p"]


def test_only_the_lowest_sufficient_priority_is_kept() -> None:
    """And only on the rows where it is enough."""
    pods = [{"pod": f"{name}=1 on {name[0]}", "priority": number} for name, number in (("a1", 1), ("a2", 5), ("b1", 5))]
    _, found = table_of(*pods)
    room = np.array([[-1000, 0], [-1000, 0]])
    some, left = lowest_level(found, room, np.array([True, True]))
    assert (entries(some), left.tolist()) == ([("a1", 0)], [[0, 1], [-1000, 0]])
    some, _ = lowest_level(found, room, np.array([False, True]))
    assert entries(some) == [("b1", 1)]
    assert entries(lowest_level(found, room - 5000, np.array([True, True]))[0]) == []


def test_a_budget_is_counted_row_by_row() -> None:
    """The most important units of each row use its allowance."""
    pods = [{"pod": f"{name}=1 on {name[0]}", "priority": 9 - int(name[1])} for name in ("a1", "a2", "b1")]
    case, found = table_of(*pods, {"pod": "a3=1 on a", "priority": 1})
    budget = DisruptionBudget(
        "web", 1, frozenset(case.simulator.pods[name].metadata.uid for name in ("a1", "a2", "b1"))
    )
    assert violating(by_importance(found), BudgetAllowances(ListedBudgets([budget]))).tolist() == [
        False,
        True,
        False,
        False,
    ]
    assert violating(found, BudgetAllowances(ListedBudgets())).tolist() == [False] * 4


def test_units_that_fit_are_put_back() -> None:
    """Row by row in order; a unit that does not fit is evicted, and the next is tried."""
    pods = [{"pod": line, "priority": 9 - number} for number, line in enumerate(("l=2 on a", "m=3 on a", "s=1 on a"))]
    _, found = table_of(*pods)
    room = np.array([[3000, 9]])
    assert not_reprieved(by_importance(found), room).tolist() == [False, True, False]
    assert room.tolist() == [[3000, 9]]
    assert not_reprieved(found.select(found.rows > 5), room).tolist() == []
