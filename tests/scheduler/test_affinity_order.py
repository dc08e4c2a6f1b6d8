"""Gangs with affinity between their pods: they are placed in the right order, and preempt as a whole."""

from typing import Any

import pytest
from msgspec.structs import replace

from cpg_api.core.affinity import Affinity, PodAffinity, PodAffinityTerm
from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.meta import LabelSelector
from cpg_engine.testing.builders import composite, node, pod, pod_group
from cpg_scheduler.testing.preemption_setup import low
from cpg_scheduler.testing.stage import Stage

AFFINITY_RULES = "didn't match pod affinity rules"


def near(app: str) -> Affinity:
    """Return the affinity to pods of an app in the same zone."""
    term = PodAffinityTerm(topology_key="zone", label_selector=LabelSelector(match_labels={"app": app}))
    return Affinity(pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(term,)))


def member(name: str, app: str = "", *, group: str | None = "pg", **more: Any) -> Pod:
    """Return a high-priority pod of a group and an app that fills a node."""
    found = pod(name, cpu=2, group=group, priority=100, **more)
    return replace(found, metadata=replace(found.metadata, labels={**found.metadata.labels, "app": app}))


def nodes() -> list[Node]:
    """Return two nodes in one zone."""
    return [node(name, cpu=2, labels={"zone": "a"}) for name in ("a1", "a2")]


def full() -> list[Pod]:
    """Return low-priority pods that fill them."""
    return [low("old-1", "a1", cpu=2), low("old-2", "a2", cpu=2)]


@pytest.mark.parametrize("name", ["a-near", "z-near"])
def test_a_pod_is_placed_after_the_pod_that_its_affinity_selects(name: str) -> None:
    """Whatever their names are."""
    stage = Stage(
        *nodes(), pod_group("pg", gang=2, priority=100), member(name, affinity=near("web")), member("web", "web")
    )
    stage.settle()
    assert stage.bound().keys() == {name, "web"}


@pytest.mark.parametrize("name", ["a-near", "z-near"])
def test_a_gang_with_affinity_between_its_pods_preempts_as_a_whole(name: str) -> None:
    """No selected pod runs yet, but one will: both pods are nominated, and bound once the victims have ended."""
    group = pod_group("pg", gang=2, priority=100)
    stage = Stage(*nodes(), *full(), group, member(name, affinity=near("web")), member("web", "web"))
    stage.victims_linger = True
    stage.settle()
    assert {stage.pod(found).status.nominated_node_name for found in (name, "web")} == {"a1", "a2"}
    assert "preempting 2 victims" in stage.status.pods[name][1]
    stage.delete(stage.pod("old-1"))
    stage.settle(30)
    assert stage.bound() == {"old-2": "a2"}
    stage.delete(stage.pod("old-2"))
    stage.settle(30)
    assert stage.bound().keys() == {name, "web"}


def test_a_tree_with_affinity_between_its_groups_preempts_as_a_whole() -> None:
    """A group is placed after the group that its pods have affinity to."""
    leaves = [pod_group(name, gang=1, parent="root", priority=100) for name in ("followers", "leaders")]
    members = [member("follower", group="followers", affinity=near("web")), member("leader", "web", group="leaders")]
    stage = Stage(*nodes(), *full(), composite("root", gang=2, priority=100), *leaves, *members)
    stage.settle()
    stage.settle(30)
    assert (stage.evicted, set(stage.bound())) == (["old-1", "old-2"], {"follower", "leader"})


@pytest.mark.parametrize("has_victims", [False, True])
def test_pods_with_affinity_to_each_other_are_never_placed(has_victims: bool) -> None:  # noqa: FBT001 - pytest gives it by name
    """Neither can be placed first, so no pod is evicted for them, and they say that evictions would not help."""
    members = [member("chicken", "chicken", affinity=near("egg")), member("egg", "egg", affinity=near("chicken"))]
    stage = Stage(*nodes(), *(full()[:1] if has_victims else ()), pod_group("pg", gang=2, priority=100), *members)
    stage.settle()
    stage.settle(600)
    assert (stage.evicted, list(stage.bound())) == ([], ["old-1"] if has_victims else [])
    for found in members:
        reason, message = stage.status.pods[found.metadata.name]
        assert (reason, AFFINITY_RULES in message, "evictions would not help" in message) == (
            "Unschedulable",
            True,
            True,
        )


def test_pods_with_affinity_to_each_other_are_bound_beside_a_pod_outside() -> None:
    """It is selected by the affinity of one of them."""
    members = [member("chicken", "chicken", affinity=near("egg")), member("egg", "egg", affinity=near("chicken"))]
    stage = Stage(*nodes(), node("a3", labels={"zone": "a"}), pod_group("pg", gang=2, priority=100), *members)
    stage.settle()
    stage.put(member("hen", "chicken", group=None, node_name="a3"))
    stage.settle(600)
    assert {"chicken", "egg"} <= stage.bound().keys()
