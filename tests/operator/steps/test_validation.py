"""What is written about a tree's validity, and that it was placed."""

import pytest
from msgspec.structs import replace

from cpg_api.meta import Condition
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.health import HEALTHY
from cpg_api.validity import initially_scheduled_type
from cpg_engine.testing.builders import composite, pod_group
from cpg_operator.steps.validation import GRACE, _word, judge
from cpg_operator.testing.fixtures import STAMP, ViewFixture, members, small_tree
from cpg_operator.writes import NOTHING, VALIDATION, Write


@pytest.fixture
def ground() -> ViewFixture:
    """Return an empty view."""
    return ViewFixture()


def condition_of(write: Write) -> Condition:
    """Return the one condition that is written."""
    (found,) = write.body["conditions"]
    assert isinstance(found, Condition)
    return found


def said(group: Group, *conditions: tuple[str, str, str, str]) -> Group:
    """Return a newer state of a group with these conditions: type, status, reason, since."""
    found = tuple(
        Condition(type=kind, status=status, reason=reason, message="m", last_transition_time=since)
        for kind, status, reason, since in conditions
    )
    metadata = replace(group.metadata, resource_version="2")
    return replace(group, metadata=metadata, status=replace(group.status, conditions=found))


def test_a_valid_tree_that_waits_is_left_to_the_scheduler(ground: ViewFixture) -> None:
    """Nothing is written."""
    ground.put(*small_tree())
    assert judge(ground.scene()) == NOTHING


def test_every_group_of_an_invalid_tree_says_so(ground: ViewFixture) -> None:
    """By the manager of its own, over the state that was seen, with one event each."""
    ground.put(*small_tree(), pod_group("bad", parent="root", workload="v"))
    writes = judge(ground.scene()).writes
    assert [one.target.name for one in writes] == ["root", "a", "b", "bad"]
    for one in writes:
        assert (one.manager, one.unchanged, condition_of(one).last_transition_time) == (VALIDATION, True, STAMP)
        assert one.word is not None
        assert (one.word.reason, one.word.warning, one.word.note) == ("Invalid", True, condition_of(one).message)


def test_of_one_fault_there_is_one_event() -> None:
    """However many pods have it, and whichever is named for all of them; another fault is another event."""
    root = composite("root")
    words = "Pod default/{} of PodGroup default/a has priority {}, but its tree has 7 (and {} more problem{})"
    before, after = words.format("a-xyz", 5, 1, ""), words.format("b-uvw", 6, 40, "s")
    for message, is_told in ((after, False), ("a cycle", True)):
        found = Condition(type=initially_scheduled_type(root), status="False", reason="Invalid", message=before)
        word = _word(replace(root, status=replace(root.status, conditions=(found,))), replace(found, message=message))
        assert (word is not None) is is_told


def test_it_is_taken_back_when_the_tree_is_mended(ground: ViewFixture) -> None:
    """With an event that says what was mended."""
    root = composite("root")
    ground.put(said(root, (initially_scheduled_type(root), "False", "Invalid", STAMP)))
    (write,) = judge(ground.scene()).writes
    assert (condition_of(write).status, condition_of(write).reason) == ("Unknown", "Pending")
    assert write.word is not None
    assert (write.word.reason, write.word.note, write.word.warning) == ("Valid", "no longer invalid: m", False)


def whole(ground: ViewFixture, healthy_since: str | None) -> None:
    """Make a tree that is whole, whose root may say since when."""
    root, *leaves = small_tree()
    ground.put(root if healthy_since is None else said(root, (HEALTHY, "True", "MinimumMet", healthy_since)), *leaves)
    ground.pods(*members("a", 2), *members("b", 2))


@pytest.mark.parametrize(("since", "left"), [(None, GRACE), (STAMP, GRACE), ("1970-01-12T13:46:37Z", GRACE - 3)])
def test_the_scheduler_has_time_to_say_that_a_tree_was_placed(
    ground: ViewFixture, since: str | None, left: float
) -> None:
    """Counted from when the root was healthy."""
    whole(ground, since)
    outcome = judge(ground.scene())
    assert outcome.writes == ()
    assert outcome.again_in == pytest.approx(left)


def test_then_it_is_said_for_it(ground: ViewFixture) -> None:
    """Of all groups whose minimum is met, without an event; a root that is not healthy says nothing of its leaves."""
    whole(ground, "1970-01-12T13:46:30Z")
    writes = judge(ground.scene()).writes
    assert [one.target.name for one in writes] == ["root", "a", "b"]
    assert {(condition_of(one).status, condition_of(one).reason, one.word) for one in writes} == {
        ("True", "Scheduled", None)
    }
    ground.gone(*members("b", 2))
    assert judge(ground.scene()) == NOTHING


def test_what_was_said_is_not_said_again(ground: ViewFixture) -> None:
    """A tree that has run for a month is nothing to write about."""
    root, *leaves = small_tree()
    done = [said(one, (initially_scheduled_type(one), "True", "Scheduled", STAMP)) for one in (root, *leaves)]
    ground.put(*done)
    ground.pods(*members("a", 2), *members("b", 2))
    assert judge(ground.scene()) == NOTHING


def test_a_leaf_that_is_not_placed_is_not_said_to_be(ground: ViewFixture) -> None:
    """Where the root wants less than all."""
    root = composite("root", gang=1)
    ground.put(said(root, (HEALTHY, "True", "MinimumMet", "1970-01-12T13:46:30Z")))
    ground.put(*(pod_group(name, gang=2, parent="root") for name in "ab"))
    ground.pods(*members("a", 2))
    assert [one.target.name for one in judge(ground.scene()).writes] == ["root", "a"]
