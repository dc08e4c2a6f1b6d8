"""The health of watches, whether a reflector or a framework runs them.

A namespace may be forbidden: a configured namespace was deleted, or the rights in it were. Requests there are refused,
and waiting does not help, so other namespaces do not wait for it. If all namespaces of a kind are refused, this process
lacks the right, and that counts as a failure.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

FORBIDDEN_GRACE_SECONDS = 10.0
"""Seconds of 403 after which a namespace counts as forbidden. A starting server may learn our rights late."""
MAX_SECONDS_TO_RESUME = 3.0
"""Seconds for which a watch may have been without a connection and still resume."""


@dataclass
class CollectionHealth:
    """The health of one collection; ``kind`` is its path in all namespaces, ``namespace`` the watched one if any."""

    kind: str
    namespace: str = ""
    last_heard: float | None = None
    """When the server last sent anything."""
    failing_since: float | None = None
    """When the first request failed since then; None if none has."""
    refused_since: float | None = None
    """When the first request was refused (403), if all have been refused since."""

    def record_data(self, now: float) -> None:
        """Record data from the server."""
        self.last_heard, self.failing_since, self.refused_since = now, None, None

    def record_failure(self, now: float, *, refused: bool) -> None:
        """Record a failed or refused request."""
        self.failing_since = now if self.failing_since is None else self.failing_since
        self.refused_since = None if not refused else now if self.refused_since is None else self.refused_since


class WatchHealth(ABC):
    """The health of several collections."""

    @abstractmethod
    def collections(self) -> Mapping[str, CollectionHealth]:
        """Return the health of each collection, by its path."""

    def forbidden(self, now: float) -> dict[str, str]:
        """Return the forbidden namespaces by path: refused for some time, while the kind is readable elsewhere."""
        collections = self.collections()
        refused = {
            path
            for path, health in collections.items()
            if health.refused_since is not None and now - health.refused_since >= FORBIDDEN_GRACE_SECONDS
        }
        others = {health.kind for path, health in collections.items() if path not in refused} if refused else ()
        return {path: collections[path].namespace for path in refused if collections[path].kind in others}

    def silence(self, now: float) -> dict[str, float]:
        """Return the seconds since each collection was last heard from, by path; infinite before its first list."""
        heard = {path: health.last_heard for path, health in self.collections().items()}
        return {path: float("inf") if at is None else now - at for path, at in heard.items()}

    def longest_silence(self, now: float) -> float:
        """Return the longest silence, without forbidden namespaces."""
        excluded = self.forbidden(now)
        return max((age for path, age in self.silence(now).items() if path not in excluded), default=0.0)

    def longest_failure(self, now: float) -> float:
        """Return the longest time for which a collection has been failing, without forbidden namespaces; 0 for none."""
        return max(self._failures(now), default=0.0)

    def outage(self, now: float) -> float:
        """Return for how long all collections have been failing, without forbidden namespaces; 0 if one is not."""
        return min(self._failures(now), default=0.0)

    def _failures(self, now: float) -> list[float]:
        excluded = self.forbidden(now)
        since = (health.failing_since for path, health in self.collections().items() if path not in excluded)
        return [0.0 if at is None else now - at for at in since]
