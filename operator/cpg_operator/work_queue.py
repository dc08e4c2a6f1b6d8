"""The work queue: trees that something has happened to, each due a moment later, so that a burst becomes one look.

A tree is due when it has been quiet for ``quiet`` seconds, and at the latest ``longest`` after its first news. News
that come in streams, as those of pods do, are paced: one look in ``longest`` is enough for all of them. No clock and no
task in here.
"""

import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")


class WorkQueue(Generic[K]):
    """Keys and when each is due, by the clock that is given."""

    def __init__(self, clock: Callable[[], float], *, quiet: float, longest: float) -> None:
        """Start with nothing to do."""
        self._clock = clock
        self._quiet = quiet
        self._longest = longest
        self._due: dict[K, float] = {}
        self._first: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._number = 0
        self._popped: dict[K, float] = {}
        self.woken: Callable[[], None] = lambda: None
        """Called when something may be due earlier than was thought."""

    def __len__(self) -> int:
        return len(self._due)

    def mark(self, key: K) -> None:
        """Note that something has happened to a tree."""
        now = self._clock()
        first = self._first.setdefault(key, now)
        self._put(key, min(now + self._quiet, first + self._longest))

    def mark_paced(self, key: K) -> None:
        """Note one of many things that happen to a tree: at once if it was not looked at lately."""
        now = self._clock()
        first = self._first.setdefault(key, now)
        paced = self._popped.get(key, float("-inf")) + self._longest
        self._put(key, min(max(now + self._quiet, paced), first + self._longest))

    def mark_in(self, key: K, seconds: float) -> None:
        """Look at a tree in so many seconds, or earlier if it is due earlier."""
        due = self._clock() + seconds
        if key not in self._due or due < self._due[key]:
            self._put(key, due)

    def pop(self) -> K | None:
        """Return a tree that is due, the longest due first, and forget that it is."""
        now = self._clock()
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                del self._due[key]
                self._first.pop(key, None)
                self._note(key, now)
                return key
        return None

    def wait(self) -> float | None:
        """Return for how long nothing is due, or None while nothing ever will be."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return max(0.0, self._heap[0][0] - self._clock()) if self._heap else None

    def _note(self, key: K, now: float) -> None:
        """Remember when a tree was looked at, for as long as that matters."""
        self._popped.pop(key, None)
        self._popped[key] = now
        while now - self._popped[oldest := next(iter(self._popped))] > self._longest:
            del self._popped[oldest]

    def _put(self, key: K, due: float) -> None:
        if self._due.get(key) == due:
            return
        self._due[key] = due
        self._number += 1
        heapq.heappush(self._heap, (due, self._number, key))
        if len(self._heap) > 2 * len(self._due):
            self._sift()
        if self._heap[0][2] == key:
            self.woken()

    def _sift(self) -> None:
        """Drop the entries that no longer count; those far ahead would stay until their time has come."""
        live = {key: (due, number, key) for due, number, key in self._heap if self._due.get(key) == due}
        self._heap = list(live.values())
        heapq.heapify(self._heap)
