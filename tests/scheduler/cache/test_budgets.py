"""PodDisruptionBudgets: the pods that they cover, and what they still allow."""

import time
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from cpg_api.core.disruption import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from cpg_api.core.pod import Pod
from cpg_api.meta import LabelSelector, LabelSelectorRequirement
from cpg_api.selectors import LabelMatcher
from cpg_engine.preemption.budgets import BudgetAllowances, numbers_of
from cpg_engine.testing.builders import metadata, node, pod
from cpg_engine.testing.strategies import cases
from cpg_scheduler.testing.stage import Stage

FOO = LabelSelector(match_labels={"app": "foo"})


def budget(
    name: str = "pdb",
    selector: LabelSelector | None = FOO,
    *,
    allowed: int = 1,
    namespace: str = "default",
    disrupted: Mapping[str, str] | None = None,
) -> PodDisruptionBudget:
    """Return a budget."""
    return PodDisruptionBudget(
        metadata=metadata(name, namespace=namespace),
        spec=PodDisruptionBudgetSpec(selector=selector),
        status=PodDisruptionBudgetStatus(
            disruptions_allowed=allowed, disrupted_pods=dict(disrupted) if disrupted else None
        ),
    )


def covered(stage: Stage) -> dict[str, list[str]]:
    """Return the pods that each budget covers."""
    found: dict[str, list[str]] = {}
    for uid, one in stage.cache.pods.items():
        namespace, budgets = stage.cache.budgets.covering(uid)
        for number in numbers_of(budgets):
            found.setdefault(stage.cache.budgets.name(namespace, number), []).append(one.metadata.name)
    return {name: sorted(pods) for name, pods in found.items()}


def allowed(stage: Stage) -> list[int]:
    """Return how many disruptions the budgets allow, by their names."""
    counter = stage.cache.budgets.left("default")
    return [counter.value(number) for _, (*_, number) in sorted(stage.cache.budgets._budgets.items())]


def labelled(name: str, **labels: str) -> Pod:
    """Return a running pod."""
    return pod(name, node_name="n1", meta=metadata(name, **labels))


@pytest.mark.parametrize("first", ["budget", "pods"])
@pytest.mark.parametrize(
    ("selector", "pods"),
    [
        (FOO, ["a"]),
        (LabelSelector(match_labels={"app": "foo", "tier": "x"}), []),
        (LabelSelector(match_expressions=(LabelSelectorRequirement("app", "Exists"),)), ["a", "b"]),
        (LabelSelector(), ["a", "b", "c"]),
        (None, []),
    ],
    ids=["label", "two labels", "expression", "empty", "none"],
)
def test_a_budget_covers_the_pods_that_it_selects(selector: LabelSelector | None, pods: list[str], first: str) -> None:
    """An empty selector selects all pods of its namespace, a missing one none; the order of arrival does not matter."""
    stage = Stage(node("n1"))
    running = [labelled("a", app="foo"), labelled("b", app="bar"), labelled("c")]
    there = [budget(selector=selector), budget("far", selector, namespace="other")]
    stage.put(*(there if first == "budget" else running))
    stage.put(*(running if first == "budget" else there))
    assert covered(stage) == ({"default/pdb": pods} if pods else {})


def test_the_covered_pods_follow_labels_and_selectors() -> None:
    """Both may change."""
    stage = Stage(node("n1"), labelled("a", app="foo"), budget())
    stage.put(labelled("a", app="bar"))
    assert covered(stage) == {}
    stage.put(budget(selector=LabelSelector(match_labels={"app": "bar"})))
    assert covered(stage) == {"default/pdb": ["a"]}
    stage.delete(stage.pod("a"))
    assert covered(stage) == {}
    stage.put(labelled("b", app="bar"))
    assert covered(stage) == {"default/pdb": ["b"]}
    stage.delete(budget())
    assert (covered(stage), bool(stage.cache.budgets)) == ({}, False)


def test_pods_with_an_accepted_eviction_are_not_covered() -> None:
    """The disruption controller has counted them."""
    stage = Stage(node("n1"), labelled("a", app="foo"), labelled("b", app="foo"), budget(disrupted={"a": "2026"}))
    assert covered(stage) == {"default/pdb": ["b"]}


def two_budgets() -> Stage:
    """Return a stage with three pods that both budgets cover, and a fourth that only one of them covers."""
    pods = [*(labelled(name, app="foo") for name in "abc"), labelled("d")]
    return Stage(node("n1"), *pods, budget(allowed=2), budget("other", LabelSelector(), allowed=3))


def test_an_evicted_pod_is_taken_off_its_budgets() -> None:
    """Once, and never below zero."""
    stage = two_budgets()
    for _ in range(2):
        stage.cache.budgets.spend([stage.pod("a")])
        assert allowed(stage) == [2, 1]
    stage.put(budget(allowed=0))
    assert allowed(stage) == [2, 0]


def test_a_pod_that_is_not_evicted_after_all_is_refunded() -> None:
    """Its plan was dropped."""
    stage = two_budgets()
    stage.cache.budgets.spend([stage.pod("a"), stage.pod("b")])
    stage.cache.budgets.refund([stage.pod("a").metadata.uid, "unknown"])
    assert allowed(stage) == [2, 1]


