"""The search: minimums first, backtracking within a budget, leaving children out, and what a failure proves."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import pytest

from cpg_engine.gangs.search import PlacementSearch, SearchOptions
from cpg_engine.testing.decision_case import DecisionCase, NamedDecision
from cpg_engine.verdicts import Finding, Limitation, StatusCounts

RACKS: list[str | Mapping[str, Any]] = [{"node": "a1 12 block=A rack=A1", "pods": 3}, "a2 5 block=A rack=A2"]
"""Three pods like A2 best, which is the fuller; five fit nowhere else."""
PAIR = {"gang": 2, "key": "block", "children": {"pg1": {"gang": 3, "key": "rack"}, "pg2": {"gang": 5, "key": "rack"}}}
Form = Mapping[str, Any]


def decision_about(
    nodes: Sequence[str | Form], root: Form | None, pods: Sequence[str | Form], *, budget: int | None = None
) -> NamedDecision:
    """Return the decision about a tree with this root."""
    options = SearchOptions() if budget is None else SearchOptions(budget=budget)
    return DecisionCase(nodes, {"root": root}, pods).decide(options)


def children(**found: Form | None) -> Form:
    """Return a root that needs all of its children."""
    return {"gang": len(found), "children": found}


# Placing.


def test_a_gang_is_placed_whole() -> None:
    """All pods of a gang that fits are bound, none twice."""
    found = decision_about(["n1 2", "n2 2"], {"gang": 4}, ["4x1@root"])
    assert found.finding is Finding.PLACED
    assert sorted(found.binds.values()) == ["n1", "n1", "n2", "n2"]


def test_a_gang_that_does_not_fit_is_not_placed_in_part() -> None:
    """With one pod too many, none is bound."""
    found = decision_about(["n1 3"], {"gang": 4}, ["4x1@root"])
    assert (found.finding, found.binds) == (Finding.IMPOSSIBLE, {})


def test_minimums_come_before_extra_pods() -> None:
    """A child's extra pods never take the room that a sibling's minimum needs."""
    found = decision_about(["n1 4"], children(pg1={"gang": 1}, pg2={"gang": 2}), ["4x1@pg1", "2x1@pg2"])
    assert sorted(found.binds) == ["pg1-1", "pg1-2", "pg2-1", "pg2-2"]


def test_extra_pods_stay_in_the_required_domain() -> None:
    """It holds for pods beyond the minimum, too."""
    found = decision_about(["n1 2 rack=a", "n2 9 rack=b"], {"gang": 1, "key": "rack"}, ["big=8@root", "3x1@root"])
    assert found.binds == {"big": "n2", "root-1": "n2"}


def test_a_negative_minimum_is_one() -> None:
    """An invalid policy neither frees a group of its minimum nor breaks anything."""
    found = decision_about(["n1 1"], {"gang": -2, "children": {"pg1": {"gang": -1}}}, ["1@pg1"])
    assert [found.counts(name).minimum for name in ("root", "pg1")] == [1, 1]
    assert found.binds == {"pg1-1": "n1"}


def test_a_tree_of_four_levels_is_placed() -> None:
    """Each level lies inside the domain of the one above."""
    nodes = [f"n{block}{rack} 2 zone=z block=b{block} rack=r{block}{rack}" for block in (1, 2) for rack in (1, 2)]
    leaves = children(l1={"gang": 2, "key": "rack"}, l2={"gang": 2, "key": "rack"})
    root = {"gang": 1, "key": "zone", "children": {"mid": {"gang": 1, "children": {"low": {**leaves, "key": "block"}}}}}
    found = decision_about(nodes, root, ["2x1@l1", "2x1@l2"])
    assert {"n11", "n12"} == set(found.binds.values()) or {"n21", "n22"} == set(found.binds.values())


def test_two_hundred_children_are_placed() -> None:
    """Width needs no depth of recursion, with room for all and with room for all but one."""
    wide = {f"pg{number:03}": {"gang": 1} for number in range(200)}
    pods = [f"1@{name}" for name in wide]
    assert len(decision_about(["n1 200", "n2 200"], children(**wide), pods).binds) == 200
    assert decision_about(["n1 150", "n2 49"], children(**wide), pods).finding is Finding.IMPOSSIBLE


def test_without_nodes_nothing_is_placed() -> None:
    """An empty cluster is no error, with and without domains."""
    assert decision_about([], {"gang": 1}, ["1@root"]).finding is Finding.IMPOSSIBLE
    assert decision_about([], {"gang": 1, "key": "rack", "preferred": "row"}, ["1@root"]).finding is Finding.IMPOSSIBLE


@pytest.mark.parametrize("root", [{"gang": 1}, None, {"gang": 1, "children": {}}, {"children": {"pg": None}}])
def test_groups_without_members_cannot_be_admitted(root: Form | None) -> None:
    """There is nothing to search for."""
    assert decision_about(["n1 1"], root, []).finding is Finding.INADMISSIBLE


HALVES = [f"n{number} 6" for number in range(4)]
"""Each has room for two pods of 3 CPU, or three of 2."""


def limitations_of(found: NamedDecision) -> list[Finding | Limitation]:
    """Return the finding of a decision, and why it proves nothing."""
    return [found.finding, *found.decision.explanation.limitations]


def test_domains_with_too_little_in_sum_come_last() -> None:
    """Each class alone would fit into the fuller ones, which would use up the budget before the last is tried."""
    nodes = [*(f"n{number:03} 5 host=h{number:03}" for number in range(200)), "z 9 host=z"]
    root = {**children(pg1={"gang": 1}, pg2={"gang": 1}), "key": "host"}
    found = decision_about(nodes, root, ["4@pg1", "5@pg2"], budget=0)
    assert (set(found.binds.values()), found.decision.placements.infeasible) == ({"z"}, 0)


# Children that may be left out.


def test_a_child_without_room_is_left_out() -> None:
    """Where the minimum allows, the others are placed."""
    found = decision_about(
        ["n1 2"], {"gang": 1, "children": {"pg1": {"gang": 3}, "pg2": {"gang": 2}}}, ["3x1@pg1", "2x1@pg2"]
    )
    assert found.binds == {"pg2-1": "n1", "pg2-2": "n1"}


def test_a_child_that_could_be_placed_is_left_out_for_others() -> None:
    """The first child takes the room of two others, and the minimum needs both."""
    root = {"gang": 2, "children": {"pg1": {"gang": 3}, "pg2": {"gang": 2}, "pg3": {"gang": 1}}}
    pods = ["3x1@pg1", "2x1@pg2", "1@pg3"]
    assert {"pg2-1", "pg2-2", "pg3-1"} == set(decision_about(["n1 3"], root, pods, budget=1).binds)
    assert decision_about(["n1 3"], root, pods, budget=0).finding is Finding.OUT_OF_BUDGET


def test_a_child_left_out_is_placed_later_if_there_is_room() -> None:
    """The second pass tries every child that the first did not need."""
    root = {"gang": 1, "children": {"pg1": {"gang": 1}, "pg2": {"gang": 2}, "pg3": {"gang": 2}}}
    assert len(decision_about(["n1 3"], root, ["1@pg1", "2x1@pg2", "2x1@pg3"]).binds) == 3


def test_a_dependent_child_is_tried_again() -> None:
    """Its pods require pods that were placed after it was first tried."""
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "rack"}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pods: list[Form] = [{"pod": "1@pg1", "affinity": near}, {"pod": "1@pg2", "labels": {"app": "db"}}]
    found = decision_about(
        ["n1 1 rack=a", "n2 1 rack=a", "n3 1 rack=b"], {"children": {"pg1": None, "pg2": None}}, pods
    )
    assert len(found.binds) == 2


# Backtracking.


def test_a_sibling_is_asked_for_another_domain() -> None:
    """One retry is enough, and without it the finding is that the budget was exhausted."""
    assert decision_about(RACKS, PAIR, ["3x1@pg1", "5x1@pg2"], budget=1).finding is Finding.PLACED
    assert decision_about(RACKS, PAIR, ["3x1@pg1", "5x1@pg2"], budget=0).finding is Finding.OUT_OF_BUDGET


def test_the_next_domain_is_tried_although_the_budget_is_spent() -> None:
    """Without retries the search is greedy, as upstream is: block A fails, block B is taken."""
    other: list[str | Form] = [{"node": f"b{number} 50 block=B rack=B{number}", "pods": 5} for number in (1, 2)]
    found = decision_about([*RACKS, *other], PAIR, ["3x1@pg1", "5x1@pg2"], budget=0)
    assert {"b1", "b2"} == set(found.binds.values())


def test_each_retry_is_counted_once() -> None:
    """Children that were left out cost nothing on the way back to one that was placed."""
    root = {"gang": 2, "children": {"pg0": {"gang": 4}, **{f"pg{number}": {"gang": 2} for number in range(1, 6)}}}
    pods = ["4x1@pg0", *(f"2x1@pg{number}" for number in range(1, 6))]
    assert decision_about(["n1 4"], root, pods, budget=1).finding is Finding.PLACED


def test_a_search_that_ends_with_its_last_retry_is_not_exhausted() -> None:
    """The last retry found nothing and there was nothing left to try, though that is no proof either."""
    root, pods = children(pg1={"gang": 2}, pg2={"gang": 3}), ["2x3@pg1", "3x2@pg2"]
    assert decision_about(["n1 6", "n2 6"], root, pods, budget=2).finding is Finding.NOT_FOUND
    found = decision_about(["n1 6", "n2 6"], root, pods, budget=0)
    assert limitations_of(found) == [Finding.OUT_OF_BUDGET, Limitation.SHAPES, Limitation.BUDGET]


def test_nested_groups_share_one_budget() -> None:
    """Retries that a group uses for its own children are gone for its siblings."""
    block = {"gang": 2, "key": "block"}
    pairs = {
        f"{side}": {
            **block,
            "children": {f"{side}1": {"gang": 3, "key": "rack"}, f"{side}2": {"gang": 5, "key": "rack"}},
        }
        for side in ("l", "r")
    }
    nodes = [*RACKS, {"node": "b1 12 block=B rack=B1", "pods": 3}, "b2 5 block=B rack=B2"]
    pods = ["3x1@l1", "5x1@l2", "3x1@r1", "5x1@r2"]
    spent = next(budget for budget in count() if decision_about(nodes, children(**pairs), pods, budget=budget).binds)
    assert spent == 2


def test_backtracking_reaches_inner_children() -> None:
    """A sibling outside may need what an inner child has taken: the retry goes all the way down."""
    root = children(mid={"gang": 1, "children": {"pg1": {"gang": 3, "key": "rack"}}}, pg2={"gang": 5, "key": "rack"})
    found = decision_about(RACKS, {**root, "key": "block"}, ["3x1@pg1", "5x1@pg2"])
    assert {"a1"} == {found.binds[f"pg1-{number}"] for number in (1, 2, 3)}


def test_the_same_way_is_not_offered_twice() -> None:
    """A group that is asked again continues where it was, so each of its ways costs its parent one retry."""
    inner = {"gang": 1, "children": {"pg1": {"gang": 1, "key": "rack"}}}
    trial = DecisionCase(["n1 1 rack=a", "n2 1 rack=b"], {"root": inner}, ["1@pg1"])
    search = PlacementSearch(trial.snapshot, trial.unit, SearchOptions())
    ways = search._ways(0, trial.snapshot.topology.whole())
    assert [search._placed.scopes[1].chain[-1].value for _ in ways] == ["a", "b"]
    assert (trial.snapshot.ledger.mark(), search._placed.scopes) == (0, {})


def test_dropping_a_generator_does_not_roll_back() -> None:
    """The caller that set the mark rolls back."""
    trial = DecisionCase(
        ["n1 2 rack=a"], {"root": children(pg1={"gang": 1, "key": "rack"}, pg2={"gang": 1})}, ["1@pg1", "1@pg2"]
    )
    before = trial.trace()
    search = PlacementSearch(trial.snapshot, trial.unit, SearchOptions())
    assert next(search._ways(0, trial.snapshot.topology.whole()))
    trial.snapshot.ledger.rollback(0)
    assert before == trial.trace()


# What a failure proves.


def test_interchangeable_pods_prove_impossibility() -> None:
    """Where pods are interchangeable, the search is exhaustive."""
    root = children(pg1={"gang": 2, "key": "rack"}, pg2={"gang": 2, "key": "rack"})
    found = decision_about(["n1 3 rack=a", "n2 1 rack=b"], root, ["2x1@pg1", "2x1@pg2"])
    assert found.finding is Finding.IMPOSSIBLE


def test_pods_of_two_shapes_are_not_found_rather_than_impossible() -> None:
    """The first pods take half of a node each: the other order within the nodes would have fitted."""
    found = decision_about(HALVES, {"gang": 10}, ["4x3@root", "6x2@root"])
    assert limitations_of(found) == [Finding.NOT_FOUND, Limitation.SHAPES]


def test_larger_pods_come_first_where_their_own_order_fails() -> None:
    """The small pod would take the large node, so that the large pod found none."""
    term = {"matchExpressions": [{"key": "size", "operator": "In", "values": ["big"]}]}
    rather = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": term}]}
    pods: list[str | Form] = [{"pod": "small=1@root", "affinity": {"nodeAffinity": rather}}, "big=2@root"]
    assert decision_about(["n1 2 size=big", "n2 1"], {"gang": 2}, pods).binds == {"big": "n1", "small": "n2"}
    assert decision_about(["n1 3 size=big", "n2 1"], {"gang": 2}, pods).binds == {"big": "n1", "small": "n1"}


def test_groups_with_larger_pods_come_first_where_their_own_order_fails() -> None:
    """The pods of the first group would spread over both nodes."""
    root = children(pg1={"gang": 2}, pg2={"gang": 1})
    found = decision_about(["n1 2", "n2 2"], root, ["2x1@pg1", "2@pg2"])
    assert sorted(found.binds.values()) in (["n1", "n1", "n2"], ["n1", "n2", "n2"])


def test_the_second_order_gets_the_rest_of_the_budget() -> None:
    """A tree that has used up its budget is tried once more, without retries."""
    root = {"gang": 2, "children": {"pg1": {"gang": 2}, "pg2": {"gang": 1}}}
    assert decision_about(["n1 2", "n2 2"], root, ["2x1@pg1", "2@pg2"], budget=0).finding is Finding.PLACED


def test_the_reports_of_a_failure_are_those_of_the_first_order() -> None:
    """They name the pods that users would expect to come last."""
    found = decision_about(HALVES, {"gang": 10}, ["6x2@root", "4x3@root"])
    assert found.report("root").counts == StatusCounts(minimum=10, scheduled=8, unschedulable=2)
    assert found.report("root").nodes == 4


def test_too_little_in_sum_proves_impossibility() -> None:
    """Each shape has room by itself, on a node or in a domain."""
    pods = ["2x3@root", "3x2@root"]
    assert decision_about(["n1 6", "n2 5"], {"gang": 5}, pods).finding is Finding.IMPOSSIBLE
    racks = ["n1 6 rack=a", "n2 5 rack=a", "n3 6 rack=b", "n4 5 rack=b"]
    assert decision_about(racks, {"gang": 5, "key": "rack"}, pods).finding is Finding.IMPOSSIBLE


def test_dependent_pods_prove_nothing() -> None:
    """The node of one matters to the next, and not all have been tried."""
    term = {"labelSelector": {}, "topologyKey": "rack"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pods: list[Form] = [{"pod": "1@root", "affinity": apart}, {"pod": "big=2@root", "affinity": apart}]
    root = children(pg1={"gang": 1}, pg2={"gang": 1})
    found = decision_about(
        ["n1 2 rack=a", "n2 2 rack=a"], root, [{**pods[0], "pod": "1@pg1"}, {**pods[1], "pod": "2@pg2"}]
    )
    assert limitations_of(found) == [Finding.NOT_FOUND, Limitation.SHAPES, Limitation.OTHER_PODS]


def test_anti_affinity_to_the_own_class_proves_impossibility() -> None:
    """More pods than domains never find a place."""
    term = {"labelSelector": {}, "topologyKey": "rack"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pods: list[Form] = [{"pod": "2x1@root", "affinity": apart}]
    assert decision_about(["n1 2 rack=a", "n2 2 rack=a"], {"gang": 2}, pods).finding is Finding.IMPOSSIBLE


def test_domains_of_different_kinds_prove_nothing() -> None:
    """One child takes the node that the other needs, and is not asked for another node in the same domain."""
    root = children(pg1={"gang": 1, "key": "rack"}, pg2={"gang": 2, "key": "zone"})
    nodes = ["n1 1 rack=a zone=z", "n2 1 zone=z", "n3 1 rack=a"]
    assert limitations_of(decision_about(nodes, root, ["1@pg1", "2x1@pg2"])) == [Finding.NOT_FOUND, Limitation.TOPOLOGY]
    assert limitations_of(decision_about(nodes[:2], root, ["1@pg1", "2x1@pg2"])) == [Finding.IMPOSSIBLE]


def test_a_bound_proves_impossibility_with_an_exhausted_budget() -> None:
    """One child requests more than there is, so it does not matter that another exhausted the budget."""
    hard = {"gang": 2, "children": {"pg1": {"gang": 2}, "pg2": {"gang": 1}}}
    pods = ["2x1@pg1", "2@pg2", "9@pg3"]
    assert decision_about(["n1 3"], children(hard=hard, pg3={"gang": 1}), pods, budget=0).finding is Finding.IMPOSSIBLE


def test_a_child_that_needs_nothing_proves_nothing() -> None:
    """No node has its label, but its minimum is met: the sibling's failure is no proof."""
    root = children(
        done={"gang": 1, "key": "nowhere"}, pg={"gang": 2, "children": {"pg1": {"gang": 2}, "pg2": {"gang": 3}}}
    )
    pods: list[str | Form] = [{"pod": "old=1@done", "phase": "Succeeded"}, "2x3@pg1", "3x2@pg2"]
    assert decision_about(["n1 6", "n2 6"], root, pods).finding is Finding.NOT_FOUND


