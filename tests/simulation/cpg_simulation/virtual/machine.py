"""The clocks of a machine: each may be wrong in its own way."""

from cpg_simulation.virtual.coordinator import Coordinator

EPOCH = 1_800_000_000.0
"""The time of day at which every simulation begins, in seconds since 1970."""


class Machine:
    """A machine: its clocks, and how long its processor takes.

    The monotonic clock may be fast or slow, and stands while the machine is suspended. The wall clock may be skewed and
    may jump. ``seconds_per_reading`` is what a process works between two readings of a clock: processes read clocks all
    the time, so a larger number is a slower machine.
    """

    def __init__(self, coordinator: Coordinator, *, uptime: float = 1000.0) -> None:
        """Run on time."""
        self._coordinator = coordinator
        self.rate = 1.0
        self.skew = 0.0
        self.seconds_per_reading = 2e-6
        self._base = uptime
        self._since = coordinator.now
        self._suspended = 0.0

    def boottime(self) -> float:
        """Return the seconds since the start of the machine, also of those while it was suspended."""
        return self._base + (self._coordinator.now - self._since) * self.rate

    def monotonic(self) -> float:
        """Return the seconds since the start of the machine in which it was not suspended."""
        return self.boottime() - self._suspended

    def wall(self) -> float:
        """Return the time of day as this machine has it."""
        return EPOCH + self._coordinator.now + self.skew

    def change_rate(self, rate: float) -> None:
        """Let the clocks run at another speed from now on."""
        self._base, self._since, self.rate = self.boottime(), self._coordinator.now, rate

    def count_suspension(self, seconds: float) -> None:
        """Note that the machine has been suspended for some seconds of its own."""
        self._suspended += seconds
