"""Who is on his way out, and who should have been gone a while ago: his kubelet may be dead.

When a pod should have ended is written in it by the API server, whose clock may be another than ours. So how long that
is ago is measured by our own, from when we first knew, unless it is so long ago that clocks do not differ by as much.
"""

import datetime as dt
from collections.abc import Callable, Iterable

from cpg_api.core.pod import Pod
from cpg_scheduler.cache.cluster import ClusterCache

SLACK = 30.0
"""Seconds for which a pod that was deleted is still expected to end when its time is over."""
SKEW = 300.0
"""Seconds by which clocks may differ."""


class TerminatingPods:
    """The pods that leave their nodes."""

    def __init__(self, state: ClusterCache, *, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        """Know of nobody; ``wall`` is the time of day."""
        self._state = state
        self._clock = clock
        self._wall = wall
        self._since: dict[str, float] = {}
        self.doomed: set[str] = set()
        """Who goes for a plan that is forgotten: nobody shows it until the API server says that he is being deleted."""

    def note(self, uids: Iterable[str]) -> None:
        """Note that the deletion of pods has begun."""
        self._since.update(dict.fromkeys(uids, self._clock()))

    def forget(self, uids: Iterable[str]) -> None:
        """Forget pods that are gone, or stay after all."""
        gone = set(uids)
        self.doomed -= gone
        for uid in self._since.keys() & gone:
            del self._since[uid]

    def going(self, awaited: Iterable[str]) -> set[str]:
        """Return whose room will be free without evicting anybody more: who is awaited or leaves, and is not late."""
        leaving, known = self._state.victims.terminating, self._state.pods
        found = (*awaited, *self.doomed, *leaving)
        return {uid for uid in found if uid in known and not self._is_late(leaving.get(uid))}

    def late(self, awaited: Iterable[str]) -> set[str]:
        """Return who of these is awaited in vain, as it seems."""
        leaving = self._state.victims.terminating
        return {uid for uid in awaited if self._is_late(leaving.get(uid))}

    def _is_late(self, pod: Pod | None) -> bool:
        if pod is None:
            return False
        now = self._clock()
        since = self._since.setdefault(pod.metadata.uid, now)
        grace = pod.metadata.deletion_grace_period_seconds or 0
        return now >= since + grace + SLACK or self._wall() >= _end_of(pod) + SKEW


def _end_of(pod: Pod) -> float:
    """Return when a pod that is being deleted should be gone."""
    ends = pod.metadata.deletion_timestamp
    return dt.datetime.fromisoformat(ends).timestamp() if ends else 0.0
