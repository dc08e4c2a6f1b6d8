"""Collections of garbage: rare, and without the cache."""

import gc
from collections.abc import Iterator

import pytest

from cpg_client.garbage import MAX_YOUNG_OBJECTS, exclude_cache, tune


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Restore the collector."""
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


def _visited() -> int:
    """Return how many objects a full collection visits."""
    return sum(len(gc.get_objects(generation)) for generation in range(3))


def test_a_full_collection_does_not_visit_the_cache() -> None:
    """The cost of a collection does not grow with what was there at the start."""
    tune()
    cache = [[number] for number in range(50_000)]
    assert _visited() >= len(cache)
    exclude_cache()
    assert _visited() < 5_000


def test_young_objects_are_collected() -> None:
    """Cycles of new objects are found, after more of them than by default."""
    tune()
    assert gc.get_threshold()[0] == MAX_YOUNG_OBJECTS
    began = gc.get_stats()[0]["collections"]
    kept = [[number] for number in range(MAX_YOUNG_OBJECTS * 3)]
    assert 2 <= gc.get_stats()[0]["collections"] - began <= 10
    assert kept