# Members that run or have finished.


def test_running_members_count_and_pin() -> None:
    """Late pods join their gang's rack, even if another is better."""
    pods = ["1@root on n1", "1@root"]
    assert decision_about(["n1 2 rack=a", "n2 9 rack=b"], {"gang": 2, "key": "rack"}, pods).binds == {"root-2": "n1"}


def test_finished_members_count_and_need_no_place() -> None:
    """A child with enough finished members blocks nothing, though no node has its label; its late pod waits."""
    root = children(done={"gang": 1, "key": "nowhere"}, pg={"gang": 1})
    found = decision_about(["n1 2"], root, [{"pod": "old=1@done", "phase": "Succeeded"}, "1@done", "1@pg"])
    assert found.binds == {"pg-1": "n1"}


def test_a_group_with_met_children_needs_no_place() -> None:
    """The same holds a level up: nothing is missing below it."""
    done = {"gang": 1, "key": "nowhere", "children": {"pg1": {"gang": 1}}}
    found = decision_about(
        ["n1 1"], children(done=done, pg2={"gang": 1}), [{"pod": "1@pg1", "phase": "Succeeded"}, "1@pg2"]
    )
    assert found.binds == {"pg2-1": "n1"}


def test_members_that_contradict_their_group_stop_the_tree() -> None:
    """Nothing is placed beside members that run in two racks of a group that requires one."""
    pods = ["1@pg1 on n1", "1@pg1 on n2", "1@pg1", "1@pg2"]
    root = {"children": {"pg2": None, "pg1": {"gang": 2, "key": "rack"}}}
    found = decision_about(["n1 2 rack=a", "n2 2 rack=b"], root, pods)
    assert (found.finding, found.binds) == (Finding.CONTRADICTION, {})


