"""When the attempt of a pending group is written although it says nothing new but its time and number.

A pending tree may be attempted every few seconds for days, with thousands of groups, beside thousands of others. So the
interval between two such writes of a group doubles, and all groups together have a rate with a burst.
"""

from collections.abc import Callable

FIRST_SECONDS = 60.0
MAX_SECONDS = 960.0
WRITES_PER_SECOND = 2.0
BURST = 100.0
"""Writes at once after a time without any, so that usually all groups of a tree are refreshed together."""


class AttemptRefreshes:
    """The pending groups, by UID, each with its time of the next refresh and the interval that led there."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start without groups; ``clock`` returns seconds."""
        self._clock = clock
        self._groups: dict[str, tuple[float, float]] = {}
        self._tokens, self._filled_at = BURST, clock()

    def start(self, uid: str) -> None:
        """Note that an attempt with news is written."""
        self._groups[uid] = self._clock() + FIRST_SECONDS, FIRST_SECONDS

    def forget(self, uid: str) -> None:
        """Forget a group that is placed, or gone."""
        self._groups.pop(uid, None)

    def take(self, uid: str) -> bool:
        """Return whether an attempt without news is to be written now; it counts as written then."""
        if uid not in self._groups:
            self.start(uid)
        now, (due, interval) = self._clock(), self._groups[uid]
        self._tokens = min(self._tokens + (now - self._filled_at) * WRITES_PER_SECOND, BURST)
        self._filled_at = now
        if now < due or self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        interval = min(2 * interval, MAX_SECONDS)
        self._groups[uid] = now + interval, interval
        return True
