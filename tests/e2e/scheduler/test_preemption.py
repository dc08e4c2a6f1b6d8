"""Preemption on a real API server: the conditions, slow victims, broken plans, a new leader.

No kubelet runs here, so a bound pod that is deleted goes at once where its grace period is zero, and stays as long as
the test wants where a finalizer holds it.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_engine.testing.builders import composite, node, pod, pod_group
from cpg_lab.deployments import PodProcess as Process

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

    from cpg_lab.clusters import Cluster

PATIENCE = 15.0
HOLD = "example.com/hold"
Plain = dict[str, Any]
Live = Any

pytestmark = pytest.mark.e2e


def low(name: str, where: str, *, group: str = "", priority: int = 10, held: bool = False, cpu: int = 1) -> Pod:
    """Return a running pod of low priority; a finalizer may keep it."""
    made = pod(
        name, group=group or None, cpu=cpu, priority=priority, node_name=where, termination_grace_period_seconds=0
    )
    return replace(made, metadata=replace(made.metadata, finalizers=(HOLD,))) if held else made


def gang(name: str = "high", *, size: int = 2, priority: int = 100) -> list[Any]:
    """Return a gang of high priority."""
    members = [pod(f"{name}-{number}", group=name, cpu=1, priority=priority) for number in range(size)]
    return [pod_group(name, gang=size, priority=priority), *members]


def put(live: Live, *things: Any) -> None:
    """Create objects."""
    for thing in things:
        match type(thing).__name__:
            case "Node":
                live.put_node(thing)
            case "Pod":
                live.put_pod(thing)
            case _:
                live.put_group(thing)
    live.flush()


def read(live: Live, kind: str, name: str) -> Plain | None:
    """Return an object, or None."""
    found: Plain | None = live.client.find(live.path(kind, name))
    return found


def condition(live: Live, kind: str, name: str, wanted: str) -> Plain:
    """Return a condition of an object, empty if there is none."""
    found = read(live, kind, name) or {}
    return next((one for one in found.get("status", {}).get("conditions", ()) if one["type"] == wanted), {})


def node_of(live: Live, name: str) -> str:
    """Return the node that a pod is bound to, or nothing."""
    return str((read(live, "Pod", name) or {}).get("spec", {}).get("nodeName", ""))


def nominated(live: Live, name: str) -> str:
    """Return the node that a pod is nominated to, or nothing."""
    return str((read(live, "Pod", name) or {}).get("status", {}).get("nominatedNodeName", ""))


def is_evicted(live: Live, name: str) -> bool:
    """Return whether a pod is gone, or terminates while its finalizer keeps it."""
    found = read(live, "Pod", name)
    return found is None or "deletionTimestamp" in found["metadata"]


def release(live: Live, *names: str) -> None:
    """Remove the finalizers of pods."""
    for name in names:
        live.client.merge(live.path("Pod", name), {"metadata": {"finalizers": None}})


def until(what: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever it is
    """Wait until something is true, and return it."""
    deadline = time.monotonic() + PATIENCE
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.1)
    return found


def events(live: Live, reason: str) -> list[Plain]:
    """Return the events with that reason."""
    return [event for event in live.client.get(live.path("Event"))["items"] if event["reason"] == reason]


def test_victims_are_marked_with_their_preemptor_and_evicted(live: Live) -> None:
    """By condition and event. The preemptor is nominated before and bound after."""
    put(live, node("n1", cpu=2), low("low-0", "n1", held=True), low("low-1", "n1"), *gang())
    uid = until(lambda: read(live, "PodGroup", "high"))["metadata"]["uid"]
    until(lambda: is_evicted(live, "low-0") and is_evicted(live, "low-1"))
    told = condition(live, "Pod", "low-0", "DisruptionTarget")
    said = f"cpg-scheduler: preempting to accommodate a higher priority podgroup {live.namespace}/high {uid}"
    assert (told["status"], told["reason"], told["message"]) == ("True", "PreemptionByScheduler", said)
    assert {nominated(live, "high-0"), nominated(live, "high-1")} == {"n1"}
    found = until(lambda: len(found := events(live, "Preempted")) == 2 and found)
    for event in found:
        assert event["note"].startswith(f"Preempted by podgroup {uid}: PodGroup {live.namespace}/high ")
        assert (event["type"], event["action"], event["regarding"]["kind"]) == ("Normal", "Preempting", "Pod")
        assert (event["related"]["kind"], event["related"]["uid"]) == ("PodGroup", uid)
    release(live, "low-0")
    until(lambda: node_of(live, "high-0") == node_of(live, "high-1") == "n1")
    assert len(events(live, "Preempted")) == 2


def test_a_group_that_is_evicted_as_a_whole_is_marked(live: Live) -> None:
    """With its pods on all nodes. When it has its minimum again, the mark is retracted."""
    put(live, node("n1", cpu=1), node("n2", cpu=1))
    put(live, composite("victim", priority=10, all_=True), pod_group("part", parent="victim", priority=10, all_=True))
    put(live, low("low-0", "n1", group="part"), low("low-1", "n2", group="part"))
    put(live, pod("high", cpu=1, priority=100))
    until(lambda: node_of(live, "high"))
    assert read(live, "Pod", "low-0") is read(live, "Pod", "low-1") is None
    for kind, name in (("CompositePodGroup", "victim"), ("PodGroup", "part")):
        told = until(partial(condition, live, kind, name, "DisruptionTarget"))
        assert (told["status"], told["reason"]) == ("True", "PreemptionByScheduler")
        assert "higher priority pod " in told["message"]
    # Its controller creates other pods, and there is room again.
    put(live, pod("low-2", group="part", cpu=1, priority=10), node("n3", cpu=2))
    until(lambda: node_of(live, "low-2"))
    for kind, name in (("CompositePodGroup", "victim"), ("PodGroup", "part")):
        until(lambda: condition(live, kind, name, "DisruptionTarget")["status"] == "False")  # noqa: B023 - at once
        assert condition(live, kind, name, "DisruptionTarget")["reason"] == "Rescheduled"


def test_the_conditions_say_what_is_wrong_and_that_preemption_goes_on(live: Live) -> None:
    """As long as the victim terminates."""
    put(live, node("n1", cpu=1), low("low-1", "n1", held=True), *gang(size=1))
    until(lambda: is_evicted(live, "low-1"))
    told = until(lambda: condition(live, "PodGroup", "high", "PodGroupInitiallyScheduled"))
    for part in (
        "minCount (1) cannot be satisfied",
        "pod group preemption: found a placement for podgroup, preempting 1 victims",
    ):
        assert part in told["message"]
        assert part in condition(live, "Pod", "high-0", "PodScheduled")["message"]
    assert (told["status"], told["reason"]) == ("False", "Unschedulable")
    release(live, "low-1")
    until(lambda: node_of(live, "high-0"))
    until(lambda: condition(live, "PodGroup", "high", "PodGroupInitiallyScheduled")["status"] == "True")


def test_no_further_victim_is_evicted_while_one_terminates(live: Live) -> None:
    """Though there are other victims and other events. No pod of lower priority takes the room either."""
    put(live, node("n1", cpu=2), node("n2", cpu=2))
    put(live, low("slow", "n1", held=True, cpu=2), low("other", "n2", priority=20, cpu=2), *gang())
    until(lambda: is_evicted(live, "slow"))
    put(live, pod("lesser", cpu=1, priority=15))
    for number in range(3):
        put(live, node(f"small-{number}", cpu=0))
        time.sleep(1.0)
    assert not is_evicted(live, "other")
    release(live, "slow")
    until(lambda: node_of(live, "high-0") == node_of(live, "high-1") == "n1")
    assert (is_evicted(live, "other"), node_of(live, "lesser")) == (False, "")


def test_a_plan_breaks_when_its_node_is_lost(live: Live) -> None:
    """The next plan has another node and another victim."""
    put(live, node("n1", cpu=1), node("n2", cpu=1))
    put(live, low("first", "n1", held=True), low("second", "n2", priority=20), pod("high", cpu=1, priority=100))
    until(lambda: is_evicted(live, "first"))
    assert nominated(live, "high") == "n1"
    live.delete("n1")
    until(lambda: node_of(live, "high") == "n2")
    assert read(live, "Pod", "second") is None
    release(live, "first")


@contextmanager
def killed(process: Process) -> Iterator[Process]:
    """Run a scheduler, and kill it at the end."""
    try:
        yield process
    finally:
        process.process.kill()


def test_a_new_scheduler_waits_for_the_victims_of_the_previous_one(
    live: Live, cluster: "Cluster", flavour: str, install: "Installer", tmp_path: Path
) -> None:
    """It is killed while they terminate. The new one finds the preemption in the API, and makes no second plan."""
    another = {"schedulerName": "again", "replicas": 1, "settings": {"leaderElect": False}}
    # No other scheduler has that name.
    chart = install(cluster, {"api": flavour, "scheduler": another, "operator": {"enabled": False}}, "again")
    ours = [pod(f"high-{number}", group="high", cpu=1, priority=100) for number in range(2)]
    ours = [replace(one, spec=replace(one.spec, scheduler_name="again")) for one in ours]
    put(live, node("n1", cpu=2), node("n2", cpu=2), low("slow", "n1", held=True, cpu=2))
    put(live, low("other", "n2", priority=20, cpu=2), pod_group("high", gang=2, priority=100), *ours)
    with killed(Process(cluster.access, chart.deployments[0], tmp_path)) as old:
        until(lambda: is_evicted(live, "slow"))
    with killed(Process(cluster.access, chart.deployments[0], tmp_path)) as new:
        until(lambda: "preemption taken up" in new.process.output())
        put(live, node("small", cpu=0))
        time.sleep(2.0)
        assert not is_evicted(live, "other")
        assert {nominated(live, "high-0"), nominated(live, "high-1")} == {"n1"}
        release(live, "slow")
        until(lambda: node_of(live, "high-0") == node_of(live, "high-1") == "n1")
    said = [line for process in (old, new) for line in process.process.output().splitlines()]
    lines = [msgspec.json.decode(line) for line in said if line.startswith("{")]
    assert [line["event"] for line in lines].count("preempting") == 1
    assert not is_evicted(live, "other")
