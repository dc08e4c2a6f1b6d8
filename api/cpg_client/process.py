"""A process from its first moment to its last: probes answer, it stands by until it leads, and it ends in order.

**Who has lost the lease writes nothing more.** A process that was stopped and goes on finds its tasks where they stood,
with binds decided long ago. So every write of the leader's connection asks the elector first, by the clock.
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

from cpg_client.connection import Connection
from cpg_client.endpoint import Endpoint
from cpg_client.leader_election import ApiLeaseStore, LeaderElector, LeaseSettings
from cpg_client.probe_server import ProbeResponse, ProbeServer, Route
from cpg_client.readiness import Readiness
from cpg_client.timing import cancel_and_wait

T = TypeVar("T")


class LeaderElectionSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How the lease is kept, in seconds, by the names of kube-scheduler.

    Shorter by default than there: who dies without a word is followed within twelve seconds.
    """

    lease_duration: int = LeaseSettings.lease_duration
    """For how long the others wait after the last sign of life of the one that leads."""
    renew_deadline: float = LeaseSettings.renew_deadline
    """For how long the one that leads tries to renew before it gives up and ends."""
    retry_period: float = LeaseSettings.retry_period
    """Between two looks at the lease, or two tries to renew it."""

    def lease_settings(self) -> LeaseSettings:
        """Return the times of the election; raise ``ValueError`` where they cannot work."""
        return LeaseSettings(
            lease_duration=self.lease_duration, renew_deadline=self.renew_deadline, retry_period=self.retry_period
        )


class ProcessSettings(Protocol):
    """As much of a shell's settings as is needed here."""

    @property
    def leader_elect(self) -> bool:
        """Whether to work only while holding a lease."""

    @property
    def lease_namespace(self) -> str:
        """Where the lease is."""

    @property
    def lease_name(self) -> str:
        """What it is called."""

    @property
    def leader_election(self) -> LeaderElectionSettings:
        """How it is kept."""

    def address(self) -> tuple[str, int] | None:
        """Return where to answer probes, or None."""


S = TypeVar("S", bound=ProcessSettings)


@dataclass(frozen=True, kw_only=True)
class ProcessContext(Generic[S]):
    """What a process has whether it leads or stands by."""

    settings: S
    log: FilteringBoundLogger
    identity: str
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    readiness: Readiness = field(default_factory=Readiness)
    probes: ProbeServer = field(default_factory=lambda: ProbeServer({}))


Work = Callable[[Connection], Coroutine[Any, Any, None]]
LeaderWork = Callable[[], Coroutine[Any, Any, None]]
"""What is done while leading."""
Standby = Callable[[Connection], AbstractAsyncContextManager[LeaderWork]]
"""What runs from the beginning, whoever leads, and gives what is to be done once we do."""
METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The type of a page of metrics as Prometheus reads it."""
ELECTION_METRIC = """\
# HELP leader_election_master_status Whether this replica leads (1) or stands by (0), by the name of the lease.
# TYPE leader_election_master_status gauge
leader_election_master_status{{name="{name}"}} {leads}
"""


async def run_process(endpoint: Endpoint, shell: ProcessContext[S], work: Work) -> None:
    """Answer probes, and do the work while leading, until told to end; the work sees to its own end in order."""

    @asynccontextmanager
    async def nothing_before(connection: Connection) -> AsyncIterator[LeaderWork]:
        yield lambda: work(connection)

    await run_with_standby(endpoint, shell, nothing_before)


async def run_with_standby(endpoint: Endpoint, shell: ProcessContext[S], standing_by: Standby) -> None:
    """Live as ``live`` has it, but prepare from the beginning for the moment in which the lease is ours.

    Who stands by may read as much as he likes; the fence lets nothing pass that writes.

    No task dies in silence: a mistake in any of them comes out of here, and the process ends with it. The next one
    rebuilds from the API what was known, which is safer than to go on with a part of it.
    """
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, shell.stopping.set)
    shell.probes.add(
        {
            "/healthz": lambda _: ProbeResponse(b"ok\n"),
            "/readyz": shell.readiness.page,
            "/metrics": with_election_metric(shell, lambda _: ProbeResponse(b"", content_type=METRICS_CONTENT_TYPE)),
        }
    )
    address = shell.settings.address()
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(shell.probes.serve(*address)) if address else None
        if shell.settings.leader_elect:
            await _run_elected(endpoint, shell, standing_by)
        else:
            async with Connection(endpoint) as connection, standing_by(connection) as work:
                await work()
        if serving is not None:
            serving.cancel()


def with_election_metric(shell: ProcessContext[S], page: Route) -> Route:
    """Return a page of metrics with one more, which every replica serves: who leads, if that is elected."""

    def answer(rest: str) -> ProbeResponse:
        found, elector = page(rest), shell.readiness.elector
        if elector is None:
            return found
        told = ELECTION_METRIC.format(name=shell.settings.lease_name, leads=int(elector.leading))
        return replace(found, body=found.body + told.encode())

    return answer


async def _run_elected(endpoint: Endpoint, shell: ProcessContext[S], standing_by: Standby) -> None:
    """Work while holding the lease; until it is held, the process can end at any moment."""
    settings, log = shell.settings, shell.log
    async with Connection(endpoint) as lease_connection:
        elector = LeaderElector(
            ApiLeaseStore(lease_connection, settings.lease_namespace, settings.lease_name),
            shell.identity,
            settings.leader_election.lease_settings(),
            on_new_leader=lambda holder: log.info("leader", holder=holder, is_ours=holder == shell.identity),
            on_failure=lambda error: log.warning("lease attempt failed", error=str(error)),
        )
        shell.readiness.elector = elector
        async with Connection(endpoint, fence=elector.check) as connection, standing_by(connection) as work:
            leading = asyncio.create_task(elector.run(work))
            waiting = asyncio.create_task(shell.stopping.wait())
            try:
                await asyncio.wait((leading, waiting), return_when=asyncio.FIRST_COMPLETED)
                if leading.done() or elector.leading:
                    await leading
            finally:
                await cancel_and_wait(leading)
                await cancel_and_wait(waiting)


async def run_until(ended: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return what comes of some work, or None where the end was told before."""
    working, waiting = asyncio.create_task(work), asyncio.create_task(ended.wait())
    try:
        await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        await cancel_and_wait(working)
        await cancel_and_wait(waiting)


def process_identity() -> str:
    """Return a name for this process that no other has; two containers may have the same host and number."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
