"""The slow model of preemption for a single pod, on examples worked out by hand."""

import pytest

from cpg_engine.preemption.values import VictimUnit
from cpg_engine.testing.builders import node, pod, pod_group
from cpg_engine.testing.listed_budgets import DisruptionBudget
from cpg_engine.testing.oracle import Situation
from cpg_engine.testing.preemption_model import chosen
from cpg_engine.testing.strategies import situation
from cpg_engine.testing.victim_units import units_of

HIGH = pod("high", priority=10, cpu=2)


def cluster(*running: tuple[str, str, int, int]) -> tuple[Situation, list[VictimUnit]]:
    """Return two nodes of 2 CPU and pods by name, node, CPU and priority."""
    pods = [pod(name, node_name=home, cpu=cpu, priority=priority) for name, home, cpu, priority in running]
    found = situation([node("a", cpu=2), node("b", cpu=2)], [pod_group("g")], [*pods, HIGH])
    return found, units_of([], pods)


@pytest.mark.parametrize(
    ("running", "expected"),
    [
        ([("p", "a", 2, 1), ("q", "b", 2, 0)], ("b", "q")),
        ([("p", "a", 1, 1), ("r", "a", 1, 0), ("q", "b", 2, 1)], ("b", "q")),
        ([("p", "a", 2, 10), ("q", "b", 2, 10)], None),
        ([("p", "a", 2, 10), ("q", "b", 1, 3), ("r", "b", 1, 10)], None),
        ([("p", "a", 2, 1), ("q", "b", 2, 1)], ("a", "p")),
    ],
)
def test_the_cheapest_node_is_chosen(
    running: list[tuple[str, str, int, int]], expected: tuple[str, str] | None
) -> None:
    """By the highest priority, then the number, then the name; pods of equal priority are never victims."""
    found, units = cluster(*running)
    answer = chosen(found, HIGH, units, [])
    assert answer == (None if expected is None else (expected[0], frozenset([f"uid-default-{expected[1]}"])))


def test_violators_are_put_back_first_and_counted() -> None:
    """Of two pods, one of which may be evicted, the more important uses the allowance; the other is put back first."""
    found, units = cluster(("p", "a", 1, 2), ("r", "a", 1, 1), ("q", "b", 2, 3))
    budget = DisruptionBudget("web", 1, frozenset(["uid-default-p", "uid-default-r"]))
    assert chosen(found, HIGH, units, [budget]) == ("b", frozenset(["uid-default-q"]))
    small = pod("small", priority=10, cpu=1)
    assert chosen(found, small, units, [budget]) == ("a", frozenset(["uid-default-p"]))
