"""Explanations of pending units."""

import json
from typing import Any

import pytest

from cpg_engine.gangs.search import SearchOptions
from cpg_engine.testing.builders import composite, node, pod, pod_group
from cpg_engine.testing.call_counts import count_calls
from cpg_scheduler.debug.explain import USAGE, Explainer
from cpg_scheduler.testing.stage import Stage


@pytest.fixture
def stage() -> Stage:
    """Return a tree that fits, a pod that does not, a running pod, and one that waits for its group."""
    stage = Stage(node("n1"), composite("root"), pod_group("leaf", gang=1, parent="root"))
    stage.put(
        pod("m", group="leaf", cpu=1), pod("big", cpu=9), pod("runs", node_name="n1"), pod("orphan", group="missing")
    )
    return stage


def explainer(stage: Stage) -> Explainer:
    """Return the explainer of a stage."""
    return Explainer(stage.cache, stage.queue, stage.preemption, options=SearchOptions(), clock=lambda: stage.now)


def ask(stage: Stage, path: str) -> Any:  # noqa: ANN401 - JSON
    """Return the answer."""
    answer = explainer(stage).page(path)
    assert answer.status == 200
    return json.loads(answer.body + b"".join(answer.chunks))


@pytest.mark.parametrize("path", ["crd/default/root", "crd/default/leaf", "pod/default/m"])
def test_a_tree_is_explained_by_any_part_of_it(stage: Stage, path: str) -> None:
    """As it would be decided now; nothing is bound."""
    found = ask(stage, path)
    assert (found["root"], found["binds"]) == ("CompositePodGroup default/root", {"default/m": "n1"})
    assert found["explanation"]["finding"] == "Placed"
    assert stage.bound() == {"runs": "n1"}


def test_explanations_have_details_whatever_the_options_are(stage: Stage) -> None:
    """The scheduler itself may leave them out."""
    found = ask(stage, "pod/default/big")
    assert found["messages"] == {"Pod default/big": "0/1 nodes are available: 1 Insufficient cpu"}


def test_an_inadmissible_unit_is_explained_without_a_search(stage: Stage) -> None:
    """By the reason and message of its condition."""
    found = ask(stage, "pod/default/orphan")
    assert (found["reason"], found["message"]) == (
        "WaitingForGroup",
        "waiting for PodGroup default/missing, which does not exist",
    )


def test_a_bound_pod_is_not_pending(stage: Stage) -> None:
    """The answer has its node."""
    assert ask(stage, "pod/default/runs") == {
        "root": "Pod default/runs",
        "flavour": "",
        "waiting": False,
        "pod": "default/runs is bound to node n1",
    }


def test_an_assumed_pod_is_being_bound(stage: Stage) -> None:
    """Before the API server has confirmed it."""
    stage.run_passes()
    assert ask(stage, "pod/default/m")["pod"] == "default/m is being bound to node n1"


def test_all_pending_units_are_listed_with_their_reasons(stage: Stage) -> None:
    """In queue order, with their next attempt."""
    assert [one["nextAttempt"] for one in ask(stage, "")["roots"]] == []
    stage.put(pod("late", cpu=9))
    stage.loop._requeuer.take_events(0.0)
    assert {one["nextAttempt"] for one in ask(stage, "")["roots"]} == {"when it is first in the queue"}
    stage.run_passes()
    stage.put(node("n2", cpu=9, labels={"new": "yes"}))
    stage.loop._requeuer.take_events(0.5)
    found = ask(stage, "")
    why = "0/1 nodes are available: 1 Insufficient cpu"
    held = "waiting for PodGroup default/missing, which does not exist"
    assert [(one["root"], one["queue"], one["nextAttempt"], one["why"]) for one in found["roots"]] == [
        ("CompositePodGroup default/root", "binding", "none: it is being bound", ""),
        ("Pod default/big", "backoff", "in 1.2 s", why),
        ("Pod default/late", "backoff", "in 1.2 s", why),
        ("PodGroup default/missing", "unschedulable", "when an event may make it schedulable", held),
    ]
    assert (found["waiting"], found["counts"]["backoff"], found["roots"][1]["attempts"]) == (4, 2, 1)


def test_a_long_list_is_made_in_pieces(stage: Stage) -> None:
    """The loop goes on in between; of a unit that is gone meanwhile, what is known is listed."""
    stage.put(*(pod(f"p{number}", cpu=9) for number in range(20)))
    stage.run_passes()
    pieces = iter(explainer(stage).page("").chunks)
    assert next(pieces) == b""
    stage.delete(*(stage.pod(f"p{number}") for number in range(20)))
    *before, last = pieces
    assert set(before) == {b""}
    assert len(json.loads(last)["roots"]) == len(before) + 1 > 20


