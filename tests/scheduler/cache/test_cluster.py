"""What the scheduler knows, and whom news concern."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.affinity import Affinity, PodAffinity, PodAffinityTerm
from cpg_api.core.namespace import Namespace
from cpg_api.core.node import ContainerImage, NodeStatus
from cpg_api.core.pod import Pod, PodCondition
from cpg_api.meta import LabelSelector, ObjectMeta
from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_client.stores import Added, Deleted, Synced
from cpg_engine.testing.builders import (
    composite,
    leaf_template,
    metadata,
    node,
    pod,
    pod_group,
    priority_class,
    workload,
)
from cpg_engine.testing.call_counts import count_calls
from cpg_scheduler.cache.cluster import SINGLE_POD
from cpg_scheduler.cache.events import ClusterEvents
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.testing.stage import CRD, NATIVE, Stage

T = TypeVar("T", bound=Struct)


def root(name: str, flavour: str = CRD, kind: str = "PodGroup") -> UnitKey:
    """Return the key of a root."""
    return UnitKey(flavour, GroupKey(kind, "default", name))


def alone(name: str) -> UnitKey:
    """Return the root of a single pod."""
    return root(name, SINGLE_POD, "Pod")


def news(stage: Stage, *things: Any) -> ClusterEvents:
    """Return the news that some objects make, after all that was before."""
    stage.cache.take_events()
    stage.put(*things)
    return stage.cache.take_events()


def used(stage: Stage, name: str = "n1") -> dict[str, int]:
    """Return what is taken of a node."""
    ledger = stage.cache.snapshot.ledger
    row = ledger.cluster.row_of[name]
    taken = dict(zip(ledger.classes.axis.names, ledger.used[row].tolist(), strict=True))
    return {name: number for name, number in taken.items() if number}


def changed(thing: T, **fields: Any) -> T:
    """Return an object with other fields in its parts, as ``part__field=value``."""
    for path, value in fields.items():
        part, name = path.split("__")
        thing = replace(thing, **{part: replace(getattr(thing, part), **{name: value})})
    return thing


@pytest.fixture
def stage() -> Stage:
    """Return a node with a pod on it, a group with a member that waits, and a pod that waits alone."""
    running, member = pod("running", cpu=1, node_name="n1"), pod("member", cpu=1, group="pg")
    return Stage(node("n1"), running, pod_group("pg", gang=2), member, pod("alone", cpu=1))


# Which changes concern whom.


def test_a_pod_that_waits_touches_its_root(stage: Stage) -> None:
    """Its group's tree, or itself."""
    assert news(stage, pod("more", group="pg"), pod("lone")).changed_units == {root("pg"), alone("lone")}


@pytest.mark.parametrize(
    "change",
    [
        {"status__conditions": (PodCondition(type="PodScheduled", status="False"),)},
        {"status__nominated_node_name": "n1"},
        {"metadata__resource_version": "99"},
        {"metadata__annotations": {"note": "to self"}},
    ],
    ids=["condition", "nomination", "version", "annotation"],
)
def test_what_the_scheduler_writes_touches_nobody(stage: Stage, change: dict[str, Any]) -> None:
    """Or a root that failed would be active again by its own report."""
    told = news(stage, *(changed(stage.pod(name), **change) for name in ("member", "alone")))
    assert told == ClusterEvents()


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
def test_what_scheduling_reads_touches_the_root(stage: Stage, change: dict[str, Any]) -> None:
    """It may be worth another attempt."""
    assert root("pg") in news(stage, changed(stage.pod("member"), **change)).changed_units


@pytest.mark.parametrize("place", ["", "n1"], ids=["waits", "runs"])
def test_a_label_matters_once_a_selector_asks_for_it(stage: Stage, place: str) -> None:
    """Else whoever relabels his pods has his tree attempted for nothing."""
    member = pod("member", cpu=1, node_name=place, meta=metadata("member", **{POD_GROUP_LABEL: "pg"}))
    labels = {POD_GROUP_LABEL: "pg", "app": "web"}
    stage.put(member)
    assert news(stage, changed(member, metadata__labels=labels), member) == ClusterEvents()
    web = PodAffinityTerm(topology_key="rack", label_selector=LabelSelector(match_labels={"app": "web"}))
    apart = Affinity(pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(web,)))
    stage.put(pod("asks", affinity=apart, node_name="n1"))
    told = news(stage, changed(member, metadata__labels=labels))
    assert (told.changed_units, told.any_change) == ({root("pg")}, bool(place))


