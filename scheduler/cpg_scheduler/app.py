"""The scheduler, wired together: reflectors into the state, the driver over it, binder and reporter behind.

The reflectors run from the beginning, so that who stands by knows the cluster when the lease becomes his, and decides
at once; all the others, and with them all that is written or told of, begin when he leads.
"""

import asyncio
import contextlib
import datetime as dt
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import chain
from typing import Any, NoReturn

import structlog
from structlog.typing import FilteringBoundLogger

from cpg_api.core.disruption import PodDisruptionBudget
from cpg_api.core.namespace import Namespace
from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.core.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Group, key_of
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload
from cpg_client import resources
from cpg_client.connection import Connection
from cpg_client.endpoint import Endpoint
from cpg_client.errors import ClientError
from cpg_client.flavours import FlavourNotServedError, served_flavours
from cpg_client.informers import Informers
from cpg_client.probe_server import ProbeResponse
from cpg_client.process import (
    METRICS_CONTENT_TYPE,
    LeaderWork,
    ProcessContext,
    process_identity,
    run_until,
    run_with_standby,
    with_election_metric,
)
from cpg_client.reflector import Reflector, Source
from cpg_client.resources import Resource
from cpg_client.retrying import WatchBackoff
from cpg_client.stores import Change, Deleted, Modified, Rejection, keep_whole
from cpg_engine.snapshot import new_snapshot
from cpg_scheduler.binding.binder import Binder
from cpg_scheduler.binding.volumes import VolumeBinder
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.cache.storage import trimmed
from cpg_scheduler.cycle import SchedulingLoop
from cpg_scheduler.debug.dump import Dumper
from cpg_scheduler.debug.explain import Explainer
from cpg_scheduler.observability.loop_lag import LoopLag
from cpg_scheduler.observability.metrics import Metrics
from cpg_scheduler.observability.overcommit import OvercommitWatch
from cpg_scheduler.observability.pending import PendingCollector
from cpg_scheduler.observability.plugins import PluginsCollector
from cpg_scheduler.observability.requests import RequestMetrics
from cpg_scheduler.preemption.executor import Evictor
from cpg_scheduler.preemption.machine import Preemption
from cpg_scheduler.queueing.scheduling_queue import SchedulingQueue
from cpg_scheduler.settings import Settings
from cpg_scheduler.status.conditions import StatusWriter
from cpg_scheduler.status.events import EventWriter
from cpg_scheduler.status.write_queue import WriteQueue
from cpg_scheduler.units import pending_pods
from cpg_scheduler.write_gate import WriteGate

DRAIN = 10.0
"""Seconds that binds and reports under way are given at the end."""

TOLD = (Pod, PodGroup, CompositePodGroup)
"""What the reporter speaks of."""

LOOK = 60.0
"""Seconds between two looks at which kinds the API server serves."""


SETTLE = 1.0
"""Seconds after which a watch that was in trouble has brought what was missed."""
UNREAD = 10_000
"""News that are gathered while there is nobody to act on them; once there is, all that is known is news."""


class KindsChangedError(ClientError):
    """The API server serves other kinds of groups than at the start."""


async def _well_informed(informers: Informers) -> None:
    """Wait until all has been read, and what was missed in an outage: who stood by may know what was true before it."""
    await informers.wait_synced()
    was_well = is_well = not informers.longest_failure(time.monotonic())
    while not (was_well and is_well):
        await asyncio.sleep(SETTLE)
        was_well, is_well = is_well, not informers.longest_failure(time.monotonic())


async def _done(known: asyncio.Future[Any]) -> None:
    """Wait until something is known; who does not wait any longer leaves it to others."""
    await asyncio.shield(known)


class _EndedError(Exception):
    """Everything is in order: whatever still runs may be cancelled."""


async def run(endpoint: Endpoint, settings: Settings) -> None:
    """Schedule until the process is told to end, or until something fails that must not."""
    shell = ProcessContext(settings=settings, log=structlog.get_logger(), identity=process_identity())
    shell.log.info("starting", version=version("kube-cpg"))
    await run_with_standby(endpoint, shell, lambda connection: _standing_by(connection, shell))


