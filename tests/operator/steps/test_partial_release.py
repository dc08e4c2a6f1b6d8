"""When half a gang is released, in virtual time."""

import pytest
from msgspec.structs import replace

from cpg_api.core.pod import Pod, PodStatus
from cpg_api.meta import Condition
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.partial_release import PARTIAL, RELEASE_ANNOTATION
from cpg_engine.testing.builders import composite, metadata, pod_group
from cpg_operator.steps.partial_release import release
from cpg_operator.testing.fixtures import NOW, ViewFixture, members
from cpg_operator.writes import NOTHING, Verb


@pytest.fixture
def ground() -> ViewFixture:
    """Return an empty view."""
    return ViewFixture()


def root(chosen: str | None, since: str | None) -> Group:
    """Return a root with a choice, which says since when it is partial."""
    annotations = {RELEASE_ANNOTATION: chosen} if chosen is not None else {}
    found = composite("root", gang=2, meta=replace(metadata("root"), annotations=annotations))
    if since is None:
        return found
    condition = Condition(type=PARTIAL, status="True", reason="BelowMinimum", last_transition_time=since)
    return replace(found, status=replace(found.status, conditions=(condition,)))


def ago(seconds: float) -> str:
    """Return a time so long before the scene's."""
    rest = int(NOW - seconds)
    return f"1970-01-{1 + rest // 86400:02d}T{rest % 86400 // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}Z"


def half(ground: ViewFixture, top: Group, *more: Pod) -> None:
    """Make a tree of two gangs of two, of which one pod runs."""
    ground.put(top, *(pod_group(name, gang=2, parent="root") for name in "ab"))
    ground.pods(*members("a", 1), *more)


@pytest.mark.parametrize("chosen", [None, "soon", ""])
def test_by_default_nothing_is_deleted(ground: ViewFixture, chosen: str | None) -> None:
    """Nor where the choice cannot be read, however long it lasts."""
    half(ground, root(chosen, ago(900_000)))
    assert release(ground.scene()) == NOTHING


def test_the_time_counts_from_the_condition(ground: ViewFixture) -> None:
    """Before it is there, nothing is; then the rest of the time is waited for."""
    half(ground, root("10m", None))
    assert release(ground.scene()) == NOTHING
    newer = root("10m", ago(540))
    ground.put(replace(newer, metadata=replace(newer.metadata, resource_version="2")))
    assert release(ground.scene()).again_in == pytest.approx(60.0)
    assert release(ground.scene()).writes == ()


@pytest.mark.parametrize("chosen", ["10m", "default", "0s"])
def test_then_the_pods_that_hold_nodes_are_deleted_and_it_is_told_once(ground: ViewFixture, chosen: str) -> None:
    """Those that wait, have ended or are being deleted hold none."""
    (waiting,) = members("b", 1, node="", phase="Pending")
    _, leaving, failed = members("a", 3)
    (done,) = members("b", 1, phase="Succeeded")
    done = replace(done, metadata=replace(done.metadata, uid="done", name="done"))
    failed = replace(failed, status=PodStatus(phase="Failed"))
    leaving = replace(leaving, metadata=replace(leaving.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
    half(ground, root(chosen, ago(601)), waiting, leaving, failed, done)
    told, *deleted = release(ground.scene()).writes
    assert (told.verb, told.target.name) == (Verb.TELL, "root")
    assert told.word is not None
    assert "below its minimum for 601 s" in told.word.note
    assert "deleting 1 pods" in told.word.note
    assert [(one.verb, one.target.name) for one in deleted] == [(Verb.DELETE, "a-0")]
    assert told.body == {"since": NOW - 601}


def test_a_tree_that_is_whole_again_is_left_alone(ground: ViewFixture) -> None:
    """Even if its condition is still to go."""
    half(ground, root("1s", ago(601)), *list(members("a", 2))[1:], *members("b", 2))
    assert release(ground.scene()) == NOTHING


def test_a_gang_that_has_ended_in_part_has_nobody_to_release(ground: ViewFixture) -> None:
    """However long ago, and however often it is looked at: nothing is deleted, and nothing told."""
    ground.put(root("1s", ago(601)), pod_group("a", gang=2, parent="root"))
    done, failed = members("a", 2, phase="Succeeded")
    ground.pods(done, replace(failed, status=PodStatus(phase="Failed")))
    assert release(ground.scene()) == NOTHING


def test_a_tree_without_its_top_is_left_alone(ground: ViewFixture) -> None:
    """Nobody can have chosen anything on it."""
    ground.put(pod_group("a", gang=2, parent="root"))
    ground.pods(*members("a", 1))
    assert release(ground.scene("root")) == NOTHING