@pytest.mark.parametrize("first", ["pod", "budget"])
def test_an_evicted_pod_is_off_until_it_terminates_and_its_budget_is_counted_again(first: str) -> None:
    """Another pod that is counted later stays off, though the budget was written for the first one."""
    stage = two_budgets()
    stage.victims_linger = True
    stage.cache.budgets.spend([stage.pod("a"), stage.pod("b")])
    if first == "pod":
        stage.terminate(stage.pod("a"))
    stage.put(budget(allowed=1))
    if first == "budget":
        stage.terminate(stage.pod("a"))
    assert allowed(stage) == [1, 0]
    stage.delete(stage.pod("b"))
    stage.put(budget(allowed=0))
    assert allowed(stage) == [1, 0]
    stage.put(budget("other", LabelSelector(), allowed=1))
    assert allowed(stage) == [1, 0]


def distinct(number: int) -> LabelSelector:
    """Return a selector that selects all pods but one, and that equals no other."""
    return LabelSelector(match_expressions=(LabelSelectorRequirement("n", "NotIn", (f"v{number}",)),))


def question(budgets: int, pods: int = 200) -> Callable[[], list[bool]]:
    """Return the question of every plan, on a stage with many pods that each of many budgets covers."""
    stage = Stage(node("n1"), *(labelled(f"p{number}", n=f"v{number}") for number in range(pods)))
    stage.put(*(budget(f"b{number}", distinct(number), allowed=number % 100) for number in range(budgets)))
    units = list(stage.cache.victims.units(2**31))

    def ask() -> list[bool]:
        stage.put(budget("b0", LabelSelector(), allowed=3))
        stage.put(budget("b0", distinct(0), allowed=3))
        allowances = BudgetAllowances(stage.cache.budgets)
        allowances.violations_alone(units)
        return allowances.violations(units)

    return ask


def seconds(ask: Callable[[], list[bool]]) -> float:
    """Return the CPU time of a question, the least of several."""
    times = []
    for _ in range(5):
        began = time.process_time()
        ask()
        times.append(time.process_time() - began)
    return min(times)


def test_a_plan_costs_much_the_same_with_many_budgets() -> None:
    """Sixteen times the budgets cost far less than sixteen times as much, though each covers nearly all pods."""
    assert seconds(question(4000)) < 5 * seconds(question(250))


def test_many_budgets_over_the_same_pods_take_little_memory() -> None:
    """There are 800,000 pairs of a budget and a pod that it covers."""
    ask = question(4000)
    tracemalloc.start()
    try:
        assert all(ask())
        assert tracemalloc.get_traced_memory()[1] < 2 * 1024 * 1024
    finally:
        tracemalloc.stop()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 2), st.sampled_from(["", "foo", "bar"]), st.integers(0, 2)),
        st.tuples(st.just("remove"), st.integers(0, 2)),
        st.tuples(st.just("spend"), st.sets(st.integers(0, 3), min_size=1)),
        st.tuples(st.just("refund"), st.integers(0, 3)),
        st.tuples(st.just("terminate"), st.integers(0, 3)),
    ),
    max_size=20,
)


class SlowBudgets:
    """A stage, and what its budgets allow, counted for each pair of a budget and a pod."""

    def __init__(self) -> None:
        """Start with four pods and without budgets."""
        self.stage = Stage(node("n1"), *(labelled(f"p{n}", app=("foo", "bar")[n % 2]) for n in range(4)))
        self.stage.victims_linger = True
        self.budgets: dict[str, PodDisruptionBudget] = {}
        self.spent: dict[tuple[str, str], set[str]] = {}

    def put(self, number: int, app: str, allowance: int) -> None:
        """Write a budget."""
        name = f"b{number}"
        new = budget(name, LabelSelector(match_labels={"app": app} if app else None), allowed=allowance)
        if name in self.budgets and self.budgets[name].spec != new.spec:
            self._forget(name)
        self.stage.put(new)
        self.budgets[name] = new
        self._note("counted", name)

    def remove(self, number: int) -> None:
        """Remove a budget, if it is there."""
        name = f"b{number}"
        if name in self.budgets:
            self.stage.delete(self.budgets.pop(name))
            self._forget(name)

    def spend(self, numbers: set[int]) -> None:
        """Take pods off the budgets that select them."""
        self.stage.cache.budgets.spend(self.stage.pod(f"p{number}") for number in numbers)
        for name in (f"p{number}" for number in numbers):
            self._forget(name)
            for one in self.budgets.values():
                if LabelMatcher.compile(one.spec.selector).matches(self.stage.pod(name).metadata.labels):
                    self.spent[one.metadata.name, name] = set()

    def refund(self, number: int) -> None:
        """Put a pod back."""
        self.stage.cache.budgets.refund([self.stage.pod(f"p{number}").metadata.uid])
        self._forget(f"p{number}")

    def terminate(self, number: int) -> None:
        """Let a pod terminate."""
        self.stage.terminate(self.stage.pod(f"p{number}"))
        self._note("ending", f"p{number}")

    def allowed(self) -> list[int]:
        """Return what the budgets allow, by name."""
        return [
            max(one.status.disruptions_allowed - sum(name == pair[0] for pair in self.spent), 0)
            for name, one in sorted(self.budgets.items())
        ]

    def _forget(self, name: str) -> None:
        self.spent = {pair: events for pair, events in self.spent.items() if name not in pair}

    def _note(self, event: str, name: str) -> None:
        for pair, events in list(self.spent.items()):
            if name in pair:
                events.add(event)
                if len(events) > 1:
                    del self.spent[pair]


@cases(200)
@given(STEPS)
def test_allowances_are_those_of_a_count_pair_by_pair(steps: list[tuple[Any, ...]]) -> None:
    """Whatever the order in which pods are taken off, put back and terminate, and budgets change."""
    slow = SlowBudgets()
    for step, *arguments in steps:
        getattr(slow, step)(*arguments)
        if slow.budgets:
            assert allowed(slow.stage) == slow.allowed()
