"""Answers to why."""

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
    """Return a tree that fits, a pod that does not, a pod that runs, and one that waits for its group."""
    stage = Stage(node("n1"), composite("root"), pod_group("leaf", gang=1, parent="root"))
    stage.put(
        pod("m", group="leaf", cpu=1), pod("big", cpu=9), pod("runs", node_name="n1"), pod("orphan", group="nobody")
    )
    return stage


def explainer(stage: Stage) -> Explainer:
    """Return who explains what is on a stage."""
    return Explainer(stage.cache, stage.queue, stage.preemption, options=SearchOptions(), clock=lambda: stage.now)


def ask(stage: Stage, path: str) -> Any:  # noqa: ANN401 - JSON
    """Return what is answered."""
    answer = explainer(stage).page(path)
    assert answer.status == 200
    return json.loads(answer.body + b"".join(answer.chunks))


@pytest.mark.parametrize("path", ["crd/default/root", "crd/default/leaf", "pod/default/m"])
def test_a_tree_is_explained_by_whatever_is_part_of_it(stage: Stage, path: str) -> None:
    """As it would be decided now; nothing is bound by asking."""
    told = ask(stage, path)
    assert (told["root"], told["binds"]) == ("CompositePodGroup default/root", {"default/m": "n1"})
    assert told["explanation"]["finding"] == "Placed"
    assert stage.bound() == {"runs": "n1"}


def test_reasons_are_given_whatever_the_options_say(stage: Stage) -> None:
    """Somebody wants to know."""
    told = ask(stage, "pod/default/big")
    assert told["messages"] == {"Pod default/big": "0/1 nodes are available: 1 Insufficient cpu"}


def test_what_is_held_says_so(stage: Stage) -> None:
    """Without a search."""
    told = ask(stage, "pod/default/orphan")
    assert (told["reason"], told["message"]) == (
        "Unschedulable",
        "waiting for PodGroup default/nobody, which does not exist",
    )


def test_who_does_not_wait_is_not_explained(stage: Stage) -> None:
    """It has its place."""
    assert ask(stage, "pod/default/runs") == {
        "root": "Pod default/runs",
        "flavour": "",
        "waiting": False,
        "pod": "default/runs is bound to node n1",
    }


def test_a_pod_that_has_been_given_a_node_says_so(stage: Stage) -> None:
    """Before the API server knows of it."""
    stage.cycles()
    assert ask(stage, "pod/default/m")["pod"] == "default/m is being bound to node n1"


def test_all_who_wait_are_listed_with_their_reasons(stage: Stage) -> None:
    """In the order of the queue, with what comes next."""
    assert [one["nextAttempt"] for one in ask(stage, "")["roots"]] == []
    stage.put(pod("late", cpu=9))
    stage.loop._requeuer.take_events(0.0)
    assert {one["nextAttempt"] for one in ask(stage, "")["roots"]} == {"when it is first in the queue"}
    stage.cycles()
    stage.put(node("n2", cpu=9, labels={"new": "yes"}))
    stage.loop._requeuer.take_events(0.5)
    told = ask(stage, "")
    why = "0/1 nodes are available: 1 Insufficient cpu"
    held = "waiting for PodGroup default/nobody, which does not exist"
    assert [(one["root"], one["queue"], one["nextAttempt"], one["why"]) for one in told["roots"]] == [
        ("CompositePodGroup default/root", "binding", "none: it is being bound", ""),
        ("Pod default/big", "backoff", "in 1.2 s", why),
        ("Pod default/late", "backoff", "in 1.2 s", why),
        ("PodGroup default/nobody", "unschedulable", "when an event may make it schedulable", held),
    ]
    assert (told["waiting"], told["counts"]["backoff"], told["roots"][1]["attempts"]) == (4, 2, 1)


