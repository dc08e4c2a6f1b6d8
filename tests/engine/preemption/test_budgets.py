"""What budgets allow, and in which order."""

from cpg_api.scheduling.forest import GroupKey
from cpg_engine.preemption.budgets import BudgetAllowances
from cpg_engine.preemption.values import DisruptionBudget, VictimUnit


def unit(*pods: str) -> VictimUnit:
    """Return a unit of these pods."""
    return VictimUnit(key=GroupKey("PodGroup", "ns", pods[0]), priority=0, since="", pods=pods)


UNITS = [unit("a"), unit("b", "c"), unit("d"), unit("x")]
WEB = DisruptionBudget("web", 2, frozenset("abcd"))


def test_an_allowance_is_used_up_in_order() -> None:
    """A unit that takes more than is left violates, even in part; a unit that no budget covers never does."""
    found = BudgetAllowances([WEB])
    assert found.violations(UNITS) == [(), ("web",), ("web",), ()]
    assert found.violations(UNITS[::-1]) == [(), (), ("web",), ("web",)]


def test_units_alone_violate_less() -> None:
    """One by one, only a unit that takes more than the whole allowance violates."""
    assert BudgetAllowances([WEB]).violations_alone(UNITS) == [(), (), (), ()]
    assert BudgetAllowances([DisruptionBudget("web", 1, WEB.pods)]).violations_alone(UNITS) == [(), ("web",), (), ()]


def test_all_violated_budgets_are_named() -> None:
    """By name, each once, whatever the order in which they come."""
    none = [DisruptionBudget("b", 0, frozenset("bc")), DisruptionBudget("a", 0, frozenset("b"))]
    assert (
        BudgetAllowances(none).violations(UNITS)[1] == ("a", "b") == BudgetAllowances(none[::-1]).violations(UNITS)[1]
    )


def test_without_budgets_nothing_is_violated() -> None:
    """No unit is covered, either."""
    found = BudgetAllowances([])
    assert not found
    assert found.violations(UNITS) == found.violations_alone(UNITS) == [()] * 4
    assert BudgetAllowances([WEB])
    assert [BudgetAllowances([WEB]).covers(found) for found in UNITS] == [True, True, True, False]
