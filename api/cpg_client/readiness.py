"""Readiness of a replica: it has current state and can decide, or it stands by for the leader.

Readiness describes the watches and the lease, not whether the process runs. A replica that is not ready loses nothing.
Readiness shows users that nothing is being scheduled, and rolling updates wait for it.
"""

import time
from collections.abc import Callable

from cpg_client.connection import Connection
from cpg_client.informers import Informers
from cpg_client.leader_election import LeaderElector
from cpg_client.probe_server import ProbeResponse
from cpg_client.session_health import SessionHealth
from cpg_client.watch_health import WatchHealth

MAX_SILENCE_SECONDS = 90.0
"""Seconds without data from a watch, including bookmarks, after which its state is too old to decide on.

A healthy server ends each watch after a minute and answers the next one at once, so this allows half a minute more.
"""

MAX_FAILURE_SECONDS = 5.0
"""Seconds for which all attempts of a watch or of the lease may fail before the replica is not ready, and for which a
request may wait for a free connection."""


class Readiness:
    """The readiness of a replica; it is not ready before the reflectors run."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        elector: LeaderElector | None = None,
        informers: Informers | None = None,
        session_health: SessionHealth | None = None,
        connection: Connection | None = None,
    ) -> None:
        """Start with the parts that run already."""
        self.connection = connection
        self.informers = informers
        self.session_health = session_health
        self.elector = elector
        self.is_stopping = False
        self.reads_on_standby = False
        """Whether a replica reads the state before it leads, so that it is not ready until then."""
        self._clock = clock

    def age(self) -> float:
        """Return the seconds since the quietest watch sent anything."""
        now = self._clock()
        return max(one.longest_silence(now) for one in self._watches()) if self.informers is not None else float("inf")

    def ages(self) -> dict[str, float]:
        """Return for each watch the seconds since it sent anything, by path."""
        now = self._clock()
        return {path: age for one in self._watches() for path, age in one.silence(now).items()}

    def page(self, _: str) -> ProbeResponse:
        """Return the response to a readiness probe."""
        is_ready, reason = self._state()
        return ProbeResponse(f"{reason}\n".encode(), status=200 if is_ready else 503)

    def _state(self) -> tuple[bool, str]:
        if self.is_stopping:
            return False, "ending"
        elector, message = self.elector, "ok"
        if elector is not None and not elector.leading:
            failing = elector.failing_for()
            message = f"standing by: {elector.leader or 'no replica'} leads"
            if failing >= MAX_FAILURE_SECONDS:
                return False, f"the lease cannot be read or written for {failing:.0f} s"
            if not elector.leader or (self.informers is None and not self.reads_on_standby):
                return bool(elector.leader), message
        return self._watch_state(message)

    def _watch_state(self, message: str) -> tuple[bool, str]:
        """Return whether all state has been read and is current. This includes a standby that reads state."""
        if self.informers is None or not self.informers.synced:
            return False, "not all objects have been read yet"
        failing, age = max(one.longest_failure(self._clock()) for one in self._watches()), self.age()
        if failing >= MAX_FAILURE_SECONDS:
            return False, f"a watch has been failing for {failing:.0f} s"
        waiting = self.connection.longest_wait() if self.connection is not None else 0.0
        if waiting >= MAX_FAILURE_SECONDS:
            return False, f"a request has been waiting for a free connection for {waiting:.0f} s"
        if age >= MAX_SILENCE_SECONDS:
            return False, f"no data from the API server for {age:.0f} s"
        closed = sorted({space for one in self._watches() for space in one.forbidden(self._clock()).values()})
        return True, f"{message}, but may not read {', '.join(closed)}" if closed else message

    def _watches(self) -> list[WatchHealth]:
        return [one for one in (self.informers, self.session_health) if one is not None]
