"""What pods that look at others make of pods for which room is kept, and which may never come."""

from typing import Any

import pytest
from msgspec.structs import replace

from cpg_api.core.affinity import Affinity, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from cpg_api.core.pod import Pod
from cpg_api.meta import LabelSelector
from cpg_engine.testing.builders import metadata, node, pod, pod_group
from cpg_scheduler.testing.preemption_setup import low
from cpg_scheduler.testing.stage import Stage

ZONE = {"zone": "a"}
WEB = LabelSelector(match_labels={"app": "web"})
NEAR_WEB = Affinity(
    pod_affinity=PodAffinity(
        required_during_scheduling_ignored_during_execution=(PodAffinityTerm(topology_key="zone", label_selector=WEB),)
    )
)
EVEN = TopologySpreadConstraint(topology_key="zone", when_unsatisfiable="DoNotSchedule", label_selector=WEB)


def web(name: str = "web", *, priority: int = 100, **more: Any) -> Pod:
    """Return an important pod of the web that fills a node."""
    found = pod(name, cpu=2, priority=priority, **more)
    return replace(found, metadata=replace(found.metadata, labels={**found.metadata.labels, "app": "web"}))


def near() -> Pod:
    """Return a pod that has to be near the web, and matters least."""
    return pod("near", cpu=1, priority=1, affinity=NEAR_WEB)


def kept(*more: Any) -> Stage:
    """Return a stage on which room is kept for the web, whose victim takes its time, and a node is free beside it."""
    stage = Stage(node("a1", cpu=2, labels=ZONE), node("a2", cpu=1, labels=ZONE), low("old", "a1", cpu=2), *more)
    stage.victims_linger = True
    stage.settle()
    return stage


def test_who_needs_a_pod_near_waits_until_it_is_there() -> None:
    """And is bound then, without anybody else's help."""
    stage = kept(web())
    stage.put(near())
    stage.settle(30)
    assert (stage.pod("web").status.nominated_node_name, stage.bound()) == ("a1", {"old": "a1"})
    assert "pod affinity rules" in stage.status.pods["near"][1]
    stage.delete(stage.pod("old"))
    stage.settle(30)
    assert stage.bound() == {"web": "a1", "near": "a2"}


def test_who_needs_a_pod_near_that_never_comes_stays_where_it_is() -> None:
    """The one for whom room was kept is deleted before it is bound."""
    stage = kept(web())
    stage.put(near())
    stage.settle(30)
    stage.delete(stage.pod("web"), stage.pod("old"))
    stage.settle(600)
    assert stage.bound() == {}


@pytest.mark.parametrize("own", [True, False])
def test_a_nominated_pod_that_needs_company_finds_it(own: bool) -> None:  # noqa: FBT001 - pytest gives it by name
    """Its own kind, where it is the first of it, or a pod that runs: its own ghost is not in its way."""
    first = web(affinity=NEAR_WEB) if own else pod("client", cpu=2, priority=100, affinity=NEAR_WEB)
    stage = kept(first, *(() if own else (pod("runs", node_name="a2", meta=metadata("runs", app="web")),)))
    name = first.metadata.name
    assert stage.pod(name).status.nominated_node_name == "a1"
    stage.delete(stage.pod("old"))
    stage.settle(30)
    assert stage.bound()[name] == "a1"


def test_a_gang_that_keeps_together_is_company_for_itself() -> None:
    """Room is kept for both of its pods, and they are bound there, though nobody of the kind runs anywhere."""
    group, members = (
        pod_group("pg", gang=2, priority=100),
        [web(f"web-{n}", group="pg", affinity=NEAR_WEB) for n in "01"],
    )
    stage = kept(node("a3", cpu=2, labels=ZONE), low("other", "a3", cpu=2), group, *members)
    assert [stage.pod(f"web-{n}").status.nominated_node_name for n in "01"] == ["a1", "a3"]
    for victim in ("old", "other"):
        stage.delete(stage.pod(victim))
        stage.settle(30)
    assert stage.bound() == {"web-0": "a1", "web-1": "a3"}


def test_a_pod_nominated_by_somebody_else_is_no_company_either() -> None:
    """Another scheduler has made room, or is about to."""
    stage = kept()
    theirs = replace(web(), spec=replace(web().spec, scheduler_name="default-scheduler"))
    stage.put(replace(theirs, status=replace(theirs.status, nominated_node_name="a1")), near())
    stage.settle(30)
    assert "near" not in stage.bound()
    stage.delete(stage.pod("old"))
    stage.put(replace(theirs, spec=replace(theirs.spec, node_name="a1")))
    stage.settle(30)
    assert stage.bound() == {"web": "a1", "near": "a2"}


def test_a_pod_that_may_never_come_evens_nothing_out() -> None:
    """Spread over two zones: the second one in the one zone waits until the first in the other is there."""
    stage = kept(web(node_selector=ZONE), node("b1", cpu=4, labels={"zone": "b"}))
    stage.put(*(web(name, priority=1, topology_spread_constraints=(EVEN,)) for name in ("first", "second")))
    stage.settle(30)
    assert stage.bound() == {"old": "a1", "first": "b1"}
    stage.delete(stage.pod("old"))
    stage.settle(30)
    assert stage.bound() == {"web": "a1", "first": "b1", "second": "b1"}
