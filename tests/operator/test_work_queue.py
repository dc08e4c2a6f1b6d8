"""When a tree is due: after a quiet moment, but not too late."""

import asyncio

import pytest

from cpg_operator.work_queue import WorkQueue


class Clock:
    """A clock that tests set."""

    now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Return a clock."""
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> WorkQueue[str]:
    """Return a queue that waits for a quarter of a second without changes, and for one second at most."""
    return WorkQueue(clock, quiet=0.25, longest=1.0)


def pop_all(queue: WorkQueue[str]) -> list[str]:
    """Return all keys that are due."""
    found = []
    while (key := queue.pop()) is not None:
        found.append(key)
    return found


def test_an_empty_queue_is_never_due(queue: WorkQueue[str]) -> None:
    """There is no time to wait for."""
    assert (queue.pop(), queue.seconds_until_due(), len(queue)) == (None, None, 0)


def test_a_tree_is_due_after_a_quiet_moment(queue: WorkQueue[str], clock: Clock) -> None:
    """Every change restarts the wait."""
    queue.add("a")
    clock.now += 0.2
    queue.add("a")
    clock.now += 0.2
    assert pop_all(queue) == []
    assert queue.seconds_until_due() == pytest.approx(0.05)
    clock.now += 0.06
    assert pop_all(queue) == ["a"]
    assert pop_all(queue) == []


def test_a_tree_that_changes_all_the_time_is_reconciled_once_a_second(queue: WorkQueue[str], clock: Clock) -> None:
    """Ten thousand changes within ten seconds are ten reconciles."""
    reconciles = 0
    for _ in range(10_000):
        queue.add("a")
        clock.now += 0.001
        reconciles += len(pop_all(queue))
    assert reconciles == pytest.approx(10, abs=1)
    assert len(queue) <= 1


def test_paced_changes_are_one_reconcile_a_second_and_the_first_is_not_delayed(
    queue: WorkQueue[str], clock: Clock
) -> None:
    """Quiet moments in the stream do not matter; other changes are not paced, and nothing is remembered for long."""
    reconciles = []
    for step in range(100):
        queue.add_paced("a")
        clock.now += 0.3
        reconciles += [step for _ in pop_all(queue)]
    assert reconciles[:2] == [0, 4]
    assert len(reconciles) == pytest.approx(25, abs=2)
    clock.now += 1.0
    pop_all(queue)
    queue.add_paced("a")
    queue.add("b")
    clock.now += 0.25
    assert pop_all(queue) == ["b"]
    clock.now += 2.0
    assert pop_all(queue) == ["a"]
    assert list(queue._popped) == ["a"]


def test_the_key_that_is_due_the_longest_comes_first(queue: WorkQueue[str], clock: Clock) -> None:
    """The order of names does not matter."""
    for key in "bca":
        queue.add(key)
        clock.now += 0.01
    clock.now += 1
    assert pop_all(queue) == ["b", "c", "a"]


def test_a_delayed_key_is_due_earlier_if_it_changes(queue: WorkQueue[str], clock: Clock) -> None:
    """The earlier of two times counts."""
    queue.add_after("a", 60.0)
    queue.add_after("a", 90.0)
    assert queue.seconds_until_due() == pytest.approx(60.0)
    queue.add("a")
    clock.now += 0.25
    assert pop_all(queue) == ["a"]
    clock.now += 100
    assert pop_all(queue) == []


def test_replaced_times_far_ahead_are_not_kept(queue: WorkQueue[str], clock: Clock) -> None:
    """Such as of a tree that is to be released in a day and changes each second; keys that are due keep their order."""
    queue.add_after("other", 50_000.0)
    for second in range(10_000):
        clock.now += 1.0
        queue.add_paced("a")
        clock.now += 0.3
        assert pop_all(queue) == ["a"]
        queue.add_after("a", 86_400.0 - second)
        assert len(queue._heap) <= 5
    clock.now += 100_000.0
    assert pop_all(queue) == ["other", "a"]


@pytest.mark.parametrize(("key", "seconds", "wakes"), [("late", 60.0, False), ("early", 40.0, True)])
async def test_a_wait_ends_for_a_key_that_is_due_earlier(
    queue: WorkQueue[str], key: str, seconds: float, *, wakes: bool
) -> None:
    """A key that is due later ends no wait."""
    queue.add_after("first", 50.0)
    waiting = asyncio.create_task(queue.wait())
    await asyncio.sleep(0.01)
    queue.add_after(key, seconds)
    await asyncio.sleep(0.01)
    assert waiting.done() == wakes
    waiting.cancel()


async def test_a_wait_ends_at_once_where_a_key_is_due(queue: WorkQueue[str], clock: Clock) -> None:
    """Another task runs before it ends."""
    queue.add("a")
    clock.now += 1.0
    other = asyncio.create_task(asyncio.sleep(0))
    await queue.wait()
    assert not other.done() or queue.pop() == "a"


def test_a_wait_that_rounding_has_made_too_short_ends_later() -> None:
    """At once it would be as little over as before, for ever."""
    now = 5.0
    queue = WorkQueue[str](lambda: now, quiet=0.25, longest=1.0)
    queue.add_after("a", 1e-18)
    assert queue.pop() is None
    now += 0.001
    assert queue.pop() == "a"
