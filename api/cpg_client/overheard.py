"""How well somebody else hears who asks by a session that we lend: the same that reflectors tell of themselves.

A framework that watches keeps to itself what becomes of its requests: it tries again, and nobody learns for how long
it has been doing so. Its requests are ours to look at, so each answer, each piece of a watch's stream and each failure
is noted by what was asked for.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass


@dataclass
class _Line:
    last_heard: float
    listed: float = float("-inf")
    failing_since: float | None = None


class Overheard:
    """When each of some collections, by path, was last heard of; silence counts from the start.

    Notes are taken and read without a lock, so both may happen in any thread.
    """

    def __init__(self, paths: Iterable[str], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lines: Mapping[str, _Line] = {path: _Line(clock()) for path in paths}

    def heard(self, path: str, *, listed: bool = False) -> None:
        """Note that the server has said something about a collection, such as all that is in it."""
        if (line := self._lines.get(path)) is not None:
            line.last_heard = self._clock()
            line.failing_since = None
            line.listed = line.last_heard if listed else line.listed

    def failed(self, path: str) -> None:
        """Note that it would not, or could not."""
        line = self._lines.get(path)
        if line is not None and line.failing_since is None:
            line.failing_since = self._clock()

    def listed(self) -> float:
        """Return when one of them was last listed anew, after which what was deleted before is never told."""
        return max((line.listed for line in self._lines.values()), default=float("-inf"))

    def unheard_for(self, now: float) -> float:
        """Return for how many seconds the quietest has not been heard of."""
        return max(self.unheard(now).values(), default=0.0)

    def unheard(self, now: float) -> dict[str, float]:
        """Return for how many seconds nothing was heard of each, by its path."""
        return {path: now - line.last_heard for path, line in self._lines.items()}

    def failing_for(self, now: float) -> float:
        """Return for how many seconds the one that has been in trouble the longest has been so; 0 where all is well."""
        since = (line.failing_since for line in self._lines.values())
        return max((0.0 if at is None else now - at for at in since), default=0.0)
