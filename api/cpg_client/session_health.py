"""How well somebody else hears who asks by a session that we lend: the same that reflectors tell of themselves.

A framework that watches keeps to itself what becomes of its requests: it tries again, and nobody learns for how long
it has been doing so. Its requests are ours to look at, so each answer, each piece of a watch's stream and each failure
is noted by what was asked for.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cpg_client.resources import Resource
from cpg_client.watch_health import CollectionHealth, WatchHealth


@dataclass
class _ListedHealth(CollectionHealth):
    last_listed: float = float("-inf")


class SessionHealth(WatchHealth):
    """When each of some collections was last heard of; silence counts from the start.

    Notes are taken and read without a lock, so both may happen in any thread.
    """

    def __init__(self, watched: Iterable[tuple[Resource, str | None]], clock: Callable[[], float]) -> None:
        """Note what becomes of these, each in a namespace or in all of them."""
        self._clock = clock
        self._lines = {
            resource.path(space): _ListedHealth(resource.path(), space or "", last_heard=clock())
            for resource, space in watched
        }

    def collections(self) -> Mapping[str, CollectionHealth]:
        """Return how each collection is heard, by its path."""
        return self._lines

    def heard(self, path: str, *, listed: bool = False) -> None:
        """Note that the server has said something about a collection, such as all that is in it."""
        if (line := self._lines.get(path)) is not None:
            line.heard(now := self._clock())
            line.last_listed = now if listed else line.last_listed

    def failed(self, path: str, *, refused: bool = False) -> None:
        """Note that it would not, or could not."""
        if (line := self._lines.get(path)) is not None:
            line.failed(self._clock(), refused=refused)

    def last_listed(self) -> float:
        """Return when one of them was last listed anew, after which what was deleted before is never told."""
        return max((line.last_listed for line in self._lines.values()), default=float("-inf"))
