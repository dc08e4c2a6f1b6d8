"""The queue of root units, by its rules."""

import pytest

from cpg_api.scheduling.forest import GroupKey
from cpg_engine.verdicts import Explanation, FilterReason, Finding, GroupReport, StatusCounts
from cpg_scheduler.keys import QueueKey, UnitKey
from cpg_scheduler.queueing.equivalence import FEW
from cpg_scheduler.queueing.hints import ANYTHING, REVIEW, FailedAttempt, RequeueHint
from cpg_scheduler.queueing.scheduling_queue import RequeueBackoff, SchedulingQueue

ROOM = RequeueHint()


def root(name: str) -> UnitKey:
    """Return the key of a root."""
    return UnitKey("crd", GroupKey("PodGroup", "default", name))


def order(name: str, importance: int = 0, created: str = "2026") -> QueueKey:
    """Return where a root stands."""
    return QueueKey(importance, created, root(name))


def failure(signature: str | None = None, hope: RequeueHint | None = ROOM, reason: str = "") -> FailedAttempt:
    """Return a failure, for a reason if one is given."""
    if not reason:
        return FailedAttempt(hope=hope, signature=signature)
    report = GroupReport(root("any").key, StatusCounts(minimum=1), nodes=1, reasons=(FilterReason(reason, 1),))
    return FailedAttempt(hope=hope, signature=signature, explanation=Explanation(Finding.IMPOSSIBLE, (report,)))


def names(pending: SchedulingQueue, now: float = 0.0) -> list[str]:
    """Pop all who are active."""
    found = []
    while (key := pending.pop(now)) is not None:
        found.append(key.key.name)
    return found


def fail(
    pending: SchedulingQueue, name: str, now: float = 0.0, found: FailedAttempt | None = None, size: int = 1
) -> None:
    """Let the next root, which has to be this one, fail."""
    assert pending.pop(now) == root(name)
    pending.fail(root(name), size, now, found or failure())


@pytest.fixture
def pending() -> SchedulingQueue:
    """Return a queue whose backoff doubles from one second to eight."""
    return SchedulingQueue(RequeueBackoff(first=1.0, most=8.0, per_doubling=0.0))


@pytest.fixture
def lot(pending: SchedulingQueue) -> SchedulingQueue:
    """Return the queue with three that are alike and parked; the first has failed, the others share it."""
    for name in "abc":
        pending.put(order(name))
    fail(pending, "a", found=failure("x"))
    for name in "bc":
        assert pending.pop(0) == root(name)
        assert pending.share(root(name), "x")
    return pending


def test_roots_come_by_importance_then_age_then_name(pending: SchedulingQueue) -> None:
    """The order is total."""
    orders = [order("b"), order("a"), order("old", created="2025"), order("vip", importance=-9)]
    for one in orders:
        pending.put(one)
    assert names(pending) == ["vip", "old", "a", "b"]


def test_whose_order_changes_is_popped_once_and_by_the_new_one(pending: SchedulingQueue) -> None:
    """What is left of the old order in the heap is passed over."""
    pending.put(order("a"))
    pending.put(order("b"))
    pending.put(order("a", importance=9))
    pending.put(order("a", importance=9))
    assert names(pending) == ["b", "a"]


def test_who_is_being_attempted_counts_nowhere(pending: SchedulingQueue) -> None:
    """It is on its way from one place to another."""
    pending.put(order("a"))
    assert pending.pop(0.0) == root("a")
    assert set(pending.counts().values()) == {0}


def test_who_is_dropped_is_not_popped(pending: SchedulingQueue) -> None:
    """Dropping somebody unknown is no mistake."""
    pending.put(order("a"))
    pending.drop(root("a"))
    pending.drop(root("b"))
    assert names(pending) == []
    assert len(pending) == 0


