"""What budgets allow, and in which order."""

import hypothesis.strategies as st
from hypothesis import given

from cpg_api.scheduling.forest import GroupKey
from cpg_engine.preemption.budgets import MAX_NAMES, BudgetAllowances, EvictionCounter, numbers_of
from cpg_engine.preemption.values import VictimUnit
from cpg_engine.testing.listed_budgets import DisruptionBudget, ListedBudgets
from cpg_engine.testing.strategies import cases


def unit(*pods: str) -> VictimUnit:
    """Return a unit of these pods."""
    return VictimUnit(key=GroupKey("PodGroup", "ns", pods[0]), priority=0, since="", pods=pods)


def allowances(*budgets: DisruptionBudget) -> BudgetAllowances:
    """Return what some budgets allow."""
    return BudgetAllowances(ListedBudgets(budgets))


UNITS = [unit("a"), unit("b", "c"), unit("d"), unit("x")]
WEB = DisruptionBudget("web", 2, frozenset("abcd"))


def test_an_allowance_is_used_up_in_order() -> None:
    """A unit that takes more than is left violates, even in part; a unit that no budget covers never does."""
    found = allowances(WEB)
    assert found.violations(UNITS) == [False, True, True, False]
    assert found.violations(UNITS[::-1]) == [False, False, True, True]


def test_units_alone_violate_less() -> None:
    """One by one, only a unit that takes more than the whole allowance violates."""
    assert allowances(WEB).violations_alone(UNITS) == [False] * 4
    one = allowances(DisruptionBudget("web", 1, WEB.pods))
    assert one.violations_alone(UNITS) == [False, True, False, False]


def test_violated_budgets_are_named() -> None:
    """By name, each once, whatever the order in which they come; of many, a few."""
    none = [DisruptionBudget("b", 0, frozenset("bc")), DisruptionBudget("a", 0, frozenset("b"))]
    expected = [(), ("a", "b"), (), ()]
    assert allowances(*none).violated_names(UNITS) == expected == allowances(*none[::-1]).violated_names(UNITS)
    many = [DisruptionBudget(f"{number:04}", 0, WEB.pods) for number in range(1000)]
    assert [len(found) for found in allowances(*many).violated_names(UNITS)] == [MAX_NAMES] * 3 + [0]


def test_without_budgets_nothing_is_violated() -> None:
    """Nothing is counted, either."""
    found = allowances()
    assert not found
    assert found.violations(UNITS) == found.violations_alone(UNITS) == [False] * 4
    assert allowances(WEB)


ALLOWED = st.lists(st.integers(0, 5), min_size=1, max_size=6)


@cases(150)
@given(ALLOWED, st.lists(st.integers(0, 63)))
def test_a_counter_counts_for_each_budget_alone(allowed: list[int], steps: list[int]) -> None:
    """As if each had a number of its own that stops at zero."""
    left, taken, copied = EvictionCounter(), EvictionCounter(), EvictionCounter()
    for number, allowance in enumerate(allowed):
        left.put(number, 7)
        left.put(number, allowance)
    copied = left.copy()
    counts, added = list(allowed), [0] * len(allowed)
    for step in steps:
        some = [number for number in numbers_of(step) if number < len(allowed)]
        budgets = sum(1 << number for number in some)
        assert list(numbers_of(left.take(budgets))) == [number for number in some if not counts[number]]
        taken.add(budgets)
        for number in some:
            counts[number], added[number] = max(counts[number] - 1, 0), added[number] + 1
    for found, numbers in ((left, counts), (taken, added), (copied, allowed)):
        assert [found.value(number) for number in range(len(allowed))] == numbers
        assert list(numbers_of(found.nonzero)) == [number for number, one in enumerate(numbers) if one]


PODS = st.frozensets(st.sampled_from("abcdefgh"))


@cases(250)
@given(st.lists(st.builds(DisruptionBudget, st.uuids().map(str), st.integers(0, 4), PODS), max_size=5), st.randoms())
def test_violations_are_those_of_a_count_budget_by_budget(budgets: list[DisruptionBudget], order: object) -> None:
    """The slow way: a unit violates a budget if the pods up to and with it are more than are allowed."""
    pods = list("abcdefgh")
    order.shuffle(pods)  # type: ignore[attr-defined]
    units = [unit(*pods[:3]), unit(pods[3]), unit(*pods[4:6]), unit(pods[6]), unit(pods[7])]
    so_far, expected = set[str](), []
    for one in units:
        so_far.update(one.pods)
        over = [found for found in budgets if len(found.pods & so_far) > found.allowed and found.pods & set(one.pods)]
        expected.append(tuple(sorted(found.name for found in over)))
    found = allowances(*budgets)
    assert found.violated_names(units) == expected
    assert found.violations(units) == list(map(bool, expected))
    alone = [any(len(one.pods & set(unit.pods)) > one.allowed for one in budgets) for unit in units]
    assert found.violations_alone(units) == alone
