"""What the soak makes of its samples."""

import pytest
from soak import judged, slope, thinned, warmed


@pytest.mark.parametrize(("number", "kept"), [(0, 0), (1, 1), (200, 200), (201, 101), (1800, 200), (1801, 181)])
def test_few_samples_are_kept_evenly(number: int, kept: int) -> None:
    """Never more than 200, whatever the length, and the first is among them."""
    samples = [(float(at), 100.0) for at in range(number)]
    assert len(found := thinned(samples)) == kept
    assert found[:1] == samples[:1]


@pytest.mark.parametrize(
    ("largest", "growth", "says"),
    [
        (120.0, 3.9, []),
        (120.0, 5.5, ["memory grows: 5.5 MB in 90 s"]),
        (1001.0, 0.0, ["1001 MB are more than 1000"]),
    ],
)
def test_memory_is_judged_by_its_most_and_its_growth(largest: float, growth: float, says: list[str]) -> None:
    """Below some MB growth is chance."""
    figures = {"largest_mb": largest, "growth_mb": growth, "middle_mb": 100.0, "warm_seconds": 90.0}
    assert judged(figures) == says


def test_a_few_odd_samples_are_no_growth() -> None:
    """The slope is that of the many."""
    samples = [(float(at), 100.0 + (50.0 if at in {3, 97} else 0.0)) for at in range(100)]
    assert slope(samples) == 0.0


@pytest.mark.parametrize(("full", "first"), [(0.0, 25.0), (10.0, 25.0), (40.0, 41.0), (90.0, 50.0)])
def test_memory_is_judged_once_all_trees_are_there(full: float, first: float) -> None:
    """And not before a quarter of the time has passed; half of it counts in any case."""
    samples = [(float(at), 100.0) for at in range(100)]
    assert warmed(samples, full)[0][0] == first