def test_a_pod_that_runs_alone_touches_nobody(stage: Stage) -> None:
    """Whatever becomes of it, there is nothing to place."""
    told = news(stage, changed(stage.pod("running"), status__phase="Succeeded"))
    assert (told.changed_units, told.freed_nodes, told.any_change) == (set(), {"n1"}, True)


@pytest.mark.parametrize(
    ("change", "eased"),
    [
        ({"spec__unschedulable": True}, True),
        ({"metadata__labels": {"rack": "a"}}, True),
        ({"status__allocatable": {"cpu": 8, "pods": 9}}, True),
        ({"status__images": (ContainerImage(names=("i",), size_bytes=1),)}, False),
        ({"metadata__annotations": {"heartbeat": "1"}}, False),
    ],
    ids=["spec", "labels", "allocatable", "images", "heartbeat"],
)
def test_news_of_a_node_are_told_where_they_can_let_anybody_in(
    stage: Stage, change: dict[str, Any], *, eased: bool
) -> None:
    """Images only make a node better liked."""
    assert news(stage, changed(node("n1"), **change)).freed_nodes == ({"n1"} if eased else set())


def test_images_are_known_although_they_let_nobody_in(stage: Stage) -> None:
    """They are scored."""
    images = (ContainerImage(names=("i",), size_bytes=7),)
    stage.put(replace(node("n1"), status=NodeStatus(allocatable=node("n1").status.allocatable, images=images)))
    ledger = stage.cache.snapshot.ledger
    assert ledger.cluster.image_sizes("i")[ledger.cluster.row_of["n1"]] == 7


def test_a_node_that_goes_is_news(stage: Stage) -> None:
    """Who had members there may go elsewhere; a node that nobody knows is none."""
    stage.cache.take_events()
    stage.delete(node("n1"))
    assert stage.cache.take_events() == ClusterEvents(freed_nodes={"n1"}, changed_nodes={"n1"}, any_change=True)


def test_a_pod_that_comes_to_a_node_eases_nothing(stage: Stage) -> None:
    """But others may want to be near it."""
    assert news(stage, pod("new", cpu=1, node_name="n1")) == ClusterEvents(any_change=True)


def test_a_pod_on_a_node_that_becomes_smaller_makes_room(stage: Stage) -> None:
    """It was resized in place."""
    assert news(stage, pod("running", cpu="500m", node_name="n1")).freed_nodes == {"n1"}
    assert used(stage) == {"cpu": 500, "pods": 1}


def test_only_the_spec_of_a_group_touches_its_tree(stage: Stage) -> None:
    """Its status is what we and the operator write; the object is known by its new state all the same."""
    group = changed(pod_group("pg", gang=2), metadata__resource_version="2")
    assert news(stage, group) == ClusterEvents()
    assert next(iter(stage.cache.stores[CRD])).metadata.resource_version == "2"
    assert news(stage, pod_group("pg", gang=1)).changed_units == {root("pg")}


def test_a_workload_touches_the_trees_that_are_made_from_it(stage: Stage) -> None:
    """When it comes, when its templates change, and when it goes; no others, and not by its metadata."""
    stage.put(pod_group("leaf", parent="top"), composite("top"), composite("other", workload="v"))
    made = workload([leaf_template("leaf")])
    top = root("top", kind="CompositePodGroup")
    assert news(stage, made).changed_units == {top}
    assert news(stage, changed(made, metadata__resource_version="2")).changed_units == set()
    assert news(stage, workload([leaf_template("leaf", gang=3)])).changed_units == {top}
    stage.delete(made)
    assert stage.cache.take_events().changed_units == {top}
    assert stage.cache.workloads[CRD] == {}


def test_a_priority_class_touches_the_trees_that_ask_for_it(stage: Stage) -> None:
    """By name, their template's too, or as the default; a number of one's own stands."""
    for name, wanted in (("named", "high"), ("default", "")):
        group = pod_group(name, priority=None)
        stage.put(replace(group, spec=replace(group.spec, priority_class_name=wanted)))
    high, usual = priority_class("high", 9), priority_class("usual", 1, default=True)
    assert news(stage, high).changed_units == {root("named")}
    assert news(stage, usual).changed_units == {root("default")}
    assert news(stage, replace(high, value=8)).changed_units == {root("named")}
    assert news(stage, changed(high, metadata__resource_version="2"), replace(high, value=8)).changed_units == {
        root("named")
    }
    assert news(stage, changed(replace(high, value=8), metadata__resource_version="3")).changed_units == set()
    stage.delete(usual)
    assert stage.cache.take_events().changed_units == {root("default")}
    stage.put(workload([replace(leaf_template("t"), priority_class_name="late")]), pod_group("late", priority=None))
    stage.put(pod_group("made", workload="w", template="t", priority=None))
    assert news(stage, priority_class("late", 3)).changed_units == {root("made")}
    assert stage.cache.priority_classes.resolve("high", None) == 8