@pytest.mark.parametrize("path", ["a", "a/b", "a/b/c/d"])
def test_an_incomplete_path_is_answered_with_the_usage(stage: Stage, path: str) -> None:
    """The status is 404."""
    answer = explainer(stage).page(path)
    assert (answer.status, answer.body) == (404, USAGE)


@pytest.mark.parametrize("path", ["pod/default/missing", "crd/default/missing", "other/default/root"])
def test_unknown_pods_groups_and_flavours_are_not_found(stage: Stage, path: str) -> None:
    """The status is 404."""
    answer = explainer(stage).page(path)
    assert (answer.status, answer.body) == (404, f"{path} not found\n".encode())


@pytest.mark.parametrize(
    ("path", "instead"),
    [("pod/default/orphans", "orphan"), ("crd/default/roots", "root"), ("crd/default/leav", "leaf")],
)
def test_an_unknown_name_is_answered_with_similar_names(stage: Stage, path: str, instead: str) -> None:
    """Of the same kind and namespace."""
    assert explainer(stage).page(path).body.decode() == f"{path} not found; similar names: {instead}\n"


def test_the_most_similar_names_are_found_among_many(stage: Stage) -> None:
    """However long their common parts are."""
    stage.put(*(pod(f"{'very-' * number}long-{number}-{digit}x") for number in (1, 40) for digit in range(300)))
    for path in ("pod/default/long-1-142x", f"pod/default/{'very-' * 40}lang-40-142x"):
        answer = explainer(stage).page(path).body.decode()
        assert "-142x" in answer.partition("; similar names: ")[2].partition(", ")[0]


def test_names_that_are_hard_to_compare_cost_little(stage: Stage) -> None:
    """Otherwise a user could stop the scheduler for seconds with each unknown name, by the names of pods."""
    stage.put(*(pod(f"{number:019b}" * 10) for number in range(500)))
    page = explainer(stage).page
    assert count_calls(lambda: page(f"pod/default/{'01' * 95}")) < 400_000


def test_a_plan_has_a_reason_for_each_victim() -> None:
    """The plan that would be made, and an active plan with the pods that it waits for."""
    stage = Stage(node("n1", cpu=1), pod("low", cpu=1, node_name="n1"), pod("high", cpu=1, priority=9))
    expected = {
        "unit": "Pod default/low",
        "priority": 0,
        "pods": ["default/low"],
        "reason": "Pod default/high needs its 1 CPU on n1",
        "violates": [],
    }
    found = ask(stage, "pod/default/high")["preemption"]
    assert (found["underWay"], found["outcome"], found["evictions"]) == (False, "Planned", [expected])
    stage.victims_linger = True
    stage.settle()
    found = ask(stage, "pod/default/high")["preemption"]
    assert (found["underWay"], found["evictions"]) == (True, [expected])
    assert (found["waitsFor"], found["nominated"]) == (["default/low"], {"default/high": "n1"})
    assert (found["considered"], found["outOfBudget"]) == (1, False)
    stage.delete(stage.pod("low"))
    assert ask(stage, "pod/default/high")["preemption"]["waitsFor"] == []


def test_a_pod_that_never_preempts_has_no_plan() -> None:
    """Its preemptionPolicy is Never."""
    stage = Stage(node("n1", cpu=1), pod("low", cpu=1, node_name="n1"))
    stage.put(pod("high", cpu=1, priority=9, preemption_policy="Never"))
    found = ask(stage, "pod/default/high")["preemption"]
    assert (found["outcome"], found["evictions"]) == (None, [])


def test_a_tree_that_is_placed_between_two_parts_has_no_plan() -> None:
    """An explanation is made in parts, and the loop goes on between them: nothing is planned for what is placed."""
    stage = Stage(node("n1", cpu=1), pod("small", cpu=1, node_name="n1", priority=-1), pod("urgent", cpu=1, priority=9))
    parts = iter(explainer(stage).page("pod/default/urgent").chunks)
    assert next(parts) == b""
    stage.put(node("n2", cpu=1))
    stage.settle()
    assert stage.bound() == {"small": "n1", "urgent": "n2"}
    found = json.loads(b"".join(parts))
    assert (found["preemption"]["outcome"], found["explanation"]["finding"]) == (None, "Impossible")
    assert found["pod"] == "default/urgent is bound to node n2"
