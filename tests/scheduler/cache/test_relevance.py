"""Which changes of pods and nodes matter to scheduling."""

from typing import Any

import pytest

from cpg_api.core.affinity import Affinity, PodAffinity, PodAffinityTerm
from cpg_api.core.node import ContainerImage
from cpg_api.core.pod import PodCondition
from cpg_api.meta import LabelSelector
from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_engine.testing.builders import metadata, node, pod
from cpg_scheduler.cache.events import ClusterEvents
from cpg_scheduler.testing.cache import events_of, group_unit, pod_unit, with_fields
from cpg_scheduler.testing.stage import Stage

UNSCHEDULABLE = PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message="no room")


@pytest.mark.parametrize(
    "change",
    [
        {"status__conditions": (UNSCHEDULABLE,)},
        {"status__nominated_node_name": "n1"},
        {"metadata__resource_version": "99"},
        {"metadata__annotations": {"note": "any"}},
    ],
    ids=["condition", "nomination", "version", "annotation"],
)
def test_what_the_scheduler_writes_changes_no_unit(stage: Stage, change: dict[str, Any]) -> None:
    """Otherwise its own report would activate a unit that has failed."""
    changed = (with_fields(stage.pod(name), **change) for name in ("member", "single"))
    assert events_of(stage, *changed) == ClusterEvents()


@pytest.mark.parametrize(
    "change",
    [
        {"spec__node_selector": {"a": "b"}},
        {"metadata__labels": {POD_GROUP_LABEL: "other"}},
        {"metadata__deletion_timestamp": "2026-01-01T00:00:00Z"},
        {"status__phase": "Failed"},
        {"metadata__annotations": {POD_GROUP_LABEL: "other"}},
    ],
    ids=["spec", "label", "deletion", "end", "membership"],
)
def test_what_scheduling_reads_of_a_pod_changes_its_unit(stage: Stage, change: dict[str, Any]) -> None:
    """Another attempt may succeed."""
    assert group_unit("pg") in events_of(stage, with_fields(stage.pod("member"), **change)).changed_units


def test_a_pod_whose_condition_is_erased_changes_its_unit(stage: Stage) -> None:
    """The next attempt writes it again."""
    pending = stage.pod("single")
    assert events_of(stage, with_fields(pending, status__conditions=(UNSCHEDULABLE,))) == ClusterEvents()
    assert events_of(stage, pending).changed_units == {pod_unit("single")}


@pytest.mark.parametrize("node_name", ["", "n1"], ids=["pending", "running"])
def test_a_label_matters_once_a_selector_asks_for_it(stage: Stage, node_name: str) -> None:
    """Otherwise each change of any label would cost an attempt."""
    member = pod("member", cpu=1, node_name=node_name, meta=metadata("member", **{POD_GROUP_LABEL: "pg"}))
    labels = {POD_GROUP_LABEL: "pg", "app": "web"}
    stage.put(member)
    assert events_of(stage, with_fields(member, metadata__labels=labels), member) == ClusterEvents()
    web = PodAffinityTerm(topology_key="rack", label_selector=LabelSelector(match_labels={"app": "web"}))
    avoids_web = PodAffinity(required_during_scheduling_ignored_during_execution=(web,))
    stage.put(pod("avoids-web", affinity=Affinity(pod_anti_affinity=avoids_web), node_name="n1"))
    events = events_of(stage, with_fields(member, metadata__labels=labels))
    assert (events.changed_units, events.any_change) == ({group_unit("pg")}, bool(node_name))


@pytest.mark.parametrize(
    ("change", "frees"),
    [
        ({"spec__unschedulable": True}, True),
        ({"metadata__labels": {"rack": "a"}}, True),
        ({"status__allocatable": {"cpu": 8, "pods": 9}}, True),
        ({"status__images": (ContainerImage(names=("i",), size_bytes=1),)}, False),
        ({"metadata__annotations": {"heartbeat": "1"}}, False),
    ],
    ids=["spec", "labels", "allocatable", "images", "heartbeat"],
)
def test_a_node_is_freed_by_changes_that_can_make_a_pod_fit(
    stage: Stage, change: dict[str, Any], *, frees: bool
) -> None:
    """Images only change its score."""
    assert events_of(stage, with_fields(node("n1"), **change)).freed_nodes == ({"n1"} if frees else set())
