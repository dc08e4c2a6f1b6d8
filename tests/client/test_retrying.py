"""Which refusals are retried, and after how long."""

import pytest

from cpg_client.errors import ApiError, Cause, ConnectionFailedError
from cpg_client.retrying import RetryPolicy, WatchBackoff


def refusal(status: int, retry_after: float | None = None, *causes: Cause) -> ApiError:
    """Build a refusal with a status, a header and causes."""
    return ApiError(status, "", "", causes=causes, retry_after=retry_after)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST", "PATCH"])
@pytest.mark.parametrize("status", [429, 503])
def test_throttling_is_retried_for_any_method(method: str, status: int) -> None:
    """A refusal with Retry-After was not acted on, so even a create is repeated."""
    assert RetryPolicy().wait_before_next(method, refusal(status, 2), sent=1, waited=0) == 2


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_429_without_retry_after_is_not_retried(method: str) -> None:
    """Nothing indicates that a retry would help."""
    assert RetryPolicy().wait_before_next(method, refusal(429), sent=1, waited=0) is None


def test_a_refusal_with_causes_is_not_retried() -> None:
    """An eviction that a budget forbids is returned at once, even with Retry-After."""
    error = refusal(429, 10, Cause("DisruptionBudget", "still being processed"))
    assert RetryPolicy().wait_before_next("POST", error, sent=1, waited=0) is None


@pytest.mark.parametrize(
    ("method", "wait"), [("GET", 0.25), ("PUT", 0.25), ("DELETE", 0.25), ("POST", None), ("PATCH", None)]
)
def test_a_503_without_retry_after_is_retried_for_idempotent_methods(method: str, wait: float | None) -> None:
    """It is unknown whether the server acted on it, so creates and patches are not repeated."""
    assert RetryPolicy().wait_before_next(method, refusal(503), sent=1, waited=0) == wait


@pytest.mark.parametrize("status", [400, 404, 409, 410, 500, 504])
def test_no_other_refusal_is_retried(status: int) -> None:
    """The caller handles it."""
    assert RetryPolicy().wait_before_next("GET", refusal(status, 1), sent=1, waited=0) is None


def test_waits_double_without_retry_after() -> None:
    """The back-off is a fixed sequence, which Retry-After overrides."""
    retries = RetryPolicy()
    waits = [retries.wait_before_next("GET", refusal(503), sent=sent, waited=0) for sent in (1, 2, 3, 4, 5)]
    assert waits == [0.25, 0.5, 1, 2, 4]
    assert retries.wait_before_next("GET", refusal(503, 7), sent=3, waited=0) == 7


def test_attempts_are_bounded() -> None:
    """The error of the last attempt is raised."""
    assert RetryPolicy(attempts=3).wait_before_next("GET", refusal(503, 1), sent=3, waited=0) is None


def test_the_total_wait_is_bounded() -> None:
    """A wait beyond the limit is not started."""
    retries = RetryPolicy(max_total_wait=10)
    assert retries.wait_before_next("GET", refusal(429, 4), sent=2, waited=6) == 4
    assert retries.wait_before_next("GET", refusal(429, 5), sent=2, waited=6) is None


def test_waits_of_a_watch_grow_to_a_limit() -> None:
    """However often it has failed."""
    error = ConnectionFailedError("server", "request", "why")
    assert [WatchBackoff().wait(failures, error) for failures in (1, 2, 5, 6, 10_000)] == [0.25, 0.5, 4, 5, 5]


def test_a_forbidden_watch_waits_longer() -> None:
    """A missing right comes within moments, when the server starts, or after days."""
    assert [WatchBackoff().wait(failures, refusal(403)) for failures in (1, 6, 9, 10_000)] == [0.25, 8, 60, 60]


def test_a_watch_respects_retry_after() -> None:
    """Where it is longer than our own wait, also beyond the limit."""
    assert WatchBackoff().wait(1, refusal(429, 30)) == 30
    assert WatchBackoff().wait(3, refusal(429, 0.5)) == 1
