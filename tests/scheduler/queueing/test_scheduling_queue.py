"""The places of units in the scheduling queue: active, unschedulable, in backoff, binding."""

from typing import TYPE_CHECKING

import pytest

from cpg_scheduler.queueing.hints import ANY_CHANGE, RequeueHint
from cpg_scheduler.queueing.policy import MAX_SECONDS_UNSCHEDULABLE

if TYPE_CHECKING:
    from tests.scheduler.queueing.conftest import QueueFixture


def never(*_: object) -> bool:
    """Find that no hint holds."""
    return False


def test_a_unit_that_is_being_attempted_is_in_no_place(queued: "QueueFixture") -> None:
    """It is on its way from one to another."""
    queued.activate("a")
    assert queued.pop() == "a"
    assert set(queued.queue.counts().values()) == {0}


def test_a_failed_unit_waits_for_a_change_of_the_cluster(queued: "QueueFixture") -> None:
    """Time alone does not help it."""
    queued.activate("a")
    queued.fail("a")
    assert queued.pop_all(MAX_SECONDS_UNSCHEDULABLE - 1) == []
    assert queued.queue.counts() == {"active": 0, "backoff": 0, "unschedulable": 1, "binding": 0}


def test_a_unit_that_no_hint_activates_is_attempted_when_no_other_is_active(queued: "QueueFixture") -> None:
    """The hints may have a defect; whether the attempt succeeds is counted."""
    queued.activate("a", "b")
    queued.fail("a")
    queued.fail("b")
    assert queued.queue.next_wake() == MAX_SECONDS_UNSCHEDULABLE
    queued.activate("c")
    popped = [queued.queue.pop(MAX_SECONDS_UNSCHEDULABLE, never) for _ in range(2)]
    assert popped == [queued.unit("c"), queued.unit("a")]
    queued.queue.start_binding(queued.unit("a"))
    queued.activate("d")
    assert [queued.pop(MAX_SECONDS_UNSCHEDULABLE) for _ in range(3)] == ["d", "b", None]
    assert queued.queue.missed_hints == 1


def test_a_unit_whose_hint_no_longer_holds_is_not_attempted(queued: "QueueFixture") -> None:
    """Other units have taken the room; later changes requeue it, and it is asked about all since its failure."""
    queued.activate("a")
    queued.fail("a")
    asked: list[int] = []

    def in_vain(_: RequeueHint, since: int) -> bool:
        asked.append(since)
        return False

    for _ in range(2):
        queued.move_all(9.0)
        assert queued.queue.pop(9.0, in_vain) is None
    assert asked == [0, 0]
    queued.move_all(MAX_SECONDS_UNSCHEDULABLE)
    assert queued.queue.pop(MAX_SECONDS_UNSCHEDULABLE, never) == queued.unit("a")


def test_a_requeued_unit_waits_for_the_end_of_its_backoff(queued: "QueueFixture") -> None:
    """The queue says how long that is."""
    queued.activate("a")
    queued.fail("a")
    queued.move_all(0.5)
    assert queued.queue.next_wake() == 1.0
    assert queued.queue.counts()["backoff"] == 1
    assert queued.pop_all(0.9) == []
    assert queued.pop_all(1.0) == ["a"]


def test_a_requeued_unit_whose_backoff_has_ended_is_active_at_once(queued: "QueueFixture") -> None:
    """It has waited long enough."""
    queued.activate("a")
    queued.fail("a")
    queued.move_all(5.0)
    assert queued.queue.next_wake() == MAX_SECONDS_UNSCHEDULABLE
    assert queued.pop_all(5.0) == ["a"]


def test_each_failure_doubles_the_backoff(queued: "QueueFixture") -> None:
    """Also where the unit has changed in between."""
    for attempt, wait in enumerate((1.0, 2.0, 4.0, 8.0, 8.0)):
        queued.activate("a")
        queued.fail("a", 100.0 * attempt)
        queued.move_all(100.0 * attempt)
        assert queued.queue.next_wake() == 100.0 * attempt + wait