def test_who_changes_itself_before_every_cycle_goes_behind_each_other_once(pending: SchedulingQueue) -> None:
    """Whatever its age: who has had its turn since another came lets that go first, new ones not for ever."""
    for name in "abc":
        pending.put(order(name))
    tried = []
    for number in range(6):
        pending.put(order("a"))
        pending.put(order(f"new{number}", created="2027"))
        key = pending.pop(0.0)
        assert key is not None
        pending.fail(key, 1, 0.0, failure())
        tried.append(key.key.name)
    assert tried == ["a", "b", "c", "new0", "a", "new1"]


@pytest.mark.parametrize("again", ["changed", "made anew"])
def test_who_changes_itself_before_every_cycle_takes_turns_with_those_that_are_called(
    pending: SchedulingQueue, again: str
) -> None:
    """Though it is older, and even if all that it was is taken away and comes again."""
    for name in "abc":
        pending.put(order(name))
        fail(pending, name)
    pending.stir(9.0, list)
    pending.drop(root("a"))
    for name in "aabac":
        if again == "made anew":
            pending.drop(root("a"))
        pending.put(order("a"))
        fail(pending, name, 9.0)


def test_who_has_changed_itself_goes_by_age_before_those_that_came_later(pending: SchedulingQueue) -> None:
    """Or each new pod would put it off."""
    pending.put(order("old", created="2025"))
    fail(pending, "old")
    pending.put(order("a"))
    pending.put(order("old", created="2025"))
    assert [place.order.key.key.name for place in pending.foremost(2)] == ["old", "a"]
    assert names(pending) == ["old", "a"]


def test_who_is_listed_foremost_is_attempted_first(pending: SchedulingQueue) -> None:
    """Who has just had its turn is not."""
    for name in "abc":
        pending.put(order(name))
    fail(pending, "a")
    pending.put(order("a"))
    assert [place.order.key.key.name for place in pending.foremost(3)] == ["b", "c", "a"]


@pytest.mark.parametrize(("attempts", "size", "expected"), [(1, 1, 1.25), (3, 1, 5.0), (99, 1, 12.5), (1, 1000, 3.5)])
def test_the_backoff_grows_with_attempts_and_size(attempts: int, size: int, expected: float) -> None:
    """It doubles up to a limit, and is longer by a quarter each time the size doubles."""
    assert RequeueBackoff().delay(attempts, size) == expected


def test_who_failed_waits_for_something_to_happen(pending: SchedulingQueue) -> None:
    """Time alone helps nobody."""
    pending.put(order("a"))
    fail(pending, "a")
    assert names(pending, REVIEW - 1) == []
    assert pending.counts() == {"active": 0, "backoff": 0, "unschedulable": 1, "binding": 0}


def test_who_nothing_has_helped_for_long_has_a_turn_when_there_is_nobody_else(pending: SchedulingQueue) -> None:
    """The rules about hope may be wrong; that it was worth while is counted."""
    for name in "ab":
        pending.put(order(name))
        fail(pending, name)
    assert pending.next_wake() == REVIEW
    pending.put(order("c"))
    assert [pending.pop(REVIEW, never), pending.pop(REVIEW, never)] == [root("c"), root("a")]
    pending.bind(root("a"))
    pending.put(order("d"))
    assert [pending.pop(REVIEW), pending.pop(REVIEW), pending.pop(REVIEW)] == [root("d"), root("b"), None]
    assert pending.surprises == 1


def test_who_is_called_in_vain_parks_again(pending: SchedulingQueue) -> None:
    """Others were faster; news that come later call it again, and none of them is forgotten."""
    pending.put(order("a"))
    fail(pending, "a")
    asked: list[int] = []

    def in_vain(_: RequeueHint, since: int) -> bool:
        asked.append(since)
        return False

    for _ in range(2):
        pending.stir(9.0, list)
        assert pending.pop(9.0, in_vain) is None
    assert asked == [0, 0]
    pending.stir(REVIEW, list)
    assert pending.pop(REVIEW, never) == root("a")


