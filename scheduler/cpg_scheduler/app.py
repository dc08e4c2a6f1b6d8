"""The scheduler, wired together: reflectors into the state, the driver over it, binder and reporter behind."""

import asyncio
import contextlib
import datetime as dt
import math
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

import structlog
from structlog.typing import FilteringBoundLogger

from cpg_api.core.namespace import Namespace
from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload
from cpg_client import discovery, resources
from cpg_client.connection import Connection
from cpg_client.endpoint import Endpoint
from cpg_client.errors import ClientError
from cpg_client.informers import Informers
from cpg_client.leasing import ApiLease, Elector
from cpg_client.reflecting import Reflector, Source
from cpg_client.resources import Resource
from cpg_client.stores import Change, Deleted, Rejection, whole
from cpg_engine.gangs.world import new_world
from cpg_scheduler.binding import Binder
from cpg_scheduler.caches.state import State
from cpg_scheduler.driving import Driver
from cpg_scheduler.explaining import Explainer
from cpg_scheduler.metrics import Metrics
from cpg_scheduler.pending import Pending
from cpg_scheduler.probing import Answer, ProbeServer, Route
from cpg_scheduler.reporting import Reporter
from cpg_scheduler.settings import Settings

STALE = 90.0
"""Seconds without a word from a watch, bookmarks included, after which decisions are no longer worth making."""

DRAIN = 10.0
"""Seconds that binds and reports under way are given at the end."""

NATIVE, CRD = "native", "crd"
KINDS: dict[str, dict[type, Resource]] = {
    NATIVE: {
        PodGroup: resources.NATIVE_POD_GROUPS,
        CompositePodGroup: resources.NATIVE_COMPOSITE_POD_GROUPS,
        Workload: resources.NATIVE_WORKLOADS,
    },
    CRD: {
        PodGroup: resources.CPG_POD_GROUPS,
        CompositePodGroup: resources.CPG_COMPOSITE_POD_GROUPS,
        Workload: resources.CPG_WORKLOADS,
    },
}


class NothingServedError(ClientError):
    """The API that was asked for is not served."""


async def run(endpoint: Endpoint, settings: Settings) -> None:
    """Schedule until the process is told to end."""
    log: FilteringBoundLogger = structlog.get_logger()
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, ended.set)
    async with Connection(endpoint) as connection, Connection(endpoint) as lease_connection:
        if not settings.leader_elect:
            await _schedule(connection, settings, ended, log)
            return
        lease = ApiLease(lease_connection, settings.lease_namespace, settings.lease_name)
        elector = Elector(lease, identity(), settings.lease())
        leading = asyncio.create_task(elector.run(lambda: _schedule(connection, settings, ended, log)))
        waiting = asyncio.create_task(ended.wait())
        await asyncio.wait((leading, waiting), return_when=asyncio.FIRST_COMPLETED)
        if not elector.leading:
            leading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await leading
        waiting.cancel()


def identity() -> str:
    """Return a name for this process that no other has."""
    return f"{socket.gethostname()}-{os.getpid()}"


async def flavours(connection: Connection, api: str) -> dict[str, dict[type, Resource]]:
    """Return the flavours that are asked for and served, with the kinds that are served of each."""
    found: dict[str, dict[type, Resource]] = {}
    for flavour, kinds in KINDS.items():
        if api not in {"auto", flavour}:
            continue
        served: set[Resource] = set()
        for group, version in {(kind.group, kind.version) for kind in kinds.values()}:
            served |= await discovery.served(connection, group, version)
        names = {(one.group, one.version, one.plural) for one in served}
        there = {kind: one for kind, one in kinds.items() if (one.group, one.version, one.plural) in names}
        if PodGroup in there:
            found[flavour] = there
    if not found and api != "auto":
        raise NothingServedError(f"the API server serves no PodGroups of the {api} flavour")
    return found


