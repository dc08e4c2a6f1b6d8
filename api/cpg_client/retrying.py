"""Which refused requests are sent again, and after how long. No I/O and no clock: tables to test.

Sending twice must never act twice, so there are exactly two reasons to retry:

- **429 or 503 with Retry-After, any method.** An API server writes that header where it turned the
  request away before acting on it: flow control, a watch cache still filling, a server shutting down.
  One exception: a refusal with causes is a decision about an object, above all an eviction that a
  disruption budget forbids, and the caller wants to know it at once.
- **503 without it, methods that may be repeated** (GET, PUT, DELETE). Something on the way is broken and
  may or may not have passed the request on. Repeating a PUT or DELETE ends in the same state; the
  second answer may be a conflict or a not-found, which their callers expect anyway. POST and PATCH (a
  JSON patch can append) are not repeated: their callers look first.

A 429 without the header is an answer and no throttle, and so is any other status.

Lost connections are not retried here. A reflector resumes its watch, a binder reads the pod, a
start-up waits for readiness: each knows better than this module what to do about an unknown outcome.

The wait is what the server asks for, else doubles from ``first_wait``. There is no jitter: what spreads the
load is the server's own Retry-After and the limit on connections, and a fixed sequence can be tested.

A watch is another matter than a request: it has no caller to give up to, so ``WatchBackoff`` has no end, only a
longest wait. That is short, because what waits is a handful of watches, and a scheduler that learns half a
minute late that its API server is back costs more than their knocking.
"""

from dataclasses import dataclass

from cpg_client.errors import ApiError, ClientError

_REPEATABLE = frozenset({"GET", "PUT", "DELETE"})


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Bounds: at most ``attempts`` sends, and ``patience`` seconds of waiting between them all told."""

    attempts: int = 6
    patience: float = 30.0
    first_wait: float = 0.25

    def wait_before_next(self, method: str, error: ApiError, *, sent: int, waited: float) -> float | None:
        """Return the seconds to wait before sending again, or None to give the error to the caller."""
        if sent >= self.attempts or not _may_repeat(method, error):
            return None
        wait = self.first_wait * 2 ** (sent - 1) if error.retry_after is None else error.retry_after
        return wait if waited + wait <= self.patience else None


@dataclass(frozen=True, kw_only=True)
class WatchBackoff:
    """How long to wait after the n-th failure in a row, for what never gives up."""

    first: float = 0.25
    longest: float = 5.0
    refused: float = 60.0
    """The longest wait where we may not: rights come back rarely, and a server that starts knows them in a moment."""

    def wait(self, failures: int, error: ClientError) -> float:
        """Return the seconds to wait: doubling, and never less than what the server asks for."""
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
