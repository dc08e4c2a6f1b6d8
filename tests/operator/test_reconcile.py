"""Looks at trees: what is due is looked at, and a mistake about one tree does not stop the others."""

import asyncio
from collections.abc import Iterable
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cpg_api.meta import Condition
from cpg_api.scheduling.forest import GroupKey, key_of
from cpg_api.scheduling.partial_release import PARTIAL, RELEASE_ANNOTATION
from cpg_api.scheduling.podgroup import PodGroupStatus
from cpg_client.flavours import CRD
from cpg_client.timing import Timing, cancel_and_wait
from cpg_engine.testing.builders import composite, metadata, pod_group
from cpg_operator.context import ReconcileContext, Step
from cpg_operator.metrics import Facts, Metrics
from cpg_operator.reconcile import Reconciler, stamp
from cpg_operator.testing.fixtures import ViewFixture, members, small_tree
from cpg_operator.work_queue import WorkQueue
from cpg_operator.writes import NOTHING, StepResult, TreeKey, Verb, Write
from cpg_operator.writing.retries import RetryState
from cpg_operator.writing.writer import Writer

ROOT = TreeKey(CRD, GroupKey("CompositePodGroup", "default", "root"))


class Taken:
    """A door that notes what it is asked for."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.wanted: list[str] = []
        self.writes: list[tuple[str, str]] = []
        self.troubles = RetryState[TreeKey]()

    def want(self, tree: TreeKey, writes: Iterable[Write]) -> None:
        """Take what a look wants."""
        self.wanted.append(tree.anchor.name)
        self.writes += [(tree.anchor.name, write.part) for write in writes]


class Rig:
    """A reconciler over a ground, in a time that is set by hand."""

    def __init__(self, *steps: Step, ground: ViewFixture | None = None) -> None:
        """Set it up with these steps."""
        self.now = 100.0
        self.ground = ground or ViewFixture()
        self.door = Taken()
        self.metrics = Metrics()
        self.dirty: WorkQueue[TreeKey] = WorkQueue(lambda: self.now, quiet=0.0, longest=0.0)
        self.reconciler = Reconciler(
            self.ground.view,
            self.dirty,
            cast("Writer", self.door),
            steps=steps,
            metrics=self.metrics,
            partial_after=600.0,
            timing=Timing(clock=lambda: self.now, wall=lambda: 60.0),
        )

    def page(self) -> str:
        """Return the page of metrics."""
        states = ((key.flavour, state) for key, state in self.reconciler.states.items())
        partial, overdue = self.reconciler.partial(), self.reconciler.overdue()
        facts = Facts(states=states, queued=1, unwritten=2, age=3.0, partial=partial, overdue=overdue)
        return self.metrics.page(facts).decode()


def wanting(scene: ReconcileContext) -> StepResult:
    """Want a write and another look."""
    write = Write(verb=Verb.TELL, resource=next(iter(scene.kinds.values())), target=scene.tree.root.metadata, part="p")
    return StepResult(writes=(write,), again_in=7.0)


def broken(scene: ReconcileContext) -> StepResult:
    """Fail for one tree."""
    if scene.tree.root.metadata.name == "bad":
        raise ValueError("a mistake of ours")
    return NOTHING


async def test_a_look_hands_on_what_the_steps_want() -> None:
    """Writes to the door, and the time of another look to the queue."""
    rig = Rig(wanting)
    rig.ground.put(*small_tree())
    rig.reconciler.look(ROOT)
    assert rig.door.writes == [("root", "p")]
    assert rig.dirty.wait() == pytest.approx(7.0)
    assert rig.reconciler.states == {ROOT: "Pending"}
    assert 'cpg_operator_trees{flavour="crd",state="Pending"} 1.0' in rig.page()


async def test_nothing_is_said_of_a_namespace_that_has_not_been_read() -> None:
    """Its pods may still come; when they have, the tree is due."""
    rig = Rig(wanting, ground=ViewFixture("default"))
    rig.ground.put(*small_tree())
    rig.reconciler.look(ROOT)
    assert (rig.door.writes, rig.reconciler.states) == ([], {})
    rig.ground.taken()
    rig.ground.read()
    assert rig.ground.taken() == {"root"}
    rig.reconciler.look(ROOT)
    assert rig.door.writes == [("root", "p")]


async def test_a_key_of_before_leads_to_the_tree_of_now() -> None:
    """A leaf that has found its root is looked at as part of it, and what was to be written about it alone is not."""
    rig = Rig(wanting)
    rig.ground.put(pod_group("a"))
    leaf = TreeKey(CRD, GroupKey("PodGroup", "default", "a"))
    rig.reconciler.look(leaf)
    rig.ground.view.drop(CRD, pod_group("a"))
    rig.ground.put(*small_tree())
    rig.reconciler.look(leaf)
    assert rig.door.wanted == ["a", "a"]
    assert rig.dirty.pop() == ROOT
    rig.reconciler.look(ROOT)
    assert rig.door.writes == [("a", "p"), ("root", "p")]
    assert list(rig.reconciler.states) == [ROOT]


KEYS = [GroupKey("CompositePodGroup", "default", name) for name in "abc"] + [GroupKey("PodGroup", "default", "leaf")]
groups = st.tuples(st.just("put"), st.sampled_from(KEYS), st.sampled_from([None, *"abc"]))
ends = st.tuples(st.just("drop"), st.sampled_from(KEYS), st.none())
looks = st.tuples(st.just("look"), st.none(), st.none())


@settings(deadline=None)
@given(st.lists(st.one_of(groups, groups, ends, looks, looks), min_size=4, max_size=20))
def test_what_is_told_of_are_the_trees_of_now(story: list[tuple[str, GroupKey | None, str | None]]) -> None:
    """In whatever order groups come, find their parents, change places and go: no tree is missed, and none stays."""
    rig = Rig(lambda _: NOTHING)
    rig.ground.pods(*members("leaf", 1))
    for number, (deed, key, parent) in enumerate([*story, ("look", None, None)]):
        if key is None:
            for marked in (*rig.ground.marked,):
                rig.dirty.mark(marked)
            rig.ground.marked.clear()
            while (due := rig.dirty.pop()) is not None:
                rig.reconciler.look(due)
            continue
        meta = replace(metadata(key.name), resource_version=str(number), uid=f"{key.kind}-{parent}")
        build = composite if key.kind == "CompositePodGroup" else pod_group
        if deed == "put":
            rig.ground.put(build(key.name, parent=parent, meta=meta))
        elif (there := rig.ground.view.stores[CRD].forest.groups.get(key)) is not None:
            rig.ground.view.drop(CRD, there)
    anchors = {rig.ground.view.stores[CRD].anchor(key_of(group)) for group in rig.ground.view.stores[CRD]}
    assert {key.anchor for key in rig.reconciler.states} == anchors


async def test_a_middle_that_comes_with_its_parent_ends_the_tree_that_waited_for_it() -> None:
    """Who waits below is part of a whole tree from then on, and no half of one any more."""
    rig = Rig(lambda _: NOTHING)
    rig.ground.put(composite("root", gang=1), pod_group("a", gang=2, parent="mid"))
    rig.ground.pods(*members("a", 1))
    rig.reconciler.look(TreeKey(CRD, GroupKey("CompositePodGroup", "default", "mid")))
    assert 'state="Partial"} 1.0' in rig.page()
    rig.ground.marked.clear()
    rig.ground.put(composite("mid", gang=1, parent="root"))
    rig.ground.pods(*list(members("a", 2))[1:])
    for key in rig.ground.marked:
        rig.reconciler.look(key)
    assert rig.reconciler.states == {ROOT: "MinimumMet"}


async def test_a_mistake_about_one_tree_stops_no_other() -> None:
    """It is counted, and the tree comes back after a while."""
    rig = Rig(broken, wanting)
    rig.ground.put(pod_group("bad"), pod_group("good"))
    for name in ("bad", "good"):
        rig.reconciler.look(TreeKey(CRD, GroupKey("PodGroup", "default", name)))
    assert rig.door.writes == [("good", "p")]
    assert "cpg_operator_mistakes_total 1.0" in rig.page()
    assert rig.dirty.wait() == pytest.approx(1.0)


async def test_half_a_gang_is_told_of_by_its_age() -> None:
    """From the first look on, then by its condition, with the release that its user wants; no longer than it lasts."""
    rig = Rig(lambda _: NOTHING)
    leaf = TreeKey(CRD, GroupKey("PodGroup", "default", "a"))
    rig.ground.put(pod_group("a", gang=2))
    rig.ground.pods(*members("a", 1))
    rig.reconciler.look(leaf)
    assert "cpg_operator_partial_seconds 0.0" in rig.page()
    condition = Condition(type=PARTIAL, status="True", reason="x", last_transition_time="1970-01-01T00:00:10Z")
    meta = replace(metadata("a"), annotations={RELEASE_ANNOTATION: "20s"}, resource_version="2")
    rig.ground.put(replace(pod_group("a", gang=2, meta=meta), status=PodGroupStatus(conditions=(condition,))))
    rig.reconciler.look(leaf)
    assert "cpg_operator_partial_seconds 50.0" in rig.page()
    assert "cpg_operator_release_overdue_seconds 30.0" in rig.page()
    rig.ground.pods(*members("a", 2))
    rig.reconciler.look(leaf)
    assert "cpg_operator_partial_seconds 0.0" in rig.page()
    assert "cpg_operator_release_overdue_seconds 0.0" in rig.page()


async def test_pods_without_their_group_are_nothing_to_write_about() -> None:
    """The group may come."""
    rig = Rig(lambda _: NOTHING)
    rig.ground.pods(*members("a", 1))
    rig.reconciler.look(TreeKey(CRD, GroupKey("PodGroup", "default", "a")))
    assert rig.reconciler.states == {}


async def test_it_sleeps_until_something_is_due() -> None:
    """Marks wake it, however long it would have slept."""
    rig = Rig(lambda _: NOTHING)
    rig.ground.put(*small_tree())
    running = asyncio.create_task(rig.reconciler.run())
    await asyncio.sleep(0.01)
    assert rig.reconciler.states == {}
    rig.dirty.mark(ROOT)
    await asyncio.sleep(0.01)
    assert rig.reconciler.states == {ROOT: "Pending"}
    await cancel_and_wait(running)


def test_times_are_written_as_the_api_server_does() -> None:
    """To the second, in UTC."""
    assert stamp(61.9) == "1970-01-01T00:01:01Z"