async def _flavours(connection: Connection, shell: ProcessContext[Settings]) -> dict[str, dict[type, Resource]]:
    """Return the flavours that are served, as soon as the API server can be asked."""
    backoff, failures = WatchBackoff(), 0
    while True:
        try:
            return await served_flavours(connection, shell.settings.api)
        except FlavourNotServedError:
            raise
        except ClientError as error:
            failures += 1
            wait = backoff.wait(failures, error)
            shell.log.warning("API server not reached", error=str(error), retry_in=wait)
            await asyncio.sleep(wait)


async def _watch_flavours(
    connection: Connection, shell: ProcessContext[Settings], kinds: dict[str, dict[type, Resource]]
) -> None:
    """Raise when other kinds are served: what to reflect is chosen once, so the process had better start afresh."""
    known = sorted(f"{one.api_version} {one.kind}" for there in kinds.values() for one in there.values())
    while True:
        await asyncio.sleep(LOOK)
        found = kinds
        with contextlib.suppress(ClientError):
            found = await served_flavours(connection, shell.settings.api)
        if found != kinds:
            raise KindsChangedError(f"the API server no longer serves just {', '.join(known) or 'no groups at all'}")


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """What runs while we lead, each with the others that it needs."""

    binder: Binder
    evictor: Evictor
    reporter: StatusWriter
    announcer: EventWriter
    driver: SchedulingLoop
    crowds: OvercommitWatch


@dataclass(kw_only=True)
class _Scene:
    """What is known, and who acts on it, if we lead."""

    state: ClusterCache
    kinds: dict[str, dict[type, Resource]]
    parts: _Parts | None = None

    def saw(self, change: Change[Any], kind: type[Any]) -> None:
        """Tell those who act of a change, or let nobody be told of ever more."""
        parts = self.parts
        if parts is None:
            if self.state.events.pending.size > UNREAD:
                self.state.take_events()
            return
        if kind in {Pod, Node}:
            parts.crowds.saw(change)
        if isinstance(change, Deleted):
            parts.reporter.forget(change.old.metadata.uid)
        elif isinstance(change, Modified) and kind in TOLD:
            parts.reporter.on_seen(change.new)
        parts.driver.wake()


@contextlib.asynccontextmanager
async def _standing_by(connection: Connection, shell: ProcessContext[Settings]) -> AsyncIterator[LeaderWork]:
    """Learn what there is, for as long as the block runs; give what is to be done once we lead."""
    known = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as tasks, Informers() as informers:
        learning = tasks.create_task(_learn(connection, shell, informers, known), name="watch over the kinds")
        try:
            yield lambda: _schedule(connection, shell, informers, known)
        finally:
            learning.cancel()


async def _learn(
    connection: Connection, shell: ProcessContext[Settings], informers: Informers, known: asyncio.Future[_Scene]
) -> None:
    """Reflect what is served, as soon as the API server can be asked, and watch over what that is."""
    settings, kinds = shell.settings, await _flavours(connection, shell)
    state = ClusterCache(new_snapshot(settings.weights), kinds, settings.scheduler_name, namespaces=settings.namespaces)
    scene = _Scene(state=state, kinds=kinds)
    for reflector in _reflectors(connection, scene, shell.log):
        informers.start(reflector)
    shell.readiness.informers = informers
    known.set_result(scene)
    await _watch_flavours(connection, shell, kinds)


async def _schedule(
    connection: Connection, shell: ProcessContext[Settings], informers: Informers, known: asyncio.Future[_Scene]
) -> None:
    """Run everything until told to end, or until something fails that must not."""
    log, ended, pending = shell.log, shell.stopping, SchedulingQueue(shell.settings.backoff)
    await run_until(ended, _done(known))
    if not known.done():
        return
    scene = known.result()
    state = scene.state
    try:
        async with asyncio.TaskGroup() as tasks:
            parts = _wired(connection, shell, scene, pending=pending, tasks=tasks)
            await run_until(ended, _well_informed(informers))
            log.info(
                "ready" if informers.synced else "ended early",
                pods=len(state.pods),
                nodes=len(state.snapshot.ledger.cluster.row_of),
            )
            scene.parts = parts
            state.report_all()
            parts.crowds.look_around()
            driving = tasks.create_task(parts.driver.run(), name="driver")
            tasks.create_task(parts.reporter.run(), name="reporter")
            tasks.create_task(parts.announcer.run(), name="announcer")
            await ended.wait()
            shell.readiness.is_stopping = True
            log.info("ending", pending=len(pending), binding=parts.binder.under_way)
            driving.cancel()
            await _drain(parts)
    except* _EndedError:
        log.info("ended", pending=len(pending))
    finally:
        scene.parts = None


