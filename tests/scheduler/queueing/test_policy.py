"""The backoff of units."""

import pytest

from cpg_scheduler.queueing.policy import RequeueBackoff


@pytest.mark.parametrize(("attempts", "size", "expected"), [(1, 1, 1.25), (3, 1, 5.0), (99, 1, 12.5), (1, 1000, 3.5)])
def test_the_backoff_grows_with_attempts_and_size(attempts: int, size: int, expected: float) -> None:
    """It doubles up to a limit, and is longer by a quarter each time the size doubles."""
    assert RequeueBackoff().delay(attempts, size) == expected
