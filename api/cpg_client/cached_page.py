"""A page that is computed at most once in a while, however often it is asked for."""

import time
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from cpg_client.probe_server import NO_CHUNKS, ProbeResponse, Route

SECONDS_KEPT = 1.0
"""Seconds for which a computed page is served again."""


class CachedPage:
    """A route with a page that does not depend on the path; while it is computed, the last one is served."""

    def __init__(self, route: Route, clock: Callable[[], float] = time.monotonic) -> None:
        """Compute nothing yet."""
        self._route = route
        self._clock = clock
        self._page: ProbeResponse | None = None
        self._computed_at = 0.0
        self._is_computing = False

    def __call__(self, rest: str) -> ProbeResponse:
        """Return the last page, or one that is computed while it is sent."""
        if self._page is not None and (self._is_computing or self._is_fresh()):
            return self._page
        found = self._route(rest)
        if found.chunks is NO_CHUNKS:
            self._page, self._computed_at = found, self._clock()
            return found
        return replace(found, body=b"", chunks=self._compute(found))

    def _compute(self, found: ProbeResponse) -> Iterator[bytes]:
        """Yield an empty piece after each part of the page, and then the page; another request may be faster."""
        pieces = [found.body]
        self._is_computing = True
        try:
            for piece in found.chunks:
                pieces.append(piece)
                yield b""
                if self._page is not None and self._is_fresh():
                    yield self._page.body
                    return
        finally:
            self._is_computing = False
        self._page, self._computed_at = replace(found, body=b"".join(pieces), chunks=NO_CHUNKS), self._clock()
        yield self._page.body

    def _is_fresh(self) -> bool:
        return self._clock() - self._computed_at < SECONDS_KEPT
