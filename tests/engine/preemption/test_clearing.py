"""The order in which nodes are cleared."""

import pytest

from cpg_engine.preemption.clearing import Clearing
from cpg_engine.testing.preemption_case import PreemptionCase, names

LOW = {"priority": 1}


def order(arena: PreemptionCase, goal: int = 1) -> list[str]:
    """Return the names of the nodes in the first order."""
    snapshot = arena.stage.snapshot
    clearing = Clearing(arena.case(goal), arena.candidates())
    return [snapshot.ledger.cluster.name(row) for row in next(clearing.orders(snapshot.topology.whole().rows)).tolist()]


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
def test_what_costs_less_comes_first(first: list[object], second: list[object]) -> None:
    """Fewer units, then fewer pods, lower priorities, younger ones; and what gives nothing comes last."""
    groups = {"high": {"gang": 1}, "whole": {"gang": 1, "whole": True, "priority": 1}}
    elsewhere = {"pod": "more=1@whole on c", **LOW}
    arena = PreemptionCase(["a 1", "b 1", "c 1"], [*second, *first, elsewhere, "1x1@high"], groups)
    assert [name for name in order(arena) if name != "c"] == ["b", "a"]


def test_a_node_that_is_liked_comes_before_one_that_is_equal() -> None:
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
    arena = PreemptionCase(
        ["a 1", "b 1 disk=ssd"], [*lows, {"pod": "1x1@high", "affinity": liked}], {"high": {"gang": 1}}
    )
    assert order(arena) == ["b", "a"]


def test_nodes_of_one_domain_stand_together() -> None:
    """The rack where the fewest have to go first, though a node of another is the cheapest; what is in none, last."""
    nodes = ["a1 2 rack=a", "a2 2 rack=a", "b1 2 rack=b", "b2 2 rack=b", "c1 2 rack=c", "d1 4"]
    lows = ["4x500m on a1", "2 on a2", "1 on b1", "2x1 on b2", "2 on c1", "4 on d1"]
    groups = {"high": {"gang": 1, "children": {"leaf": {"gang": 4, "key": "rack"}}}}
    arena = PreemptionCase(nodes, [*({"pod": line, **LOW} for line in lows), "4x1@leaf"], groups)
    assert order(arena, 4) == ["b2", "b1", "a2", "a1", "c1", "d1"]


def test_a_tree_needs_of_its_children_the_least() -> None:
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
    arena = PreemptionCase(nodes, [*lows, "1x1@one", "2x1@two", "4x1@four"], groups)
    assert order(arena, 3) == ["x", "y"]


def test_room_is_counted_by_class_and_never_above_what_is_wanted() -> None:
    """What is free anywhere counts before anybody goes; whoever goes counts where he was."""
    lows = [{"pod": "large=4 on a", **LOW}, {"pod": "small=2x500m on b", **LOW}]
    arena = PreemptionCase(["a 4", "b 2"], [*lows, "2x1@high", "1x2@high"], {"high": {"gang": 3}})
    snapshot, everybody = arena.stage.snapshot, arena.candidates()
    rows, clearing = snapshot.topology.whole().rows, Clearing(arena.case(3), everybody)
    assert names(everybody) == ["large", "small-1", "small-2"]
    assert clearing.fits([0], rows).tolist() == [1, 3]
    assert clearing.fits([2, 1, 0], rows).tolist() == [1, 1, 3, 3]
    assert clearing.fits([2, 1, 0], rows[:0]).tolist() == [0, 0, 0, 0]
    assert [clearing.most(some) for some in (rows, rows[:1], rows[1:])] == [3, 3, 3]


def test_a_unit_on_several_nodes_gives_room_at_all_of_them() -> None:
    """At once, however far apart they are."""
    lows = [{"pod": f"w{name}=1@whole on {name}", **LOW} for name in "ab"]
    groups = {"high": {"gang": 1}, "whole": {"gang": 1, "whole": True, "priority": 1}}
    arena = PreemptionCase(["a 1", "b 1", "c 1"], [*lows, {"pod": "c=1 on c", **LOW}, "3x1@high"], groups)
    rows = arena.stage.snapshot.topology.whole().rows
    assert Clearing(arena.case(3), arena.candidates()).fits([0, 1], rows).tolist() == [0, 2, 3]
