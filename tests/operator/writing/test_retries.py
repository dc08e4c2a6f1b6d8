"""Failures are counted for each part of each object."""

import pytest

from cpg_operator.writing.retries import RECONCILE_PART, PartFailure, RetryState

SPEC, STATUS = ("uid", "fields"), ("uid", "health")


@pytest.fixture
def retries() -> RetryState[str]:
    """Return a state without failures."""
    return RetryState()


def test_the_back_off_doubles(retries: RetryState[str]) -> None:
    """Up to a minute, and from the start once the part has worked."""
    assert [retries.record("a", SPEC) for _ in range(8)] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert [retries.record("b", SPEC) for _ in range(1100)][-1] == 60.0
    retries.clear("a", SPEC)
    assert retries.record("a", SPEC) == 1.0


def test_each_part_counts_separately(retries: RetryState[str]) -> None:
    """A success of one part does not end the failures of another."""
    retries.record("a", SPEC, "first")
    retries.record("a", SPEC, "refused")
    retries.record("a", STATUS)
    retries.clear("a", STATUS)
    retries.clear("b", SPEC)
    assert retries.failures("a") == {SPEC: PartFailure(2, "refused")}
    assert retries.record("a", STATUS) == 1.0
    assert retries.record("a", SPEC) == 4.0


def test_parts_that_are_no_longer_wanted_are_forgotten(retries: RetryState[str]) -> None:
    """So nothing is kept of deleted trees, nor of reconciles that have succeeded since."""
    retries.record("a", SPEC)
    retries.record("a", RECONCILE_PART)
    retries.keep_only("a", [SPEC, STATUS])
    assert list(retries.failures("a")) == [SPEC]
    retries.keep_only("a", [])
    assert len(retries) == 0
