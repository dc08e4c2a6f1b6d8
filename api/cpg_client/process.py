"""Run a process: serve probes, stand by until it leads, and end in order.

**A process that has lost its lease writes nothing more.** A process that was stopped resumes its tasks where they were,
with binds decided long ago. So the leader's connection checks the elector's clock before every write.
"""

import asyncio
import os
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from cpg_client.cached_page import CachedPage
from cpg_client.connection import Connection
from cpg_client.election_thread import ElectionThread
from cpg_client.endpoint import Endpoint
from cpg_client.leader_election import ApiLeaseStore, LeaderElector, LeaseSettings
from cpg_client.probe_server import ProbeResponse, ProbeServer, Route
from cpg_client.readiness import Readiness
from cpg_client.sockets import raise_file_limit
from cpg_client.timing import ELECTION_TIME, cancel_and_wait


class LeaderElectionSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Leader election, in seconds, with the names of kube-scheduler.

    The defaults are shorter than kube-scheduler's: another replica follows a crashed leader within twelve seconds.
    """

    lease_duration: int = LeaseSettings.lease_duration
    """How long the other replicas wait after the last renewal."""
    renew_deadline: float = LeaseSettings.renew_deadline
    """How long the leader tries to renew before it gives up and ends."""
    retry_period: float = LeaseSettings.retry_period
    """The time between two reads of the lease, or two attempts to renew it."""

    def lease_settings(self) -> LeaseSettings:
        """Return the settings of the elector; raise ``ValueError`` where they contradict each other."""
        return LeaseSettings(
            lease_duration=self.lease_duration, renew_deadline=self.renew_deadline, retry_period=self.retry_period
        )


class ProcessSettings(Protocol):
    """The settings of a process that this module reads."""

    @property
    def leader_elect(self) -> bool:
        """Whether to work only while holding a lease."""

    @property
    def lease_namespace(self) -> str:
        """The namespace of the lease."""

    @property
    def lease_name(self) -> str:
        """The name of the lease."""

    @property
    def leader_election(self) -> LeaderElectionSettings:
        """The times of the lease."""

    def address(self) -> tuple[str, int] | None:
        """Return where to serve probes, or None."""


S = TypeVar("S", bound=ProcessSettings)


@dataclass(frozen=True, kw_only=True)
class ProcessContext(Generic[S]):
    """What a process has both as the leader and on standby."""

    settings: S
    log: FilteringBoundLogger
    identity: str
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    readiness: Readiness = field(default_factory=Readiness)
    probes: ProbeServer = field(default_factory=lambda: ProbeServer({}))


LeaderWork = Callable[[], Coroutine[Any, Any, None]]
"""The work of the leader."""
Standby = Callable[[Connection], AbstractAsyncContextManager[LeaderWork]]
"""Runs from the start of the process in every replica, and yields the work to do as the leader."""
METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of metrics, as Prometheus expects it."""
ELECTION_METRIC = """\
# HELP leader_election_master_status Whether this replica leads (1) or stands by (0), by the name of the lease.
# TYPE leader_election_master_status gauge
leader_election_master_status{{name="{name}"}} {leads}
"""


async def run_with_standby(endpoint: Endpoint, context: ProcessContext[S], standby: Standby) -> None:
    """Serve probes, prepare on standby, and work while leading, until asked to stop.

    The preparation may read from the API server; the fence stops its writes.

    An exception in any task ends the process. The next process rebuilds its state from the API, which is safer than
    continuing without the failed task.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, context.stopping.set)
    async with serve_probes(context):
        await run_leading(endpoint, context, standby)


@asynccontextmanager
async def serve_probes(context: ProcessContext[S]) -> AsyncIterator[None]:
    """Serve probes and metrics while the block runs, if the settings have an address for them."""
    context.probes.add(
        {
            "/healthz": lambda _: ProbeResponse(b"ok\n"),
            "/readyz": context.readiness.page,
            "/metrics": with_election_metric(context, lambda _: ProbeResponse(b"", content_type=METRICS_CONTENT_TYPE)),
        }
    )
    address = context.settings.address()
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(context.probes.serve(*address)) if address else None
        yield
        if serving is not None:
            serving.cancel()


def with_election_metric(context: ProcessContext[S], page: Route) -> Route:
    """Return a page of metrics with the metric of the leader election, which every replica serves.

    Other metrics are computed at most once a second: whatever scrapes, scheduling is not slowed.
    """
    cached = CachedPage(page)

    def answer(rest: str) -> ProbeResponse:
        found, elector = cached(rest), context.readiness.elector
        if elector is None:
            return found
        metric = ELECTION_METRIC.format(name=context.settings.lease_name, leads=int(elector.leading))
        return replace(found, body=found.body + metric.encode())

    return answer


async def run_leading(endpoint: Endpoint, context: ProcessContext[S], standby: Standby) -> None:
    """Work while holding the lease, or at once without leader election. Before that, ``stopping`` ends it."""
    raise_file_limit()
    if context.settings.leader_elect:
        await _run_elected(endpoint, context, standby)
        return
    async with Connection(endpoint) as connection, standby(connection) as work:
        context.readiness.connection = connection
        await work()


async def _run_elected(endpoint: Endpoint, context: ProcessContext[S], standby: Standby) -> None:
    settings, log = context.settings, context.log
    lease_connection = Connection(endpoint)
    elector = LeaderElector(
        ApiLeaseStore(lease_connection, settings.lease_namespace, settings.lease_name),
        context.identity,
        settings.leader_election.lease_settings(),
        timing=ELECTION_TIME,
        on_new_leader=lambda holder: log.info("leader", holder=holder, is_ours=holder == context.identity),
        on_failure=lambda error: log.warning("lease attempt failed", error=str(error)),
    )
    election = ElectionThread(elector, lease_connection, log)
    context.readiness.elector = elector
    async with Connection(endpoint, fence=elector.check) as connection, standby(connection) as work:
        context.readiness.connection = connection
        leading = asyncio.create_task(election.run(work))
        waiting = asyncio.create_task(context.stopping.wait())
        try:
            await asyncio.wait((leading, waiting), return_when=asyncio.FIRST_COMPLETED)
            if leading.done() or elector.leading:
                await leading
        finally:
            await cancel_and_wait(leading)
            await cancel_and_wait(waiting)


def process_identity() -> str:
    """Return a unique name of this process. Two containers may share host name and process number."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
