"""The figures of a soak."""

import pytest
from soak import after_warm_up, memory_problems, sampled_evenly, slope


@pytest.mark.parametrize(("number", "kept"), [(0, 0), (1, 1), (200, 200), (201, 101), (1800, 200), (1801, 181)])
def test_at_most_200_samples_are_kept(number: int, kept: int) -> None:
    """An even selection that contains the first."""
    samples = [(float(at), 100.0) for at in range(number)]
    assert len(found := sampled_evenly(samples)) == kept
    assert found[:1] == samples[:1]


@pytest.mark.parametrize(
    ("largest", "growth", "says"),
    [
        (120.0, 3.9, []),
        (120.0, 5.5, ["memory grows: 5.5 MB in 90 s"]),
        (1001.0, 0.0, ["1001 MB are more than 1000"]),
    ],
)
def test_memory_has_limits_on_size_and_growth(largest: float, growth: float, says: list[str]) -> None:
    """Growth below some MB is noise."""
    figures = {"largest_mb": largest, "growth_mb": growth, "middle_mb": 100.0, "warm_seconds": 90.0}
    assert memory_problems(figures) == says


def test_outliers_are_no_growth() -> None:
    """The slope is a median."""
    samples = [(float(at), 100.0 + (50.0 if at in {3, 97} else 0.0)) for at in range(100)]
    assert slope(samples) == 0.0


@pytest.mark.parametrize(("full", "first"), [(0.0, 25.0), (10.0, 25.0), (40.0, 41.0), (90.0, 50.0)])
def test_the_warm_up_lasts_until_all_trees_exist(full: float, first: float) -> None:
    """At least a quarter of the time, and at most half."""
    samples = [(float(at), 100.0) for at in range(100)]
    assert after_warm_up(samples, full)[0][0] == first
