"""Answers to why."""

import json
from typing import Any

import pytest

from cpg_engine.gangs.allocation import Options
from cpg_engine.testing.builders import composite, node, pod, pod_group
from cpg_scheduler.explaining import USAGE, Explainer
from cpg_scheduler.testing.stage import Stage


@pytest.fixture
def stage() -> Stage:
    """Return a tree that fits, a pod that does not, a pod that runs, and one that waits for its group."""
    stage = Stage(node("n1"), composite("root"), pod_group("leaf", gang=1, parent="root"))
    stage.put(
        pod("m", group="leaf", cpu=1), pod("big", cpu=9), pod("runs", node_name="n1"), pod("orphan", group="nobody")
    )
    return stage


def ask(stage: Stage, path: str) -> Any:  # noqa: ANN401 - JSON
    """Return what is answered."""
    answer = Explainer(stage.state, Options()).page(path)
    assert answer.status == 200
    return json.loads(answer.body)


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
    assert ask(stage, "pod/default/runs") == {"root": "Pod default/runs", "flavour": "", "waiting": False}


@pytest.mark.parametrize("path", ["", "a/b", "a/b/c/d"])
def test_who_asks_badly_is_told_how(stage: Stage, path: str) -> None:
    """In one line."""
    answer = Explainer(stage.state, Options()).page(path)
    assert (answer.status, answer.body) == (404, USAGE)


@pytest.mark.parametrize("path", ["pod/default/nobody", "crd/default/nobody", "other/default/root"])
def test_what_is_not_there_is_not_found(stage: Stage, path: str) -> None:
    """Neither pods, nor groups, nor flavours."""
    answer = Explainer(stage.state, Options()).page(path)
    assert (answer.status, answer.body) == (404, f"there is no {path}\n".encode())