@pytest.mark.parametrize(
    ("importance", "expected"),
    [
        (0, ["new1", "a", "new2", "b", "new3", "c"]),
        (-1, ["new1", "new2", "new3", *"abc"]),
        (1, [*"abc", "new1", "new2"]),
    ],
)
def test_a_crowd_that_is_called_in_vain_lets_others_go_first(
    pending: SchedulingQueue, importance: int, expected: list[str]
) -> None:
    """If they are as important: the first at once, each that follows after one attempt more."""
    for name in "abc":
        pending.put(order(name))
        fail(pending, name)
    pending.stir(9.0, list)
    for name in ("new1", "new2", "new3"):
        pending.put(order(name, importance, created="2027"))
    for name in expected:
        fail(pending, name, 9.0)


def test_who_was_called_and_is_placed_lets_nobody_go_first_any_more(lot: SchedulingQueue) -> None:
    """There is room for the crowd, which has waited for longer; the next time it is asked to wait again."""
    lot.stir(9.0, list)
    for name in ("new1", "new2"):
        lot.put(order(name, created="2027"))
    for name in ("new1", "a", "b", "c", "new2"):
        assert lot.pop(9.0) == root(name)
        lot.bind(root(name))
    lot.put(order("d"))
    fail(lot, "d", 9.0)
    lot.stir(20.0, list)
    lot.put(order("new3", created="2027"))
    assert names(lot, 20.0) == ["new3", "d"]


def never(*_: object) -> bool:
    """Find no hope fulfilled."""
    return False


def test_help_comes_after_the_backoff(pending: SchedulingQueue) -> None:
    """Until then the root waits, and the queue says how long."""
    pending.put(order("a"))
    fail(pending, "a")
    pending.stir(0.5, list)
    assert pending.next_wake() == 1.0
    assert pending.counts()["backoff"] == 1
    assert names(pending, 0.9) == []
    assert names(pending, 1.0) == ["a"]


def test_help_comes_at_once_where_the_backoff_has_passed(pending: SchedulingQueue) -> None:
    """Who has waited for long need not wait again."""
    pending.put(order("a"))
    fail(pending, "a")
    pending.stir(5.0, list)
    assert pending.next_wake() == REVIEW
    assert names(pending, 5.0) == ["a"]


def test_each_failure_doubles_the_backoff(pending: SchedulingQueue) -> None:
    """Also across the changes of one's own that make one active at once."""
    for attempt, wait in enumerate((1.0, 2.0, 4.0, 8.0, 8.0)):
        pending.put(order("a"))
        fail(pending, "a", 100.0 * attempt)
        pending.stir(100.0 * attempt, list)
        assert pending.next_wake() == 100.0 * attempt + wait


def test_an_own_change_ends_the_backoff(pending: SchedulingQueue) -> None:
    """What is left in the heap of waiting roots is passed over."""
    pending.put(order("a"))
    fail(pending, "a")
    pending.stir(0.0, list)
    pending.put(order("a"))
    assert names(pending) == ["a"]


def test_news_help_whom_they_can_help(pending: SchedulingQueue) -> None:
    """Who hopes for nothing is not asked, and who hopes for anything is always helped."""
    hopes = {"held": None, "room": ROOM, "anything": ANYTHING}
    for name, hope in hopes.items():
        pending.put(order(name))
        fail(pending, name, found=failure(hope=hope))
    pending.stir(9.0, lambda hopes: hopes.for_anything)
    assert names(pending, 9.0) == ["anything"]
    pending.stir(9.0, lambda hopes: [key for key in hopes if hopes[key] == ROOM])
    assert names(pending, 9.0) == ["room"]


def test_news_of_no_node_help_only_who_hopes_for_anything(pending: SchedulingQueue) -> None:
    """Somebody has moved: that makes no room."""
    for name, hope in (("room", ROOM), ("anything", ANYTHING)):
        pending.put(order(name))
        pending.pop(0.0)
        pending.fail(root(name), 1, 0.0, failure(hope=hope))
    pending.stir(9.0)
    assert names(pending, 9.0) == ["anything"]


