"""What each process had received when it decided, so that no rule asks for what it could not know.

A watch is late, and a bind is validated before its batch is sent. So a write is judged by what its process had received
``VALIDATION_SECONDS`` before it sent the first request of that batch.
"""

import math
import re
from bisect import bisect_right
from collections import defaultdict
from typing import NamedTuple

VALIDATION_SECONDS = 1.0
"""Between validation and the first byte of a bind the scheduler may wait for a write of the pod's status."""
OUTDATED_SECONDS = 60.0
"""After a restore of etcd a process may go on for so long with what it knew."""
BATCH_SECONDS = 3.0
"""Binds of one tree by one process that follow each other within this time count as one batch, validated once."""

_REVISION = re.compile(rb'"resourceVersion":\s*"(\d+)"')


def newest_revision(data: bytes) -> int:
    """Return the newest revision in a list or in lines of a watch, or 0."""
    return max(map(int, _REVISION.findall(data)), default=0)


class View(NamedTuple):
    """What a process knew when it decided about a write: the newest revision that it had received of each resource."""

    revisions: dict[str, float]

    def sees(self, resource: str, revision: int) -> bool:
        """Return whether the process had received a revision; without a record of what it received, it had."""
        return revision <= self.revisions.get(resource, math.inf)


class Knowledge:
    """What the processes have received and sent."""

    def __init__(self) -> None:
        """Start with processes that have received nothing."""
        self._starts: defaultdict[str, int] = defaultdict(int)
        self.outdated: dict[str, float] = {}
        """The processes that ran before etcd was restored, and until when what they know may be void."""
        self.resumed: dict[str, dict[str, int]] = {}
        """What there was of each resource when a process went on that had been stopped: the newest revision."""
        self._received: dict[tuple[str, str], tuple[list[float], list[int]]] = {}
        self._batches: dict[tuple[str, str], tuple[float, float]] = {}
        self._decided: dict[tuple[str, str], float] = {}
        self._first_sent: dict[tuple[str, str], float] = {}

    def process(self, user: str) -> str:
        """Return the name of a process, which differs each time that it is started."""
        starts = self._starts.get(user)
        return user if starts is None else f"{user}#{starts}"

    def after_restore(self, now: float) -> "Knowledge":
        """Return what the processes know once etcd has been restored."""
        found = Knowledge()
        found._starts |= self._starts
        processes = self.outdated.keys() | {process for process, _ in self._received}
        found.outdated = dict.fromkeys(sorted(processes), now + OUTDATED_SECONDS)
        return found

    def ended(self, user: str) -> None:
        """Note that a process has ended: the next one of its name knows nothing."""
        self._starts[user] += 1

    def received(self, user: str, resource: str, revision: int, now: float) -> None:
        """Note that a process has received a revision of a resource, by a watch or a list."""
        times, revisions = self._received.setdefault((self.process(user), resource), ([], []))
        times.append(now)
        revisions.append(max(revision, revisions[-1]) if revisions else revision)

    def sent(self, user: str, subject: str, batch: str, now: float) -> None:
        """Note that a process has sent a request about a subject, as a part of a batch; repetitions change nothing."""
        process = self.process(user)
        first, last = self._batches.get((process, batch), (now, -math.inf))
        first = first if now - last <= BATCH_SECONDS else now
        self._batches[process, batch] = (first, now)
        self._decided.setdefault((process, subject), first)
        self._first_sent.setdefault((process, subject), now)

    def has_sent(self, process: str, subject: str) -> bool:
        """Return whether a process has sent a request about a subject."""
        return (process, subject) in self._decided

    def forget(self, subject: str) -> None:
        """Forget what was sent about a subject: there is another of its name."""
        for key in [key for key in self._decided if key[1] == subject]:
            del self._decided[key], self._first_sent[key]

    def first_sent(self, process: str, subject: str, now: float) -> float:
        """Return when a process sent its first request about a subject; the one that was sent now may repeat it."""
        return self._first_sent.get((process, subject), now)

    def seen(self, process: str, resource: str, now: float) -> float:
        """Return the newest revision of a resource that a process has received; all of them without a record."""
        times, revisions = self._received.get((process, resource), ((), ()))
        place = bisect_right(times, now)
        return revisions[place - 1] if place else -math.inf if times else math.inf

    def view(self, process: str, subject: str, now: float) -> View:
        """Return what a process knew when it decided about a subject; ``now`` is when its request was sent."""
        decided = self._decided.get((process, subject), now) - VALIDATION_SECONDS
        seen = {}
        for (known, resource), (times, revisions) in self._received.items():
            if known == process:
                place = bisect_right(times, decided)
                seen[resource] = revisions[place - 1] if place else -math.inf
        return View(seen)
