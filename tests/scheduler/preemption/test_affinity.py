"""Reservations in the affinity and spread of other pods: a nominated pod may never be bound."""

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
    """Return a web pod of high priority that fills a node."""
    found = pod(name, cpu=2, priority=priority, **more)
    return replace(found, metadata=replace(found.metadata, labels={**found.metadata.labels, "app": "web"}))


def near() -> Pod:
    """Return a pod of the lowest priority that requires a web pod near it."""
    return pod("near", cpu=1, priority=1, affinity=NEAR_WEB)


def reserving(*more: Any) -> Stage:
    """Return a stage on which a1 is reserved for the web pod while its victim terminates, and a2 is free."""
    stage = Stage(node("a1", cpu=2, labels=ZONE), node("a2", cpu=1, labels=ZONE), low("old", "a1", cpu=2), *more)
    stage.victims_linger = True
    stage.settle()
    return stage


def test_required_affinity_to_a_nominated_pod_waits_until_that_pod_is_bound() -> None:
    """Then the other pod is bound near it."""
    stage = reserving(web())
    stage.put(near())
    stage.settle(30)
    assert (stage.pod("web").status.nominated_node_name, stage.bound()) == ("a1", {"old": "a1"})
    assert "pod affinity rules" in stage.status.pods["near"][1]
    stage.delete(stage.pod("old"))
    stage.settle(30)
    assert stage.bound() == {"web": "a1", "near": "a2"}


def test_required_affinity_to_a_nominated_pod_that_is_deleted_is_not_satisfied() -> None:
    """Nothing is bound near room that was reserved in vain."""
    stage = reserving(web())
    stage.put(near())
    stage.settle(30)
    stage.delete(stage.pod("web"), stage.pod("old"))
    stage.settle(600)
    assert stage.bound() == {}


@pytest.mark.parametrize("own", [True, False])
def test_a_nominated_pod_with_required_affinity_is_bound(own: bool) -> None:  # noqa: FBT001 - pytest gives it by name
    """It is the first of its own kind, or the pod that it requires runs. Its own reservation is ignored."""
    first = web(affinity=NEAR_WEB) if own else pod("client", cpu=2, priority=100, affinity=NEAR_WEB)
    stage = reserving(first, *(() if own else (pod("runs", node_name="a2", meta=metadata("runs", app="web")),)))
    name = first.metadata.name
    assert stage.pod(name).status.nominated_node_name == "a1"
    stage.delete(stage.pod("old"))
    stage.settle(30)
    assert stage.bound()[name] == "a1"


def test_the_pods_of_a_gang_satisfy_the_affinity_of_each_other() -> None:
    """Room is reserved for both, and they are bound there, though no pod of the kind runs before."""
    group, members = (
        pod_group("pg", gang=2, priority=100),
        [web(f"web-{n}", group="pg", affinity=NEAR_WEB) for n in "01"],
    )
    stage = reserving(node("a3", cpu=2, labels=ZONE), low("other", "a3", cpu=2), group, *members)
    assert [stage.pod(f"web-{n}").status.nominated_node_name for n in "01"] == ["a1", "a3"]
    for victim in ("old", "other"):
        stage.delete(stage.pod(victim))
        stage.settle(30)
    assert stage.bound() == {"web-0": "a1", "web-1": "a3"}


def test_a_pod_nominated_by_another_scheduler_does_not_satisfy_affinity_before_it_is_bound() -> None:
    """That scheduler evicts for it."""
    stage = reserving()
    theirs = replace(web(), spec=replace(web().spec, scheduler_name="default-scheduler"))
    stage.put(replace(theirs, status=replace(theirs.status, nominated_node_name="a1")), near())
    stage.settle(30)
    assert "near" not in stage.bound()
    stage.delete(stage.pod("old"))
    stage.put(replace(theirs, spec=replace(theirs.spec, node_name="a1")))
    stage.settle(30)
    assert stage.bound() == {"web": "a1", "near": "a2"}


def test_a_nominated_pod_does_not_even_out_a_spread_before_it_is_bound() -> None:
    """In the second zone only one pod is bound, until the nominated pod is bound in the first."""
    stage = reserving(web(node_selector=ZONE), node("b1", cpu=4, labels={"zone": "b"}))
    stage.put(*(web(name, priority=1, topology_spread_constraints=(EVEN,)) for name in ("first", "second")))
    stage.settle(30)
    assert stage.bound() == {"old": "a1", "first": "b1"}
    stage.delete(stage.pod("old"))
    stage.settle(30)
    assert stage.bound() == {"web": "a1", "first": "b1", "second": "b1"}
