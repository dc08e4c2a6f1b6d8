"""How often the attempt of a group that shows nothing new is written."""

from cpg_scheduler.status.attempt_refreshes import BURST, FIRST_SECONDS, MAX_SECONDS, AttemptRefreshes


def test_the_interval_doubles_up_to_a_limit() -> None:
    """Also for a group that the process before has reported; news starts the intervals anew."""
    now = 0.0
    refreshes = AttemptRefreshes(lambda: now)
    taken: list[float] = []
    for second in range(5000):
        now = float(second)
        if refreshes.take("a"):
            taken.append(now)
    waits = [after - before for before, after in zip([0.0, *taken], taken, strict=False)]
    assert waits[:6] == [FIRST_SECONDS, 120.0, 240.0, 480.0, MAX_SECONDS, MAX_SECONDS]
    refreshes.start("a")
    now += FIRST_SECONDS
    assert refreshes.take("a")
    refreshes.forget("a")
    assert not refreshes.take("a")


def test_all_groups_together_have_a_rate_with_a_burst() -> None:
    """A group that gets no write keeps its turn."""
    now = 0.0
    refreshes = AttemptRefreshes(lambda: now)
    groups = [f"group-{number}" for number in range(1000)]
    assert not any(map(refreshes.take, groups))
    now = FIRST_SECONDS
    assert sum(map(refreshes.take, groups)) == BURST
    now += 5.0
    assert sum(map(refreshes.take, groups)) == 10
