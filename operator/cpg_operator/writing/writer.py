"""The only place that writes: every write is sent from here, in order for each object, a bounded number at a time.

Nothing is retried here. A failed write has its tree reconciled again, after a back-off or after an event, and that
reconcile decides what to write then. A conflict or a missing object is no failure: another client was faster.
"""

import asyncio
from collections.abc import Collection
from typing import NoReturn

import structlog
from structlog.typing import FilteringBoundLogger

from cpg_client.errors import ApiError, ClientError
from cpg_operator.metrics import OperatorMetrics
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.work_queue import WorkQueue
from cpg_operator.writes import ObjectPart, TreeKey, Verb, Write
from cpg_operator.writing.creations import SHOWN_WITHIN_SECONDS, RecentCreations
from cpg_operator.writing.expectations import Expectations
from cpg_operator.writing.retries import RetryState
from cpg_operator.writing.sender import Sender, uid_of, version_of

PENDING_WRITES_WAIT_SECONDS = 1.0
"""After this time a tree that waits for the end of its writes is reconciled anyway."""

CONFLICT_WAIT_SECONDS = 0.5
"""After a conflict the tree is reconciled in this time: the watch has usually shown the newer version by then."""


class Writer:
    """Sends writes, each object's in order."""

    def __init__(
        self,
        sender: Sender,
        *,
        view: ClusterView,
        queue: WorkQueue[TreeKey],
        expectations: Expectations,
        creations: RecentCreations,
        retries: RetryState[TreeKey],
        metrics: OperatorMetrics,
        in_flight: int = 16,
    ) -> None:
        """Send nothing yet, and later at most ``in_flight`` requests at once."""
        self._sender = sender
        self._view = view
        self._queue = queue
        self._expectations = expectations
        self._creations = creations
        self._retries = retries
        self._metrics = metrics
        self._log: FilteringBoundLogger = structlog.get_logger()
        self._pending: dict[ObjectPart, tuple[TreeKey, Write]] = {}
        self._pending_of: dict[TreeKey, set[ObjectPart]] = {}
        self._in_flight: dict[ObjectPart, tuple[TreeKey, Write]] = {}
        self._requeued: set[TreeKey] = set()
        """Trees to reconcile once none of their writes is pending or in flight."""
        self._lanes: list[asyncio.Queue[ObjectPart]] = [asyncio.Queue() for _ in range(in_flight)]
        """All writes to one object take the same lane, which keeps their order."""

    def __len__(self) -> int:
        return len(self._pending)

    def submit(self, tree: TreeKey, writes: Collection[Write]) -> None:
        """Replace all pending writes of a tree by these, which are all that a reconcile of it wants.

        A write that is already in flight and no longer wanted has the tree reconciled after it, to correct it.
        """
        self._requeued.discard(tree)
        self._retries.keep_only(tree, {write.object_part for write in writes})
        wanted = {write.object_part for write in writes if self._enqueue(tree, write)}
        for part in self._pending_of.get(tree, set()) - wanted:
            self._drop(part)
        for part, (in_flight_for, _) in self._in_flight.items():
            if in_flight_for == tree and part not in wanted:
                self._requeue(tree)

    def _enqueue(self, tree: TreeKey, write: Write) -> bool:
        """Enqueue a write unless it is redundant; return whether it is pending or in flight now."""
        part = write.object_part
        _, in_flight = self._in_flight.get(part, (tree, None))
        if in_flight is not None and write.repeats(in_flight):
            self._drop(part)
            return True
        if self._expectations.is_met(write):
            return False
        if write.verb is Verb.CREATE and (left := self._seconds_until_shown(part[0])) > 0:
            self._queue.add_after(tree, left)
            return False
        replaced = self._drop(part)
        self._pending[part] = (tree, write)
        self._pending_of.setdefault(tree, set()).add(part)
        if replaced is None:
            self._lanes[hash(part[0]) % len(self._lanes)].put_nowait(part)
        else:
            self._finish(replaced[0])
        return True

    def _seconds_until_shown(self, name: str) -> float:
        """Return for how long the view may not show what was created; 0 if it has shown the end of that."""
        return 0.0 if self._view.was_deleted(self._creations.uid(name)) else self._creations.seconds_left(name)

    def _drop(self, part: ObjectPart) -> tuple[TreeKey, Write] | None:
        """Remove and return the pending write to a part."""
        found = self._pending.pop(part, None)
        if found is not None:
            parts = self._pending_of[found[0]]
            parts.remove(part)
            if not parts:
                del self._pending_of[found[0]]
        return found

    async def run(self) -> None:
        """Send writes until cancelled."""
        async with asyncio.TaskGroup() as workers:
            for lane in self._lanes:
                workers.create_task(self._work(lane))

    async def drain(self) -> None:
        """Return once every pending write has been sent."""
        for lane in self._lanes:
            await lane.join()

    async def _work(self, lane: asyncio.Queue[ObjectPart]) -> NoReturn:
        while True:
            part = await lane.get()
            if (found := self._drop(part)) is not None:
                self._in_flight[part] = found
                try:
                    await self._write(*found)
                finally:
                    del self._in_flight[part]
                    self._finish(found[0])
            lane.task_done()

    def _finish(self, tree: TreeKey) -> None:
        """Add a tree to the work queue after the last of its writes, where it is to be reconciled again."""
        is_last = tree not in self._pending_of and all(one != tree for one, _ in self._in_flight.values())
        if tree in self._requeued and is_last:
            self._requeued.remove(tree)
            self._queue.add(tree)

    def _requeue(self, tree: TreeKey) -> None:
        """Have a tree reconciled once all its writes have been sent, or after a while."""
        self._requeued.add(tree)
        self._queue.add_after(tree, PENDING_WRITES_WAIT_SECONDS)

    async def _write(self, tree: TreeKey, write: Write) -> None:
        """Send one write; an exception in our own code counts as a failed write and does not end the task."""
        try:
            result = await self._try(tree, write)
        except Exception:  # noqa: BLE001  # a defect in one write must not stop the others
            result = "failure"
            self._log.exception("write failed", verb=write.verb.value, object=write.target.key)
            self._metrics.count_mistake()
            self._fail(tree, write)
        self._metrics.count_write(write.verb.value, result)

    async def _try(self, tree: TreeKey, write: Write) -> str:
        """Send one write and record its result; return that result as the metrics name it."""
        try:
            answer = await self._sender.send(write)
        except ApiError as error:
            return self._refused(tree, write, error)
        except ClientError as error:
            self._log.warning("write failed", verb=write.verb.value, object=write.target.key, error=str(error))
            self._fail(tree, write)
            return "failure"
        if answer and self._view.take_answer(tree.flavour, write, answer):
            self._requeue(tree)
        if write.event is not None:
            await self._sender.record_event(write, write.event)
        self._succeed(tree, write, answer)
        return "success"

    def _succeed(self, tree: TreeKey, write: Write, answer: bytes) -> None:
        self._expectations.record(write)
        if write.verb is Verb.MERGE and version_of(answer) == write.target.resource_version:
            self._retries.record(tree, write.object_part, "it was accepted, and nothing has changed")
        else:
            self._retries.clear(tree, write.object_part)
        if write.requeue:
            self._requeue(tree)
        if write.verb is Verb.CREATE:
            self._creations.record(write.object_part[0], uid_of(answer))

    def _refused(self, tree: TreeKey, write: Write, error: ApiError) -> str:
        if error.is_not_found:
            if f'"{write.target.name}"' in error.message:  # otherwise the whole resource is not served
                self._view.forget_missing(tree.flavour, write.resource, write.target)
            return "gone"
        if error.is_conflict:
            self._queue.add_after(tree, CONFLICT_WAIT_SECONDS)
            return "conflict"
        if error.is_already_exists:
            self._creations.record(write.object_part[0])
            self._queue.add_after(tree, SHOWN_WITHIN_SECONDS)
            return "conflict"
        self._log.warning("write refused", verb=write.verb.value, object=write.target.key, error=str(error))
        self._fail(tree, write, error.message)
        return "failure"

    def _fail(self, tree: TreeKey, write: Write, message: str = "") -> None:
        self._queue.add_after(tree, self._retries.record(tree, write.object_part, message))
