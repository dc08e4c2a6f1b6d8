"""Which refused requests are retried, and after how long. No I/O and no clock.

A retry must never act twice, so there are exactly two reasons to retry:

- **429 or 503 with Retry-After, any method.** An API server sends that header where it refused the request before
  acting on it: flow control, a watch cache that is not filled yet, a server that shuts down. One exception: a refusal
  with causes is a decision about an object, such as an eviction that a disruption budget forbids. The caller gets it at
  once.
- **503 without it, for idempotent methods** (GET, PUT, DELETE). Something on the way is broken, and may or may not have
  passed the request on. A second PUT or DELETE ends in the same state; its answer may be a conflict or a 404, which
  callers handle anyway. POST and PATCH (a JSON patch can append) are not retried: their callers read first.

A 429 without the header is a refusal and no throttling, and so is every other status.

Failed connections are not retried here. A reflector resumes its watch, the binder reads the pod, a start-up waits for
readiness: each caller handles an unknown outcome in its own way.

The wait is what the server asks for, else it doubles from ``first_wait``. There is no jitter: the server's Retry-After
and the limit on connections spread the load, and a fixed sequence can be tested.

A watch has no caller to give up to, so ``WatchBackoff`` retries without end, up to a longest wait. That wait is short:
there are only a few watches, and a scheduler that notices a recovered API server half a minute late costs more than the
requests.
"""

from dataclasses import dataclass

from cpg_client.errors import ApiError, ClientError

_REPEATABLE = frozenset({"GET", "PUT", "DELETE"})


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Bounds: at most ``attempts`` requests, and at most ``max_total_wait`` seconds of waiting."""

    attempts: int = 6
    max_total_wait: float = 30.0
    first_wait: float = 0.25

    def wait_before_next(self, method: str, error: ApiError, *, sent: int, waited: float) -> float | None:
        """Return the seconds to wait before the next attempt, or None to raise the error."""
        if sent >= self.attempts or not _may_repeat(method, error):
            return None
        wait = self.first_wait * 2 ** (sent - 1) if error.retry_after is None else error.retry_after
        return wait if waited + wait <= self.max_total_wait else None


@dataclass(frozen=True, kw_only=True)
class WatchBackoff:
    """The wait after the n-th failure in a row, for callers that never give up."""

    first: float = 0.25
    longest: float = 5.0
    refused: float = 60.0
    """The longest wait after a 403. Rights change rarely, and a starting server knows them within moments."""

    def wait(self, failures: int, error: ClientError) -> float:
        """Return the seconds to wait: doubling, and never less than the server asks for."""
        asked = error.retry_after if isinstance(error, ApiError) else None
        doubled = self.first * 2.0 ** min(failures - 1, 60)
        longest = self.refused if isinstance(error, ApiError) and error.is_forbidden else self.longest
        return max(min(doubled, longest), asked or 0.0)


def _may_repeat(method: str, error: ApiError) -> bool:
    if error.status not in {429, 503}:
        return False
    if error.retry_after is not None:
        return not error.causes
    return error.status == 503 and method in _REPEATABLE