def _wired(
    connection: Connection,
    shell: ProcessContext[Settings],
    scene: _Scene,
    *,
    pending: SchedulingQueue,
    tasks: asyncio.TaskGroup,
) -> _Parts:
    """Return the parts, of which none runs yet; from here on questions about them are answered."""
    log, options, state = shell.log, shell.settings.options(), scene.state
    census = PendingCollector(state, pending, wall=time.time, ages=shell.readiness.ages)
    metrics = _metrics(connection, shell, state, pending, tasks=tasks)
    metrics.registry.register(census)
    resources_of = partial(_resource, scene.kinds, state)
    binder = _binder(connection, shell, state=state, tasks=tasks, metrics=metrics)
    evictor = _evictor(connection, shell, resources_of=resources_of, tasks=tasks, metrics=metrics)
    gate = _DrainGate(evictor, binder)
    announcer = EventWriter(connection, instance=shell.identity, gate=gate)
    reporter = _reporter(connection, partial(_known, scene.kinds, state), shell, gate=gate, announcer=announcer)
    evictor.later = announcer.later
    evictor.nominate = reporter.nominate
    preemption = Preemption(
        state, evictor, metrics=metrics, options=options, clock=time.monotonic, wall=time.time, log=log
    )
    driver = SchedulingLoop(
        state,
        pending,
        binder=binder,
        preemption=preemption,
        reporter=reporter,
        metrics=metrics,
        options=options,
        clock=time.monotonic,
        log=log,
        announce=announcer.placed,
    )
    reporter.waits = driver.waits
    explainer = Explainer(state, pending, preemption, options=options, clock=time.monotonic)
    dumper = Dumper(state, pending, options, clock=time.monotonic)
    shell.probes.add(
        {
            "/metrics": with_election_metric(shell, partial(_measured, metrics, census)),
            "/debug/explain/": explainer.page,
            "/debug/dump": dumper.page,
        }
    )
    crowds = OvercommitWatch(state, tell=reporter.node, count=metrics.crowded, log=log)
    return _Parts(
        binder=binder,
        evictor=evictor,
        reporter=reporter,
        announcer=announcer,
        driver=driver,
        crowds=crowds,
    )


def _metrics(
    connection: Connection,
    shell: ProcessContext[Settings],
    state: ClusterCache,
    pending: SchedulingQueue,
    *,
    tasks: asyncio.TaskGroup,
) -> Metrics:
    """Return what counts, with all that is counted when somebody looks."""
    profile, readiness = shell.settings.scheduler_name, shell.readiness
    stalls = LoopLag(time.monotonic)
    tasks.create_task(stalls.run(), name="stalls")
    metrics = Metrics(
        profile, pending, readiness.age, stalled=stalls.longest, size=lambda root: len(pending_pods(state, root))
    )
    traffic = RequestMetrics(lambda: readiness.informers.counts() if readiness.informers is not None else {})
    connection.observer = traffic
    metrics.registry.register(PluginsCollector(state, pending, profile))
    metrics.registry.register(traffic)
    return metrics


def _binder(
    connection: Connection,
    shell: ProcessContext[Settings],
    *,
    state: ClusterCache,
    tasks: asyncio.TaskGroup,
    metrics: Metrics,
) -> Binder:
    """Return who binds."""
    return Binder(
        connection,
        state,
        tasks,
        furnisher=VolumeBinder(connection, state, patience=shell.settings.volume_bind_timeout),
        metrics=metrics,
        log=shell.log,
        in_flight=shell.settings.binds_in_flight,
    )


def _evictor(
    connection: Connection,
    shell: ProcessContext[Settings],
    *,
    resources_of: Callable[[Group], Resource | None],
    tasks: asyncio.TaskGroup,
    metrics: Metrics,
) -> Evictor:
    """Return who evicts."""
    return Evictor(
        connection,
        resources_of,
        tasks,
        scheduler_name=shell.settings.scheduler_name,
        instance=shell.identity,
        metrics=metrics,
        log=shell.log,
        in_flight=shell.settings.binds_in_flight,
    )


