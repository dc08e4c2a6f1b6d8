"""How well some collections are heard, whoever listens: ourselves, or a framework by a session that we lend.

A namespace may be closed to us: one of those that we were given has been deleted, or our rights in it. What we ask for
there is refused, which is no trouble of the server's and does not end by waiting, so others do not wait for it. Where
all of a kind are refused, it is we who lack the right, and that is trouble.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

FORBIDDEN_GRACE_SECONDS = 10.0
"""Seconds of being refused after which a namespace is closed: a server that starts may learn our rights a bit late."""


@dataclass
class CollectionHealth:
    """How one collection is heard: ``kind`` is the path of all of it, ``namespace`` which part is meant, if any."""

    kind: str
    namespace: str = ""
    last_heard: float | None = None
    """When the server last said anything about it."""
    failing_since: float | None = None
    """When the first request failed after that; None while all is well."""
    refused_since: float | None = None
    """When the first was refused (403), if it has been nothing else since then."""

    def heard(self, now: float) -> None:
        """Note that the server has said something about it."""
        self.last_heard, self.failing_since, self.refused_since = now, None, None

    def failed(self, now: float, *, refused: bool) -> None:
        """Note that it would not, or could not."""
        self.failing_since = now if self.failing_since is None else self.failing_since
        self.refused_since = None if not refused else now if self.refused_since is None else self.refused_since


class WatchHealth(ABC):
    """What is listened to."""

    @abstractmethod
    def collections(self) -> Mapping[str, CollectionHealth]:
        """Return how each collection is heard, by its path."""

    def forbidden(self, now: float) -> dict[str, str]:
        """Return the paths of what we have been refused for long, though not the like of it elsewhere; and where."""
        lines = self.collections()
        refused = {
            path
            for path, line in lines.items()
            if line.refused_since is not None and now - line.refused_since >= FORBIDDEN_GRACE_SECONDS
        }
        others = {line.kind for path, line in lines.items() if path not in refused} if refused else ()
        return {path: lines[path].namespace for path in refused if lines[path].kind in others}

    def silence(self, now: float) -> dict[str, float]:
        """Return for how many seconds nothing was heard of each, by its path; endless before its first list."""
        heard = {path: line.last_heard for path, line in self.collections().items()}
        return {path: float("inf") if at is None else now - at for path, at in heard.items()}

    def longest_silence(self, now: float) -> float:
        """Return for how many seconds the quietest has not been heard of, but for what is closed."""
        closed = self.forbidden(now)
        return max((age for path, age in self.silence(now).items() if path not in closed), default=0.0)

    def longest_failure(self, now: float) -> float:
        """Return for how many seconds the one that has been in trouble the longest has been so; 0 where all is well."""
        closed = self.forbidden(now)
        since = (line.failing_since for path, line in self.collections().items() if path not in closed)
        return max((0.0 if at is None else now - at for at in since), default=0.0)
