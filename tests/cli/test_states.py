"""Trees and pods that do not wait, or wait for something else than room."""

import io
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console
from tests.cli.situations_reader import objects_of

from cpg_api.core.pod import Pod, PodStatus
from cpg_api.scheduling.attempts import LastAttempt
from cpg_cli.analysis.answers import AnswerSource, ExplainAnswer
from cpg_cli.analysis.changes import group_with_minimum, pod_with
from cpg_cli.analysis.explanation import explain
from cpg_cli.analysis.recorded import NOTHING_WRITTEN, explain_recorded
from cpg_cli.cluster.objects import ClusterObjects
from cpg_cli.cluster.offline_scheduler import OfflineScheduler
from cpg_cli.cluster.targets import unit_of
from cpg_cli.rendering.explanation import print_explanation

SOURCE = AnswerSource("view", "your view")


def with_pods(situation: str, **changes: Pod | None) -> ClusterObjects:
    """Return a situation with some pods changed, by name with underscores, or removed."""
    objects = objects_of(situation)
    named = {pod.metadata.name: pod for pod in objects.by_kind[Pod]}
    named |= {name.replace("_", "-"): pod for name, pod in changes.items()}
    objects.by_kind[Pod] = [pod for pod in named.values() if pod is not None]
    return objects


def answer_of(objects: ClusterObjects, target: str = "train") -> ExplainAnswer:
    """Return the answer of the view."""
    scheduler = OfflineScheduler(objects.to_dump())
    return explain(scheduler, unit_of(scheduler.cache, "default", target), SOURCE, seconds=0.0)


def member(situation: str, name: str) -> Pod:
    """Return a pod of a situation."""
    pods: list[Pod] = objects_of(situation).by_kind[Pod]
    return next(pod for pod in pods if pod.metadata.name == name)


def single(**fields: Any) -> Pod:
    """Return a pod in no group."""
    pod = member("quorum", "train-0")
    return replace(pod, metadata=replace(pod.metadata, name="alone", uid="alone", labels={}), **fields)


BOUND = pod_with(single(), node_name="n1")


@pytest.mark.parametrize(
    ("pod", "state", "summary"),
    [
        (BOUND, "Placed", "is bound to node n1"),
        (single(status=PodStatus(phase="Succeeded")), "Finished", "has ended: Succeeded"),
        (
            replace(BOUND, metadata=replace(BOUND.metadata, deletion_timestamp="2026-11-20T05:00:00Z")),
            "Terminating",
            "is being deleted",
        ),
        (
            pod_with(single(), scheduler_name="default-scheduler"),
            "OtherScheduler",
            "waits for another scheduler: its schedulerName is default-scheduler",
        ),
        (single(), "Fits", "fits: it will be placed at the next attempt"),
    ],
)
def test_a_pod_in_no_group(pod: Pod, state: str, summary: str) -> None:
    """Its state, in a sentence."""
    answer = answer_of(with_pods("quorum", alone=pod), "pod/alone")
    assert (answer.state, answer.summary) == (state, summary)


def test_a_placed_tree() -> None:
    """With its pods and nodes."""
    pods = {f"train_{number}": pod_with(member("taints", f"train-{number}"), node_name="n0") for number in range(2)}
    answer = answer_of(with_pods("taints", **pods))
    assert (answer.state, answer.summary) == ("Placed", "is placed: 2 pods on n0")


def test_pods_beyond_the_minimum() -> None:
    """A tree that has its minimum is not blocked; the pods that wait are counted, with what keeps them from a node."""
    pods = {f"train_{number}": pod_with(member("ports", f"train-{number}"), node_name="n1") for number in range(1)}
    objects = with_pods("ports", **pods, train_2=None)
    groups = next(iter(objects.groups.values()))
    (kind,) = (kind for kind, found in groups.items() if found)
    objects.groups = {"crd": {**groups, kind: [group_with_minimum(groups[kind][0], 1)]}}
    answer = answer_of(objects)
    assert (answer.state, answer.summary) == ("Waiting", "has its minimum; 1 more pod waits")
    assert answer.attempt is not None
    assert answer.attempt.reasons is not None
    assert answer.attempt.reasons[0].text == "node(s) didn't have free ports for the requested pod ports"


def test_a_group_without_pods() -> None:
    """It waits for all of its members."""
    answer = answer_of(with_pods("quorum", train_0=None, train_1=None))
    assert answer.message == "waiting for 4 more pods: minCount is 4, there is none"


def test_nothing_is_recorded() -> None:
    """Before the first attempt the status says nothing, and the answer what to check."""
    scheduler = OfflineScheduler(objects_of("capacity").to_dump())
    answer = explain_recorded(scheduler, unit_of(scheduler.cache, "default", "train"), SOURCE)
    assert (answer.state, answer.message, answer.attempt) == ("Waiting", NOTHING_WRITTEN, None)


def test_the_headline_has_attempt_and_age() -> None:
    """As the last attempt in the status says."""
    attempt = LastAttempt("Impossible", time="2026-11-20T05:00:00Z", number=7)
    answer = replace(answer_of(objects_of("capacity")), attempt=attempt)
    console = Console(file=io.StringIO(), width=160)
    print_explanation(console, answer, now=1795150812.0)
    assert isinstance(console.file, io.StringIO)
    headline = "train waits (attempt 7, 12s ago; tried again when nodes or pods change)"
    assert console.file.getvalue().splitlines()[0] == headline
