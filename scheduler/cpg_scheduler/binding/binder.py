"""The binder: sends the binds of decided batches while the loop schedules the next units.

1. **PreBind.** A batch waits until everything that its pods need is ready: volumes and devices. Only later batches of
   the same unit wait with it. One of them that cannot be had ends the batch before any of its pods is bound. A status
   write of a pod is waited for here as well: it may take a minute, after which the decision may be outdated.
2. **Validation.** The batch is validated against what has arrived since the decision: nodes, other pods, and minimums.
   If it is outdated, none of its pods is bound, and the unit is attempted again at once. Later batches of the unit were
   decided because of this one, so they end as well.
3. **An unanswered bind is never guessed about.** It may have worked, so the pod is read until it shows its node or can
   have none, and stays assumed meanwhile. Only a refusal ends it. Other binds do not wait for it; after a while the pod
   says that it is in doubt.
4. **No bind is undone.** Binding the pods of a tree is not one transaction in Kubernetes. Bound pods stay bound; the
   others are forgotten, and the unit is attempted again after a while. Its bound members pin the domains of the tree,
   and the rest is placed beside them.

Outcomes are events in the inbox of the loop, one for each batch.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from msgspec import Struct, field
from structlog.typing import FilteringBoundLogger

from cpg_api.core.pod import Pod
from cpg_api.parsing import Rejected, parse_object
from cpg_api.scheduling.forest import GroupKey
from cpg_client.connection import Connection
from cpg_client.errors import ApiError, ClientError, ConnectionFailedError, UnreadableAnswerError
from cpg_client.patching import bind
from cpg_client.resources import PODS
from cpg_client.retrying import WatchBackoff
from cpg_client.stall_guard import StallGuard
from cpg_client.timing import cancel_and_wait
from cpg_engine.decisions import DeviceAllocation
from cpg_scheduler.binding.batch import (
    BindBatch,
    BindDelayed,
    BindFailed,
    BindFailure,
    BindInDoubt,
    BindRefused,
    BindSucceeded,
    PreBindFailed,
    PreBindPending,
)
from cpg_scheduler.binding.prebind import BACKOFF, PreBind, is_final
from cpg_scheduler.binding.validate import KnownViolations, complete_groups, known_violations, validate_binds
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.inbox import EventInbox
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.observability.metrics import SchedulerMetrics
from cpg_scheduler.write_gate import WriteGate

GONE = "the pod is gone or terminating"
ALWAYS_VALIDATE = -1
"""A count of disturbances that the cache never has, so that the batch is validated whatever has happened."""
INTERNAL_ERROR = 500
MAX_INTERNAL_ERRORS = 2
"""How many times a bind is repeated after an internal error, which may be transient, before that is the answer."""
SLOW_SECONDS = 5.0
"""Seconds of waiting, for PreBind or for an answer, after which a batch is reported as delayed."""


class _ActiveBatch(Struct, eq=False):
    """A batch that has not ended; ``refused`` has the answer for each pod that was not bound.

    ``before`` is the batch of the same unit that was active when this one began, until it is known how that one ends.
    ``known`` are the rules that the pods break already as they were decided, and ``complete`` the groups above them
    that had their minimum then. ``left`` binds have no outcome yet.
    """

    batch: BindBatch
    disturbances: int
    known: KnownViolations
    complete: frozenset[GroupKey]
    left: int
    before: "_ActiveBatch | None"
    prebinding: asyncio.Task[None] | None = None
    refused: dict[str, str] = field(default_factory=dict)
    is_validated: bool = False
    has_failed: bool = False


class _BindRequest(Struct, eq=False):
    """The bind of one pod, and when it was begun; ``is_sent`` until there is a conclusive answer."""

    active: _ActiveBatch
    uid: str
    failures: int = 0
    since: float = 0.0
    is_sent: bool = False
    is_reported: bool = False

    @property
    def pod(self) -> Pod:
        """Return the pod."""
        return self.active.batch.pods[self.uid]

    @property
    def node(self) -> str:
        """Return the node that it is to have."""
        return self.active.batch.nodes[self.uid]


class Binder:
    """Binds batches; a few workers share all their binds."""

    def __init__(  # noqa: PLR0913 - each by its name
        self,
        connection: Connection,
        cache: ClusterCache,
        tasks: asyncio.TaskGroup,
        *,
        inbox: EventInbox,
        gate: WriteGate,
        prebinds: Sequence[PreBind],
        metrics: SchedulerMetrics,
        log: FilteringBoundLogger,
        in_flight: int,
        guard: StallGuard,
        backoff: WatchBackoff = BACKOFF,
    ) -> None:
        """Bind with at most so many requests in flight."""
        self._connection = connection
        self._cache = cache
        self._tasks = tasks
        self._inbox = inbox
        self._gate = gate
        self._prebinds = prebinds
        self._metrics = metrics
        self._log = log
        self._free_workers = in_flight
        self._stalls = guard
        self._backoff = backoff
        self._binds: deque[_BindRequest] = deque()
        self._latest: dict[UnitKey, _ActiveBatch] = {}
        self.active = 0
        """Batches that have not ended."""

    def start(self, batch: BindBatch) -> None:
        """Begin to bind the pods of a batch, which are assumed already."""
        self.active += 1
        before = self._latest.get(batch.unit)
        known = known_violations(self._cache, batch.nodes)
        complete = complete_groups(self._cache, batch.unit, batch.nodes)
        active = _ActiveBatch(batch, self._cache.placement_changes, known, complete, len(batch.nodes), before)
        self._latest[batch.unit] = active
        is_unready = self._gate.is_writing(batch.nodes.keys()) or any(
            plugin.unready(batch) for plugin in self._prebinds
        )
        if is_unready or (before is not None and before.prebinding is not None):
            active.prebinding = self._tasks.create_task(self._prebind(active))
        else:
            self._enqueue(*(_BindRequest(active, uid) for uid in batch.nodes))

    def release(self, claims: Sequence[DeviceAllocation], pods: Collection[str]) -> None:
        """Begin to deallocate claims that none but these pods, by UID, use."""
        for plugin in self._prebinds:
            self._tasks.create_task(plugin.deallocate(claims, pods))

    # 1. PreBind.

    async def _prebind(self, active: _ActiveBatch) -> None:
        """Run the PreBind plugins for a batch, after those for an earlier batch of its unit."""
        batch, before = active.batch, active.before
        slow = asyncio.get_running_loop().call_later(SLOW_SECONDS, self._report_pending, active)
        try:
            if before is not None and before.prebinding is not None:
                await before.prebinding
            await self._gate.wait_written(batch.nodes.keys())
            is_outdated = before is not None and before.has_failed
            problem = None if is_outdated else await self._run_plugins(batch)
        finally:
            slow.cancel()
        if problem is not None:
            self._end_unbound(active, f"{problem.plugin}: {problem.problem}", problem)
        else:
            active.disturbances = ALWAYS_VALIDATE
            self._enqueue(*(_BindRequest(active, uid) for uid in batch.nodes))

    async def _run_plugins(self, batch: BindBatch) -> PreBindFailed | None:
        """Run the PreBind plugins side by side; return the first problem, after which none of them runs any more."""
        running = {asyncio.ensure_future(plugin.prebind(batch)): plugin.name for plugin in self._prebinds}
        problems: list[PreBindFailed] = []
        try:
            while running and not problems:
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                ended = [(running.pop(task), task.result()) for task in done]
                problems = [PreBindFailed(name, problem) for name, problem in ended if problem]
        finally:
            for task in running:
                await cancel_and_wait(task)
        return min(problems, key=lambda problem: problem.plugin, default=None)

    def _report_pending(self, active: _ActiveBatch) -> None:
        """Report the objects that a batch waits for, or that an earlier batch of its unit does."""
        pending = self._pending(active) or (self._pending(active.before) if active.before is not None else None)
        if pending is not None:
            self._inbox.put(BindDelayed(active.batch, BindFailure(frozenset(active.batch.nodes), pending)))

    def _pending(self, active: _ActiveBatch) -> PreBindPending | None:
        """Return the first PreBind plugin for which objects of a batch are not ready, and these."""
        waiting = ((plugin.name, tuple(plugin.unready(active.batch))) for plugin in self._prebinds)
        return next((PreBindPending(name, objects) for name, objects in waiting if objects), None)

    def _end_unbound(self, active: _ActiveBatch, why: str, problem: PreBindFailed | None = None) -> None:
        """End a batch before its first bind; without a problem it is outdated."""
        batch, active.has_failed = active.batch, True
        self._log.info("binds dropped", root=str(batch.unit.key), pods=len(batch.nodes), why=why)
        failure = BindFailure(frozenset(batch.nodes), problem, is_outdated=problem is None)
        end = partial(self._end, active, batch.nodes, BindFailed(batch, failure))
        if batch.allocations:
            self._tasks.create_task(self._release_and_end(batch, end))
        else:
            self._cache.slices.when_free(end)

    async def _release_and_end(self, batch: BindBatch, end: Callable[[], None]) -> None:
        await self._release(batch, batch.nodes)
        self._cache.slices.when_free(end)

    # 2. Validation.

    def _may_bind(self, active: _ActiveBatch) -> bool:
        """Return whether a batch goes on; it is validated before its first bind."""
        if not active.is_validated:
            active.is_validated = True
            problem = self._validate(active)
            active.before = None
            if problem:
                self._end_unbound(active, problem)
        return not active.has_failed

    def _validate(self, active: _ActiveBatch) -> str:
        """Return why a batch is outdated, or an empty string."""
        if active.before is not None and active.before.has_failed:
            return "an earlier batch of this unit has failed"
        if self._cache.placement_changes == active.disturbances:
            return ""
        batch = active.batch
        lost = active.complete - complete_groups(self._cache, batch.unit, batch.nodes)
        if lost:
            return f"{min(lost)} has lost its minimum"
        return validate_binds(self._cache, batch.nodes, active.known)

    # 3. Binds.

    def _enqueue(self, *binds: _BindRequest) -> None:
        """Queue binds, and start workers for them."""
        self._gate.enter(len(binds))
        self._binds.extend(binds)
        for _ in range(min(len(binds), self._free_workers)):
            self._free_workers -= 1
            self._tasks.create_task(self._work())

    async def _work(self) -> None:
        """Send binds for as long as there are any."""
        while self._binds:
            request = self._binds.popleft()
            if not request.active.is_validated:
                await self._cache.slices.wait_free()
            while self._stalls.is_stalled:
                await self._stalls.wait_current()
                await self._cache.slices.wait_free()
            if self._may_bind(request.active):
                await self._bind(request)
            self._gate.leave()
        self._free_workers += 1

    async def _bind(self, request: _BindRequest) -> None:
        """Send a bind; where its outcome is unknown, queue it again after a while."""
        request.since = request.since or self._connection.timing.clock()
        try:
            refusal = await self._send(request)
        except ClientError as error:
            request.failures += 1
            wait = self._backoff.wait(request.failures, error)
            log = self._log.warning if request.failures == 1 else self._log.debug
            log("bind in doubt", pod=request.pod.metadata.key, error=str(error), retry_in=wait)
            self._report_in_doubt(request, error)
            self._tasks.create_task(self._enqueue_after(wait, request))
        else:
            if refusal and refusal is not GONE and request.uid in request.active.batch.allocations:
                await self._release(request.active.batch, {request.uid})
            self._note_outcome(request, refusal)

    async def _enqueue_after(self, seconds: float, request: _BindRequest) -> None:
        """Queue a bind again after a while, in which its worker serves others."""
        await self._connection.timing.sleep(seconds)
        self._enqueue(request)

    def _report_in_doubt(self, request: _BindRequest, error: ClientError) -> None:
        """Report once that a bind has had no conclusive answer for long."""
        if request.is_reported or self._connection.timing.clock() - request.since < SLOW_SECONDS:
            return
        request.is_reported = True
        failure = BindFailure(frozenset({request.uid}), BindInDoubt(request.node, _answer(error)))
        self._inbox.put(BindDelayed(request.active.batch, failure))

    async def _send(self, request: _BindRequest) -> str:
        """Bind a pod; return why it is refused, or an empty string. Raise while the outcome is unknown."""
        pod, node = request.pod, request.node
        if request.is_sent:
            known = await self._read_outcome(pod, node)
            if known is not None:
                return known
        await self._gate.wait_written({request.uid})
        await self._stalls.wait_current()
        request.is_sent = True
        try:
            await bind(self._connection, pod.metadata, node)
        except ApiError as error:
            if error.is_not_found:
                return GONE
            if is_final(error):
                return str(error)
            if error.is_conflict or (error.status == INTERNAL_ERROR and request.failures >= MAX_INTERNAL_ERRORS):
                known = await self._read_outcome(pod, node)
                return str(error) if known is None else known
            raise
        return ""

    async def _read_outcome(self, pod: Pod, node: str) -> str | None:
        """Read why a pod can never be bound to a node; empty if it is bound to it, None if it may still be."""
        meta = pod.metadata
        try:
            found = parse_object(await self._connection.get(PODS.path(meta.namespace, meta.name)), Pod)
        except ApiError as error:
            if error.is_not_found:
                return GONE
            raise
        if isinstance(found, Rejected):
            raise UnreadableAnswerError(f"{found.name}: {found.problems[0]}")
        if found.metadata.uid != meta.uid:
            return GONE
        if found.spec.node_name:
            return "" if found.spec.node_name == node else f"it is bound to node {found.spec.node_name}"
        return GONE if found.is_terminating or found.is_terminal else None

    # 4. Outcomes.

    def _note_outcome(self, request: _BindRequest, refusal: str) -> None:
        """Note the outcome of a bind; with the last of a batch, report that of the batch."""
        active = request.active
        self._metrics.bound("gone" if refusal is GONE else "error" if refusal else "success")
        if refusal:
            self._log.warning("bind failed", pod=request.pod.metadata.key, why=refusal)
            self._cache.slices.when_free(partial(self._cache.forget, request.uid))
            active.refused[request.uid] = refusal
        active.left -= 1
        if active.left:
            return
        outcome = BindFailed(active.batch, _failure(active)) if active.refused else BindSucceeded(active.batch)
        self._cache.slices.when_free(partial(self._end, active, (), outcome))

    async def _release(self, batch: BindBatch, uids: Collection[str]) -> None:
        """Release what was allocated to unbound pods; they stay assumed until then, so no later batch has them."""
        for plugin in self._prebinds:
            await plugin.release(batch, uids)

    def _end(self, active: _ActiveBatch, forgotten: Iterable[str], outcome: BindSucceeded | BindFailed) -> None:
        """Report the outcome of a batch, and take back the assumption of some pods."""
        batch = active.batch
        for uid in forgotten:
            self._cache.forget(uid)
        self.active -= 1
        self._inbox.put(outcome)
        self._cache.binds_in_flight.end(batch.id, batch.nodes)
        if self._latest.get(batch.unit) is active:
            del self._latest[batch.unit]


def _answer(error: ClientError) -> str:
    """Return the answer without the request, which would differ from pod to pod."""
    if isinstance(error, ConnectionFailedError):
        return error.why
    return str(error).removeprefix(f"{error.request}: ") if isinstance(error, ApiError) else str(error)


def _failure(active: _ActiveBatch) -> BindFailure:
    """Return which binds of a batch were refused; pods that are gone are left out."""
    batch = active.batch
    refused = {uid: why for uid, why in active.refused.items() if why is not GONE}
    if not refused:
        return BindFailure(frozenset())
    uid, answer = min(refused.items(), key=lambda item: batch.pods[item[0]].metadata.key)
    problem = BindRefused(batch.pods[uid].metadata.key, len(refused) - 1, batch.nodes[uid], answer)
    return BindFailure(frozenset(refused), problem)
