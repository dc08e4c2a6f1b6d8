"""Units, failures and a queue with a backoff that is easy to compute."""

import pytest

from cpg_api.scheduling.forest import GroupKey
from cpg_engine.verdicts import Explanation, FilterReason, Finding, GroupReport, StatusCounts
from cpg_scheduler.keys import QueueKey, UnitKey
from cpg_scheduler.queueing.hints import FailedAttempt, RequeueHint
from cpg_scheduler.queueing.policy import RequeueBackoff
from cpg_scheduler.queueing.scheduling_queue import SchedulingQueue

ROOM = RequeueHint()


class QueueFixture:
    """A scheduling queue; units are named by a word, and importance is the opposite of priority."""

    def __init__(self) -> None:
        """Start empty, with a backoff that doubles from one second to eight."""
        self.queue = SchedulingQueue(RequeueBackoff(first=1.0, most=8.0, per_doubling=0.0))

    def unit(self, name: str) -> UnitKey:
        """Return the key of a unit."""
        return UnitKey("crd", GroupKey("PodGroup", "default", name))

    def key(self, name: str, importance: int = 0, created: str = "2026") -> QueueKey:
        """Return the queue key of a unit."""
        return QueueKey(importance, created, self.unit(name))

    def failure(self, signature: str | None = None, hint: RequeueHint | None = ROOM, reason: str = "") -> FailedAttempt:
        """Return a failed attempt, with an explanation if a reason is given."""
        explanation = None
        if reason:
            counts = StatusCounts(minimum=1)
            report = GroupReport(self.unit("any").key, counts, nodes=1, reasons=(FilterReason(reason, 1),))
            explanation = Explanation(Finding.IMPOSSIBLE, (report,))
        return FailedAttempt(hint=hint, signature=signature, explanation=explanation)

    def activate(self, *names: str, importance: int = 0, created: str = "2026") -> None:
        """Activate units because they are new or have changed."""
        for name in names:
            self.queue.activate(self.key(name, importance, created))

    def pop(self, now: float = 0.0) -> str | None:
        """Pop the next unit."""
        found = self.queue.pop(now)
        return found.key.name if found is not None else None

    def pop_all(self, now: float = 0.0) -> list[str]:
        """Pop all active units."""
        return list(iter(lambda: self.pop(now) or "", ""))

    def fail(self, name: str, now: float = 0.0, failure: FailedAttempt | None = None) -> None:
        """Pop the next unit, which has to be this one, and let its attempt fail."""
        assert self.pop(now) == name
        self.queue.add_unschedulable(self.unit(name), 1, now, failure or self.failure())

    def place(self, name: str, now: float = 0.0) -> None:
        """Pop the next unit, which has to be this one, and place its pods."""
        assert self.pop(now) == name
        self.queue.start_binding(self.unit(name))

    def join(self, name: str, signature: str | None = "x", now: float = 0.0) -> bool:
        """Pop the next unit, which has to be this one; return whether it joins equivalent ones."""
        assert self.pop(now) == name
        return self.queue.join_equivalent(self.unit(name), signature)

    def move_all(self, now: float) -> None:
        """Let the cluster change so that every unit with a hint may be helped."""
        self.queue.move_to_active_or_backoff(now, list)


@pytest.fixture
def queued() -> QueueFixture:
    """Return an empty queue."""
    return QueueFixture()


@pytest.fixture
def peers(queued: QueueFixture) -> QueueFixture:
    """Return a queue with three unschedulable units of one class; the first has failed, the others have joined it."""
    queued.activate("a", "b", "c")
    queued.fail("a", failure=queued.failure("x"))
    assert queued.join("b")
    assert queued.join("c")
    return queued
