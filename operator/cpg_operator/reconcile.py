"""Reconciles every tree in the work queue: runs the steps over it and submits the writes that they return.

Level-based: a reconcile starts from the present state, whatever has happened, and may be repeated at any time. An
exception about one tree is logged, and the others go on.
"""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NoReturn

import structlog
from structlog.typing import FilteringBoundLogger

from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload
from cpg_client.timing import Timing
from cpg_operator.context import Step, build_context
from cpg_operator.elapsed import ElapsedTimes
from cpg_operator.metrics import OperatorMetrics
from cpg_operator.tree_states import TreeStates
from cpg_operator.turns import MAX_SECONDS_PER_TURN
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.work_queue import WorkQueue
from cpg_operator.workloads.adoption import adopt
from cpg_operator.workloads.instantiation import instantiate
from cpg_operator.workloads.owner_events import OwnerEvents, forward_obstacles
from cpg_operator.writes import ObjectPart, StepResult, TreeKey, merge_writes
from cpg_operator.writing.retries import RECONCILE_PART, PartFailure, RetryState
from cpg_operator.writing.writer import Writer

TREE_KINDS = frozenset({PodGroup.kind, CompositePodGroup.kind})


class StepRunner:
    """Runs the steps over one tree, and records its state."""

    def __init__(
        self,
        view: ClusterView,
        *,
        steps: Sequence[Step],
        states: TreeStates,
        timing: Timing,
        partial_after: float,
        scheduler_names: frozenset[str],
    ) -> None:
        """Run nothing yet."""
        self._view = view
        self._steps = steps
        self._states = states
        self._wall_clock = timing.wall
        self._elapsed = ElapsedTimes(clock=timing.clock, wall=timing.wall)
        self._owner_events = OwnerEvents(view.owners, timing.clock)
        self._partial_after = partial_after
        self._scheduler_names = scheduler_names

    def run(self, tree: TreeKey, failures: Mapping[ObjectPart, PartFailure]) -> Iterator[StepResult]:
        """Yield what each step returns for a tree, a Workload or an owner: all are keys of one queue."""
        now = self._wall_clock()
        if tree.anchor.kind not in TREE_KINDS and tree.anchor.kind != Workload.kind:
            yield adopt(self._view, tree, self._scheduler_names)
            return
        if tree.anchor.kind == Workload.kind:
            result = instantiate(self._view, tree, timestamp=timestamp(now), failures=failures)
            yield result
            yield forward_obstacles(self._view, tree, result)
            return
        context = build_context(
            self._view,
            tree,
            now=now,
            timestamp=timestamp(now),
            seconds_since=self._elapsed.of(tree),
            partial_after=self._partial_after,
            scheduler_names=self._scheduler_names,
        )
        for step in self._steps:
            yield step(context)
        yield self._owner_events.report(context)
        self._states.record(context)

    def forget(self, tree: TreeKey) -> None:
        """Drop the state of a tree that has become part of another."""
        self._states.forget(tree)
        self._owner_events.forget(tree)
        self._elapsed.forget(tree)


class Reconciler:
    """Reconciles trees as they become due."""

    def __init__(
        self,
        view: ClusterView,
        *,
        queue: WorkQueue[TreeKey],
        steps: StepRunner,
        writer: Writer,
        retries: RetryState[TreeKey],
        metrics: OperatorMetrics,
        clock: Callable[[], float],
    ) -> None:
        """Reconcile nothing yet."""
        self._view = view
        self._queue = queue
        self._steps = steps
        self._writer = writer
        self._retries = retries
        self._metrics = metrics
        self._clock = clock
        self._log: FilteringBoundLogger = structlog.get_logger()

    async def run(self) -> NoReturn:
        """Reconcile trees as they become due, until cancelled."""
        clock = self._clock
        while True:
            since = clock()
            while clock() - since < MAX_SECONDS_PER_TURN and (key := self._queue.pop()) is not None:
                self.reconcile(key)
            await self._queue.wait()

    def reconcile(self, key: TreeKey) -> None:
        """Reconcile one tree.

        A tree in a namespace that has not been read completely is left alone: it is in the queue again once it has.
        """
        if self._view.is_unread(key.anchor.namespace):
            return
        began = self._clock()
        tree = self._view.current_key(key)
        if tree != key:  # it has become part of another tree, of which more events may follow
            self._steps.forget(key)
            self._writer.submit(key, ())
            self._queue.add(tree)
            return
        try:
            failures = self._retries.failures(tree)
            results = list(self._steps.run(tree, failures))
            writes = (write for result in results for write in result.writes)
            self._writer.submit(tree, merge_writes(writes, failures))
            for result in results:
                if result.requeue_after is not None:
                    self._queue.add_after(tree, result.requeue_after)
        except Exception:  # noqa: BLE001  # a defect that one tree reveals must not stop the others
            self._metrics.count_mistake()
            self._log.exception("reconcile failed", tree=str(tree.anchor), flavour=tree.flavour)
            self._queue.add_after(tree, self._retries.record(tree, RECONCILE_PART))
        self._metrics.observe_reconcile(self._clock() - began)


def timestamp(seconds: float) -> str:
    """Return a time of the epoch as the API server writes it."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