def test_a_long_list_is_made_a_little_at_a_time(stage: Stage) -> None:
    """So that others have their turn in between; who has gone meanwhile is told of as far as that is known."""
    stage.put(*(pod(f"p{number}", cpu=9) for number in range(20)))
    stage.cycles()
    pieces = iter(explainer(stage).page("").chunks)
    assert next(pieces) == b""
    stage.delete(*(stage.pod(f"p{number}") for number in range(20)))
    *before, last = pieces
    assert set(before) == {b""}
    assert len(json.loads(last)["roots"]) == len(before) + 1 > 20


@pytest.mark.parametrize("path", ["a", "a/b", "a/b/c/d"])
def test_who_asks_badly_is_told_how(stage: Stage, path: str) -> None:
    """In one line."""
    answer = explainer(stage).page(path)
    assert (answer.status, answer.body) == (404, USAGE)


@pytest.mark.parametrize("path", ["pod/default/nobody", "crd/default/nobody", "other/default/root"])
def test_what_is_not_there_is_not_found(stage: Stage, path: str) -> None:
    """Neither pods, nor groups, nor flavours."""
    answer = explainer(stage).page(path)
    assert (answer.status, answer.body) == (404, f"{path} not found\n".encode())


@pytest.mark.parametrize(
    ("path", "instead"),
    [("pod/default/orphans", "orphan"), ("crd/default/roots", "root"), ("crd/default/leav", "leaf")],
)
def test_who_mistypes_is_told_what_there_is(stage: Stage, path: str, instead: str) -> None:
    """By the names that come nearest."""
    assert explainer(stage).page(path).body.decode() == f"{path} not found; similar names: {instead}\n"


def test_who_mistypes_among_many_is_told_the_nearest(stage: Stage) -> None:
    """However many there are, and however much of their names is the same."""
    stage.put(*(pod(f"{'very-' * number}long-{number}-{digit}x") for number in (1, 40) for digit in range(300)))
    for path in ("pod/default/long-1-142x", f"pod/default/{'very-' * 40}lang-40-142x"):
        answer = explainer(stage).page(path).body.decode()
        assert "-142x" in answer.partition("; similar names: ")[2].partition(", ")[0]


def test_names_that_are_hard_to_compare_hold_up_nobody(stage: Stage) -> None:
    """Whoever may make pods could else stop the scheduler for seconds with each name that is not there."""
    stage.put(*(pod(f"{number:019b}" * 10) for number in range(500)))
    page = explainer(stage).page
    assert count_calls(lambda: page(f"pod/default/{'01' * 95}")) < 400_000


def test_a_plan_is_shown_with_the_reason_for_each_victim() -> None:
    """The one that would be made, and, once it is under way, whom it waits for."""
    stage = Stage(node("n1", cpu=1), pod("low", cpu=1, node_name="n1"), pod("high", cpu=1, priority=9))
    expected = {
        "unit": "Pod default/low",
        "priority": 0,
        "pods": ["default/low"],
        "reason": "Pod default/high needs its 1 CPU on n1",
        "violates": [],
    }
    told = ask(stage, "pod/default/high")["preemption"]
    assert (told["underWay"], told["outcome"], told["evictions"]) == (False, "Planned", [expected])
    stage.patient = True
    stage.settle()
    told = ask(stage, "pod/default/high")["preemption"]
    assert (told["underWay"], told["evictions"]) == (True, [expected])
    assert (told["waitsFor"], told["nominated"]) == (["default/low"], {"default/high": "n1"})
    assert (told["considered"], told["outOfBudget"]) == (1, False)
    stage.delete(stage.pod("low"))
    assert ask(stage, "pod/default/high")["preemption"]["waitsFor"] == []


def test_no_plan_is_shown_for_who_never_preempts() -> None:
    """None would be made."""
    stage = Stage(node("n1", cpu=1), pod("low", cpu=1, node_name="n1"))
    stage.put(pod("high", cpu=1, priority=9, preemption_policy="Never"))
    told = ask(stage, "pod/default/high")["preemption"]
    assert (told["outcome"], told["evictions"]) == (None, [])
