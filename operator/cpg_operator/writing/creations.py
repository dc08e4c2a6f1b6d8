"""What was created lately: the view shows it a little later, and until then it must not be created again.

Unlike other writes, a creation is remembered for a few seconds only. No version says that the view has moved on, and
what a user deletes has to be created again: at once if the view has seen the end of what was created.
"""

from collections.abc import Callable

SHOWN_WITHIN_SECONDS = 5.0
"""Within this time a view shows a created object; if it is further behind, the API server answers that it exists."""


class RecentCreations:
    """When objects were created, by name; no more than were created in the last few seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start without any."""
        self._clock = clock
        self._at: dict[str, tuple[float, str]] = {}

    def record(self, name: str, uid: str = "") -> None:
        """Remember that an object of this name exists as of now, and its UID if that is known."""
        now = self._clock()
        self._at.pop(name, None)
        self._at[name] = now, uid
        while now - self._at[oldest := next(iter(self._at))][0] > SHOWN_WITHIN_SECONDS:
            del self._at[oldest]

    def uid(self, name: str) -> str:
        """Return the UID of the object that was created lately; empty if none is known."""
        return self._at[name][1] if name in self._at else ""

    def seconds_left(self, name: str) -> float:
        """Return for how long no object of this name should be created; 0 where none was."""
        if name not in self._at:
            return 0.0
        return max(0.0, self._at[name][0] + SHOWN_WITHIN_SECONDS - self._clock())
