"""The cache as a whole: what takes room, what its changes are as events, and what is outside of our namespaces."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from cpg_api.core.namespace import Namespace
from cpg_api.core.node import ContainerImage, NodeStatus
from cpg_api.core.pod import Pod
from cpg_api.meta import ObjectMeta
from cpg_client.stores import Added, Deleted, Synced
from cpg_engine.testing.builders import metadata, node, pod
from cpg_scheduler.cache.events import ClusterEvents
from cpg_scheduler.testing.cache import events_of, pod_unit, used_on, with_fields
from cpg_scheduler.testing.stage import CRD, Stage

# Events.


def test_events_are_taken_once(stage: Stage) -> None:
    """The next call returns those since then."""
    assert stage.cache.take_events() != ClusterEvents()
    assert stage.cache.take_events() == ClusterEvents()


def test_the_end_of_the_first_list_is_no_event(stage: Stage) -> None:
    """Watches report it to every handler."""
    cache = stage.cache
    cache.take_events()
    handlers: list[Callable[[Any], None]] = [cache.on_pod, cache.on_node, cache.on_priority_class]
    for handler in (*handlers, cache.on_group(CRD), cache.on_workload(CRD)):
        handler(Synced())
    assert cache.take_events() == ClusterEvents()


def test_a_running_single_pod_that_ends_changes_no_unit(stage: Stage) -> None:
    """Nothing is to be placed; its node is freed."""
    events = events_of(stage, with_fields(stage.pod("running"), status__phase="Succeeded"))
    assert (events.changed_units, events.freed_nodes, events.any_change) == (set(), {"n1"}, True)


def test_a_deleted_node_is_changed_and_freed(stage: Stage) -> None:
    """A unit with pods there may be placed elsewhere."""
    stage.cache.take_events()
    stage.delete(node("n1"))
    assert stage.cache.take_events() == ClusterEvents(freed_nodes={"n1"}, changed_nodes={"n1"}, any_change=True)


def test_a_new_pod_on_a_node_frees_nothing(stage: Stage) -> None:
    """But pods with affinity to it may fit now."""
    assert events_of(stage, pod("new", cpu=1, node_name="n1")) == ClusterEvents(any_change=True)


def test_a_pod_that_is_resized_in_place_frees_its_node(stage: Stage) -> None:
    """If it becomes smaller."""
    assert events_of(stage, pod("running", cpu="500m", node_name="n1")).freed_nodes == {"n1"}
    assert used_on(stage) == {"cpu": 500, "pods": 1}


def test_a_changed_namespace_is_an_event(stage: Stage) -> None:
    """Pods may select other pods by the labels of their namespace."""
    namespace = Namespace(metadata=ObjectMeta(name="team", labels={"tier": "gold"}))
    stage.cache.take_events()
    stage.cache.on_namespace(Added("team", namespace))
    assert stage.cache.take_events().any_change
    stage.cache.on_namespace(Deleted("team", namespace))
    assert stage.cache.take_events().any_change
    stage.cache.on_namespace(Synced())


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pod("p"), True),
        (pod("p", node_name="n1"), False),
        (with_fields(pod("p"), spec__scheduler_name="other"), False),
        (with_fields(pod("p"), status__phase="Failed"), False),
        (with_fields(pod("p"), metadata__deletion_timestamp="2026"), False),
    ],
    ids=["pending", "bound", "foreign", "ended", "deleted"],
)
def test_a_pod_is_pending_until_it_is_bound_or_ends(found: Pod, *, expected: bool) -> None:
    """If it names this scheduler."""
    assert Stage().cache.is_pending(found) == expected


# Room.


def test_pods_take_room_whether_they_or_their_node_come_first() -> None:
    """Also when a node is created again under the same name."""
    stage = Stage(pod("early", cpu=1, node_name="n1"))
    stage.put(node("n1"))
    assert used_on(stage) == {"cpu": 1000, "pods": 1}
    stage.delete(node("n1"))
    stage.put(pod("late", cpu=1, node_name="n1"), node("n1"))
    assert used_on(stage) == {"cpu": 2000, "pods": 2}


def test_a_terminating_pod_takes_room_until_it_has_ended(stage: Stage) -> None:
    """Its node still runs it."""
    stage.put(with_fields(stage.pod("running"), metadata__deletion_timestamp="2026"))
    assert used_on(stage) == {"cpu": 1000, "pods": 1}
    stage.put(with_fields(stage.pod("running"), status__phase="Failed"))
    assert used_on(stage) == {}


def test_pods_of_other_schedulers_take_room(stage: Stage) -> None:
    """As ours do."""
    stage.put(with_fields(pod("foreign", cpu=2, node_name="n1"), spec__scheduler_name="default-scheduler"))
    assert used_on(stage) == {"cpu": 3000, "pods": 2}


def test_a_bound_pod_with_invalid_requests_takes_no_room(stage: Stage) -> None:
    """It cannot be counted, and the room that it took before is free."""
    assert events_of(stage, pod("running", cpu="much", node_name="n1")).freed_nodes == {"n1"}
    assert used_on(stage) == {}
    stage.delete(stage.pod("running"))
    assert used_on(stage) == {}


def test_the_images_of_a_node_are_known(stage: Stage) -> None:
    """They are scored, though they can make no pod fit."""
    images = (ContainerImage(names=("i",), size_bytes=7),)
    stage.put(replace(node("n1"), status=NodeStatus(allocatable=node("n1").status.allocatable, images=images)))
    ledger = stage.cache.snapshot.ledger
    assert ledger.cluster.image_sizes("i")[ledger.cluster.row_of["n1"]] == 7


# Namespaces in which we may not act.


def elsewhere(name: str, **fields: Any) -> Pod:
    """Return a pod of a namespace in which we may not act."""
    return pod(name, meta=replace(metadata(name), namespace="elsewhere"), **fields)


def test_pods_of_other_namespaces_take_room_and_are_neither_placed_nor_evicted() -> None:
    """Nor do they change a unit."""
    stage = Stage(node("n1", cpu=4), namespaces=["default"])
    stage.put(elsewhere("running", node_name="n1", cpu=2), pod("ours", node_name="n1", cpu=1))
    assert used_on(stage)["cpu"] == 3000
    assert [unit.key.name for unit in stage.cache.victims.units(10)] == ["ours"]
    assert stage.cache.victims.uids_on(["n1"], 10) == [pod("ours").metadata.uid]
    pending, pending_elsewhere = pod("pending", cpu=1), elsewhere("pending", cpu=1)
    assert [stage.cache.is_pending(one) for one in (pending, pending_elsewhere)] == [True, False]
    assert events_of(stage, pending_elsewhere).changed_units == set()
    assert events_of(stage, pending).changed_units == {pod_unit("pending")}


def test_room_of_pods_of_other_namespaces_is_not_given_away() -> None:
    """A pod of ours waits for it, also if it is more important."""
    stage = Stage(node("n1", cpu=2), elsewhere("running", node_name="n1", cpu=2), namespaces=["default"])
    stage.put(pod("urgent", cpu=1, priority=1000))
    stage.settle()
    assert (stage.binder.batches, stage.evicted) == ([], [])
    stage.delete(elsewhere("running"))
    stage.settle(300)
    assert stage.bound() == {"urgent": "n1"}