def test_what_is_no_change_of_an_object_is_unchanged(stage: Stage) -> None:
    """The watch also says when it has told everything."""
    state = stage.cache
    state.take_events()
    takers: list[Callable[[Any], None]] = [state.on_pod, state.on_node, state.on_priority_class]
    for taker in (*takers, state.on_group(CRD), state.on_workload(CRD)):
        taker(Synced())
    assert state.take_events() == ClusterEvents()


# Who is a member of what.


def test_a_pod_that_changes_its_group_touches_both(stage: Stage) -> None:
    """The one it left and the one it joined."""
    stage.put(pod_group("other", gang=1))
    assert news(stage, pod("member", cpu=1, group="other")).changed_units == {root("pg"), root("other")}
    assert [*stage.cache.members(CRD, root("pg").key)] == []
    assert [found.metadata.name for found in stage.cache.members(CRD, root("other").key)] == ["member"]


def test_a_pod_that_leaves_its_group_is_alone(stage: Stage) -> None:
    """And the other way round."""
    assert news(stage, pod("member", cpu=1)).changed_units == {root("pg"), alone("member")}
    assert stage.cache.single_pod(alone("member").key) == stage.pod("member")
    assert news(stage, pod("member", cpu=1, group="pg")).changed_units == {root("pg"), alone("member")}
    assert stage.cache.single_pod(alone("member").key) is None


def test_a_pod_that_says_two_groups_is_alone() -> None:
    """Whoever looks at it finds out what is wrong with it."""
    meta = ObjectMeta(
        name="torn", namespace="default", uid="u", labels={POD_GROUP_LABEL: "a"}, annotations={POD_GROUP_LABEL: "b"}
    )
    stage = Stage(pod("torn", meta=meta))
    assert stage.cache.take_events().changed_units == {alone("torn")}
    assert stage.cache.group_of(stage.pod("torn")) is None


def test_a_namesake_that_comes_early_stays_when_the_other_goes() -> None:
    """A store tells of the end of the one first, but nothing would be lost if it did not."""
    stage = Stage(pod("p"))
    second = changed(pod("p"), metadata__uid="second")
    stage.cache.on_pod(Added("default/p", second))
    stage.cache.on_pod(Deleted("default/p", pod("p")))
    assert stage.cache.single_pod(alone("p").key) == second


def test_where_no_groups_are_served_all_pods_are_alone() -> None:
    """There is no tree that they could be part of."""
    stage = Stage(pod("member", group="pg"), flavours=())
    assert stage.cache.take_events().changed_units == {alone("member")}
    assert stage.cache.unit_of(stage.pod("member")) == alone("member")
    stage.delete(stage.pod("member"))
    assert stage.cache.single_pod(alone("member").key) is None


def test_a_group_of_both_flavours_has_its_pods_in_the_first(stage: Stage) -> None:
    """When that one goes, they are members of the other; either way both are touched."""
    native = pod_group("pg", gang=1, meta=metadata("pg", created="2025"))
    stage.cache.take_events()
    stage.put(native, flavour=NATIVE)
    assert stage.cache.take_events().changed_units == {root("pg", NATIVE), root("pg")}
    assert [*stage.cache.members(CRD, root("pg").key)] == []
    assert len([*stage.cache.members(NATIVE, root("pg").key)]) == 1
    stage.delete(native, flavour=NATIVE)
    assert stage.cache.take_events().changed_units == {root("pg", NATIVE), root("pg")}
    assert stage.cache.unit_of(stage.pod("member")) == root("pg")


def test_a_group_made_anew_has_its_members_again(stage: Stage) -> None:
    """They are told apart by name alone."""
    stage.delete(pod_group("pg", gang=2))
    stage.cache.take_events()
    again = pod_group("pg", gang=1, meta=ObjectMeta(name="pg", namespace="default", uid="second"))
    assert news(stage, again).changed_units == {root("pg"), root("pg", NATIVE)}
    assert len([*stage.cache.members(CRD, root("pg").key)]) == 1


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pod("p"), True),
        (pod("p", node_name="n1"), False),
        (changed(pod("p"), spec__scheduler_name="other"), False),
        (changed(pod("p"), status__phase="Failed"), False),
        (changed(pod("p"), metadata__deletion_timestamp="2026"), False),
    ],
    ids=["waits", "bound", "foreign", "ended", "deleted"],
)
def test_a_pod_is_ours_while_it_waits_for_us(found: Pod, *, expected: bool) -> None:
    """Until it has a node, comes to its end, or is to be deleted."""
    assert Stage().cache.is_pending(found) == expected


