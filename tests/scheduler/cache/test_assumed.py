"""Assumed pods: they count as bound until the watch confirms their node, they end, or their bind has failed."""

from typing import Any

import pytest

from cpg_api.core.pod import PodCondition
from cpg_api.meta import ObjectMeta
from cpg_engine.testing.builders import node, pod
from cpg_scheduler.cache.assumed import BindsInFlight
from cpg_scheduler.cache.events import ClusterEvents
from cpg_scheduler.testing.cache import events_of, group_unit, used_on, with_fields
from cpg_scheduler.testing.stage import NATIVE, Stage


def assume(stage: Stage, name: str = "single") -> str:
    """Assume a pod to be bound to n1; return its UID."""
    uid = stage.pod(name).metadata.uid
    stage.cache.assume(uid, "n1")
    return uid


def test_an_assumed_pod_takes_room_and_its_confirmation_is_no_event(stage: Stage) -> None:
    """It changes no unit: it is our own decision."""
    stage.cache.take_events()
    uid = assume(stage)
    assert stage.cache.take_events() == ClusterEvents(any_change=True)
    assert used_on(stage) == {"cpu": 2000, "pods": 2}
    assert not stage.cache.is_pending(stage.cache.pods[uid])
    assert events_of(stage, with_fields(stage.pod("single"), spec__node_name="n1")) == ClusterEvents()
    assert list(stage.cache.assumed) == []


def test_a_forgotten_pod_gives_its_room_back_and_changes_no_unit(stage: Stage) -> None:
    """The queue decides when to retry; to forget it twice does no harm."""
    uid = assume(stage)
    stage.cache.take_events()
    for _ in range(2):
        stage.cache.forget(uid)
    assert stage.cache.take_events() == ClusterEvents(freed_nodes={"n1"}, any_change=True, removed_pods={uid})
    assert stage.cache.is_pending(stage.cache.pods[uid])


def test_a_change_without_a_node_does_not_end_an_assumption(stage: Stage) -> None:
    """A status or a list from before the bind may arrive after it."""
    uid = assume(stage)
    condition = PodCondition(type="PodScheduled", status="False")
    assert events_of(stage, with_fields(stage.pod("single"), status__conditions=(condition,))) == ClusterEvents()
    assert stage.cache.pods[uid].spec.node_name == "n1"
    stage.cache.forget(uid)
    assert stage.cache.pods[uid].status.conditions == (condition,)


@pytest.mark.parametrize(
    "change", [{"metadata__deletion_timestamp": "2026"}, {"status__phase": "Failed"}], ids=["deletion", "end"]
)
def test_an_assumed_pod_that_ends_gives_its_room_back(stage: Stage, change: dict[str, Any]) -> None:
    """The failure of its bind is no event afterwards."""
    uid = assume(stage)
    stage.cache.take_events()
    assert events_of(stage, with_fields(stage.pod("single"), **change)).freed_nodes == {"n1"}
    stage.cache.forget(uid)
    assert stage.cache.take_events() == ClusterEvents()


def test_an_assumed_pod_that_is_deleted_is_forgotten(stage: Stage) -> None:
    """Another pod of its name starts as pending."""
    uid = assume(stage)
    stage.delete(stage.pod("single"))
    assert used_on(stage) == {"cpu": 1000, "pods": 1}
    stage.cache.forget(uid)
    stage.put(pod("single", cpu=1, meta=ObjectMeta(name="single", namespace="default", uid="second")))
    assert stage.cache.is_pending(stage.cache.pods["second"])


def test_the_node_that_the_watch_shows_wins(stage: Stage) -> None:
    """Another scheduler has bound the pod."""
    stage.put(node("n2"))
    uid = assume(stage)
    assert events_of(stage, with_fields(stage.pod("single"), spec__node_name="n2")).freed_nodes == {"n1"}
    assert used_on(stage, "n2") == {"cpu": 1000, "pods": 1}
    stage.cache.forget(uid)
    assert used_on(stage, "n2") == {"cpu": 1000, "pods": 1}


def test_an_assumed_member_that_changes_its_group_keeps_its_node(stage: Stage) -> None:
    """It is a member of the new group."""
    uid = assume(stage, "member")
    stage.put(pod("member", cpu=1, group="other"))
    assert [*stage.cache.members(NATIVE, group_unit("other").key)] == [stage.cache.pods[uid]]
    assert stage.cache.pods[uid].spec.node_name == "n1"


def test_a_bind_is_in_flight_until_its_own_batch_ends() -> None:
    """A pod may be part of a later batch when an earlier one ends."""
    binds = BindsInFlight()
    binds.begin(1, ["a", "b"])
    binds.begin(2, ["b"])
    binds.end(1, ["a", "b"])
    assert ("a" in binds, "b" in binds) == (False, True)
    binds.end(2, ["b"])
    assert "b" not in binds
