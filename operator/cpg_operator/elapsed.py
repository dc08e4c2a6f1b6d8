"""For how long a status lasts, although wall clocks may be wrong or jump, and the machine may have been suspended.

A condition has the time of day at which its status began. The difference to the present time of day counts once, when
this process first sees that status: an earlier process may have watched it. Both times are those of the API server,
because local clocks of two machines may be hours apart. From then on a monotonic clock counts, which does not jump, and
stands while the machine is suspended. A status must not seem to have lasted for an hour of which nothing was seen.
"""

from collections.abc import Callable

from cpg_operator.writes import TreeKey


class ElapsedTimes:
    """The times at which statuses were first seen, by tree."""

    def __init__(self, *, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        """Start without any; ``clock`` is monotonic, ``wall`` is the API server's time of day."""
        self._clock = clock
        self._wall = wall
        self._began: dict[TreeKey, dict[float, float]] = {}

    def of(self, tree: TreeKey) -> Callable[[float], float]:
        """Return a function from the time of day at which a status of a tree began to the seconds since then.

        What a reconcile does not ask for is forgotten: that status has ended.
        """
        before = self._began.pop(tree, {})

        def seconds_since(since: float) -> float:
            now = self._clock()
            began = before.get(since)
            if began is None:
                began = now - max(self._wall() - since, 0.0)
            before[since] = self._began.setdefault(tree, {})[since] = began
            return now - began

        return seconds_since

    def forget(self, tree: TreeKey) -> None:
        """Drop a tree that has become part of another."""
        self._began.pop(tree, None)
