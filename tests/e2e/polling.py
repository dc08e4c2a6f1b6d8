"""Pauses between polls of an API server."""

from collections.abc import Iterator

SHORTEST, LONGEST, GROWTH = 0.03, 0.3, 1.3


def growing_pauses() -> Iterator[float]:
    """Yield seconds, short at first: what comes soon is seen soon, and long waits leave the API server to others."""
    pause = SHORTEST
    while True:
        yield pause
        pause = min(LONGEST, GROWTH * pause)