def _reporter(
    connection: Connection,
    known: Callable[[Group], tuple[Group, Resource] | None],
    shell: ProcessContext[Settings],
    *,
    gate: WriteGate,
    announcer: EventWriter,
) -> StatusWriter:
    """Return the writer of conditions; evictions and binds have the right of way."""
    return StatusWriter(
        connection,
        known,
        now=lambda: dt.datetime.fromtimestamp(time.time(), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        instance=shell.identity,
        queue=WriteQueue(gate, log=shell.log),
        events=announcer,
    )


class _DrainGate(WriteGate):
    """Open while neither evictions nor binds are in flight."""

    def __init__(self, evictor: Evictor, binder: Binder) -> None:
        super().__init__()
        self._evictor = evictor
        self._binder = binder

    async def wait_open(self) -> None:
        await self._evictor.drained()
        await self._binder.drained()


async def _drain(parts: _Parts) -> NoReturn:
    """Let binds, evictions and reports under way come to their end, for a while; then end everything else."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN):
            await parts.binder.drained()
            await parts.evictor.drained()
            await parts.reporter.drained()
    raise _EndedError


def _measured(metrics: Metrics, census: PendingCollector, rest: str) -> ProbeResponse:
    """Return the page of metrics; who waits is counted first, a little at a time."""
    page = (metrics.page(rest).body for _ in range(1))
    return ProbeResponse(b"", content_type=METRICS_CONTENT_TYPE, chunks=chain(census.count_in_slices(), page))


def _known(kinds: dict[str, dict[type, Resource]], state: ClusterCache, group: Group) -> tuple[Group, Resource] | None:
    """Return a group as it is by now and its resource, by the flavour whose store has it, or None if none has."""
    flavour = next((name for name, store in state.stores.items() if store.has_object(group)), None)
    if flavour is None:
        return None
    return state.stores[flavour].forest.groups[key_of(group)], kinds[flavour][type(group)]


def _resource(kinds: dict[str, dict[type, Resource]], state: ClusterCache, group: Group) -> Resource | None:
    """Return the resource of a group, or None if it is gone."""
    known = _known(kinds, state, group)
    return known[1] if known is not None else None


def _reflectors(connection: Connection, scene: _Scene, log: FilteringBoundLogger) -> list[Reflector[Any, Any]]:
    """Return who brings the news: of what takes room from everywhere, of how to place pods from where these are."""
    state = scene.state
    reflect = partial(_reflector, connection, scene, log)
    found = [
        reflect(resources.NODES, Node, state.on_node),
        reflect(resources.NAMESPACES, Namespace, state.on_namespace),
        reflect(resources.PRIORITY_CLASSES, PriorityClass, state.on_priority_class),
        reflect(resources.STORAGE_CLASSES, StorageClass, state.storage.on_storage_class, project=trimmed),
        reflect(resources.CSI_NODES, CSINode, state.storage.on_csi_node, project=trimmed),
        reflect(resources.PERSISTENT_VOLUMES, PersistentVolume, state.storage.on_volume, project=trimmed),
        reflect(resources.PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim, state.on_claim, project=trimmed),
        reflect(resources.PODS, Pod, state.on_pod),
    ]
    for space in sorted(state.namespaces) or (None,):
        found.append(reflect(resources.POD_DISRUPTION_BUDGETS, PodDisruptionBudget, state.on_budget, namespace=space))
        for flavour, there in scene.kinds.items():
            for kind, resource in there.items():
                take = state.on_workload(flavour) if kind is Workload else state.on_group(flavour)
                found.append(reflect(resource, kind, take, namespace=space))
    return found


def _reflector(
    connection: Connection,
    scene: _Scene,
    log: FilteringBoundLogger,
    resource: Resource,
    kind: type[Any],
    take: Callable[[Change[Any]], None],
    *,
    project: Callable[[Any], Any] = keep_whole,
    namespace: str | None = None,
) -> Reflector[Any, Any]:
    """Return who brings news into the state, and from there to whoever acts on them."""

    def on_change(change: Change[Any]) -> None:
        if isinstance(change, Rejection):
            log.warning("object refused", kind=kind.__name__, name=change.key, problems=[*map(str, change.problems)])
        take(change)
        scene.saw(change, kind)

    def on_failure(error: ClientError, wait: float) -> None:
        log.warning("watch failed", kind=kind.__name__, error=str(error), retry_in=wait)

    source = Source[Any, Any](resource=resource, kind=kind, project=project, namespace=namespace)
    return Reflector(connection, source, on_change, on_failure=on_failure)
