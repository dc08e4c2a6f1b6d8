"""A process as the leader and on standby."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import structlog

from cpg_client.connection import Connection
from cpg_client.endpoint import Endpoint
from cpg_client.leader_election import LeaderElector, LeadershipLostError
from cpg_client.probe_server import ProbeResponse
from cpg_client.process import (
    METRICS_CONTENT_TYPE,
    LeaderElectionSettings,
    LeaderWork,
    ProcessContext,
    run_with_standby,
    with_election_metric,
)

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer


def page(_: str) -> ProbeResponse:
    """Return a page of metrics."""
    return ProbeResponse(b"a_metric 1\n", content_type=METRICS_CONTENT_TYPE)


def test_every_replica_has_the_election_metric() -> None:
    """After its own metrics, if it has any; without an election there is none."""
    context: ProcessContext[Any] = ProcessContext(
        settings=SimpleNamespace(lease_name="mine"), log=structlog.get_logger(), identity="me"
    )
    served = with_election_metric(context, page)
    assert served("") == page("")
    for leads in (False, True):
        context.readiness.elector = cast("LeaderElector", SimpleNamespace(leading=leads))
        *_, last = served("").body.decode().splitlines()
        assert last == f'leader_election_master_status{{name="mine"}} {leads:d}'
        assert served("").body.startswith(b"a_metric 1\n# HELP")
        assert served("").content_type == METRICS_CONTENT_TYPE


LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/mine"


class RecordingStandby:
    """Records what runs on standby, what runs as the leader, and their results."""

    def __init__(self, ended: asyncio.Event) -> None:
        self.seen: list[str] = []
        self._ended = ended

    @asynccontextmanager
    async def __call__(self, connection: Connection) -> AsyncIterator[LeaderWork]:
        """Read something, and try to write."""
        self.seen.append((await connection.get("/there")).decode())
        try:
            await connection.post("/there", {})
        except LeadershipLostError:
            self.seen.append("held back")

        async def work() -> None:
            self.seen.append((await connection.post("/there", {})).decode())
            await self._ended.wait()

        yield work
        self.seen.append("ended")

    async def until(self, *seen: str) -> None:
        """Wait until these are the results."""
        async with asyncio.timeout(10):
            while self.seen != [*seen]:  # noqa: ASYNC110  # a server's doing
                await asyncio.sleep(0.01)


async def run_until_seen(server: "FakeServer", *seen: str, elects: bool = True) -> None:
    """Run until these are the results, and then to the end."""
    settings = SimpleNamespace(
        leader_elect=elects,
        lease_namespace="default",
        lease_name="mine",
        leader_election=LeaderElectionSettings(),
        address=lambda: None,
    )
    server.answers("GET", "/there", b"read")
    server.answers("POST", "/there", b"written")
    context: ProcessContext[Any] = ProcessContext(settings=settings, log=structlog.get_logger(), identity="me")
    prepared = RecordingStandby(context.stopping)
    running = asyncio.create_task(run_with_standby(Endpoint(server=server.url), context, prepared))
    await prepared.until(*seen)
    context.stopping.set()
    await running
    assert prepared.seen == [*seen, "ended"]


@pytest.mark.parametrize(("holder", "does"), [("", ("written",)), ("other", ())], ids=["free", "taken"])
async def test_a_standby_reads_and_does_not_write(server: "FakeServer", holder: str, does: tuple[str, ...]) -> None:
    """With the lease it does the prepared work; the preparation ends after the work."""
    lease = {"metadata": {"resourceVersion": "7"}, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 10}}
    ours = {"metadata": {"resourceVersion": "8"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 10}}
    server.answers("GET", LEASE, lease)
    server.answers("PATCH", LEASE, ours)
    await run_until_seen(server, "read", "held back", *does)
    assert [seen.path for seen in server.seen if seen.method == "POST"] == ["/there"] * len(does)


async def test_without_an_election_the_work_starts_at_once(server: "FakeServer") -> None:
    """Writes of the preparation pass."""
    await run_until_seen(server, "read", "written", elects=False)


async def test_after_a_suspension_the_leader_writes_nothing(
    server: "FakeServer", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another replica has led for an hour. The clock of the election counts that hour."""
    lease = {"metadata": {"resourceVersion": "7"}, "spec": {"holderIdentity": "", "leaseDurationSeconds": 10}}
    ours = {"metadata": {"resourceVersion": "8"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 10}}
    server.answers("GET", LEASE, lease)
    server.answers("PATCH", LEASE, ours)
    server.answers("POST", "/there", b"written")
    settings = SimpleNamespace(
        leader_elect=True,
        lease_namespace="default",
        lease_name="mine",
        leader_election=LeaderElectionSettings(),
        address=lambda: None,
    )
    context: ProcessContext[Any] = ProcessContext(settings=settings, log=structlog.get_logger(), identity="me")
    seen: list[str] = []
    now = time.clock_gettime

    @asynccontextmanager
    async def standby(connection: Connection) -> AsyncIterator[LeaderWork]:
        async def work() -> None:
            seen.append((await connection.post("/there", {})).decode())
            monkeypatch.setattr(time, "clock_gettime", lambda kind: now(kind) + 3600.0)
            try:
                await connection.post("/there", {})
            except LeadershipLostError:
                seen.append("held back")

        yield work

    await run_with_standby(Endpoint(server=server.url), context, standby)
    assert seen == ["written", "held back"]