# Preferences.


@pytest.mark.parametrize("running", [["1@root on n1", "1@root on n2"], ["1@root on n1", "1@root on n3"]])
def test_a_preference_contradicts_nothing(running: list[str]) -> None:
    """Members that run in two preferred domains, or in none, leave nothing to prefer."""
    found = decision_about(
        ["n1 1 rack=a", "n2 2 rack=b", "n3 1"], {"gang": 1, "preferred": "rack"}, [*running, "new=1@root"]
    )
    assert found.binds == {"new": "n2"}


def test_extra_pods_may_leave_the_preferred_domain() -> None:
    """The minimum goes to one rack, what does not fit there to another."""
    found = decision_about(["n1 1 rack=a", "n2 1 rack=b"], {"gang": 1, "preferred": "rack"}, ["2x1@root"])
    assert {"n1", "n2"} == set(found.binds.values())


def test_late_pods_may_leave_the_preferred_domain() -> None:
    """The rack of the running member is full, so the late pod goes elsewhere."""
    nodes, pods = ["n1 1 rack=a", "n2 1 rack=b"], ["1@root on n1", "new=1@root"]
    assert decision_about(nodes, {"gang": 1, "preferred": "rack"}, pods).binds == {"new": "n2"}


def test_optional_children_may_leave_the_preferred_domain() -> None:
    """A child without room in the domain that its parent prefers is placed outside it."""
    root = {"preferred": "rack", "children": {"pg1": {"gang": 2}, "pg2": {"gang": 2}}}
    found = decision_about(["n1 2 rack=a", "n2 2 rack=b"], root, ["2x1@pg1", "2x1@pg2"])
    assert len(found.binds) == 4


def test_a_preference_never_keeps_a_tree_from_being_placed() -> None:
    """The budget is renewed for the search without preferences."""
    root = children(pg1={"gang": 3, "key": "rack"}, pg2={"gang": 5, "key": "rack"})
    nodes = [*RACKS, "a3 1 block=A"]
    found = decision_about(nodes, {**root, "preferred": "block"}, ["3x1@pg1", "5x1@pg2"], budget=1)
    assert found.finding is Finding.PLACED


def test_children_that_require_a_domain_come_first_where_all_are_needed() -> None:
    """The child without a requirement leaves the one rack to the child that needs it."""
    found = decision_about(
        ["n1 2 rack=a", "n2 1"], children(pg1={"gang": 1}, pg2={"gang": 2, "key": "rack"}), ["1@pg1", "2x1@pg2"]
    )
    assert found.binds == {"pg1-1": "n2", "pg2-1": "n1", "pg2-2": "n1"}
