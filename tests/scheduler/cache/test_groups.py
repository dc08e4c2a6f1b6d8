"""Groups, Workloads and priority classes: which units they change, and which pods are members."""

import pytest
from msgspec.structs import replace

from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_client.stores import Added, Deleted
from cpg_engine.testing.builders import composite, leaf_template, metadata, pod, pod_group, priority_class, workload
from cpg_engine.testing.call_counts import count_calls
from cpg_scheduler.cache.events import ClusterEvents
from cpg_scheduler.testing.cache import events_of, group_unit, pod_unit, with_fields
from cpg_scheduler.testing.stage import CRD, NATIVE, Stage

PG = group_unit("pg")


def members(stage: Stage, group: str, flavour: str = CRD) -> list[str]:
    """Return the names of the members of a PodGroup."""
    return [found.metadata.name for found in stage.cache.members(flavour, group_unit(group).key)]


# Which units a change concerns.


def test_only_the_spec_of_a_group_changes_its_unit(stage: Stage) -> None:
    """Its status is written by the operator and the scheduler; the cache has the new state all the same."""
    assert events_of(stage, with_fields(pod_group("pg", gang=2), metadata__resource_version="2")) == ClusterEvents()
    assert next(iter(stage.cache.stores[CRD])).metadata.resource_version == "2"
    assert events_of(stage, pod_group("pg", gang=1)).changed_units == {PG}


def test_a_workload_changes_the_units_that_are_made_from_it(stage: Stage) -> None:
    """When it is created, when its templates change and when it is deleted; its metadata does not matter."""
    stage.put(pod_group("leaf", parent="top"), composite("top"), composite("other", workload="v"))
    made = workload([leaf_template("leaf")])
    top = group_unit("top", kind="CompositePodGroup")
    assert events_of(stage, made).changed_units == {top}
    assert events_of(stage, with_fields(made, metadata__resource_version="2")).changed_units == set()
    assert events_of(stage, workload([leaf_template("leaf", gang=3)])).changed_units == {top}
    stage.delete(made)
    assert stage.cache.take_events().changed_units == {top}
    assert stage.cache.workloads[CRD] == {}


def test_a_priority_class_changes_the_units_that_use_it(stage: Stage) -> None:
    """By name or as the default, and not by its metadata; a group with a priority of its own uses none."""
    for name, class_name in (("named", "high"), ("default", "")):
        group = pod_group(name, priority=None)
        stage.put(replace(group, spec=replace(group.spec, priority_class_name=class_name)))
    high, usual = priority_class("high", 9), priority_class("usual", 1, default=True)
    assert events_of(stage, high).changed_units == {group_unit("named")}
    assert events_of(stage, usual).changed_units == {group_unit("default")}
    high = replace(high, value=8)
    assert events_of(stage, high).changed_units == {group_unit("named")}
    assert events_of(stage, with_fields(high, metadata__resource_version="3")).changed_units == set()
    stage.delete(usual)
    assert stage.cache.take_events().changed_units == {group_unit("default")}
    assert stage.cache.priority_classes.resolve("high", None) == 8


def test_a_priority_class_changes_the_units_whose_template_uses_it(stage: Stage) -> None:
    """A group may leave its priority to the template."""
    stage.put(workload([replace(leaf_template("t"), priority_class_name="late")]), pod_group("late", priority=None))
    stage.put(pod_group("made", workload="w", template="t", priority=None))
    assert events_of(stage, priority_class("late", 3)).changed_units == {group_unit("made")}


def test_a_chain_of_groups_is_climbed_once() -> None:
    """Users may name parents by the thousand, each below the next: twice as many groups are twice the work."""

    def calls(length: int) -> int:
        parents = [None, *(f"c{number}" for number in range(length))]
        stage = Stage(*(composite(f"c{number}", parent=parents[number]) for number in range(length)))
        return count_calls(stage.cache.take_events)

    assert calls(800) < 2.6 * calls(400)


# Which pods are members of which group.


def test_a_pending_pod_changes_its_unit(stage: Stage) -> None:
    """The tree of its group, or itself."""
    events = events_of(stage, pod("more", group="pg"), pod("other"))
    assert events.changed_units == {PG, pod_unit("other")}