def test_a_change_of_the_unit_ends_its_backoff(queued: "QueueFixture") -> None:
    """The timer that is left is skipped."""
    queued.activate("a")
    queued.fail("a")
    queued.move_all(0.0)
    queued.activate("a")
    assert queued.pop_all() == ["a"]


def test_a_change_of_the_cluster_activates_the_units_whose_hint_matches(queued: "QueueFixture") -> None:
    """A unit without a hint is never activated, and one that any change may help always is."""
    for name, hint in {"held": None, "room": RequeueHint(), "any": ANY_CHANGE}.items():
        queued.activate(name)
        queued.fail(name, failure=queued.failure(hint=hint))
    queued.queue.move_to_active_or_backoff(9.0, lambda hints: hints.for_any_change)
    assert queued.pop_all(9.0) == ["any"]
    queued.queue.move_to_active_or_backoff(9.0, lambda hints: [key for key in hints if hints[key] == RequeueHint()])
    assert queued.pop_all(9.0) == ["room"]


def test_a_change_that_frees_no_node_activates_units_that_any_change_may_help(queued: "QueueFixture") -> None:
    """A pod that was bound makes no room."""
    for name, hint in (("room", RequeueHint()), ("any", ANY_CHANGE)):
        queued.activate(name)
        queued.fail(name, failure=queued.failure(hint=hint))
    queued.queue.move_to_active_or_backoff(9.0)
    assert queued.pop_all(9.0) == ["any"]


def test_a_unit_whose_binds_fail_backs_off_longer_each_time(queued: "QueueFixture") -> None:
    """Though it is placed each time."""
    queued.activate("a")
    for attempt, wait in enumerate((1.0, 2.0, 4.0)):
        now = 100.0 * attempt
        assert queued.pop_all(now) == ["a"]
        queued.queue.start_binding(queued.unit("a"))
        queued.queue.retry_after_backoff(queued.key("a"), 1, now)
        assert queued.queue.next_wake() == now + wait
        assert queued.queue.counts()["backoff"] == 1


def test_a_unit_is_removed_when_all_its_binds_have_worked(queued: "QueueFixture") -> None:
    """Unless something new is to be placed in it meanwhile."""
    queued.activate("a", "b")
    queued.place("a")
    queued.place("b")
    queued.activate("b")
    for name in "abc":
        queued.queue.finish_binding(queued.unit(name))
    assert queued.pop_all() == ["b"]
    assert len(queued.queue) == 1


def test_a_unit_that_was_activated_while_binding_is_not_put_into_backoff(queued: "QueueFixture") -> None:
    """It stays active; a unit that was removed meanwhile is queued again."""
    queued.activate("a")
    queued.place("a")
    queued.activate("a")
    queued.queue.retry_after_backoff(queued.key("a"), 1, 0.0)
    assert queued.pop_all() == ["a"]
    queued.queue.retry_after_backoff(queued.key("b"), 1, 0.0)
    assert queued.pop_all(1.0) == ["b"]


def test_a_unit_that_changes_during_its_attempt_stays_active(queued: "QueueFixture") -> None:
    """Whatever the result of the attempt."""
    queued.activate("a")
    assert queued.pop() == "a"
    queued.activate("a")
    queued.queue.add_unschedulable(queued.unit("a"), 1, 0.0, queued.failure())
    assert queued.pop_all() == ["a"]


@pytest.mark.parametrize("result", ["failed", "placed"])
def test_the_result_of_an_attempt_at_a_removed_unit_is_ignored(queued: "QueueFixture", result: str) -> None:
    """Nothing is remembered of it."""
    if result == "failed":
        queued.queue.add_unschedulable(queued.unit("a"), 1, 0.0, queued.failure("x"))
    else:
        queued.queue.start_binding(queued.unit("a"))
    assert len(queued.queue) == 0
