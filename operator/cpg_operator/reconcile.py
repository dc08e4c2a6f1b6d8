"""Look at every tree that something has happened to, and ask for what should be written about it.

Level-based: a look starts from what is so now, whatever has happened, and may be repeated at any time. A mistake of
ours about one tree is logged, and the others go on.
"""

import asyncio
import contextlib
import datetime as dt
from collections.abc import Iterator, Sequence
from typing import NamedTuple, NoReturn

import structlog
from structlog.typing import FilteringBoundLogger

from cpg_api.conditions import find_condition, status_since
from cpg_api.scheduling.health import HealthReason
from cpg_api.scheduling.names import REASON_INVALID
from cpg_api.scheduling.partial_release import PARTIAL, read_partial_release
from cpg_api.scheduling.workload import Workload
from cpg_api.validity import initially_scheduled_type
from cpg_client.timing import Timing
from cpg_operator.context import ReconcileContext, Step, build_context
from cpg_operator.metrics import Metrics
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.work_queue import WorkQueue
from cpg_operator.workloads.instantiation import instantiation
from cpg_operator.writes import StepResult, TreeKey, merge_writes
from cpg_operator.writing.retries import LOOK
from cpg_operator.writing.writer import Writer

SLICE = 0.02
"""Seconds after which others get their turn on the loop."""


class PartialTree(NamedTuple):
    """Since when a tree is half a gang, and after how many seconds its user wants it released."""

    since: float
    after: float | None


class Reconciler:
    """Runs the steps over trees that are due."""

    def __init__(
        self,
        view: ClusterView,
        dirty: WorkQueue[TreeKey],
        door: Writer,
        *,
        steps: Sequence[Step],
        metrics: Metrics,
        partial_after: float,
        timing: Timing,
    ) -> None:
        """Look at nothing yet."""
        self._view = view
        self._dirty = dirty
        self._door = door
        self._steps = steps
        self._metrics = metrics
        self._partial_after = partial_after
        self._timing = timing
        self._log: FilteringBoundLogger = structlog.get_logger()
        self._woken = asyncio.Event()
        self.states: dict[TreeKey, str] = {}
        """What became of each tree at the last look: the health of its root, or that it is invalid."""
        self._halves: dict[TreeKey, PartialTree] = {}
        dirty.woken = self._woken.set

    async def run(self) -> NoReturn:
        """Look at trees as they become due, until cancelled."""
        clock = self._timing.clock
        while True:
            since = clock()
            while clock() - since < SLICE and (key := self._dirty.pop()) is not None:
                self.look(key)
            self._woken.clear()
            wait = self._dirty.wait()
            if wait == 0.0:
                await asyncio.sleep(0)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._woken.wait()

    def look(self, key: TreeKey) -> None:
        """Look at one tree; ask for what should be written, and for another look where only time will tell.

        Where not all has been read, there is one once it has.
        """
        if self._view.is_unread(key.anchor.namespace):
            return
        began = self._timing.clock()
        tree = self._view.anchored(key)
        if tree != key:  # it has become part of another tree, of which there may be more news to come
            self._forget(key)
            self._door.want(key, ())
            self._dirty.mark(tree)
            return
        try:
            outcomes = list(self._outcomes(tree))
            writes = (write for outcome in outcomes for write in outcome.writes)
            self._door.want(tree, merge_writes(writes, self._door.troubles.of(tree)))
            for outcome in outcomes:
                if outcome.again_in is not None:
                    self._dirty.mark_in(tree, outcome.again_in)
        except Exception:  # noqa: BLE001  # a mistake about one tree must not stop the others
            self._metrics.mistaken()
            self._log.exception("look failed", tree=str(tree.anchor), flavour=tree.flavour)
            self._dirty.mark_in(tree, self._door.troubles.note(tree, LOOK))
        self._metrics.looked(self._timing.clock() - began)

    def _outcomes(self, tree: TreeKey) -> Iterator[StepResult]:
        """Yield what the steps want written about a tree, or about a Workload: they stand in one queue."""
        if tree.anchor.kind == Workload.kind:
            troubles = self._door.troubles.of(tree)
            yield instantiation(self._view, tree, stamp=stamp(self._timing.wall()), troubles=troubles)
            return
        scene = self._scene(tree)
        for step in self._steps:
            yield step(scene)
        self._note(scene)

    def _scene(self, tree: TreeKey) -> ReconcileContext:
        now = self._timing.wall()
        return build_context(self._view, tree, now=now, stamp=stamp(now), partial_after=self._partial_after)

    def _note(self, scene: ReconcileContext) -> None:
        """Keep what the tree is like, for the metrics."""
        self._forget(scene.key)
        if not scene.tree.nodes:
            return
        root = scene.tree.root
        condition = find_condition(root.status.conditions, initially_scheduled_type(root))
        invalid = condition is not None and condition.reason == REASON_INVALID
        self.states[scene.key] = REASON_INVALID if invalid else scene.standings[0].reason
        if scene.standings[0].reason is HealthReason.PARTIAL:
            since = status_since(root.status.conditions, PARTIAL) or scene.now
            self._halves[scene.key] = PartialTree(since, read_partial_release(root, scene.partial_after).after_seconds)

    def _forget(self, key: TreeKey) -> None:
        self.states.pop(key, None)
        self._halves.pop(key, None)

    def partial(self) -> float:
        """Return for how long half a gang has held nodes, of the tree that did so the longest; 0 where none does."""
        return max((self._timing.wall() - half.since for half in self._halves.values()), default=0.0)

    def overdue(self) -> float:
        """Return by how much the release of half a gang is overdue; 0 where none is."""
        now = self._timing.wall()
        return max([0.0, *(now - half.since - half.after for half in self._halves.values() if half.after is not None)])


def stamp(seconds: float) -> str:
    """Return a time of the epoch as the API server writes it."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
