"""What was created lately: the view shows it a little later, and until then it is not to be created once more.

Unlike other writes, a creation is remembered for a few seconds only. There is no version by which to tell that the view
has moved on, and what somebody deletes again has to be made anew.
"""

from collections.abc import Callable

SHOWN_WITHIN = 5.0
"""Seconds within which a view shows what was created; if it is further behind, the API server says so once more."""


class RecentCreations:
    """When what was created, by its place; no more is kept than was created in the last few seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start without any."""
        self._clock = clock
        self._at: dict[str, float] = {}

    def note(self, place: str) -> None:
        """Remember that there is something at a place as of now."""
        now = self._clock()
        self._at.pop(place, None)
        self._at[place] = now
        while now - self._at[oldest := next(iter(self._at))] > SHOWN_WITHIN:
            del self._at[oldest]

    def left(self, place: str) -> float:
        """Return for how many seconds more nothing should be created at a place; 0 where nothing was."""
        at = self._at.get(place)
        return 0.0 if at is None else max(0.0, at + SHOWN_WITHIN - self._clock())