def test_one_attempt_answers_for_all_who_are_alike(lot: SchedulingQueue) -> None:
    """When help comes, the first is attempted; when it fails, nobody else is."""
    lot.stir(9.0, list)
    fail(lot, "a", 9.0, failure("x"))
    assert names(lot, 9.0) == []
    assert lot.counts()["unschedulable"] == 3


def test_who_is_placed_hands_over_to_the_next(lot: SchedulingQueue) -> None:
    """As long as it works, all have their turn, without a wait between them."""
    lot.stir(9.0, list)
    for name in "abc":
        assert lot.pop(9.0) == root(name)
        lot.bind(root(name))
    assert lot.counts() == {"active": 0, "backoff": 0, "unschedulable": 0, "binding": 3}


@pytest.mark.parametrize("gone", ["drop", "put"])
def test_a_leader_that_is_gone_or_has_changed_hands_over(lot: SchedulingQueue, gone: str) -> None:
    """The help that woke it is for the others as well."""
    lot.stir(9.0, list)
    if gone == "drop":
        lot.drop(root("a"))
    else:
        lot.put(order("a", importance=5))
        assert lot.pop(9.0) == root("a")
        lot.fail(root("a"), 1, 9.0, failure("y"))
    assert names(lot, 9.0) == ["b"]


def test_an_own_change_takes_a_root_out_of_its_lot(lot: SchedulingQueue) -> None:
    """If it is still like the others, it comes back without an attempt."""
    lot.put(order("b"))
    assert lot.pop(0.0) == root("b")
    assert lot.share(root("b"), "x")
    assert names(lot) == []


def test_who_comes_when_there_is_news_lets_the_first_of_all_go_ahead(lot: SchedulingQueue) -> None:
    """The elders come first, and need not wait for their backoff any longer: somebody has to be attempted."""
    lot.stir(0.5, list)
    lot.put(order("new", created="2027"))
    assert lot.pop(0.5) == root("new")
    assert lot.share(root("new"), "x")
    assert names(lot, 0.5) == ["a"]


def test_who_is_like_those_that_are_being_attempted_is_attempted(lot: SchedulingQueue) -> None:
    """The answer for the leader is not there yet."""
    lot.stir(9.0, list)
    lot.put(order("older", created="2025"))
    assert lot.pop(9.0) == root("older")
    assert not lot.share(root("older"), "x")
    lot.fail(root("older"), 1, 9.0, failure("x"))
    assert lot.pop(9.0) == root("a")
    assert lot.share(root("a"), "x")


def test_nobody_shares_who_is_like_no_other(lot: SchedulingQueue) -> None:
    """Neither without a likeness, nor with a new one, nor a root that is gone."""
    lot.put(order("d"))
    lot.pop(0.0)
    assert not lot.share(root("d"), None)
    assert not lot.share(root("d"), "y")
    assert not lot.share(root("gone"), "x")


def test_success_starts_the_backoff_of_a_lot_anew(lot: SchedulingQueue) -> None:
    """Room comes and goes; how often nothing had been found before says nothing any more."""
    lot.stir(9.0, list)
    assert lot.pop(9.0) == root("a")
    lot.bind(root("a"))
    fail(lot, "b", 9.0, failure("x"))
    lot.stir(9.0, list)
    assert lot.next_wake() == 10.0


def test_every_root_is_told_once_for_each_way_to_fail(lot: SchedulingQueue) -> None:
    """Who shares a failure is told of it; again only when it is another one."""
    assert [found and found[0] for found in (lot.untold(), lot.untold(), lot.untold())] == [root("b"), root("c"), None]
    lot.stir(9.0, list)
    fail(lot, "a", 9.0, failure("x"))
    assert lot.untold() is None
    lot.stir(99.0, list)
    fail(lot, "a", 99.0, failure("x", reason="full"))
    lot.drop(root("c"))
    assert lot.untold() == (root("b"), failure("x", reason="full"))
    assert lot.untold() is None


