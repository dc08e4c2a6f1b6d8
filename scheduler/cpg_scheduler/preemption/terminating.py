"""Pods that terminate, and pods that are overdue: they should have ended a while ago, so their kubelet may be dead.

The API server writes into a pod when it should end, by a clock that may differ from ours, and ours may jump. So the
delay is measured by our monotonic clock, from when we first saw the deletion. A new leader measures it again from the
start; the limit of grace periods bounds that too.

Users choose grace periods, and may choose ten years. So a plan waits for a limited time only, and then the pod is
overdue like one whose kubelet is dead.
"""

from collections.abc import Callable, Iterable

from cpg_api.core.pod import Pod
from cpg_scheduler.cache.cluster import ClusterCache

OVERDUE_SECONDS = 30.0
"""Seconds after the grace period from which a deleted pod is not expected to end any more."""
MAX_GRACE_PERIOD_SECONDS = 600.0
"""Seconds of a grace period that a plan waits for at most, by default."""


class TerminatingPods:
    """The pods that will free their room without further evictions."""

    def __init__(self, cache: ClusterCache, *, clock: Callable[[], float], max_grace_period: float) -> None:
        """Start without any; of longer grace periods, only ``max_grace_period`` seconds are waited for."""
        self._cache = cache
        self._clock = clock
        self._max_grace_period = max_grace_period
        self._seen_at: dict[str, float] = {}
        self._evicted: set[str] = set()

    def note(self, uids: Iterable[str]) -> None:
        """Note that the deletion of pods has begun."""
        self._seen_at.update(dict.fromkeys(uids, self._clock()))

    def forget(self, uids: Iterable[str]) -> None:
        """Forget pods that have ended, or stay after all."""
        gone = set(uids)
        self._evicted -= gone
        for uid in self._seen_at.keys() & gone:
            del self._seen_at[uid]

    def expect(self, uids: Iterable[str]) -> None:
        """Expect pods to terminate that no active preemption waits for; the watch does not show their deletion yet."""
        self._evicted.update(uids)

    def expected(self) -> frozenset[str]:
        """Return the pods that are expected to terminate though no active preemption waits for them."""
        return frozenset(self._evicted)

    def leaving(self, awaited: Iterable[str]) -> set[str]:
        """Return the pods, by UID, that will free their room: all that terminate and are not overdue."""
        terminating, known = self._cache.victims.terminating, self._cache.pods
        found = (*awaited, *self._evicted, *terminating)
        return {uid for uid in found if uid in known and not self._is_overdue(terminating.get(uid))}

    def overdue(self, awaited: Iterable[str]) -> set[str]:
        """Return which of these pods are overdue."""
        terminating = self._cache.victims.terminating
        return {uid for uid in awaited if self._is_overdue(terminating.get(uid))}

    def _is_overdue(self, pod: Pod | None) -> bool:
        if pod is None:
            return False
        now = self._clock()
        seen_at = self._seen_at.setdefault(pod.metadata.uid, now)
        grace = min(pod.metadata.deletion_grace_period_seconds or 0, self._max_grace_period)
        return now >= seen_at + grace + OVERDUE_SECONDS
