"""The scheduler, wired together by constructors.

On standby only the reflectors run, so that the cache is complete when this replica takes over. Everything that decides
or writes is built and started when it leads.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, NoReturn

import structlog

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.integrations.registry import Integrations
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Group, key_of
from cpg_api.scheduling.podgroup import PodGroup
from cpg_client import garbage
from cpg_client.connection import Connection
from cpg_client.endpoint import Endpoint
from cpg_client.freshness import Freshness
from cpg_client.informers import Informers
from cpg_client.patching import touch_pod
from cpg_client.process import (
    LeaderWork,
    ProcessContext,
    process_identity,
    run_with_standby,
)
from cpg_client.resources import PODS
from cpg_client.stall_guard import StallGuard
from cpg_client.stores import Change, Deleted, Modified
from cpg_client.timing import run_until, seconds_with_suspension
from cpg_engine.snapshot import new_snapshot
from cpg_scheduler.binding.binder import Binder
from cpg_scheduler.binding.claim_writer import ClaimWriter
from cpg_scheduler.binding.devices import DeviceBinder
from cpg_scheduler.binding.extended_claims import ExtendedClaims
from cpg_scheduler.binding.left_claims import LeftClaims
from cpg_scheduler.binding.volumes import VolumeBinder
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.cycle import SchedulingLoop
from cpg_scheduler.inbox import EventInbox
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.observability.metrics import SchedulerMetrics
from cpg_scheduler.observability.overcommit import OvercommitWatch
from cpg_scheduler.pages import add_pages, build_metrics
from cpg_scheduler.preemption.corrections import SECONDS_BETWEEN_CORRECTIONS
from cpg_scheduler.preemption.events import CorrectionDue
from cpg_scheduler.preemption.executor import EvictionExecutor
from cpg_scheduler.preemption.machine import PreemptionMachine
from cpg_scheduler.queueing.scheduling_queue import SchedulingQueue
from cpg_scheduler.reflectors import ReflectedCluster, discover, reflectors, watch_kinds
from cpg_scheduler.settings import SchedulerSettings
from cpg_scheduler.status.conditions import StatusWriter, has_another_reason
from cpg_scheduler.status.events import EventWriter
from cpg_scheduler.status.resync import TreeStatus
from cpg_scheduler.status.write_queue import WriteQueue
from cpg_scheduler.time_slices import TimeSlices
from cpg_scheduler.units import queue_key_of
from cpg_scheduler.write_gate import WriteGate

MAX_SECONDS_TO_DRAIN = 10.0
"""Seconds that writes in flight are given at the end."""
REPORTED_KINDS = (Pod, PodGroup, CompositePodGroup)


class _EndedError(Exception):
    """Everything is in order: the tasks that still run may be cancelled."""


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """What runs while this replica leads."""

    slices: TimeSlices
    cache: ClusterCache
    queue: SchedulingQueue
    inbox: EventInbox
    gate: WriteGate
    binder: Binder
    left_claims: LeftClaims
    status: StatusWriter
    events: EventWriter
    loop: SchedulingLoop
    overcommit: OvercommitWatch
    guard: StallGuard

    def on_change(self, change: Change[Any], kind: type[Any]) -> None:
        """Take a change of the cluster, and wake the loop."""
        if kind in {Pod, Node} and (found := self.overcommit.check(change)) is not None:
            self.status.write(found)
        if isinstance(change, Deleted):
            self.status.forget(change.old.metadata.uid)
        elif isinstance(change, Modified) and kind in REPORTED_KINDS:
            if has_another_reason(change.old, change.new):
                self._requeue(change.new, is_overwritten=self.status.is_overwritten(change.old, change.new))
            self.status.on_seen(change.new)
        self.inbox.wake()

    def _requeue(self, seen: Pod | Group, *, is_overwritten: bool) -> None:
        """Have a unit attempted whose condition is overwritten.

        A tree without pending pods is resynced in any case: its pods may have left while the condition was on its way.
        """
        cache = self.cache
        if not isinstance(seen, Pod):
            key = key_of(seen)
            found = [flavour for flavour, store in cache.stores.items() if key in store]
            units = (cache.current_unit(UnitKey(flavour, key)) for flavour in found)
            cache.events.change_units(unit for unit in units if is_overwritten or queue_key_of(cache, unit) is None)
        elif is_overwritten:
            cache.change_units_of((seen.metadata.uid,))


async def run(endpoint: Endpoint, settings: SchedulerSettings) -> None:
    """Schedule until the process is stopped, or until something fails that must not."""
    shell = ProcessContext(settings=settings, log=structlog.get_logger(), identity=process_identity())
    shell.readiness.reads_on_standby = True
    shell.log.info("starting", version=version("kube-cpg"))
    await run_with_standby(endpoint, shell, lambda connection: _standing_by(connection, shell))


@contextlib.asynccontextmanager
async def _standing_by(connection: Connection, shell: ProcessContext[SchedulerSettings]) -> AsyncIterator[LeaderWork]:
    """Reflect the cluster for as long as the block runs; give what is to be done when this replica leads."""
    reflected = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks, Informers() as informers:
        reflecting = tasks.create_task(_reflect(connection, shell, informers, reflected), name="discovery")
        try:
            yield lambda: _lead(connection, shell, informers, reflected)
        finally:
            reflecting.cancel()


async def _reflect(
    connection: Connection,
    shell: ProcessContext[SchedulerSettings],
    informers: Informers,
    reflected: asyncio.Future[ReflectedCluster],
) -> None:
    """Start the reflectors, as soon as the API server can be asked for its kinds, and watch these."""
    settings, kinds = shell.settings, await discover(connection, shell.settings, shell.log)
    snapshot = new_snapshot(settings.weights)
    cache = ClusterCache(snapshot, kinds.groups, settings.scheduler_name, namespaces=settings.namespaces)
    cache.devices.back_resources(backs=kinds.backs_resources)
    integrations = Integrations([settings.scheduler_name], settings.integrations, settings.custom_integrations)
    cluster = ReflectedCluster(cache, kinds, integrations)
    cache.expected.timeout, cache.expected.wall = settings.expected_pods_timeout, connection.timing.wall
    for reflector in reflectors(connection, cluster, shell.log):
        informers.start(reflector)
    shell.readiness.informers = informers
    reflected.set_result(cluster)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(watch_kinds(connection, settings, kinds), name="discovery of kinds")
        tasks.create_task(Freshness(connection, informers, shell.log).run(), name="check of versions")
        tasks.create_task(connection.pauses.run(), name="pauses of the event loop")


async def _lead(
    connection: Connection,
    shell: ProcessContext[SchedulerSettings],
    informers: Informers,
    reflected: asyncio.Future[ReflectedCluster],
) -> None:
    """Schedule until stopped, or until something fails that must not."""
    log, ended = shell.log, shell.stopping
    await run_until(ended, _done(reflected))
    if not reflected.done():
        return
    cluster, pending = reflected.result(), 0
    try:
        async with asyncio.TaskGroup() as tasks:
            freshness = Freshness(connection, informers, log, {PODS.path(): _toucher(connection, cluster.cache)})
            guard = StallGuard(
                seconds_with_suspension, freshness.catch_up, lambda: informers.outage(connection.timing.clock())
            )
            parts = _wire(connection, shell, cluster, tasks, guard)
            await run_until(ended, _catch_up(shell, informers, freshness))
            garbage.exclude_cache()
            log.info(
                "ready" if informers.synced else "ended early",
                pods=len(cluster.cache.pods),
                nodes=len(cluster.cache.snapshot.ledger.cluster.row_of),
            )
            with cluster.notify(parts):
                await _run(parts, shell, cluster, tasks)
                pending = len(parts.queue)
                await _drain(parts)
    except* _EndedError:
        log.info("ended", pending=pending)


async def _run(
    parts: _Parts, shell: ProcessContext[SchedulerSettings], cluster: ReflectedCluster, tasks: asyncio.TaskGroup
) -> None:
    """Start everything, and return when the process is being stopped."""
    cluster.cache.report_all()
    for found in parts.overcommit.check_all():
        parts.status.write(found)
    tasks.create_task(parts.guard.run(), name="guard of stalls")
    tasks.create_task(parts.loop.run(), name="scheduling loop")
    tasks.create_task(_remind_of_corrections(parts.inbox), name="reminder of corrections")
    tasks.create_task(parts.left_claims.run(), name="release of claims that are left")
    tasks.create_task(parts.status.run(), name="status writer")
    tasks.create_task(parts.events.run(), name="event writer")
    await shell.stopping.wait()
    shell.readiness.is_stopping = True
    shell.log.info("ending", pending=len(parts.queue), binding=parts.binder.active)


async def _remind_of_corrections(inbox: EventInbox) -> NoReturn:
    """Have what the API shows of preemptions compared regularly with what is active."""
    while True:
        await asyncio.sleep(SECONDS_BETWEEN_CORRECTIONS)
        inbox.put(CorrectionDue())


async def _drain(parts: _Parts) -> NoReturn:
    """Attempt no more units; give writes in flight some time, then end everything else."""
    parts.loop.stop_attempts()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(MAX_SECONDS_TO_DRAIN):
            await parts.slices.wait_free()
            await parts.gate.wait_open()
            while parts.inbox:
                await asyncio.sleep(0)
                await parts.gate.wait_open()
            await parts.status.drained()
    raise _EndedError


async def _catch_up(shell: ProcessContext[SchedulerSettings], informers: Informers, freshness: Freshness) -> None:
    """Wait until the cache has everything that the API server has now, such as the last binds of another leader.

    Without leader election there is no other leader, and everything was listed after the start.
    """
    await informers.wait_synced()
    if shell.settings.leader_elect:
        await freshness.catch_up()


def _toucher(connection: Connection, cache: ClusterCache) -> Callable[[], Awaitable[bool]]:
    """Return what touches a pending pod; without one, nothing waits for us."""

    async def touch() -> bool:
        pod = next(filter(cache.is_pending, cache.pods.values()), None)
        return pod is not None and await touch_pod(connection, pod)

    return touch


async def _done(future: asyncio.Future[Any]) -> None:
    """Wait for a future without cancelling it."""
    await asyncio.shield(future)


def _wire(
    connection: Connection,
    shell: ProcessContext[SchedulerSettings],
    cluster: ReflectedCluster,
    tasks: asyncio.TaskGroup,
    guard: StallGuard,
) -> _Parts:
    """Return the parts, none of which runs yet; from here on the probes answer with them."""
    settings, cache, options = shell.settings, cluster.cache, shell.settings.options()
    inbox, gate = EventInbox(), WriteGate()
    overcommit = OvercommitWatch(cache, shell.log)
    metrics = build_metrics(connection, shell, cache, overcommit, tasks)
    queue = SchedulingQueue(settings.backoff, metrics.count_incoming)
    events = EventWriter(connection, instance=shell.identity, gate=gate)
    preemption = _preemption(shell, cache, metrics)
    trees = TreeStatus(cache, preemption.awaits, options)
    status = _status_writer(connection, shell, cluster, trees, events=events, gate=gate)
    binder, left_claims = _binder(connection, shell, cache, tasks, inbox=inbox, gate=gate, metrics=metrics, guard=guard)
    executor = _executor(
        connection,
        shell,
        cluster,
        tasks,
        inbox=inbox,
        gate=gate,
        status=status,
        events=events,
        metrics=metrics,
        guard=guard,
    )
    loop = SchedulingLoop(
        cache,
        queue,
        inbox,
        binder=binder,
        executor=executor,
        preemption=preemption,
        trees=trees,
        status=status,
        events=events,
        metrics=metrics,
        options=options,
        clock=time.monotonic,
        guard=guard,
        log=shell.log,
    )
    add_pages(shell, cache, queue, preemption, metrics, tasks)
    return _Parts(
        slices=cache.slices,
        cache=cache,
        queue=queue,
        inbox=inbox,
        gate=gate,
        binder=binder,
        left_claims=left_claims,
        status=status,
        events=events,
        loop=loop,
        overcommit=overcommit,
        guard=guard,
    )


def _executor(  # noqa: PLR0913 - each by its name
    connection: Connection,
    shell: ProcessContext[SchedulerSettings],
    cluster: ReflectedCluster,
    tasks: asyncio.TaskGroup,
    *,
    inbox: EventInbox,
    gate: WriteGate,
    status: StatusWriter,
    events: EventWriter,
    metrics: SchedulerMetrics,
    guard: StallGuard,
) -> EvictionExecutor:
    """Return the executor of evictions, with as many requests in flight as there may be binds."""
    return EvictionExecutor(
        connection,
        cluster.resource_of,
        tasks,
        inbox=inbox,
        gate=gate,
        nominator=status,
        events=events,
        scheduler_name=shell.settings.scheduler_name,
        metrics=metrics,
        log=shell.log,
        in_flight=shell.settings.binds_in_flight,
        guard=guard,
    )


def _status_writer(
    connection: Connection,
    shell: ProcessContext[SchedulerSettings],
    cluster: ReflectedCluster,
    trees: TreeStatus,
    *,
    events: EventWriter,
    gate: WriteGate,
) -> StatusWriter:
    """Return the status writer, which waits for binds and evictions."""
    return StatusWriter(
        connection,
        cluster.current,
        cache=cluster.cache,
        has_recovered=trees.has_recovered,
        queue=WriteQueue(gate, log=shell.log),
        events=events,
        instance=shell.identity,
    )


def _preemption(
    shell: ProcessContext[SchedulerSettings], cache: ClusterCache, metrics: SchedulerMetrics
) -> PreemptionMachine:
    """Return the preemption machine, which has as many units in flight as there may be requests."""
    return PreemptionMachine(
        cache,
        metrics=metrics,
        options=shell.settings.options(),
        max_units_in_flight=shell.settings.binds_in_flight,
        clock=time.monotonic,
        max_grace_period=shell.settings.max_grace_period,
        log=shell.log,
    )


def _binder(
    connection: Connection,
    shell: ProcessContext[SchedulerSettings],
    cache: ClusterCache,
    tasks: asyncio.TaskGroup,
    *,
    inbox: EventInbox,
    gate: WriteGate,
    metrics: SchedulerMetrics,
    guard: StallGuard,
) -> tuple[Binder, LeftClaims]:
    """Return the binder, with its PreBind plugins, and what takes back claims."""
    settings, claims = shell.settings, ClaimWriter(connection, cache, log=shell.log)
    extended = ExtendedClaims(connection, cache, log=shell.log)
    binder = Binder(
        connection,
        cache,
        tasks,
        inbox=inbox,
        gate=gate,
        prebinds=[
            VolumeBinder(connection, cache, timeout=settings.volume_bind_timeout),
            DeviceBinder(claims, extended, cache, metrics.devices, timeout=settings.device_bind_timeout),
        ],
        metrics=metrics,
        log=shell.log,
        in_flight=settings.binds_in_flight,
        guard=guard,
    )
    return binder, LeftClaims(claims, extended, cache, guard)
