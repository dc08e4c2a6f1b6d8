"""What was created lately: the view shows it a little later, and until then it must not be created again.

Unlike other writes, a creation is remembered for a few seconds only. No version says that the view has moved on, and
what a user deletes has to be created again.
"""

from collections.abc import Callable

SHOWN_WITHIN_SECONDS = 5.0
"""Within this time a view shows a created object; if it is further behind, the API server answers that it exists."""


class RecentCreations:
    """When objects were created, by name; no more than were created in the last few seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start without any."""
        self._clock = clock
        self._at: dict[str, float] = {}

    def record(self, name: str) -> None:
        """Remember that an object of this name exists as of now."""
        now = self._clock()
        self._at.pop(name, None)
        self._at[name] = now
        while now - self._at[oldest := next(iter(self._at))] > SHOWN_WITHIN_SECONDS:
            del self._at[oldest]

    def seconds_left(self, name: str) -> float:
        """Return for how long no object of this name should be created; 0 where none was."""
        at = self._at.get(name)
        return 0.0 if at is None else max(0.0, at + SHOWN_WITHIN_SECONDS - self._clock())
