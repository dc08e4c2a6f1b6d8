"""Which refusals are waited out, and how long."""

import pytest

from cpg_client.errors import ApiError, Cause, ConnectionFailedError
from cpg_client.retrying import RetryPolicy, WatchBackoff


def refusal(status: int, retry_after: float | None = None, *causes: Cause) -> ApiError:
    """Build a refusal of which only the status, the header and the causes matter."""
    return ApiError(status, "", "", causes=causes, retry_after=retry_after)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST", "PATCH"])
@pytest.mark.parametrize("status", [429, 503])
def test_throttling_is_waited_out_by_any_method(method: str, status: int) -> None:
    """A refusal with Retry-After was turned away unseen, so even a create is sent again."""
    assert RetryPolicy().wait_before_next(method, refusal(status, 2), sent=1, waited=0) == 2


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_429_without_retry_after_is_an_answer(method: str) -> None:
    """Nothing says that asking again would help."""
    assert RetryPolicy().wait_before_next(method, refusal(429), sent=1, waited=0) is None


def test_a_decision_with_causes_is_an_answer() -> None:
    """An eviction that a budget forbids comes back at once, even if it names a time."""
    error = refusal(429, 10, Cause("DisruptionBudget", "still being processed"))
    assert RetryPolicy().wait_before_next("POST", error, sent=1, waited=0) is None


@pytest.mark.parametrize(
    ("method", "wait"), [("GET", 0.25), ("PUT", 0.25), ("DELETE", 0.25), ("POST", None), ("PATCH", None)]
)
def test_a_bare_503_is_waited_out_if_sending_twice_is_harmless(method: str, wait: float | None) -> None:
    """Nobody knows whether a 503 of unknown origin was acted on, so creates and patches are not repeated."""
    assert RetryPolicy().wait_before_next(method, refusal(503), sent=1, waited=0) == wait


@pytest.mark.parametrize("status", [400, 404, 409, 410, 500, 504])
def test_no_other_refusal_is_repeated(status: int) -> None:
    """Any other answer is the caller's to handle."""
    assert RetryPolicy().wait_before_next("GET", refusal(status, 1), sent=1, waited=0) is None


def test_waits_double_unless_the_server_says_how_long() -> None:
    """The back-off is a fixed sequence that Retry-After overrides."""
    retries = RetryPolicy()
    waits = [retries.wait_before_next("GET", refusal(503), sent=sent, waited=0) for sent in (1, 2, 3, 4, 5)]
    assert waits == [0.25, 0.5, 1, 2, 4]
    assert retries.wait_before_next("GET", refusal(503, 7), sent=3, waited=0) == 7


def test_attempts_are_bounded() -> None:
    """The last attempt's error goes to the caller."""
    assert RetryPolicy(attempts=3).wait_before_next("GET", refusal(503, 1), sent=3, waited=0) is None


def test_waiting_is_bounded() -> None:
    """A wait that would exceed the patience is not begun."""
    retries = RetryPolicy(patience=10)
    assert retries.wait_before_next("GET", refusal(429, 4), sent=2, waited=6) == 4
    assert retries.wait_before_next("GET", refusal(429, 5), sent=2, waited=6) is None


def test_a_watch_waits_longer_and_longer() -> None:
    """Up to a longest wait, however often it has failed."""
    error = ConnectionFailedError("server", "request", "why")
    assert [WatchBackoff().wait(failures, error) for failures in (1, 2, 5, 6, 10_000)] == [0.25, 0.5, 4, 5, 5]


def test_a_watch_that_may_not_be_waits_longer() -> None:
    """A right that lacks comes back at once, when the server starts, or in days."""
    assert [WatchBackoff().wait(failures, refusal(403)) for failures in (1, 6, 9, 10_000)] == [0.25, 8, 60, 60]


def test_a_watch_waits_as_long_as_it_is_asked_to() -> None:
    """What the server asks for counts where it is longer, also beyond the longest wait of our own."""
    assert WatchBackoff().wait(1, refusal(429, 30)) == 30
    assert WatchBackoff().wait(3, refusal(429, 0.5)) == 1
