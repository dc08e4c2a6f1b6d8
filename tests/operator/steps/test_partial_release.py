"""The step that deletes the pods of a partial tree, in virtual time."""

import pytest
from msgspec.structs import replace

from cpg_api.core.pod import Pod, PodStatus
from cpg_api.meta import Condition
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.partial_release import PARTIAL, RELEASE_ANNOTATION
from cpg_engine.testing.builders import composite, metadata, pod_group
from cpg_operator.steps.partial_release import release_partial
from cpg_operator.testing.fixtures import NOW, ViewFixture, members
from cpg_operator.writes import NOTHING, Verb


@pytest.fixture
def fixture() -> ViewFixture:
    """Return an empty view."""
    return ViewFixture()


def root(chosen: str | None, since: str | None) -> Group:
    """Return a root with this annotation, and with a condition that says since when it is partial."""
    annotations = {RELEASE_ANNOTATION: chosen} if chosen is not None else {}
    found = composite("root", gang=2, meta=replace(metadata("root"), annotations=annotations))
    if since is None:
        return found
    condition = Condition(type=PARTIAL, status="True", reason="BelowMinimum", last_transition_time=since)
    return replace(found, status=replace(found.status, conditions=(condition,)))


def ago(seconds: float) -> str:
    """Return a time so long before the context's."""
    rest = int(NOW - seconds)
    return f"1970-01-{1 + rest // 86400:02d}T{rest % 86400 // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}Z"


def put_partial_tree(fixture: ViewFixture, top: Group, *more: Pod) -> None:
    """Put a tree of two gangs of two into the view, of which one pod runs."""
    fixture.put(top, *(pod_group(name, gang=2, parent="root") for name in "ab"))
    fixture.add_pods(*members("a", 1), *more)


@pytest.mark.parametrize("chosen", [None, "soon", ""])
def test_by_default_nothing_is_deleted(fixture: ViewFixture, chosen: str | None) -> None:
    """Nor where the annotation cannot be read, however long the tree is partial."""
    put_partial_tree(fixture, root(chosen, ago(900_000)))
    assert release_partial(fixture.context()) == NOTHING


def test_the_time_counts_from_the_condition(fixture: ViewFixture) -> None:
    """Without the condition nothing is done; with it, the rest of the time is waited for."""
    put_partial_tree(fixture, root("10m", None))
    assert release_partial(fixture.context()) == NOTHING
    newer = root("10m", ago(540))
    fixture.put(replace(newer, metadata=replace(newer.metadata, resource_version="2")))
    assert release_partial(fixture.context()).requeue_after == pytest.approx(60.0)
    assert release_partial(fixture.context()).writes == ()


@pytest.mark.parametrize("chosen", ["10m", "default", "0s"])
def test_the_pods_that_hold_nodes_are_deleted_with_one_event(fixture: ViewFixture, chosen: str) -> None:
    """Pods that wait, have ended or are being deleted hold no node."""
    (waiting,) = members("b", 1, node="", phase="Pending")
    _, terminating, failed = members("a", 3)
    (done,) = members("b", 1, phase="Succeeded")
    done = replace(done, metadata=replace(done.metadata, uid="done", name="done"))
    failed = replace(failed, status=PodStatus(phase="Failed"))
    terminating = replace(
        terminating, metadata=replace(terminating.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    )
    put_partial_tree(fixture, root(chosen, ago(601)), waiting, terminating, failed, done)
    event, *deleted = release_partial(fixture.context()).writes
    assert (event.verb, event.target.name) == (Verb.EVENT, "root")
    assert event.event is not None
    assert "below its minimum for 601 s" in event.event.note
    assert "deleting 1 pods" in event.event.note
    assert [(one.verb, one.target.name) for one in deleted] == [(Verb.DELETE, "a-0")]
    assert event.body == {"since": NOW - 601}


def test_a_tree_that_has_its_minimum_again_is_left_alone(fixture: ViewFixture) -> None:
    """Also while its condition has not been removed yet."""
    put_partial_tree(fixture, root("1s", ago(601)), *list(members("a", 2))[1:], *members("b", 2))
    assert release_partial(fixture.context()) == NOTHING


def test_a_gang_that_has_ended_in_part_has_no_pod_to_delete(fixture: ViewFixture) -> None:
    """However long ago that was: nothing is deleted, and no event is recorded."""
    fixture.put(root("1s", ago(601)), pod_group("a", gang=2, parent="root"))
    done, failed = members("a", 2, phase="Succeeded")
    fixture.add_pods(done, replace(failed, status=PodStatus(phase="Failed")))
    assert release_partial(fixture.context()) == NOTHING


def test_a_tree_without_its_root_is_left_alone(fixture: ViewFixture) -> None:
    """Only the root can have the annotation."""
    fixture.put(pod_group("a", gang=2, parent="root"))
    fixture.add_pods(*members("a", 1))
    assert release_partial(fixture.context("root")) == NOTHING
