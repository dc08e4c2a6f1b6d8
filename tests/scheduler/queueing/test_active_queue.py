"""The order in which active units are attempted."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.scheduler.queueing.conftest import QueueFixture


def test_units_are_ordered_by_importance_then_age_then_name(queued: "QueueFixture") -> None:
    """The order is total."""
    queued.activate("b", "a")
    queued.activate("old", created="2025")
    queued.activate("vip", importance=-9)
    assert queued.pop_all() == ["vip", "old", "a", "b"]


def test_a_unit_whose_importance_changes_is_popped_once(queued: "QueueFixture") -> None:
    """The heap entry of the old queue key is skipped."""
    queued.activate("a", "b")
    queued.activate("a", "a", importance=9)
    assert queued.pop_all() == ["b", "a"]


def test_a_removed_unit_is_not_popped(queued: "QueueFixture") -> None:
    """Removing an unknown unit changes nothing."""
    queued.activate("a")
    queued.queue.remove(queued.unit("a"))
    queued.queue.remove(queued.unit("b"))
    assert queued.pop_all() == []
    assert len(queued.queue) == 0


def test_a_unit_that_changes_before_every_attempt_takes_its_turn_behind_the_others(queued: "QueueFixture") -> None:
    """Whatever its age; units that arrive later do not delay it for ever."""
    queued.activate("a", "b", "c")
    attempted = []
    for number in range(6):
        queued.activate("a")
        queued.activate(f"new{number}", created="2027")
        key = queued.queue.pop(0.0)
        assert key is not None
        queued.queue.add_unschedulable(key, 1, 0.0, queued.failure())
        attempted.append(key.key.name)
    assert attempted == ["a", "b", "c", "new0", "a", "new1"]


@pytest.mark.parametrize("how", ["changed", "created again"])
def test_a_unit_that_changes_before_every_attempt_takes_turns_with_requeued_units(
    queued: "QueueFixture", how: str
) -> None:
    """Though it is older, and even if it is deleted and created again."""
    queued.activate("a", "b", "c")
    for name in "abc":
        queued.fail(name)
    queued.move_all(9.0)
    queued.queue.remove(queued.unit("a"))
    for name in "aabac":
        if how == "created again":
            queued.queue.remove(queued.unit("a"))
        queued.activate("a")
        queued.fail(name, 9.0)


def test_a_changed_unit_goes_before_units_that_arrived_after_its_last_turn(queued: "QueueFixture") -> None:
    """Otherwise each new pod would delay it."""
    queued.activate("old", created="2025")
    queued.fail("old")
    queued.activate("a")
    queued.activate("old", created="2025")
    assert [found.queue_key.unit.key.name for found in queued.queue.positions(2)] == ["old", "a"]
    assert queued.pop_all() == ["old", "a"]


def test_a_unit_that_just_had_its_turn_is_not_listed_first(queued: "QueueFixture") -> None:
    """The list of first positions is the order of the attempts."""
    queued.activate("a", "b", "c")
    queued.fail("a")
    queued.activate("a")
    assert [found.queue_key.unit.key.name for found in queued.queue.positions(3)] == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("importance", "expected"),
    [
        (0, ["new1", "a", "new2", "b", "new3", "c"]),
        (-1, ["new1", "new2", "new3", *"abc"]),
        (1, [*"abc", "new1", "new2"]),
    ],
)
def test_fresh_units_take_turns_with_a_crowd_that_is_requeued_in_vain(
    queued: "QueueFixture", importance: int, expected: list[str]
) -> None:
    """If they are as important: the first at once, each later one after one more attempt."""
    queued.activate("a", "b", "c")
    for name in "abc":
        queued.fail(name)
    queued.move_all(9.0)
    queued.activate("new1", "new2", "new3", importance=importance, created="2027")
    for name in expected:
        queued.fail(name, 9.0)


def test_requeued_units_that_are_placed_let_no_fresh_unit_go_first(peers: "QueueFixture") -> None:
    """There is room for the crowd, which has waited longer; the next time it takes turns again."""
    peers.move_all(9.0)
    peers.activate("new1", "new2", created="2027")
    for name in ("new1", "a", "b", "c", "new2"):
        peers.place(name, 9.0)
    peers.activate("d")
    peers.fail("d", 9.0)
    peers.move_all(20.0)
    peers.activate("new3", created="2027")
    assert peers.pop_all(20.0) == ["new3", "d"]
