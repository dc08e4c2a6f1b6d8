"""For how long a status lasts, by two clocks."""

from cpg_api.scheduling.forest import GroupKey
from cpg_client.flavours import CRD
from cpg_operator.elapsed import ElapsedTimes
from cpg_operator.writes import TreeKey

TREE = TreeKey(CRD, GroupKey("PodGroup", "default", "a"))


class Clocks:
    """A monotonic clock and the time of day."""

    def __init__(self) -> None:
        """Start at different origins."""
        self.now, self.wall = 7.0, 1000.0
        self.times = ElapsedTimes(clock=lambda: self.now, wall=lambda: self.wall)

    def seconds_since(self, since: float) -> float:
        """Return the answer in a new reconcile."""
        return self.times.of(TREE)(since)


def test_what_an_earlier_process_watched_counts() -> None:
    """Otherwise a restart would delay every release."""
    clocks = Clocks()
    assert clocks.seconds_since(900.0) == 100.0
    clocks.now += 5.0
    assert clocks.seconds_since(900.0) == 105.0


def test_a_status_from_the_future_begins_now() -> None:
    """Another replica's clock may be ahead of ours."""
    assert Clocks().seconds_since(5000.0) == 0.0


def test_a_status_that_was_not_asked_for_is_forgotten() -> None:
    """It has ended; and nothing is kept of trees that are gone."""
    clocks = Clocks()
    clocks.seconds_since(900.0)
    clocks.times.of(TREE)
    clocks.wall += 3600.0
    assert clocks.seconds_since(900.0) == 3700.0
    clocks.times.forget(TREE)
    assert clocks.times._began == {}


def test_within_a_reconcile_the_answer_is_one() -> None:
    """Two steps may ask for the same status."""
    clocks = Clocks()
    seconds_since = clocks.times.of(TREE)
    assert seconds_since(990.0) == 10.0
    clocks.wall += 50.0
    assert seconds_since(990.0) == 10.0