async def _schedule(
    connection: Connection, settings: Settings, ended: asyncio.Event, log: FilteringBoundLogger
) -> None:
    """Run everything until told to end, or until something fails that must not."""
    kinds = await flavours(connection, settings.api)
    state = State(new_world(settings.weights), kinds, settings.scheduler_name)
    pending = Pending(settings.backoff)
    reporter = Reporter(
        connection,
        lambda group: _resource(kinds, state, group),
        now=lambda: dt.datetime.fromtimestamp(time.time(), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        instance=identity(),
        log=log,
    )
    watched = _Watched()
    metrics = Metrics(settings.scheduler_name, pending, watched.age)
    async with asyncio.TaskGroup() as tasks:
        binder = Binder(connection, state, tasks, metrics=metrics, log=log, in_flight=settings.binds_in_flight)
        driver = Driver(
            state,
            pending,
            binder=binder,
            reporter=reporter,
            metrics=metrics,
            options=settings.options(),
            clock=time.monotonic,
            log=log,
        )
        serving = tasks.create_task(_serve(settings, watched, metrics, Explainer(state, settings.options())))
        async with Informers(
            *_reflectors(connection, state, kinds, driver=driver, reporter=reporter, log=log)
        ) as informers:
            watched.informers = informers
            await informers.wait_synced()
            log.info(
                "ready", flavours=sorted(kinds), pods=len(state.pods), nodes=len(state.world.ledger.cluster.row_of)
            )
            driving, telling = tasks.create_task(driver.run()), tasks.create_task(reporter.run())
            await ended.wait()
            log.info("ending", pending=len(pending), binding=binder.under_way)
            driving.cancel()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN):
                    await binder.drained()
                    await reporter.drained()
            telling.cancel()
            serving.cancel()


class _Watched:
    """How fresh the news are; nothing is known before the reflectors run."""

    informers: Informers | None = None

    def age(self) -> float:
        """Return for how long the quietest watch has said nothing."""
        return self.informers.unheard_for(time.monotonic()) if self.informers is not None else math.inf

    def ready(self, _: str) -> Answer:
        """Answer whether decisions are made on fresh news."""
        age = self.age()
        if age < STALE:
            return Answer(b"ok\n")
        return Answer(f"no word from the API server for {age:.0f} s\n".encode(), status=503)


async def _serve(settings: Settings, watched: _Watched, metrics: Metrics, explainer: Explainer) -> None:
    """Answer probes and questions, if anywhere."""
    address = settings.address()
    if address is None:
        return
    routes: dict[str, Route] = {
        "/healthz": lambda _: Answer(b"ok\n"),
        "/readyz": watched.ready,
        "/metrics": metrics.page,
        "/debug/explain/": explainer.page,
    }
    await ProbeServer(routes).serve(*address)


def _resource(kinds: dict[str, dict[type, Resource]], state: State, group: Group) -> Resource | None:
    """Return the resource of a group, by the flavour whose store has this very object, or None if none has."""
    flavour = next((name for name, store in state.stores.items() if store.holds(group)), None)
    return kinds[flavour][type(group)] if flavour is not None else None


def _reflectors(
    connection: Connection,
    state: State,
    kinds: dict[str, dict[type, Resource]],
    *,
    driver: Driver,
    reporter: Reporter,
    log: FilteringBoundLogger,
) -> list[Reflector[Any, Any]]:
    """Return who brings the news into the state, wakes the driver, and drops what was said about what is gone."""

    def reflect(resource: Resource, kind: type[Any], take: Callable[[Change[Any]], None]) -> Reflector[Any, Any]:
        def on_change(change: Change[Any]) -> None:
            if isinstance(change, Rejection):
                log.warning(
                    "object refused", kind=kind.__name__, name=change.key, problems=[*map(str, change.problems)]
                )
            take(change)
            if isinstance(change, Deleted):
                reporter.forget(change.old.metadata.uid)
            driver.wake()

        def on_failure(error: ClientError, wait: float) -> None:
            log.warning("watch failed", kind=kind.__name__, error=str(error), retry_in=wait)

        source = Source[Any, Any](resource=resource, kind=kind, project=whole)
        return Reflector(connection, source, on_change, on_failure=on_failure)

    found = [
        reflect(resources.NODES, Node, state.on_node),
        reflect(resources.NAMESPACES, Namespace, state.on_namespace),
        reflect(resources.PRIORITY_CLASSES, PriorityClass, state.on_class),
        reflect(resources.PODS, Pod, state.on_pod),
    ]
    for flavour, there in kinds.items():
        for kind, resource in there.items():
            take = state.on_workload(flavour) if kind is Workload else state.on_group(flavour)
            found.append(reflect(resource, kind, take))
    return found
