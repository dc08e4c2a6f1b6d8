"""What attempts have cost, and what follows for the order of units."""

from typing import TYPE_CHECKING

import pytest

from cpg_api.scheduling.forest import GroupKey
from cpg_scheduler.keys import QueueKey, UnitKey
from cpg_scheduler.queueing.attempt_costs import MAX_NAMESPACES, NamespaceCosts, rest_after

if TYPE_CHECKING:
    from tests.scheduler.queueing.conftest import QueueFixture


def key(namespace: str, name: str, created: str = "2026") -> QueueKey:
    """Return the queue key of a unit in a namespace."""
    return QueueKey(0, created, UnitKey("crd", GroupKey("PodGroup", namespace, name)))


def test_the_lag_of_a_namespace_grows_with_each_doubling_and_is_forgotten() -> None:
    """By half every ten seconds."""
    costs = NamespaceCosts()
    assert costs.lag("a") == 0
    costs.charge("a", 0.75, 0.0)
    assert (costs.lag("a"), costs.lag("b")) == (2, 0)
    costs.charge("a", 1.0, 0.0)
    assert costs.lag("a") == 3
    costs.advance(10.0)
    assert costs.lag("a") == 2
    costs.advance(100.0)
    assert costs.lag("a") == 0


def test_the_namespaces_that_have_cost_least_are_forgotten() -> None:
    """Names of namespaces are not collected for ever."""
    costs = NamespaceCosts()
    costs.charge("dear", 9.0, 0.0)
    for number in range(2 * MAX_NAMESPACES):
        costs.charge(f"n{number}", 0.001, 0.0)
    assert len(costs._costs) <= MAX_NAMESPACES
    assert costs.lag("dear") > 0


@pytest.mark.parametrize(("seconds", "rest"), [(0.0, 0.0), (0.004, 0.0), (1.01, 19.0)])
def test_a_unit_rests_after_an_expensive_attempt(seconds: float, rest: float) -> None:
    """Most attempts are cheaper."""
    assert rest_after(seconds) == pytest.approx(rest)


def test_a_unit_that_changes_all_the_time_rests_after_an_expensive_attempt(queued: "QueueFixture") -> None:
    """Its own changes do not end the rest; others are attempted meanwhile, and time does."""
    queued.activate("a")
    queued.fail("a")
    queued.queue.charge(queued.unit("a"), 1.01, 1.0, placed=0)
    for now in (1.0, 2.0, 3.0):
        queued.activate("a", f"other{now}")
        assert queued.pop_all(now) == [f"other{now}"]
    assert queued.queue.counts()["backoff"] == 1
    assert queued.queue.next_wake() == pytest.approx(20.0)
    assert queued.pop_all(20.0) == ["a"]


def test_a_unit_of_which_pods_were_placed_does_not_rest(queued: "QueueFixture") -> None:
    """Its next pods may fit as well."""
    queued.activate("a")
    queued.place("a")
    queued.queue.charge(queued.unit("a"), 1.0, 1.0, placed=1)
    queued.activate("a")
    assert queued.pop_all(1.0) == ["a"]


def test_a_resting_unit_that_is_gone_or_was_put_twice_is_popped_at_most_once(queued: "QueueFixture") -> None:
    """What is left of it is skipped."""
    for name in ("gone", "twice"):
        queued.activate(name)
        queued.fail(name)
        queued.queue.charge(queued.unit(name), 1.0, 0.0, placed=0)
        queued.activate(name)
        assert queued.pop_all(0.0) == []
    queued.activate("twice")
    assert queued.pop_all(0.0) == []
    queued.queue.remove(queued.unit("gone"))
    assert queued.pop_all(99.0) == ["twice"]


def test_units_of_a_namespace_that_costs_much_go_behind_others(queued: "QueueFixture") -> None:
    """Though they are older; among themselves, and without others, they keep their order."""
    queue = queued.queue
    for name in ("a", "b", "c"):
        queue.activate(key("dear", name, created="2020"))
    queue.charge(key("dear", "x").unit, 5.0, 0.0, placed=0)
    queue.activate(key("cheap", "d"))
    assert [found.queue_key.unit.key.name for found in queue.positions(4)] == ["d", "a", "b", "c"]
    assert queued.pop_all(0.0) == ["d", "a", "b", "c"]
    for name in ("a", "b"):
        queue.activate(key("dear", name))
    assert queued.pop_all(0.0) == ["a", "b"]


def test_requeued_units_of_a_namespace_that_costs_much_do_not_take_turns_with_others(queued: "QueueFixture") -> None:
    """Fresh units of other namespaces go first, however many there are."""
    queue = queued.queue
    for name in ("a", "b"):
        queue.activate(key("dear", name, created="2020"))
        unit = queue.pop(0.0)
        assert unit is not None
        queue.add_unschedulable(unit, 1, 0.0, queued.failure())
    queue.charge(key("dear", "x").unit, 5.0, 8.0, placed=0)
    queued.move_all(9.0)
    for number in range(3):
        queue.activate(key("cheap", f"new{number}"))
    assert queued.pop_all(9.0) == ["new0", "new1", "new2", "a", "b"]
