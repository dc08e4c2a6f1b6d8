"""The budget of costly pages: how much of the event loop's time they get."""

from collections.abc import Iterator

import pytest

from cpg_client.work_budget import MAX_REST_SECONDS, NOTICED_SECONDS, WorkBudget


class Clock:
    """A clock that work moves."""

    def __init__(self) -> None:
        """Start at zero."""
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now

    def work(self, *costs: float) -> Iterator[str]:
        """Yield after each part of some work."""
        for cost in costs:
            self.now += cost
            yield "part"


def worked(budget: WorkBudget, clock: Clock, *costs: float) -> float:
    """Make an answer in parts of these costs, with rests; return its cost, or 0 where it is refused."""
    if budget.seconds_to_wait():
        return 0.0
    budget.take()
    clock.now += budget.rest()
    parts = clock.work(*costs)
    while budget.next_part(parts) is not None:
        clock.now += budget.rest()
    budget.release()
    return sum(costs)


@pytest.mark.parametrize(
    ("costs", "share"),
    [((0.004,), 0.1), ((0.02, 0.03), 0.1), ((NOTICED_SECONDS * 1.1,), 0.01), ((0.5, 0.9), 0.01)],
)
def test_the_share_of_work_is_limited_whatever_is_asked(costs: tuple[float, ...], share: float) -> None:
    """Twenty requests a second get a tenth of the time; parts that delay others noticeably get a hundredth."""
    clock = Clock()
    budget = WorkBudget(clock)
    spent, answers = 0.0, 0
    while clock.now < 3600.0:
        cost = worked(budget, clock, *costs)
        spent, answers = spent + cost, answers + (cost > 0)
        clock.now += 0.05
    assert spent <= share * clock.now + sum(costs)
    assert answers > 1


def test_a_single_answer_is_never_refused() -> None:
    """A request by hand waits for a second at most after a cheap answer."""
    clock = Clock()
    budget = WorkBudget(clock)
    assert [worked(budget, clock, 0.01) for _ in range(10)] == [0.01] * 10
    assert clock.now < 10 * (0.01 + MAX_REST_SECONDS)


def test_a_second_answer_waits_for_the_first() -> None:
    """And is told when to ask again."""
    budget = WorkBudget(Clock())
    budget.take()
    assert budget.seconds_to_wait() == MAX_REST_SECONDS
    budget.release()
    assert budget.seconds_to_wait() == 0.0


def test_a_part_that_fails_is_charged_too() -> None:
    """Otherwise faults would be free."""
    clock = Clock()
    budget = WorkBudget(clock)

    def failing() -> Iterator[str]:
        clock.now += 2.0
        yield ("a", "b")[clock.now > 1.0 and 2]

    with pytest.raises(IndexError):
        budget.next_part(failing())
    assert budget.seconds_to_wait() > 100.0
