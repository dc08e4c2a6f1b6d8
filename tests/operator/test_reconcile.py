"""The reconciler: it runs the steps over trees that are due, and an exception about one tree stops no other."""

import asyncio
from collections.abc import Iterable
from typing import cast

import pytest
from hypothesis import given
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
from cpg_operator.metrics import MetricsSnapshot, OperatorMetrics
from cpg_operator.reconcile import Reconciler, StepRunner, timestamp
from cpg_operator.steps.partial_release import release_partial
from cpg_operator.testing.fixtures import ViewFixture, members, small_tree
from cpg_operator.tree_states import TreeStates
from cpg_operator.work_queue import WorkQueue
from cpg_operator.writes import NOTHING, StepResult, TreeKey, Verb, Write
from cpg_operator.writing.retries import RetryState
from cpg_operator.writing.writer import Writer

ROOT = TreeKey(CRD, GroupKey("CompositePodGroup", "default", "root"))


class RecordingWriter:
    """A writer that records what is submitted."""

    def __init__(self) -> None:
        """Start without writes."""
        self.submitted: list[str] = []
        self.writes: list[tuple[str, str]] = []

    def submit(self, tree: TreeKey, writes: Iterable[Write]) -> None:
        """Record the writes of one reconcile."""
        self.submitted.append(tree.anchor.name)
        self.writes += [(tree.anchor.name, write.part) for write in writes]


class Rig:
    """A reconciler over a view; a test sets its clocks."""

    def __init__(self, *steps: Step, fixture: ViewFixture | None = None) -> None:
        """Run these steps."""
        self.now, self.wall = 100.0, 60.0
        self.fixture = fixture or ViewFixture()
        self.writer = RecordingWriter()
        self.metrics = OperatorMetrics()
        self.states = TreeStates()
        self.queue: WorkQueue[TreeKey] = WorkQueue(lambda: self.now, quiet=0.0, longest=0.0)
        view = self.fixture.view
        self.reconciler = Reconciler(
            view,
            queue=self.queue,
            steps=StepRunner(
                view,
                steps=steps,
                states=self.states,
                timing=Timing(clock=lambda: self.now, wall=lambda: self.wall),
                partial_after=600.0,
                scheduler_names=frozenset(),
            ),
            writer=cast("Writer", self.writer),
            retries=RetryState(),
            metrics=self.metrics,
            clock=lambda: self.now,
        )

    def page(self) -> str:
        """Return the page of metrics."""
        partial, overdue = self.states.longest_partial(60.0), self.states.release_overdue(60.0)
        snapshot = MetricsSnapshot(
            states=self.states, queued=1, pending_writes=2, watch_age=3.0, partial=partial, overdue=overdue
        )
        return self.metrics.page(snapshot).decode()


def write_and_requeue(context: ReconcileContext) -> StepResult:
    """Return a write, and a time for another reconcile."""
    write = Write(
        verb=Verb.EVENT, resource=next(iter(context.kinds.values())), target=context.tree.root.metadata, part="p"
    )
    return StepResult(writes=(write,), requeue_after=7.0)


def fail_for_one(context: ReconcileContext) -> StepResult:
    """Raise for one tree."""
    if context.tree.root.metadata.name == "bad":
        raise ValueError("a defect of ours")
    return NOTHING


async def test_a_reconcile_passes_on_the_results_of_the_steps() -> None:
    """Writes to the writer, and the time of another reconcile to the queue."""
    rig = Rig(write_and_requeue)
    rig.fixture.put(*small_tree())
    rig.reconciler.reconcile(ROOT)
    assert rig.writer.writes == [("root", "p")]
    assert rig.queue.seconds_until_due() == pytest.approx(7.0)
    assert list(rig.states) == [(CRD, "Pending")]
    assert 'cpg_operator_trees{flavour="crd",state="Pending"} 1.0' in rig.page()


async def test_a_namespace_that_has_not_been_read_is_left_alone() -> None:
    """Its pods may be unknown yet; once they are read, the tree is due."""
    rig = Rig(write_and_requeue, fixture=ViewFixture("default"))
    rig.fixture.put(*small_tree())
    rig.reconciler.reconcile(ROOT)
    assert (rig.writer.writes, list(rig.states)) == ([], [])
    rig.fixture.take_queued()
    rig.fixture.mark_read()
    assert rig.fixture.take_queued() == {"root"}
    rig.reconciler.reconcile(ROOT)
    assert rig.writer.writes == [("root", "p")]


