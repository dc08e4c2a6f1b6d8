"""When a tree is looked at: after a quiet moment, not too late."""

import pytest

from cpg_operator.work_queue import WorkQueue


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Return a clock."""
    return Clock()


@pytest.fixture
def dirty(clock: Clock) -> WorkQueue[str]:
    """Return a queue that waits for a quarter of a second of quiet, and for one second at most."""
    return WorkQueue(clock, quiet=0.25, longest=1.0)


def drained(dirty: WorkQueue[str]) -> list[str]:
    """Return all that is due."""
    found = []
    while (key := dirty.pop()) is not None:
        found.append(key)
    return found


def test_nothing_is_due_where_nothing_happened(dirty: WorkQueue[str]) -> None:
    """And nothing ever will be."""
    assert (dirty.pop(), dirty.wait(), len(dirty)) == (None, None, 0)


def test_a_tree_is_due_when_it_has_been_quiet(dirty: WorkQueue[str], clock: Clock) -> None:
    """Every piece of news begins the quiet anew."""
    dirty.mark("a")
    clock.now += 0.2
    dirty.mark("a")
    clock.now += 0.2
    assert drained(dirty) == []
    assert dirty.wait() == pytest.approx(0.05)
    clock.now += 0.06
    assert drained(dirty) == ["a"]
    assert drained(dirty) == []


def test_a_tree_that_is_never_quiet_is_looked_at_all_the_same(dirty: WorkQueue[str], clock: Clock) -> None:
    """Ten thousand pieces of news within ten seconds are ten looks."""
    looks = 0
    for _ in range(10_000):
        dirty.mark("a")
        clock.now += 0.001
        looks += len(drained(dirty))
    assert looks == pytest.approx(10, abs=1)
    assert len(dirty) <= 1


def test_a_stream_of_news_is_one_look_a_second_and_its_first_is_not_held_up(
    dirty: WorkQueue[str], clock: Clock
) -> None:
    """Also where there are quiet moments in it; other news are not paced, and nothing is remembered for long."""
    looks = []
    for step in range(100):
        dirty.mark_paced("a")
        clock.now += 0.3
        looks += [step for _ in drained(dirty)]
    assert looks[:2] == [0, 4]
    assert len(looks) == pytest.approx(25, abs=2)
    clock.now += 1.0
    drained(dirty)
    dirty.mark_paced("a")
    dirty.mark("b")
    clock.now += 0.25
    assert drained(dirty) == ["b"]
    clock.now += 2.0
    assert drained(dirty) == ["a"]
    assert list(dirty._popped) == ["a"]


def test_the_longest_due_comes_first(dirty: WorkQueue[str], clock: Clock) -> None:
    """Whatever the order of their names."""
    for key in "bca":
        dirty.mark(key)
        clock.now += 0.01
    clock.now += 1
    assert drained(dirty) == ["b", "c", "a"]


def test_a_time_of_its_own_is_kept_unless_news_come_earlier(dirty: WorkQueue[str], clock: Clock) -> None:
    """The earlier of two wishes stands."""
    dirty.mark_in("a", 60.0)
    dirty.mark_in("a", 90.0)
    assert dirty.wait() == pytest.approx(60.0)
    dirty.mark("a")
    clock.now += 0.25
    assert drained(dirty) == ["a"]
    clock.now += 100
    assert drained(dirty) == []


def test_times_far_ahead_that_no_longer_count_are_not_kept(dirty: WorkQueue[str], clock: Clock) -> None:
    """A tree that is to be released in a day, and looked at each second until then; what is due stays so, in order."""
    dirty.mark_in("other", 50_000.0)
    for second in range(10_000):
        clock.now += 1.0
        dirty.mark_paced("a")
        clock.now += 0.3
        assert drained(dirty) == ["a"]
        dirty.mark_in("a", 86_400.0 - second)
        assert len(dirty._heap) <= 5
    clock.now += 100_000.0
    assert drained(dirty) == ["other", "a"]


def test_who_sleeps_is_woken_for_what_is_due_earlier(dirty: WorkQueue[str]) -> None:
    """And for nothing else."""
    woken: list[float | None] = []
    dirty.woken = lambda: woken.append(dirty.wait())
    dirty.mark_in("late", 50.0)
    dirty.mark_in("later", 60.0)
    dirty.mark("now")
    dirty.mark("now")
    assert woken == [pytest.approx(50.0), pytest.approx(0.25)]