def test_a_bind_that_fails_backs_off_longer_each_time(pending: SchedulingQueue) -> None:
    """Who cannot be bound must not be tried all the time, even though a place is found each time."""
    pending.put(order("a"))
    for attempt, wait in enumerate((1.0, 2.0, 4.0)):
        now = 100.0 * attempt
        assert names(pending, now) == ["a"]
        pending.bind(root("a"))
        pending.retry(order("a"), 1, now)
        assert pending.next_wake() == now + wait
        assert pending.counts()["backoff"] == 1


def test_a_bind_that_fails_is_not_held_against_those_who_are_alike(lot: SchedulingQueue) -> None:
    """They lead on, and it backs off alone."""
    lot.stir(9.0, list)
    assert lot.pop(9.0) == root("a")
    lot.bind(root("a"))
    lot.retry(order("a"), 1, 9.0)
    assert names(lot, 9.0) == ["b"]
    assert lot.next_wake() == 10.0


def test_a_root_is_forgotten_when_all_is_bound(pending: SchedulingQueue) -> None:
    """But not if something new is to be placed in it meanwhile."""
    for name in "ab":
        pending.put(order(name))
        pending.pop(0.0)
        pending.bind(root(name))
    pending.put(order("b"))
    for name in "abc":
        pending.bound(root(name))
    assert names(pending) == ["b"]
    assert len(pending) == 1


def test_what_has_changed_meanwhile_goes_before_a_bind_that_failed(pending: SchedulingQueue) -> None:
    """Who is active stays so; who was dropped is taken up again."""
    pending.put(order("a"))
    pending.pop(0.0)
    pending.bind(root("a"))
    pending.put(order("a"))
    pending.retry(order("a"), 1, 0.0)
    assert names(pending) == ["a"]
    pending.retry(order("b"), 1, 0.0)
    assert names(pending, 1.0) == ["b"]


def test_news_between_an_attempt_and_its_end_are_not_lost(pending: SchedulingQueue) -> None:
    """Who has become active again stays so, whatever came of the attempt."""
    pending.put(order("a"))
    pending.pop(0.0)
    pending.put(order("a"))
    pending.fail(root("a"), 1, 0.0, failure())
    assert names(pending) == ["a"]


def test_the_end_of_an_attempt_at_a_root_that_is_gone_is_no_news(pending: SchedulingQueue) -> None:
    """Nothing is remembered of it."""
    pending.fail(root("a"), 1, 0.0, failure("x"))
    pending.bind(root("a"))
    assert len(pending) == 0


def test_all_who_wait_with_others_are_active_when_what_makes_them_alike_has_changed(lot: SchedulingQueue) -> None:
    """Who waits alone goes on waiting."""
    lot.put(order("alone"))
    assert lot.pop(0.0) == root("alone")
    lot.fail(root("alone"), 1, 0.0, failure())
    lot.scatter()
    assert names(lot) == ["a", "b", "c"]


def test_a_lot_with_a_leader_is_scattered_too(lot: SchedulingQueue) -> None:
    """Everybody is popped once."""
    lot.stir(9.0, list)
    lot.scatter()
    assert names(lot, 9.0) == ["a", "b", "c"]


def test_a_lot_does_not_grow_by_those_who_come_and_go(pending: SchedulingQueue) -> None:
    """Its line is cleared of those who left."""
    pending.put(order("a"))
    fail(pending, "a", found=failure("x"))
    for _ in range(3 * FEW):
        pending.put(order("b"))
        assert pending.pop(0.0) == root("b")
        assert pending.share(root("b"), "x")
    assert len(pending._lots["x"].line) <= 2 * 2 + FEW
    pending.stir(9.0, list)
    assert pending.pop(9.0) == root("a")
    pending.bind(root("a"))
    assert names(pending, 9.0) == ["b"]


def test_nothing_is_left_of_those_who_are_gone(lot: SchedulingQueue) -> None:
    """An empty queue is empty in all its parts."""
    lot.stir(0.5, list)
    for name in "abc":
        lot.drop(root(name))
    assert lot.next_wake() is None
    assert lot.untold() is None
    assert (lot._lots, list(lot._hopes)) == ({}, [])
