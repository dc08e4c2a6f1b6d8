"""Whether this replica does its duty: it decides on fresh news, or stands by for the one that does.

Readiness says how well we hear the API server, and not that the process lives. Nothing is taken away from a replica
that is not ready; it is how an operator learns that nobody schedules, and what a rolling update waits for.
"""

import time
from collections.abc import Callable

from cpg_client.informers import Informers
from cpg_client.leader_election import LeaderElector
from cpg_client.probe_server import ProbeResponse
from cpg_client.session_health import SessionHealth
from cpg_client.watch_health import WatchHealth

MAX_SILENCE_SECONDS = 90.0
"""Seconds without a word from a watch, bookmarks included, after which decisions are no longer worth making.

A healthy server ends each watch after a minute and is heard from again at once; half a minute more is trouble.
"""

MAX_FAILURE_SECONDS = 5.0
"""Seconds for which a watch or the lease may fail, one attempt after the other, before we are not ready."""


class Readiness:
    """How a replica stands; nothing is known before the reflectors run."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin as one that knows nothing."""
        self.informers: Informers | None = None
        self.session_health: SessionHealth | None = None
        self.elector: LeaderElector | None = None
        self.is_stopping = False
        self._clock = clock

    def age(self) -> float:
        """Return for how long the quietest watch has said nothing."""
        now = self._clock()
        return max(one.longest_silence(now) for one in self._watches()) if self.informers is not None else float("inf")

    def ages(self) -> dict[str, float]:
        """Return for how long each watch has said nothing, by what is watched."""
        now = self._clock()
        return {path: age for one in self._watches() for path, age in one.silence(now).items()}

    def page(self, _: str) -> ProbeResponse:
        """Answer a probe."""
        is_ready, why = self._judged()
        return ProbeResponse(f"{why}\n".encode(), status=200 if is_ready else 503)

    def _judged(self) -> tuple[bool, str]:
        if self.is_stopping:
            return False, "ending"
        elector, well = self.elector, "ok"
        if elector is not None and not elector.leading:
            failing, well = elector.failing_for(self._clock()), f"standing by: {elector.leader or 'nobody'} leads"
            if failing >= MAX_FAILURE_SECONDS:
                return False, f"the lease cannot be read or written for {failing:.0f} s"
            if not elector.leader or self.informers is None:
                return bool(elector.leader), well
        return self._hears(well)

    def _hears(self, well: str) -> tuple[bool, str]:
        """Tell whether we know what we have to, and hear of what changes; who stands by does, if he reads at all."""
        if self.informers is None or not self.informers.synced:
            return False, "not all objects have been read yet"
        failing, age = max(one.longest_failure(self._clock()) for one in self._watches()), self.age()
        if failing >= MAX_FAILURE_SECONDS:
            return False, f"a watch has been failing for {failing:.0f} s"
        if age >= MAX_SILENCE_SECONDS:
            return False, f"no word from the API server for {age:.0f} s"
        closed = sorted({space for one in self._watches() for space in one.forbidden(self._clock()).values()})
        return True, f"{well}, but may not read {', '.join(closed)}" if closed else well

    def _watches(self) -> list[WatchHealth]:
        return [one for one in (self.informers, self.session_health) if one is not None]