# What takes room.


def test_pods_count_before_and_after_their_node_is_known() -> None:
    """Also when it comes back under the same name."""
    stage = Stage(pod("early", cpu=1, node_name="n1"))
    stage.put(node("n1"))
    assert used(stage) == {"cpu": 1000, "pods": 1}
    stage.delete(node("n1"))
    stage.put(pod("late", cpu=1, node_name="n1"), node("n1"))
    assert used(stage) == {"cpu": 2000, "pods": 2}


def test_a_pod_counts_until_its_end_and_not_only_until_its_deletion(stage: Stage) -> None:
    """While it is terminating, its node still runs it."""
    stage.put(changed(stage.pod("running"), metadata__deletion_timestamp="2026"))
    assert used(stage) == {"cpu": 1000, "pods": 1}
    stage.put(changed(stage.pod("running"), status__phase="Failed"))
    assert used(stage) == {}


def test_pods_of_others_count_as_ours_do(stage: Stage) -> None:
    """Room that somebody else has taken is gone."""
    stage.put(changed(pod("foreign", cpu=2, node_name="n1"), spec__scheduler_name="default-scheduler"))
    assert used(stage) == {"cpu": 3000, "pods": 2}


def test_a_bound_pod_that_asks_for_nonsense_stops_nothing(stage: Stage) -> None:
    """It cannot be counted, and what it was counted with before is free again."""
    assert news(stage, pod("running", cpu="much", node_name="n1")).freed_nodes == {"n1"}
    assert used(stage) == {}
    stage.delete(stage.pod("running"))
    assert used(stage) == {}


# What is assumed.


def assume(stage: Stage, name: str = "alone") -> str:
    """Assume a pod to be bound; return its UID."""
    uid = stage.pod(name).metadata.uid
    stage.cache.assume(uid, "n1")
    return uid


def test_an_assumed_bind_counts_at_once_and_is_confirmed_in_silence(stage: Stage) -> None:
    """It touches nobody: it is our own decision."""
    stage.cache.take_events()
    uid = assume(stage)
    assert stage.cache.take_events() == ClusterEvents(any_change=True)
    assert used(stage) == {"cpu": 2000, "pods": 2}
    assert not stage.cache.is_pending(stage.cache.pods[uid])
    assert news(stage, changed(stage.pod("alone"), spec__node_name="n1")) == ClusterEvents()
    assert list(stage.cache.assumed) == []


def test_a_bind_that_fails_gives_the_room_back_and_touches_nobody(stage: Stage) -> None:
    """The queue knows when to try again; twice is no mistake."""
    uid = assume(stage)
    stage.cache.take_events()
    for _ in range(2):
        stage.cache.forget(uid)
    assert stage.cache.take_events() == ClusterEvents(freed_nodes={"n1"}, any_change=True, removed_pods={uid})
    assert stage.cache.is_pending(stage.cache.pods[uid])


def test_news_of_a_pod_that_is_still_unbound_do_not_end_the_assumption(stage: Stage) -> None:
    """A status that was written before the bind may be seen after it was sent; so may a list."""
    uid = assume(stage)
    condition = PodCondition(type="PodScheduled", status="False")
    assert news(stage, changed(stage.pod("alone"), status__conditions=(condition,))) == ClusterEvents()
    assert stage.cache.pods[uid].spec.node_name == "n1"
    stage.cache.forget(uid)
    assert stage.cache.pods[uid].status.conditions == (condition,)


@pytest.mark.parametrize(
    "change", [{"metadata__deletion_timestamp": "2026"}, {"status__phase": "Failed"}], ids=["deletion", "end"]
)
def test_an_assumed_pod_that_ends_gives_the_room_back(stage: Stage, change: dict[str, Any]) -> None:
    """A bind that fails afterwards is no news."""
    uid = assume(stage)
    stage.cache.take_events()
    told = news(stage, changed(stage.pod("alone"), **change))
    assert told.freed_nodes == {"n1"}
    stage.cache.forget(uid)
    assert stage.cache.take_events() == ClusterEvents()


