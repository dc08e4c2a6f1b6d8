"""A single pod, node by node."""

from cpg_engine.gangs.search import SearchOptions
from cpg_engine.preemption.values import PlanOutcome, PreemptionPlan
from cpg_engine.testing.preemption_case import PreemptionCase
from cpg_engine.testing.scenario_forms import BudgetForm

AWAY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "rival"}}, "topologyKey": "host"}
        ]
    }
}
RIVAL = {"app": "rival"}


def told(found: PreemptionPlan) -> tuple[str, list[str]]:
    """Return the node of the one pod, and who has to go."""
    return found.nominations[0].node, [eviction.unit.key.name for eviction in found.evictions]


def test_the_latest_start_of_the_oldest_decides_at_last() -> None:
    """Where all else is equal the node is chosen whose oldest victim is the youngest, then the first by name."""
    pods = [{"pod": f"{name}=1 on {name}", "priority": 1, "created": at} for name, at in (("a", 3), ("b", 5), ("c", 5))]
    arena = PreemptionCase(["c 1", "b 1", "a 1"], [*pods, "high=1"])
    assert told(arena.plan()) == ("b", ["b"])


def test_two_pods_of_a_low_priority_cost_more_than_one() -> None:
    """The sum of priorities counts each pod, however low it is."""
    pods = [{"pod": "two=2x1 on a", "priority": -5}, {"pod": "one=2 on b", "priority": -5}]
    assert told(PreemptionCase(["a 2", "b 2"], [*pods, "high=2"]).plan()) == ("b", ["one"])


def test_a_budget_is_used_up_node_by_node() -> None:
    """On the node where one of two may go the other is put back, so no budget is violated there."""
    pods = [
        {"pod": "a=2x1 on a", "priority": 1, "labels": {"app": "web"}},
        {"pod": "b=2 on b", "priority": 2},
    ]
    arena = PreemptionCase(["a 2", "b 2"], [*pods, "high=1"], budgets={"web": BudgetForm({"app": "web"}, 1)})
    assert told(arena.plan()) == ("a", ["a-1"])
    assert arena.plan().evictions[0].violates == ()


def test_a_pod_that_sees_others_tries_node_after_node() -> None:
    """Who is only in the way by what he is goes; the important rival keeps his node closed."""
    pods = [
        {"pod": "rival=1 on a", "priority": 1, "labels": RIVAL},
        {"pod": "mate=1 on a", "priority": 1},
        {"pod": "strong=1 on b", "labels": RIVAL},
        {"pod": "b=1 on b", "priority": 1},
        {"pod": "high=1", "affinity": AWAY},
    ]
    found = PreemptionCase(["a 2 host=a", "b 2 host=b"], pods).plan()
    assert told(found) == ("a", ["rival"])
    assert (found.considered, found.domains, found.exhausted) == (3, 2, False)


def test_of_several_nodes_that_were_tried_the_best_is_chosen() -> None:
    """By the same rules, down to the start and the name."""
    rivals = [
        {"pod": f"{name}=1 on {name}", "priority": 1, "labels": RIVAL, "created": at}
        for name, at in (("a", 3), ("b", 5), ("c", 5))
    ]
    nodes = [f"{name} 2 host={name}" for name in "abc"]
    high = {"pod": "high=1", "affinity": AWAY}
    assert told(PreemptionCase(nodes, [*rivals, high]).plan()) == ("b", ["b"])
    found = PreemptionCase(nodes, [*rivals, high], options=SearchOptions(budget=1)).plan()
    assert (told(found)[1], found.domains, found.exhausted) == (["a"], 1, True)


def test_where_no_node_can_be_cleared_for_it_others_go_elsewhere() -> None:
    """A rival on a node where it could not run keeps it out of the zone; kube-scheduler would leave it waiting."""
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
    assert told(found) == ("a", ["rival"])
    assert found.evictions[0].reason == "Pod default/high cannot run on a while it runs on b"


def test_a_pod_that_needs_nobody_to_go_is_nominated() -> None:
    """The caller need not have asked."""
    found = PreemptionCase(["a 2"], ["high=1"]).plan()
    assert (found.outcome, told(found)) == (PlanOutcome.PLANNED, ("a", []))


def test_nobody_takes_room() -> None:
    """Then there is nobody to evict; and who is as important is not looked at."""
    assert PreemptionCase(["a 2"], ["other=2 on a", "high=1"]).plan().outcome is PlanOutcome.NO_VICTIMS


def test_not_even_all_would_be_enough() -> None:
    """The reason is told as if they had gone."""
    pods = [{"pod": "low=1 on a", "priority": 1}, "strong=1 on a", "high=2"]
    found = PreemptionCase(["a 2"], pods).plan()
    assert (found.outcome, found.considered, found.evictions) == (PlanOutcome.NOT_ENOUGH, 1, ())
    assert found.explanation is not None
