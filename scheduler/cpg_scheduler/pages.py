"""The pages that the process serves: metrics, explanations and dumps."""

import asyncio
import time
from functools import partial
from itertools import chain

from structlog.typing import FilteringBoundLogger

from cpg_client.budgeted_server import BudgetedServer
from cpg_client.connection import Connection
from cpg_client.probe_server import ProbeResponse
from cpg_client.process import METRICS_CONTENT_TYPE, ProcessContext, with_election_metric
from cpg_client.work_budget import WorkBudget
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.debug.dump import Dumper
from cpg_scheduler.debug.explain import Explainer
from cpg_scheduler.observability.loop_lag import LoopLag
from cpg_scheduler.observability.metrics import SchedulerMetrics
from cpg_scheduler.observability.overcommit import OvercommitWatch
from cpg_scheduler.observability.pending import PendingCollector
from cpg_scheduler.observability.plugins import PluginsCollector
from cpg_scheduler.observability.requests import RequestMetrics
from cpg_scheduler.preemption.machine import PreemptionMachine
from cpg_scheduler.queueing.scheduling_queue import SchedulingQueue
from cpg_scheduler.settings import SchedulerSettings
from cpg_scheduler.units import pending_pods

LOOPBACK = "127.0.0.1"
"""Explanations and dumps name objects of all namespaces, so only this pod and `kubectl port-forward` reach them."""


def build_metrics(
    connection: Connection,
    shell: ProcessContext[SchedulerSettings],
    cache: ClusterCache,
    overcommit: OvercommitWatch,
    tasks: asyncio.TaskGroup,
) -> SchedulerMetrics:
    """Return the metrics, with those of the loop's lag and of the connection's requests."""
    readiness, lag = shell.readiness, LoopLag(time.monotonic)
    tasks.create_task(lag.run(), name="loop lag")
    metrics = SchedulerMetrics(
        shell.settings.scheduler_name,
        readiness.age,
        loop_lag=lag.longest,
        overcommitted_nodes=overcommit.count,
        wall=connection.timing.wall,
        pending_pods_of=lambda root: len(pending_pods(cache, root)),
    )
    requests = RequestMetrics(lambda: readiness.informers.counts() if readiness.informers is not None else {})
    connection.observer = requests
    metrics.registry.register(requests)
    return metrics


def add_pages(
    shell: ProcessContext[SchedulerSettings],
    cache: ClusterCache,
    queue: SchedulingQueue,
    preemption: PreemptionMachine,
    metrics: SchedulerMetrics,
    tasks: asyncio.TaskGroup,
) -> None:
    """Serve metrics beside the probes, and explanations and dumps on loopback."""
    options, clock = shell.settings.options(), time.monotonic
    pending = PendingCollector(cache, queue, wall=metrics.wall, ages=shell.readiness.ages)
    metrics.registry.register(pending)
    metrics.registry.register(PluginsCollector(cache, queue, shell.settings.scheduler_name))
    shell.probes.add({"/metrics": with_election_metric(shell, partial(_metrics_page, metrics, pending))})
    if shell.settings.debug_port:
        routes = {
            "/debug/explain/": Explainer(cache, queue, preemption, options=options, clock=clock).page,
            "/debug/dump": Dumper(cache, queue, options, clock=clock).page,
        }
        server = BudgetedServer(routes, WorkBudget(), before_part=cache.slices.wait_free)
        tasks.create_task(_serve_debug_pages(server, shell.settings.debug_port, shell.log), name="debug pages")


async def _serve_debug_pages(server: BudgetedServer, port: int, log: FilteringBoundLogger) -> None:
    """Serve until cancelled. Nothing depends on these pages, so without the port scheduling goes on."""
    try:
        await server.serve(LOOPBACK, port)
    except OSError as error:
        log.warning("debug pages not served", port=port, error=str(error))


def _metrics_page(metrics: SchedulerMetrics, pending: PendingCollector, rest: str) -> ProbeResponse:
    """Return the page of metrics; pending pods are counted first, in slices."""
    page = (metrics.page(rest).body for _ in range(1))
    return ProbeResponse(b"", content_type=METRICS_CONTENT_TYPE, chunks=chain(pending.count_in_slices(), page))