def test_an_assumed_pod_that_is_deleted_is_forgotten(stage: Stage) -> None:
    """Its namesake begins anew."""
    uid = assume(stage)
    stage.delete(stage.pod("alone"))
    assert used(stage) == {"cpu": 1000, "pods": 1}
    stage.cache.forget(uid)
    stage.put(pod("alone", cpu=1, meta=ObjectMeta(name="alone", namespace="default", uid="second")))
    assert stage.cache.is_pending(stage.cache.pods["second"])


def test_the_watch_knows_better_where_a_pod_is(stage: Stage) -> None:
    """Somebody else was faster."""
    stage.put(node("n2"))
    uid = assume(stage)
    assert news(stage, changed(stage.pod("alone"), spec__node_name="n2")).freed_nodes == {"n1"}
    assert used(stage, "n2") == {"cpu": 1000, "pods": 1}
    stage.cache.forget(uid)
    assert used(stage, "n2") == {"cpu": 1000, "pods": 1}


def test_an_assumed_member_that_changes_its_group_is_settled_in_the_other(stage: Stage) -> None:
    """It keeps its node."""
    uid = assume(stage, "member")
    stage.put(pod("member", cpu=1, group="other"))
    assert [*stage.cache.members(NATIVE, root("other").key)] == [stage.cache.pods[uid]]
    assert stage.cache.pods[uid].spec.node_name == "n1"


def test_news_are_taken_once(stage: Stage) -> None:
    """Who asks again hears nothing."""
    assert stage.cache.take_events() != ClusterEvents()
    assert stage.cache.take_events() == ClusterEvents()
    assert issubclass(ClusterEvents, Struct)


def test_the_labels_of_a_namespace_are_known_and_forgotten(stage: Stage) -> None:
    """Pods may want to be near those of namespaces with some label; whoever hopes for that is roused."""
    namespace = Namespace(metadata=ObjectMeta(name="team", labels={"tier": "gold"}))
    stage.cache.take_events()
    stage.cache.on_namespace(Added("team", namespace))
    assert stage.cache.take_events().any_change
    stage.cache.on_namespace(Deleted("team", namespace))
    assert stage.cache.take_events().any_change
    stage.cache.on_namespace(Synced())


def elsewhere(name: str, **fields: Any) -> Pod:
    """Return a pod of a namespace where nothing is ours to write."""
    return pod(name, meta=replace(metadata(name), namespace="elsewhere"), **fields)


def test_where_nothing_is_ours_pods_take_room_and_are_nothing_else() -> None:
    """They are not placed, not evicted and wake nobody up; those of the namespace that is ours are as ever."""
    stage = Stage(node("n1", cpu=4), namespaces=["default"])
    stage.put(elsewhere("runs", node_name="n1", cpu=2), pod("ours", node_name="n1", cpu=1))
    assert used(stage)["cpu"] == 3000
    assert [unit.key.name for unit in stage.cache.victims.units(10)] == ["ours"]
    assert stage.cache.victims.uids_on(["n1"], 10) == [pod("ours").metadata.uid]
    waits, waits_elsewhere = pod("waits", cpu=1), elsewhere("waits", cpu=1)
    assert [stage.cache.is_pending(one) for one in (waits, waits_elsewhere)] == [True, False]
    assert news(stage, waits_elsewhere).changed_units == set()
    assert news(stage, waits).changed_units == {alone("waits")}


def test_room_that_is_taken_elsewhere_is_not_given_away() -> None:
    """A pod of ours waits while there is none, also if it matters more than whoever has it."""
    stage = Stage(node("n1", cpu=2), elsewhere("runs", node_name="n1", cpu=2), namespaces=["default"])
    stage.put(pod("urgent", cpu=1, priority=1000))
    stage.settle()
    assert (stage.binder.batches, stage.evicted) == ([], [])
    stage.delete(elsewhere("runs"))
    stage.settle(300)
    assert stage.bound() == {"urgent": "n1"}


def test_a_chain_of_groups_is_looked_at_once() -> None:
    """Anybody may name parents by the thousand, each below the next: twice as many are twice the work."""

    def chain(length: int) -> int:
        parents = [None, *(f"c{number}" for number in range(length))]
        stage = Stage(*(composite(f"c{number}", parent=parents[number]) for number in range(length)))
        return count_calls(stage.cache.take_events)

    assert chain(800) < 2.6 * chain(400)


def test_a_pod_whose_condition_is_erased_is_told_again(stage: Stage) -> None:
    """Nobody waits in silence; that something is said is no news."""
    said = PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message="no room")
    waiting = stage.pod("alone")
    told = replace(waiting, status=replace(waiting.status, conditions=(said,)))
    assert news(stage, told) == ClusterEvents()
    assert news(stage, waiting).changed_units == {alone("alone")}
