"""The time of day of the API server, as its answers tell it.

The API server writes creation timestamps and grace periods by its own clock. A local clock may be hours away from that
one, so times that are compared with those of objects come from here. Each answer has a ``Date`` in whole seconds.
Between two answers a monotonic clock counts.
"""

import calendar
import time
from collections.abc import Callable

MAX_SECONDS_LATE = 5.0
"""Seconds by which an answer may be late. An older ``Date`` means that the clock of the server has been set back."""
MAX_DATE = float(1 << 37)
"""Dates after the year 6000 are ignored: no later time could be formatted."""


class ServerClock:
    """Returns seconds of the epoch by the clock of the API server, and by ``wall`` before its first answer."""

    def __init__(self, *, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        """Start without an answer; ``clock`` is monotonic, ``wall`` is the local time of day."""
        self._clock = clock
        self._wall = wall
        self._offset: float | None = None
        self._last = b""

    def __call__(self) -> float:
        """Return the present time of the API server."""
        return self._wall() if self._offset is None else self._clock() + self._offset

    def observe(self, date: bytes | None) -> None:
        """Take the ``Date`` of an answer. It is at most the present time, so the highest of several is the best."""
        if date is None or date == self._last:
            return
        self._last = date
        seconds = _seconds_of(date)
        if seconds is None:
            return
        offset = seconds - self._clock()
        if self._offset is None or not offset <= self._offset <= offset + MAX_SECONDS_LATE:
            self._offset = offset


def _seconds_of(date: bytes) -> float | None:
    try:
        seconds = float(calendar.timegm(time.strptime(date.decode("latin-1"), "%a, %d %b %Y %H:%M:%S GMT")))
    except ValueError:
        return None
    return seconds if 0 <= seconds < MAX_DATE else None
