"""The work queue: trees that have changed, each due a moment later, so that a burst is reconciled once.

A tree is due once it has been quiet for ``quiet`` seconds, and at the latest ``longest`` after its first change.
Changes that come in streams, as those of pods do, are paced: one reconcile per ``longest`` covers all of them.
"""

import asyncio
import contextlib
import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
MIN_SECONDS = 0.001
"""The shortest wait for which a tree is put back."""


class WorkQueue(Generic[K]):
    """Keys, and when each is due by the given clock."""

    def __init__(self, clock: Callable[[], float], *, quiet: float, longest: float) -> None:
        """Start empty."""
        self._clock = clock
        self._quiet = quiet
        self._longest = longest
        self._due: dict[K, float] = {}
        self._first: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._number = 0
        self._popped: dict[K, float] = {}
        self._sooner = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due)

    def add(self, key: K) -> None:
        """Note that a tree has changed."""
        now = self._clock()
        first = self._first.setdefault(key, now)
        self._put(key, min(now + self._quiet, first + self._longest))

    def add_paced(self, key: K) -> None:
        """Note one of many changes of a tree: it is due soon only if it was not reconciled lately."""
        now = self._clock()
        first = self._first.setdefault(key, now)
        paced = self._popped.get(key, float("-inf")) + self._longest
        self._put(key, min(max(now + self._quiet, paced), first + self._longest))

    def add_after(self, key: K, seconds: float) -> None:
        """Make a tree due after so many seconds, unless it is due earlier.

        Rounding may leave a wait that is too short to change the time, at the end of which nothing would be due.
        """
        due = self._clock() + max(seconds, MIN_SECONDS)
        if key not in self._due or due < self._due[key]:
            self._put(key, due)

    def pop(self) -> K | None:
        """Remove and return the tree that has been due the longest, or None."""
        now = self._clock()
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                del self._due[key]
                self._first.pop(key, None)
                self._remember(key, now)
                return key
        return None

    def seconds_until_due(self) -> float | None:
        """Return the time until the first tree is due, or None while the queue is empty."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return max(0.0, self._heap[0][0] - self._clock()) if self._heap else None

    async def wait(self) -> None:
        """Return once a tree may be due; other tasks run at least once meanwhile."""
        self._sooner.clear()
        seconds = self.seconds_until_due()
        if seconds == 0.0:
            await asyncio.sleep(0)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._sooner.wait()

    def _remember(self, key: K, now: float) -> None:
        """Remember when a tree was popped, for as long as that delays paced changes."""
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
            self._drop_stale_entries()
        if self._heap[0][2] == key:
            self._sooner.set()

    def _drop_stale_entries(self) -> None:
        """Rebuild the heap without replaced entries; those far ahead would otherwise stay until their time."""
        live = {key: (due, number, key) for due, number, key in self._heap if self._due.get(key) == due}
        self._heap = list(live.values())
        heapq.heapify(self._heap)
