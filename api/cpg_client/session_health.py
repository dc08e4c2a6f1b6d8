"""The health of watches that a framework runs over a session of ours.

Kopf retries its watches without reporting failures. Its session comes from ``shared_session``, so each response, each
chunk of a stream and each failure is recorded here by path, in the same form as that of our reflectors.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cpg_client.resources import Resource
from cpg_client.watch_health import CollectionHealth, WatchHealth


@dataclass
class _ListedHealth(CollectionHealth):
    last_listed: float = float("-inf")


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
            health.record_data(now := self._clock())
            health.last_listed = now if listed else health.last_listed

    def record_failure(self, path: str, *, refused: bool = False) -> None:
        """Record a failed or refused request."""
        if (health := self._collections.get(path)) is not None:
            health.record_failure(self._clock(), refused=refused)

    def last_listed(self) -> float:
        """Return when a collection was last listed. Deletions before a list are never reported."""
        return max((health.last_listed for health in self._collections.values()), default=float("-inf"))