def test_a_pod_that_changes_its_group_changes_both_units(stage: Stage) -> None:
    """The one it has left and the one it has joined."""
    stage.put(pod_group("other", gang=1))
    assert events_of(stage, pod("member", cpu=1, group="other")).changed_units == {PG, group_unit("other")}
    assert (members(stage, "pg"), members(stage, "other")) == ([], ["member"])


def test_a_pod_that_leaves_its_group_is_a_single_pod(stage: Stage) -> None:
    """And the other way round."""
    assert events_of(stage, pod("member", cpu=1)).changed_units == {PG, pod_unit("member")}
    assert stage.cache.single_pod(pod_unit("member").key) == stage.pod("member")
    assert events_of(stage, pod("member", cpu=1, group="pg")).changed_units == {PG, pod_unit("member")}
    assert stage.cache.single_pod(pod_unit("member").key) is None


def test_a_pod_with_inconsistent_membership_is_a_single_pod() -> None:
    """Its attempt reports what is wrong with it."""
    labels, annotations = {POD_GROUP_LABEL: "a"}, {POD_GROUP_LABEL: "b"}
    meta = ObjectMeta(name="p", namespace="default", uid="u", labels=labels, annotations=annotations)
    stage = Stage(pod("p", meta=meta))
    assert stage.cache.take_events().changed_units == {pod_unit("p")}
    assert stage.cache.group_of(stage.pod("p")) is None


def test_a_pod_survives_the_late_deletion_of_another_with_its_name() -> None:
    """Stores report the deletion first, but the cache does not depend on that."""
    stage = Stage(pod("p"))
    second = with_fields(pod("p"), metadata__uid="second")
    stage.cache.on_pod(Added("default/p", second))
    stage.cache.on_pod(Deleted("default/p", pod("p")))
    assert stage.cache.single_pod(pod_unit("p").key) == second


def test_without_group_kinds_every_pod_is_a_single_pod() -> None:
    """There is no tree that a pod could be part of."""
    stage = Stage(pod("member", group="pg"), flavours=())
    assert stage.cache.take_events().changed_units == {pod_unit("member")}
    assert stage.cache.unit_of(stage.pod("member")) == pod_unit("member")
    stage.delete(stage.pod("member"))
    assert stage.cache.single_pod(pod_unit("member").key) is None


def test_of_a_group_in_both_flavours_the_first_flavour_has_the_pods(stage: Stage) -> None:
    """When it is deleted there, the other has them; either way both units change."""
    native = pod_group("pg", gang=1, meta=metadata("pg", created="2025"))
    both = {group_unit("pg", NATIVE), PG}
    stage.cache.take_events()
    stage.put(native, flavour=NATIVE)
    assert stage.cache.take_events().changed_units == both
    assert (members(stage, "pg"), members(stage, "pg", NATIVE)) == ([], ["member"])
    stage.delete(native, flavour=NATIVE)
    assert stage.cache.take_events().changed_units == both
    assert stage.cache.unit_of(stage.pod("member")) == PG


def test_a_group_that_is_created_again_has_its_members_again(stage: Stage) -> None:
    """Pods name their group by name, not by UID."""
    stage.delete(pod_group("pg", gang=2))
    stage.cache.take_events()
    again = pod_group("pg", gang=1, meta=ObjectMeta(name="pg", namespace="default", uid="second"))
    assert events_of(stage, again).changed_units == {PG, group_unit("pg", NATIVE)}
    assert members(stage, "pg") == ["member"]


@pytest.mark.parametrize("kind", ["PodGroup", "CompositePodGroup"])
def test_a_composite_group_has_no_members_of_its_own(kind: str) -> None:
    """A PodGroup may have the same name as its parent."""
    stage = Stage(composite("pg"), pod_group("pg", parent="pg"), pod("member", group="pg"))
    found = stage.cache.members(CRD, group_unit("pg", kind=kind).key)
    assert [one.metadata.name for one in found] == (["member"] if kind == "PodGroup" else [])