async def test_a_former_key_leads_to_the_present_tree() -> None:
    """A leaf is reconciled with its root once that exists, and the pending writes of the leaf alone are dropped."""
    rig = Rig(write_and_requeue)
    rig.fixture.put(pod_group("a"))
    leaf = TreeKey(CRD, GroupKey("PodGroup", "default", "a"))
    rig.reconciler.reconcile(leaf)
    rig.fixture.view.remove(CRD, pod_group("a"))
    rig.fixture.put(*small_tree())
    rig.reconciler.reconcile(leaf)
    assert rig.writer.submitted == ["a", "a"]
    assert rig.queue.pop() == ROOT
    rig.reconciler.reconcile(ROOT)
    assert rig.writer.writes == [("a", "p"), ("root", "p")]
    assert [*rig.states.trees()] == [ROOT]


KEYS = [GroupKey("CompositePodGroup", "default", name) for name in "abc"] + [GroupKey("PodGroup", "default", "leaf")]
groups = st.tuples(st.just("put"), st.sampled_from(KEYS), st.sampled_from([None, *"abc"]))
ends = st.tuples(st.just("remove"), st.sampled_from(KEYS), st.none())
reconciles = st.tuples(st.just("reconcile"), st.none(), st.none())


@given(st.lists(st.one_of(groups, groups, ends, reconciles, reconciles), min_size=4, max_size=20))
def test_the_states_are_those_of_the_present_trees(story: list[tuple[str, GroupKey | None, str | None]]) -> None:
    """In whatever order groups are created, moved and deleted: no tree is missing, and no former one is left."""
    rig = Rig(lambda _: NOTHING)
    rig.fixture.add_pods(*members("leaf", 1))
    for number, (action, key, parent) in enumerate([*story, ("reconcile", None, None)]):
        if key is None:
            for added in (*rig.fixture.queue.added,):
                rig.queue.add(added)
            rig.fixture.queue.added.clear()
            while (due := rig.queue.pop()) is not None:
                rig.reconciler.reconcile(due)
            continue
        meta = replace(metadata(key.name), resource_version=str(number), uid=f"{key.kind}-{parent}")
        build = composite if key.kind == "CompositePodGroup" else pod_group
        if action == "put":
            rig.fixture.put(build(key.name, parent=parent, meta=meta))
        elif (there := rig.fixture.view.groups(CRD).forest.groups.get(key)) is not None:
            rig.fixture.view.remove(CRD, there)
    store = rig.fixture.view.groups(CRD)
    assert {key.anchor for key in rig.states.trees()} == {store.anchor(key_of(group)) for group in store}


async def test_a_missing_group_that_appears_joins_its_children_to_its_parent() -> None:
    """The tree that waited for it ends: its children belong to the parent's tree from then on."""
    rig = Rig(lambda _: NOTHING)
    rig.fixture.put(composite("root", gang=1), pod_group("a", gang=2, parent="mid"))
    rig.fixture.add_pods(*members("a", 1))
    rig.reconciler.reconcile(TreeKey(CRD, GroupKey("CompositePodGroup", "default", "mid")))
    assert 'state="Partial"} 1.0' in rig.page()
    rig.fixture.queue.added.clear()
    rig.fixture.put(composite("mid", gang=1, parent="root"))
    rig.fixture.add_pods(*list(members("a", 2))[1:])
    for key in rig.fixture.queue.added:
        rig.reconciler.reconcile(key)
    assert list(rig.states) == [(CRD, "MinimumMet")]


async def test_an_exception_about_one_tree_stops_no_other() -> None:
    """It is counted, and the tree is reconciled again after a back-off."""
    rig = Rig(fail_for_one, write_and_requeue)
    rig.fixture.put(pod_group("bad"), pod_group("good"))
    for name in ("bad", "good"):
        rig.reconciler.reconcile(TreeKey(CRD, GroupKey("PodGroup", "default", name)))
    assert rig.writer.writes == [("good", "p")]
    assert "cpg_operator_mistakes_total 1.0" in rig.page()
    assert rig.queue.seconds_until_due() == pytest.approx(1.0)


