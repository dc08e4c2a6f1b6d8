"""What fails about a tree, each part for itself."""

import pytest

from cpg_operator.writing.retries import LOOK, PartFailure, RetryState

SPEC, STATUS = ("uid", "fields"), ("uid", "health")


@pytest.fixture
def troubles() -> RetryState[str]:
    """Return none."""
    return RetryState()


def test_what_fails_comes_back_later_and_later(troubles: RetryState[str]) -> None:
    """Doubling up to a minute, and from the start again once it has worked."""
    assert [troubles.note("a", SPEC) for _ in range(8)] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert [troubles.note("b", SPEC) for _ in range(1100)][-1] == 60.0
    troubles.worked("a", SPEC)
    assert troubles.note("a", SPEC) == 1.0


def test_each_part_stands_for_itself(troubles: RetryState[str]) -> None:
    """That one works says nothing of another."""
    troubles.note("a", SPEC, "first")
    troubles.note("a", SPEC, "refused")
    troubles.note("a", STATUS)
    troubles.worked("a", STATUS)
    troubles.worked("b", SPEC)
    assert troubles.of("a") == {SPEC: PartFailure(2, "refused")}
    assert troubles.note("a", STATUS) == 1.0
    assert troubles.note("a", SPEC) == 4.0


def test_what_is_no_longer_wanted_is_forgotten(troubles: RetryState[str]) -> None:
    """So nothing is kept of trees that are gone, nor of looks that have worked."""
    troubles.note("a", SPEC)
    troubles.note("a", LOOK)
    troubles.only("a", [SPEC, STATUS])
    assert list(troubles.of("a")) == [SPEC]
    troubles.only("a", [])
    assert len(troubles) == 0
