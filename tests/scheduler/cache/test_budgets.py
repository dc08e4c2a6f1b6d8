"""PodDisruptionBudgets: the pods that they cover, and what they still allow."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from cpg_api.core.disruption import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from cpg_api.core.pod import Pod, PodStatus
from cpg_api.meta import LabelSelector, LabelSelectorRequirement
from cpg_engine.testing.builders import metadata, node, pod
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
    found = stage.cache.budgets.current()
    return {one.name: sorted(uid.removeprefix("uid-default-") for uid in one.pods) for one in found}


def allowed(stage: Stage) -> list[int]:
    """Return how many disruptions the budgets allow."""
    return [found.allowed for found in stage.cache.budgets.current()]


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
    assert stage.cache.budgets.current() == ()


def test_only_running_pods_are_covered() -> None:
    """Pending, terminating and ended pods cannot be evicted; assumed ones count as running."""
    stage = Stage(node("n1"), budget(), labelled("a", app="foo"), pod("w", meta=metadata("w", app="foo")))
    assert covered(stage) == {"default/pdb": ["a"]}
    stage.cache.assume("uid-default-w", "n1")
    assert covered(stage) == {"default/pdb": ["a", "w"]}
    stage.cache.forget("uid-default-w")
    assert covered(stage) == {"default/pdb": ["a"]}
    stage.put(replace(stage.pod("a"), status=PodStatus(phase="Succeeded")))
    assert covered(stage) == {}


def test_of_budgets_that_cover_the_same_pods_the_strictest_is_reported() -> None:
    """They share their cover, so a thousand of them cost as much as one."""
    stage = Stage(node("n1"), *(labelled(name, app="foo") for name in "ab"))
    stage.put(*(budget(f"pdb{number}", allowed=9 - number % 5) for number in range(20)))
    stage.put(budget("all", LabelSelector(), allowed=7))
    assert [(found.name, found.allowed) for found in stage.cache.budgets.current()] == [("default/pdb14", 5)]
    assert len(stage.cache.budgets._covers) == 2
    stage.cache.budgets.spend([stage.pod("a")])
    stage.delete(*(budget(f"pdb{number}") for number in range(20)))
    assert [(found.name, found.allowed) for found in stage.cache.budgets.current()] == [("default/all", 6)]
    stage.delete(budget("all"))
    assert (stage.cache.budgets._covers, stage.cache.budgets._spent) == ({}, {})


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
