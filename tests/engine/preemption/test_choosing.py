"""As few and as unimportant as the goal allows; the levels of budgets and priorities."""

import pytest

from cpg_engine.preemption.choosing import cheapest
from cpg_engine.testing.preemption_case import PreemptionCase, names
from cpg_engine.testing.scenario_forms import BudgetForm

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
    """A node for one pod is cleared of whom no budget covers, then of the least important."""
    pods = [{"pod": f"{name}=1 on {name}", "priority": at, "labels": labels} for name, at, labels in victims]
    arena = PreemptionCase([f"{name} 1" for name, _, _ in victims], [*pods, "1x1@high"], {"high": {"gang": 1}}, NONE)
    assert names(cheapest(arena.case(1), arena.candidates()).best.gone) == expected


def test_a_lower_priority_must_not_cost_more_violations() -> None:
    """Node a: one violator and one of priority 9; node b: two violators of priority 1."""
    pods = [
        {"pod": "a1=1 on a", "priority": 1, "labels": WEB},
        {"pod": "a2=1 on a", "priority": 9},
        {"pod": "b=2x1 on b", "priority": 1, "labels": WEB},
        "1x2@high",
    ]
    arena = PreemptionCase(["a 2", "b 2"], pods, {"high": {"gang": 1}}, NONE)
    assert names(cheapest(arena.case(1), arena.candidates()).best.gone) == ["a2", "a1"]


def test_where_violations_are_equal_the_highest_priority_is_the_lowest() -> None:
    """One violator has to go anyway; beside it the one of priority 2 goes, not that of priority 9."""
    pods = [
        {"pod": "a1=1 on a", "priority": 1, "labels": WEB},
        {"pod": "a2=1 on a", "priority": 9},
        {"pod": "b1=1 on b", "priority": 1, "labels": WEB},
        {"pod": "b2=1 on b", "priority": 2},
        "1x2@high",
    ]
    arena = PreemptionCase(["a 2", "b 2"], pods, {"high": {"gang": 1}}, NONE)
    assert names(cheapest(arena.case(1), arena.candidates()).best.gone) == ["b2", "b1"]


def test_an_allowance_may_be_used_by_whom_it_helps() -> None:
    """One may go; that the less important one would be of no use does not make the other a violator."""
    pods = [
        {"pod": "useless=1 on a", "priority": 1, "labels": WEB},
        "strong=1 on a",
        {"pod": "useful=2 on b", "priority": 2, "labels": WEB},
        {"pod": "other=2 on c", "priority": 50},
        "1x2@high",
    ]
    arena = PreemptionCase(["a 2", "b 2", "c 2"], pods, {"high": {"gang": 1}}, {"web": BudgetForm(WEB, 1)})
    case = arena.case(1)
    best = cheapest(case, arena.candidates()).best
    assert (names(best.gone), case.violating(best.gone)) == (["useful"], [()])
    assert case.cost(best.gone)[:4] == (0, 2, 1, 1)
    assert case.cost([]) < case.cost(best.gone)
