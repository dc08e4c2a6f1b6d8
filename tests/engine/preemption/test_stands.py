"""Units where they stand."""

import numpy as np

from cpg_engine.cluster.axes import CPU, PODS
from cpg_engine.preemption.allowances import Allowances
from cpg_engine.preemption.stands import Stands, by_importance, lowest, stands_of, victims, violating
from cpg_engine.preemption.values import DisruptionBudget
from cpg_engine.testing.preemption_case import PreemptionCase
from cpg_engine.testing.victim_units import units_of

COLUMNS = np.array([CPU, PODS])


def standing(*pods: object) -> tuple[PreemptionCase, Stands]:
    """Return the stands of some pods on the nodes ``a`` and ``b``."""
    arena = PreemptionCase(["a 4", "b 4"], pods, {"whole": {"gang": 1, "whole": True, "priority": 5}})
    units = units_of(arena.stage.groups.values(), arena.stage.pods.values())
    return arena, stands_of(arena.stage.snapshot, units, COLUMNS)


def told(stands: Stands) -> list[tuple[str, int]]:
    """Return units by name and row."""
    return [(unit.key.name, row) for unit, row in zip(stands.owned(), stands.rows.tolist(), strict=True)]


def test_a_unit_stands_once_at_each_of_its_nodes() -> None:
    """With what all of its pods there take; pods at nodes that are not there take nothing."""
    lines = ["w=1@whole on a", "x=2@whole on a", "y=1@whole on b", "z=1 on b", "gone=1 on nowhere"]
    _, found = standing(*({"pod": line, "priority": 5} for line in lines))
    assert told(found) == [("whole", 0), ("whole", 1), ("z", 1)]
    assert found.amounts.tolist() == [[3000, 2], [1000, 1], [1000, 1]]
    assert (found.sizes().tolist(), found.at(1)) == ([3, 3, 1], found.owned()[1:])
    assert found.total(3).tolist() == [[3000, 2], [2000, 2], [0, 0]]


def test_the_most_important_of_a_row_is_the_first() -> None:
    """Priority, kind, size and age decide, and the name between those that are alike in all."""
    lines = [("p=1 on a", 1, 1), ("q=1 on a", 9, 2), ("s=1 on a", 5, 1), ("r=1 on a", 5, 1), ("t=1 on b", 5, 1)]
    pods = [{"pod": line, "priority": priority, "created": at} for line, priority, at in lines]
    _, found = standing(*pods, {"pod": "w=1@whole on a", "priority": 5, "created": 3})
    assert [name for name, _ in told(by_importance(found))] == ["q", "whole", "r", "s", "p", "t"]
    _, clear = standing(*pods[:2])
    assert [name for name, _ in told(by_importance(clear))] == ["q", "p"]


def test_only_the_lowest_priority_that_is_enough_is_looked_at() -> None:
    """And only at the rows where it is."""
    pods = [{"pod": f"{name}=1 on {name[0]}", "priority": number} for name, number in (("a1", 1), ("a2", 5), ("b1", 5))]
    _, found = standing(*pods)
    room = np.array([[-1000, 0], [-1000, 0]])
    some, left = lowest(found, room, np.array([True, True]))
    assert (told(some), left.tolist()) == ([("a1", 0)], [[0, 1], [-1000, 0]])
    some, _ = lowest(found, room, np.array([False, True]))
    assert told(some) == [("b1", 1)]
    assert told(lowest(found, room - 5000, np.array([True, True]))[0]) == []


def test_a_budget_is_counted_row_by_row() -> None:
    """The most important of each row are those whom it allows."""
    pods = [{"pod": f"{name}=1 on {name[0]}", "priority": 9 - int(name[1])} for name in ("a1", "a2", "b1")]
    arena, found = standing(*pods, {"pod": "a3=1 on a", "priority": 1})
    budget = DisruptionBudget("web", 1, frozenset(arena.stage.pods[name].metadata.uid for name in ("a1", "a2", "b1")))
    assert violating(by_importance(found), Allowances([budget])).tolist() == [False, True, False, False]
    assert violating(found, Allowances([])).tolist() == [False] * 4


def test_whoever_fits_is_put_back() -> None:
    """Each row in its order; who does not fit goes, and the next is asked."""
    pods = [{"pod": line, "priority": 9 - number} for number, line in enumerate(("l=2 on a", "m=3 on a", "s=1 on a"))]
    _, found = standing(*pods)
    room = np.array([[3000, 9]])
    assert victims(by_importance(found), room).tolist() == [False, True, False]
    assert room.tolist() == [[3000, 9]]
    assert victims(found.only(found.rows > 5), room).tolist() == []
