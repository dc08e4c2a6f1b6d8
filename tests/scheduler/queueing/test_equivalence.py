"""Units with one signature share the result of an attempt."""

from typing import TYPE_CHECKING

import pytest

from cpg_scheduler.queueing.policy import MAX_STALE_ENTRIES

if TYPE_CHECKING:
    from tests.scheduler.queueing.conftest import QueueFixture


def test_one_attempt_answers_for_the_whole_class(peers: "QueueFixture") -> None:
    """When a hint activates the class, its first unit is attempted; if that fails, no other is."""
    peers.move_all(9.0)
    peers.fail("a", 9.0, peers.failure("x"))
    assert peers.pop_all(9.0) == []
    assert peers.queue.counts()["unschedulable"] == 3


def test_a_representative_that_is_placed_is_followed_by_the_next_unit(peers: "QueueFixture") -> None:
    """As long as it works, without a wait between them."""
    peers.move_all(9.0)
    for name in "abc":
        peers.place(name, 9.0)
    assert peers.queue.counts() == {"active": 0, "backoff": 0, "unschedulable": 0, "binding": 3}


@pytest.mark.parametrize("how", ["removed", "changed"])
def test_a_representative_that_leaves_the_class_is_followed_by_the_next_unit(peers: "QueueFixture", how: str) -> None:
    """What has activated it may help the others as well."""
    peers.move_all(9.0)
    if how == "removed":
        peers.queue.remove(peers.unit("a"))
    else:
        peers.activate("a", importance=5)
        peers.fail("a", 9.0, peers.failure("y"))
    assert peers.pop_all(9.0) == ["b"]


def test_a_changed_unit_that_is_still_equivalent_joins_its_class_without_an_attempt(peers: "QueueFixture") -> None:
    """The change made no difference to the engine."""
    peers.activate("b")
    assert peers.join("b")
    assert peers.pop_all() == []


def test_a_unit_that_joins_a_class_in_backoff_ends_the_backoff(peers: "QueueFixture") -> None:
    """A unit has to be attempted anyway, and the oldest of the class is the one."""
    peers.move_all(0.5)
    peers.activate("new", created="2027")
    assert peers.join("new", now=0.5)
    assert peers.pop_all(0.5) == ["a"]


def test_a_unit_is_attempted_while_the_representative_of_its_class_is(peers: "QueueFixture") -> None:
    """The result of the representative is not known yet."""
    peers.move_all(9.0)
    peers.activate("older", created="2025")
    assert not peers.join("older", now=9.0)
    peers.queue.add_unschedulable(peers.unit("older"), 1, 9.0, peers.failure("x"))
    assert peers.join("a", now=9.0)


def test_a_unit_without_waiting_equivalents_is_attempted(peers: "QueueFixture") -> None:
    """It has no signature, or a new one, or is gone."""
    peers.activate("d")
    assert not peers.join("d", None)
    assert not peers.queue.join_equivalent(peers.unit("d"), "y")
    assert not peers.queue.join_equivalent(peers.unit("gone"), "x")


def test_a_placed_representative_resets_the_backoff_of_its_class(peers: "QueueFixture") -> None:
    """The failures before say nothing any more."""
    peers.move_all(9.0)
    peers.place("a", 9.0)
    peers.fail("b", 9.0, peers.failure("x"))
    peers.move_all(9.0)
    assert peers.queue.next_wake() == 10.0


def test_each_unit_is_reported_once_for_each_cause(peers: "QueueFixture") -> None:
    """A unit that joins a class has to be reported; again only when the class fails for another cause."""
    found = [peers.queue.next_unreported() for _ in range(3)]
    assert [one and one[0] for one in found] == [peers.unit("b"), peers.unit("c"), None]
    peers.move_all(9.0)
    peers.fail("a", 9.0, peers.failure("x"))
    assert peers.queue.next_unreported() is None
    peers.move_all(99.0)
    peers.fail("a", 99.0, peers.failure("x", reason="full"))
    peers.queue.remove(peers.unit("c"))
    assert peers.queue.next_unreported() == (peers.unit("b"), peers.failure("x", reason="full"))
    assert peers.queue.next_unreported() is None


def test_a_unit_that_is_not_attempted_after_all_is_reported(peers: "QueueFixture") -> None:
    """The first unit of its class has taken the room before the turn of the next one."""
    peers.move_all(9.0)
    peers.place("a", 9.0)
    assert peers.queue.pop(9.0, lambda *_: False) is None
    found = [peers.queue.next_unreported() for _ in range(3)]
    assert {one[0] for one in found if one} == {peers.unit("b"), peers.unit("c")}


def test_a_bind_that_fails_is_not_held_against_the_class(peers: "QueueFixture") -> None:
    """The next unit is attempted, and the failed one backs off alone."""
    peers.move_all(9.0)
    peers.place("a", 9.0)
    peers.queue.retry_after_backoff(peers.key("a"), 1, 9.0)
    assert peers.pop_all(9.0) == ["b"]
    assert peers.queue.next_wake() == 10.0


def test_dissolving_the_classes_activates_the_units_that_wait_with_others(peers: "QueueFixture") -> None:
    """A unit that waits alone goes on waiting."""
    peers.activate("alone")
    peers.fail("alone")
    peers.queue.dissolve_classes()
    assert peers.pop_all() == ["a", "b", "c"]


def test_dissolving_a_class_with_a_representative_activates_each_unit_once(peers: "QueueFixture") -> None:
    """The representative is active already."""
    peers.move_all(9.0)
    peers.queue.dissolve_classes()
    assert peers.pop_all(9.0) == ["a", "b", "c"]


def test_the_heap_of_a_class_does_not_grow_by_units_that_come_and_go(queued: "QueueFixture") -> None:
    """What they leave behind is cleared."""
    queued.activate("a")
    queued.fail("a", failure=queued.failure("x"))
    for _ in range(3 * MAX_STALE_ENTRIES):
        queued.activate("b")
        assert queued.join("b")
    assert len(queued.queue._classes["x"].heap) <= 2 * 2 + MAX_STALE_ENTRIES
    queued.move_all(9.0)
    queued.place("a", 9.0)
    assert queued.pop_all(9.0) == ["b"]


def test_nothing_is_left_of_removed_units(peers: "QueueFixture") -> None:
    """A class ends with its last unit."""
    peers.move_all(0.5)
    for name in "abc":
        peers.queue.remove(peers.unit(name))
    assert peers.queue.next_wake() is None
    assert peers.queue.next_unreported() is None
    assert peers.queue._classes == {}
