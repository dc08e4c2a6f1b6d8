"""The binder: decided binds become bound pods, many at a time, while the next cycle runs.

1. **Volumes first.** An order with claims waits until all of them are bound, and later orders of its root wait for it;
   nobody else does. One volume that cannot be had ends the order before anybody is bound.
2. **One more look.** What has arrived since the decision may speak against it; then the whole order is given back, and
   its root is attempted again at once. So are later orders of the root, which were decided because this one was.
3. **No guesses.** A bind without an answer may have worked. The pod is read until it says so, for as long as it takes,
   and counts as bound meanwhile. Only a refusal ends it. It holds up nobody, and is told of when it takes long.
4. **No undoing.** Binding the pods of a tree is not one transaction in Kubernetes. Who is bound stays; the rest is
   given back, and the root is attempted again after a while. Its bound members then pin the tree's domains, and
   the rest is placed beside them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

from msgspec import Struct, field
from structlog.typing import FilteringBoundLogger

from cpg_api.core.pod import Pod
from cpg_api.parsing import Rejected, parse_object
from cpg_api.scheduling.names import REASON_SCHEDULER_ERROR, REASON_UNSCHEDULABLE
from cpg_client.connection import Connection
from cpg_client.errors import ApiError, ClientError, ConnectionFailedError, UnreadableAnswerError
from cpg_client.patching import bind
from cpg_client.resources import PODS
from cpg_client.retrying import WatchBackoff
from cpg_engine.decisions import Allocation
from cpg_scheduler.binding.validate import KnownViolations, known_violations, validate_binds
from cpg_scheduler.binding.volumes import BACKOFF, VolumeBinder, is_final, named
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.observability.metrics import Metrics

REASON_WAITING = "WaitingForVolumes"
"""A pod has been given a node, and waits there for its volumes; a new node would not help."""
REASON_IN_DOUBT = "BindInDoubt"
"""A pod has been given a node, and the API server does not say what has become of the bind; it is asked on."""
GONE = "it is gone, or about to go"
ALWAYS = -1
"""A count of disturbances that is never up to date."""
INTERNAL_ERROR = 500
FAILURES = 2
"""Times that an internal error has to come again before it counts as an answer: some are of the moment."""
SLOW = 5.0
"""Seconds of waiting for volumes, or for an answer, after which it is worth a word."""


class BindFailure(Struct, frozen=True):
    """Why an order came to nothing, or not to all: who was not bound, by UID, and what to say about it, if anything.

    Where the decision itself has become outdated, the root is to be attempted again at once.
    """

    uids: frozenset[str]
    reason: str = REASON_SCHEDULER_ERROR
    message: str = ""
    at_once: bool = False


class BindBatch(Struct, frozen=True):
    """Pods of a root to bind, to which nodes and with which volumes, and whom to tell what comes of it."""

    root: UnitKey
    pods: Mapping[str, Pod]
    nodes: Mapping[str, str]
    placed: Callable[[], None]
    failed: Callable[[BindFailure], None]
    waits: Callable[[BindFailure], None] = lambda _: None
    allocations: tuple[Allocation, ...] = ()


class _Flight(Struct, eq=False):
    """An order under way; ``refused`` says why of each pod that was not bound.

    ``before`` is the one that its root had under way when it came, until it is known what becomes of that. ``borne`` is
    what its pods had against their places from the beginning.
    """

    order: BindBatch
    disturbances: int
    borne: KnownViolations
    left: int
    before: "_Flight | None"
    furnishing: asyncio.Task[None] | None = None
    refused: dict[str, str] = field(default_factory=dict)
    is_checked: bool = False
    is_over: bool = False


class _Job(Struct, eq=False):
    """A bind to make, and since when; it is in doubt once it has been sent, until there is an answer to go by."""

    flight: _Flight
    uid: str
    failures: int = 0
    since: float = 0.0
    in_doubt: bool = False
    is_told: bool = False


class Binder:
    """Performs orders: a few workers share all their binds."""

    def __init__(
        self,
        connection: Connection,
        state: ClusterCache,
        tasks: asyncio.TaskGroup,
        *,
        furnisher: VolumeBinder,
        metrics: Metrics,
        log: FilteringBoundLogger,
        in_flight: int,
        backoff: WatchBackoff = BACKOFF,
    ) -> None:
        """Bind with so many requests in flight at the most."""
        self._connection = connection
        self._state = state
        self._tasks = tasks
        self._furnisher = furnisher
        self._metrics = metrics
        self._log = log
        self._free = in_flight
        self._backoff = backoff
        self._jobs: deque[_Job] = deque()
        self._latest: dict[UnitKey, _Flight] = {}
        self.under_way = 0
        self._busy = 0
        """Binds that are lined up or being made."""
        self._idle = asyncio.Event()
        self._idle.set()

    def start(self, order: BindBatch) -> None:
        """Begin to bind; who waits for the outcome is told by the order's callbacks."""
        self.under_way += 1
        before = self._latest.get(order.root)
        borne = known_violations(self._state, order.nodes)
        flight = _Flight(order, self._state.placement_changes, borne, len(order.nodes), before)
        self._latest[order.root] = flight
        if self._furnisher.unbound(order.pods.values()) or (before is not None and before.furnishing is not None):
            flight.furnishing = self._tasks.create_task(self._furnish(flight))
        else:
            self._launch(flight)

    async def drained(self) -> None:
        """Wait until no binds are to be made now; who waits for volumes or answers can be left to the next leader."""
        await self._idle.wait()

    # Before the binds.

    async def _furnish(self, flight: _Flight) -> None:
        """See to the volumes of an order, after those of an earlier one of its root."""
        order, before = flight.order, flight.before
        slow = asyncio.get_running_loop().call_later(SLOW, self._tell_slow, order)
        try:
            if before is not None and before.furnishing is not None:
                await before.furnishing
            is_vain = before is not None and before.is_over
            problem = "" if is_vain else await self._furnisher.furnish(order.pods.values(), order.allocations)
        finally:
            slow.cancel()
        if problem:
            self._abandon(flight, f"volumes: {problem}", blame=True)
        else:
            flight.disturbances = ALWAYS
            self._launch(flight)

    def _tell_slow(self, order: BindBatch) -> None:
        waited_for = named(self._furnisher.unbound(order.pods.values()))
        order.waits(BindFailure(frozenset(order.nodes), REASON_WAITING, f"waiting for {waited_for} to be bound"))

    def _abandon(self, flight: _Flight, why: str, *, blame: bool = False) -> None:
        """Give a whole order back; where nothing is to blame but time, its root is tried again at once."""
        order, flight.is_over = flight.order, True
        self._log.info("order given back", root=str(order.root.key), pods=len(order.nodes), why=why)
        for uid in order.nodes:
            self._state.forget(uid)
        self._end(flight)
        message = why if blame else ""
        order.failed(BindFailure(frozenset(order.nodes), REASON_UNSCHEDULABLE, message, at_once=not blame))

    # The binds.

    def _launch(self, flight: _Flight) -> None:
        """Line up the binds of an order, and put workers to work on them."""
        self._line_up(*(_Job(flight, uid) for uid in flight.order.nodes))

    def _line_up(self, *jobs: _Job) -> None:
        self._busy += len(jobs)
        self._idle.clear()
        self._jobs.extend(jobs)
        for _ in range(min(len(jobs), self._free)):
            self._employ()

    def _end(self, flight: _Flight) -> None:
        """Note that an order is under way no more."""
        self.under_way -= 1
        if self._latest.get(flight.order.root) is flight:
            del self._latest[flight.order.root]

    def _employ(self) -> None:
        self._free -= 1
        self._tasks.create_task(self._work())

    async def _work(self) -> None:
        """Make binds for as long as there are any."""
        while self._jobs:
            job = self._jobs.popleft()
            if self._stands(job.flight):
                await self._serve(job)
            self._busy -= 1
            if not self._busy:
                self._idle.set()
        self._free += 1

    def _stands(self, flight: _Flight) -> bool:
        """Tell whether an order still stands; before its first bind it is looked at once more."""
        if not flight.is_checked:
            flight.is_checked = True
            why = self._objection(flight)
            flight.before = None
            if why:
                self._abandon(flight, why)
        return not flight.is_over

    def _objection(self, flight: _Flight) -> str:
        if flight.before is not None and flight.before.is_over:
            return "an earlier order of this tree came to nothing"
        if self._state.placement_changes == flight.disturbances:
            return ""
        return validate_binds(self._state, flight.order.nodes, flight.borne)

    async def _serve(self, job: _Job) -> None:
        """Make a bind, or put it off for as long as nobody can say what has become of it."""
        job.since = job.since or self._connection.timing.clock()
        try:
            why = await self._outcome(job)
        except ClientError as error:
            job.failures += 1
            wait = self._backoff.wait(job.failures, error)
            tell = self._log.warning if job.failures == 1 else self._log.debug
            tell("bind in doubt", pod=self._pod(job).metadata.key, error=str(error), retry_in=wait)
            self._tell_in_doubt(job, error)
            self._tasks.create_task(self._put_off(job, wait))
        else:
            self._settle(job, why)

    async def _put_off(self, job: _Job, wait: float) -> None:
        """Line a bind up again after a while, in which its place is another's."""
        await self._connection.timing.sleep(wait)
        self._line_up(job)

    def _tell_in_doubt(self, job: _Job, error: ClientError) -> None:
        """Say once that there has been no answer to go by for long."""
        if job.is_told or self._connection.timing.clock() - job.since < SLOW:
            return
        job.is_told, order = True, job.flight.order
        message = f"not known yet whether the bind to node {order.nodes[job.uid]} has worked: {_said(error)}"
        order.waits(BindFailure(frozenset({job.uid}), REASON_IN_DOUBT, message))

    async def _outcome(self, job: _Job) -> str:
        """Return why a pod is not bound, empty if it is; raise while that cannot be told."""
        pod, node = self._pod(job), job.flight.order.nodes[job.uid]
        if job.in_doubt:
            known = await self._look(pod, node)
            if known is not None:
                return known
        job.in_doubt = True
        try:
            await bind(self._connection, pod.metadata, node)
        except ApiError as error:
            if error.is_not_found:
                return GONE
            if is_final(error):
                return str(error)
            if error.is_conflict or (error.status == INTERNAL_ERROR and job.failures >= FAILURES):
                known = await self._look(pod, node)
                return str(error) if known is None else known
            raise
        return ""

    async def _look(self, pod: Pod, node: str) -> str | None:
        """Return why a pod is not bound to a node and never will be, empty if it is, None if it may be yet."""
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

    def _settle(self, job: _Job, why: str) -> None:
        """Note what has become of a bind; who placed the order is told with the last of them."""
        flight = job.flight
        self._metrics.bound("gone" if why is GONE else "error" if why else "success")
        if why:
            self._log.warning("bind failed", pod=self._pod(job).metadata.key, why=why)
            self._state.forget(job.uid)
            flight.refused[job.uid] = why
        flight.left -= 1
        if flight.left:
            return
        self._end(flight)
        if flight.refused:
            flight.order.failed(_trouble(flight))
        else:
            flight.order.placed()

    def _pod(self, job: _Job) -> Pod:
        return job.flight.order.pods[job.uid]


def _said(error: ClientError) -> str:
    """Return what was answered, if anything, without what was asked: that would differ from pod to pod."""
    if isinstance(error, ConnectionFailedError):
        return error.why
    return str(error).removeprefix(f"{error.request}: ") if isinstance(error, ApiError) else str(error)


def _trouble(flight: _Flight) -> BindFailure:
    """Say which binds were refused; about pods that are gone there is nothing to say."""
    order = flight.order
    there = {uid: why for uid, why in flight.refused.items() if why is not GONE}
    if not there:
        return BindFailure(frozenset())
    uid, why = min(there.items(), key=lambda item: order.pods[item[0]].metadata.key)
    more = f" (and {len(there) - 1} more)" if len(there) > 1 else ""
    message = f"Pod {order.pods[uid].metadata.key}{more} cannot be bound to node {order.nodes[uid]}: {why}"
    return BindFailure(frozenset(there), message=message)
