"""The search for few victims."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpg_engine.preemption.victim_search import EvictionEstimates, fewest_victims, smallest_success
from cpg_engine.testing.preemption_case import PreemptionCase, names
from cpg_engine.testing.strategies import cases


@cases(200)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 60))
def test_the_smallest_success_is_found(most: int, threshold: int, least: int) -> None:
    """No number below the least is tried, none twice, and few in all."""
    asked = []

    def attempt(number: int) -> int | None:
        asked.append(number)
        return number if number >= threshold else None

    least = min(least, threshold)
    assert smallest_success(attempt, least, most) == (threshold if threshold <= most else None)
    assert all(least <= number <= most for number in asked)
    assert len(asked) == len(set(asked)) <= 14


def test_an_empty_range_is_not_tried() -> None:
    """There is no number to try."""
    assert smallest_success(lambda _: pytest.fail("asked"), 1, 0) is None


def test_only_the_needed_nodes_are_freed() -> None:
    """Free room counts; the nodes are freed that gain most for least."""
    pods = [
        {"pod": "cheap=2 on b", "priority": 1},
        {"pod": "dear=2x1 on c", "priority": 1},
        {"pod": "useless=1 on d", "priority": 1},
        "strong=3 on d",
        "3x1@high",
    ]
    case = PreemptionCase(["a 1", "b 2", "c 2", "d 4"], pods, {"high": {"gang": 3}})
    found = fewest_victims(case.problem(3), case.potential_victims())
    assert found is not None
    assert names(found.victims) == ["cheap"]
    assert len(found.assignments) == 3


def test_evicting_everything_may_not_be_enough() -> None:
    """Then there is no candidate."""
    case = PreemptionCase(["a 1"], [{"pod": "low=1 on a", "priority": 1}, "3x1@high"], {"high": {"gang": 1}})
    assert fewest_victims(case.problem(2), case.potential_victims()) is None


def test_a_group_of_disruption_mode_all_is_one_victim() -> None:
    """It is evicted rather than three others where three nodes are needed, and stays where one is."""
    pods = [
        *({"pod": f"w{place}=1@whole on a{place}", "priority": 1} for place in (1, 2, 3)),
        *({"pod": f"s{place}=1 on b{place}", "priority": 1} for place in (1, 2, 3)),
        "3x1@high",
    ]
    groups = {"high": {"gang": 1}, "whole": {"gang": 3, "whole": True, "priority": 1}}
    case = PreemptionCase([f"{side}{place} 1" for side in "ab" for place in (1, 2, 3)], pods, groups)
    all_three, one = (
        fewest_victims(case.problem(3), case.potential_victims()),
        fewest_victims(case.problem(1), case.potential_victims()),
    )
    assert all_three is not None
    assert one is not None
    assert (names(all_three.victims), names(one.victims)) == (["whole"], ["s3"])


@cases(100)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 14))
def test_out_of_effort_the_last_success_stands(most: int, threshold: int, patience: int) -> None:
    """It need not be the smallest any more, and at most one more number is tried, which is the most."""
    asked: list[int] = []

    def attempt(number: int) -> int | None:
        asked.append(number)
        return number if number >= threshold else None

    found = smallest_success(attempt, 1, most, stop=lambda: len(asked) > patience)
    assert (found is None) == (threshold > most)
    assert found is None or threshold <= found <= most
    assert len(asked) <= max(patience, 1) + 2


LOW = {"priority": 1}


def order(case: PreemptionCase, goal: int = 1) -> list[str]:
    """Return the names of the nodes in the first order."""
    snapshot = case.simulator.snapshot
    clearing = EvictionEstimates(case.problem(goal), case.potential_victims())
    return [
        snapshot.ledger.cluster.name(row) for row in next(clearing.node_orders(snapshot.topology.whole().rows)).tolist()
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([{"pod": "1 on b", **LOW}], [{"pod": "2x500m on a", **LOW}]),
        ([{"pod": "1 on b", **LOW}], [{"pod": "1@whole on a", **LOW}]),
        ([{"pod": "1 on b", "priority": 0}], [{"pod": "1 on a", **LOW}]),
        ([{"pod": "1 on b", "created": 9, **LOW}], [{"pod": "1 on a", "created": 8, **LOW}]),
        ([{"pod": "1 on b", **LOW}], [{"pod": "500m on a", **LOW}, "strong=500m on a"]),
    ],
)
def test_nodes_that_cost_less_come_first(first: list[object], second: list[object]) -> None:
    """Fewer units, then fewer pods, lower priorities, younger ones; nodes that gain nothing come last."""
    groups = {"high": {"gang": 1}, "whole": {"gang": 1, "whole": True, "priority": 1}}
    elsewhere = {"pod": "more=1@whole on c", **LOW}
    case = PreemptionCase(["a 1", "b 1", "c 1"], [*second, *first, elsewhere, "1x1@high"], groups)
    assert [name for name in order(case) if name != "c"] == ["b", "a"]


def test_scores_decide_between_equal_nodes() -> None:
    """Preferences of the pods decide before names do."""
    liked = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 1,
                    "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
                }
            ]
        }
    }
    lows = [{"pod": f"1 on {name}", "created": 1, **LOW} for name in "ab"]
    case = PreemptionCase(
        ["a 1", "b 1 disk=ssd"], [*lows, {"pod": "1x1@high", "affinity": liked}], {"high": {"gang": 1}}
    )
    assert order(case) == ["b", "a"]


def test_nodes_of_one_domain_stand_together() -> None:
    """The rack with the fewest victims comes first, not that of the cheapest node; nodes in no rack come last."""
    nodes = ["a1 2 rack=a", "a2 2 rack=a", "b1 2 rack=b", "b2 2 rack=b", "c1 2 rack=c", "d1 4"]
    lows = ["4x500m on a1", "2 on a2", "1 on b1", "2x1 on b2", "2 on c1", "4 on d1"]
    groups = {"high": {"gang": 1, "children": {"leaf": {"gang": 4, "key": "rack"}}}}
    case = PreemptionCase(nodes, [*({"pod": line, **LOW} for line in lows), "4x1@leaf"], groups)
    assert order(case, 4) == ["b2", "b1", "a2", "a1", "c1", "d1"]


def test_a_group_needs_its_smallest_children() -> None:
    """A block must hold two of the three groups below it, the smaller ones."""
    nodes = ["x 3 block=x", "y 2 block=y"]
    groups = {
        "high": {
            "children": {
                "mid": {
                    "gang": 2,
                    "key": "block",
                    "children": {"one": {"gang": 1}, "two": {"gang": 2}, "four": {"gang": 4}, "none": {"gang": 3}},
                }
            }
        }
    }
    lows = [{"pod": "3x1 on x", **LOW}, {"pod": "2 on y", **LOW}]
    case = PreemptionCase(nodes, [*lows, "1x1@one", "2x1@two", "4x1@four"], groups)
    assert order(case, 3) == ["x", "y"]


def test_room_is_counted_by_class_up_to_the_wanted_pods() -> None:
    """Free room counts before any eviction; the room of a victim counts on its node."""
    lows = [{"pod": "large=4 on a", **LOW}, {"pod": "small=2x500m on b", **LOW}]
    case = PreemptionCase(["a 4", "b 2"], [*lows, "2x1@high", "1x2@high"], {"high": {"gang": 3}})
    snapshot, everybody = case.simulator.snapshot, case.potential_victims()
    rows, clearing = snapshot.topology.whole().rows, EvictionEstimates(case.problem(3), everybody)
    assert names(everybody) == ["large", "small-1", "small-2"]
    assert clearing.room_by_victims([0], rows).tolist() == [1, 3]
    assert clearing.room_by_victims([2, 1, 0], rows).tolist() == [1, 1, 3, 3]
    assert clearing.room_by_victims([2, 1, 0], rows[:0]).tolist() == [0, 0, 0, 0]
    assert [clearing.room_without_victims(some) for some in (rows, rows[:1], rows[1:])] == [3, 3, 3]


def test_a_unit_on_several_nodes_frees_room_on_all_of_them() -> None:
    """At once, however far apart they are."""
    lows = [{"pod": f"w{name}=1@whole on {name}", **LOW} for name in "ab"]
    groups = {"high": {"gang": 1}, "whole": {"gang": 1, "whole": True, "priority": 1}}
    case = PreemptionCase(["a 1", "b 1", "c 1"], [*lows, {"pod": "c=1 on c", **LOW}, "3x1@high"], groups)
    rows = case.simulator.snapshot.topology.whole().rows
    assert EvictionEstimates(case.problem(3), case.potential_victims()).room_by_victims([0, 1], rows).tolist() == [
        0,
        2,
        3,
    ]
