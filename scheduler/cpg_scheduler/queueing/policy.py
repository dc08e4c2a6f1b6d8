"""The requeue policy: for how long a unit that could not be scheduled is left alone."""

from msgspec import Struct

MAX_SECONDS_UNSCHEDULABLE = 300.0
"""Seconds after which an unschedulable unit is attempted although no hint has activated it; as in kube-scheduler."""
MAX_STALE_ENTRIES = 64
"""A table of units keeps removed ones until it has so many entries more than twice the number of present units."""


class RequeueBackoff(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How long a unit waits after a failed attempt: longer each time, and longer for large groups."""

    first: float = 1.0
    """Seconds after the first failure; they double with each further one."""
    most: float = 10.0
    """The limit of doubling, in seconds."""
    per_doubling: float = 0.25
    """The share that is added for each doubling of the number of pods."""

    def delay(self, attempts: int, size: int) -> float:
        """Return the seconds to wait after so many failed attempts of a unit with so many pods."""
        return self._grown(attempts, size, self.most)

    def delay_without_event(self, attempts: int, size: int) -> float:
        """Return the seconds until a unit is attempted again even if nothing happens; they double for longer."""
        return min(self._grown(attempts, size, MAX_SECONDS_UNSCHEDULABLE), MAX_SECONDS_UNSCHEDULABLE)

    def _grown(self, attempts: int, size: int, most: float) -> float:
        base = min(self.first * 2 ** min(attempts - 1, 30), most)
        return float(base * (1.0 + self.per_doubling * max(size, 1).bit_length()))
