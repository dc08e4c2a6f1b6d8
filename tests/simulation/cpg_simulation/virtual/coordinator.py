"""The coordinator: the true time, and what happens at which time.

Everything that happens is an event of one queue: a turn of an event loop, bytes that arrive, a fault, an action of a
user. Events of the same time happen in the order in which they were added, so a run is the same each time.
"""

import heapq
import itertools
from collections.abc import Callable
from typing import Any

Action = Callable[..., None]


class Scheduled:
    """An event that is to happen, unless it is cancelled."""

    __slots__ = ("_action", "_arguments", "at")

    def __init__(self, at: float, action: Action, arguments: tuple[Any, ...]) -> None:
        """Let an action happen at a time."""
        self.at = at
        self._action: Action | None = action
        self._arguments = arguments

    def cancel(self) -> None:
        """Do not let it happen."""
        self._action = None

    def happen(self) -> None:
        """Act, unless cancelled."""
        if self._action is not None:
            self._action(*self._arguments)


class Coordinator:
    """Lets events happen one after the other, and the true time pass between them."""

    def __init__(self) -> None:
        """Begin at second zero, without events."""
        self.now = 0.0
        self.steps = 0
        self._queue: list[tuple[float, int, Scheduled]] = []
        self._numbers = itertools.count()

    def at(self, when: float, action: Action, *arguments: Any) -> Scheduled:
        """Let an action happen at a time, or now where that has passed."""
        found = Scheduled(max(when, self.now), action, arguments)
        heapq.heappush(self._queue, (found.at, next(self._numbers), found))
        return found

    def after(self, seconds: float, action: Action, *arguments: Any) -> Scheduled:
        """Let an action happen after some seconds."""
        return self.at(self.now + seconds, action, *arguments)

    def run(self, until: float) -> None:
        """Let everything happen up to a time."""
        queue = self._queue
        while queue and queue[0][0] <= until:
            self.now, _, event = heapq.heappop(queue)
            self.steps += 1
            event.happen()
        self.now = until