async def test_the_metrics_show_the_age_of_a_partial_tree() -> None:
    """From its condition on, with the release in the annotation; and not after the tree is complete."""
    rig = Rig(lambda _: NOTHING)
    leaf = TreeKey(CRD, GroupKey("PodGroup", "default", "a"))
    rig.fixture.put(pod_group("a", gang=2))
    rig.fixture.add_pods(*members("a", 1))
    rig.reconciler.reconcile(leaf)
    assert "cpg_operator_partial_seconds 0.0" in rig.page()
    condition = Condition(type=PARTIAL, status="True", reason="x", last_transition_time="1970-01-01T00:00:10Z")
    meta = replace(metadata("a"), annotations={RELEASE_ANNOTATION: "20s"}, resource_version="2")
    rig.fixture.put(replace(pod_group("a", gang=2, meta=meta), status=PodGroupStatus(conditions=(condition,))))
    rig.reconciler.reconcile(leaf)
    assert "cpg_operator_partial_seconds 50.0" in rig.page()
    assert "cpg_operator_release_overdue_seconds 30.0" in rig.page()
    rig.fixture.add_pods(*members("a", 2))
    rig.reconciler.reconcile(leaf)
    assert "cpg_operator_partial_seconds 0.0" in rig.page()
    assert "cpg_operator_release_overdue_seconds 0.0" in rig.page()


PARTIAL_FROM_THE_START = Condition(type=PARTIAL, status="True", reason="x", last_transition_time="1970-01-01T00:00:50Z")


def partial_tree() -> tuple[Rig, TreeKey]:
    """Return a partial tree that is to be released after 600 s, reconciled once."""
    rig = Rig(release_partial)
    leaf = TreeKey(CRD, GroupKey("PodGroup", "default", "a"))
    meta = replace(metadata("a"), annotations={RELEASE_ANNOTATION: "600s"})
    status = PodGroupStatus(conditions=(PARTIAL_FROM_THE_START,))
    rig.fixture.put(replace(pod_group("a", gang=2, meta=meta), status=status))
    rig.fixture.add_pods(*members("a", 1))
    rig.reconciler.reconcile(leaf)
    return rig, leaf


@pytest.mark.parametrize("jump", [3 * 3600.0, -3 * 3600.0, 0.0], ids=["ahead", "back", "none"])
async def test_a_jump_of_the_wall_clock_changes_no_release(jump: float) -> None:
    """A partial tree is released after its time by the monotonic clock: 10 s had passed at the first sight of it."""
    rig, leaf = partial_tree()
    rig.wall += jump
    for _ in range(589):
        rig.now, rig.wall = rig.now + 1.0, rig.wall + 1.0
        rig.reconciler.reconcile(leaf)
    assert rig.writer.writes == []
    rig.now += 1.0
    rig.reconciler.reconcile(leaf)
    assert rig.writer.writes == [("a", "release"), ("a", "release")]


async def test_a_suspended_machine_releases_nothing_when_it_resumes() -> None:
    """For an hour nothing was seen of the tree; its view is an hour old. The monotonic clock stood meanwhile."""
    rig, leaf = partial_tree()
    rig.wall += 3600.0
    rig.reconciler.reconcile(leaf)
    assert rig.writer.writes == []


async def test_pods_without_their_group_have_no_state() -> None:
    """The group may be created later."""
    rig = Rig(lambda _: NOTHING)
    rig.fixture.add_pods(*members("a", 1))
    rig.reconciler.reconcile(TreeKey(CRD, GroupKey("PodGroup", "default", "a")))
    assert list(rig.states) == []


async def test_the_reconciler_waits_until_a_tree_is_due() -> None:
    """An addition to the queue wakes it."""
    rig = Rig(lambda _: NOTHING)
    rig.fixture.put(*small_tree())
    running = asyncio.create_task(rig.reconciler.run())
    await asyncio.sleep(0.01)
    assert list(rig.states) == []
    rig.queue.add(ROOT)
    await asyncio.sleep(0.01)
    assert list(rig.states) == [(CRD, "Pending")]
    await cancel_and_wait(running)


def test_times_are_written_as_the_api_server_does() -> None:
    """To the second, in UTC."""
    assert timestamp(61.9) == "1970-01-01T00:01:01Z"
