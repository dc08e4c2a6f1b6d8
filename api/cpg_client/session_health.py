"""The health of watches that a framework runs over a session of ours.

Kopf retries its watches without reporting failures. Its session comes from ``shared_session``, so each response, each
chunk of a stream and each failure is recorded here by path, in the same form as that of our reflectors.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cpg_client.resources import Resource
from cpg_client.watch_health import MAX_SECONDS_TO_RESUME, CollectionHealth, WatchHealth


@dataclass
class _ListedHealth(CollectionHealth):
    last_gap: float = float("-inf")


class SessionHealth(WatchHealth):
    """The health of some collections; silence counts from the start.

    It is written and read without a lock, so both may happen in any thread.
    """

    def __init__(self, watched: Iterable[tuple[Resource, str | None]], clock: Callable[[], float]) -> None:
        """Record these collections, each in one namespace or in all."""
        self._clock = clock
        self._collections = {
            resource.path(space): _ListedHealth(resource.path(), space or "", last_heard=clock())
            for resource, space in watched
        }

    def collections(self) -> Mapping[str, CollectionHealth]:
        """Return the health of each collection, by its path."""
        return self._collections

    def record_data(self, path: str, *, listed: bool = False) -> None:
        """Record data from the server about a collection; ``listed`` marks a complete list."""
        if (health := self._collections.get(path)) is not None:
            now = self._clock()
            failed_for = 0.0 if health.failing_since is None else now - health.failing_since
            health.record_data(now)
            if listed or failed_for >= MAX_SECONDS_TO_RESUME:
                health.last_gap = now

    def record_failure(self, path: str, *, refused: bool = False) -> None:
        """Record a failed or refused request."""
        if (health := self._collections.get(path)) is not None:
            health.record_failure(self._clock(), refused=refused)

    def last_gap(self) -> float:
        """Return when a collection was last listed, or answered after an outage as long as a restore of etcd.

        Deletions before a list are never reported. A watch that resumes after a restore does not report its changes.
        """
        return max((health.last_gap for health in self._collections.values()), default=float("-inf"))
