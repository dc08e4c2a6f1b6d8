"""Kopf in the main loop of the process, against an API server: it starts, ends and starts again."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import kopf
import pytest

from cpg_client import freshness
from cpg_client.endpoint import Endpoint
from cpg_client.leader_election import LeadershipLostError
from cpg_client.process import ProcessContext
from cpg_client.resources import CPG_POD_GROUPS, CPG_WORKLOADS
from cpg_client.timing import Timing
from cpg_client.versions import VersionsWentBackError
from cpg_lab import probing
from cpg_lab.ports import LOOPBACK, free_port
from cpg_operator import app
from cpg_operator.app import MAX_RESTART_SECONDS, STABLE_SECONDS
from cpg_operator.metrics import OperatorMetrics
from cpg_operator.settings import Settings
from cpg_operator.sources import resync

if TYPE_CHECKING:
    from tests.operator.conftest import FakeApi

SPEC = {"schedulingPolicy": {"gang": {"minCount": 1}}}
WAIT_SECONDS = 20.0


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not holds():  # noqa: ASYNC110  # another thread has no event of asyncio to set
            await asyncio.sleep(0.02)


class RunningOperator:
    """The operator in a task, and its probes."""

    def __init__(self, task: "asyncio.Task[None]", listen: str) -> None:
        """Take a task that runs."""
        self.task = task
        self._url = f"http://{listen}"

    async def get(self, path: str) -> str:
        """Return the body at a path of the probe server."""
        return (await asyncio.to_thread(probing.get_plain, self._url + path))[1]

    async def until_shown(self, path: str, text: str) -> None:
        """Wait until the body at a path contains a text."""
        async with asyncio.timeout(WAIT_SECONDS):
            while text not in await self.get(path):  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.02)

    async def until_ready(self) -> None:
        """Wait until it leads and has read the cluster."""
        await self.until_shown("/readyz", "ok\n")


@asynccontextmanager
async def operating(endpoint: Endpoint, **settings: Any) -> AsyncIterator[RunningOperator]:  # as in a file
    """Run the operator; it ends on SIGTERM."""
    listen = f"{LOOPBACK}:{free_port()}"
    chosen = Settings(listen=listen, quiet=0.01, longest_delay=0.1, **settings)
    task = asyncio.create_task(app.run(endpoint, chosen))
    try:
        yield RunningOperator(task, listen)
        if not task.done():
            os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(WAIT_SECONDS):
            await task
    finally:
        task.cancel()


def finalizers(api: "FakeApi", name: str) -> list[str]:
    """Return the finalizers of a PodGroup."""
    group = api.objects[CPG_POD_GROUPS.path()].get(name, {"metadata": {}})
    found: list[str] = group["metadata"].get("finalizers", [])
    return found


@pytest.mark.parametrize("elected", [True, False])
async def test_an_event_becomes_a_write(api: "FakeApi", endpoint: Endpoint, *, elected: bool) -> None:
    """Through handler, view, work queue, steps and writer; at its end it gives back the lease."""
    api.create(CPG_POD_GROUPS, "before", SPEC)
    async with operating(endpoint, leader_elect=elected) as operator:
        await operator.until_ready()
        await until(lambda: bool(finalizers(api, "before")))
        api.create(CPG_POD_GROUPS, "after", SPEC)
        await until(lambda: bool(finalizers(api, "after")))
        assert bool(api.holder) is elected
        page = await operator.get("/metrics")
        assert "cpg_operator_kopf_restarts_total 0.0" in page
        assert 'cpg_operator_trees{flavour="crd"' in page
        api.delete(CPG_POD_GROUPS, "after")
        await operator.until_shown("/metrics", 'cpg_operator_trees{flavour="crd",state="Pending"} 1.0')
    assert api.holder == ""


async def test_a_standby_watches_nothing_and_ends_on_a_signal(
    api: "FakeApi", endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    """Kopf waits in its startup handler, and logs nothing at its end; the lease stays with its holder."""
    api.hold_lease("another")
    async with operating(endpoint) as operator:
        await operator.until_shown("/readyz", "standing by: another leads")
        assert {path for _, path in api.requests if "/leases" not in path} == set()
    assert api.holder == "another"
    assert caplog.messages == []


async def test_an_error_in_a_watch_starts_kopf_again(api: "FakeApi", endpoint: Endpoint) -> None:
    """The process stays, counts it, and receives later events."""
    async with operating(endpoint) as operator:
        await operator.until_ready()
        api.create(CPG_POD_GROUPS, "before", SPEC)
        await until(lambda: bool(finalizers(api, "before")))
        api.send(CPG_POD_GROUPS, {"type": "ERROR", "object": {"kind": "Status", "code": 500, "metadata": {}}})
        await operator.until_shown("/metrics", "cpg_operator_kopf_restarts_total 1.0")
        api.create(CPG_POD_GROUPS, "after", SPEC)
        await until(lambda: bool(finalizers(api, "after")))


async def test_a_new_run_begins_when_other_kinds_are_served(
    api: "FakeApi", endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as Workloads, if their definition is installed last."""
    monkeypatch.setattr(resync, "SECONDS_UNTIL_FIRST_CHECK", 0.1)
    del api.served[CPG_WORKLOADS.path()]
    async with operating(endpoint) as operator:
        await operator.until_ready()
        assert ("GET", CPG_WORKLOADS.path()) not in api.requests
        api.served[CPG_WORKLOADS.path()] = CPG_WORKLOADS
        await until(lambda: ("GET", CPG_WORKLOADS.path()) in api.requests)
        await operator.until_ready()
        assert "cpg_operator_kopf_restarts_total 0.0" in await operator.get("/metrics")


async def test_a_lost_lease_ends_the_process(api: "FakeApi", endpoint: Endpoint) -> None:
    """With an error; its supervisor starts another."""

    async def lose_lease() -> None:
        async with operating(endpoint) as operator:
            await operator.until_ready()
            api.hold_lease("another")
            await until(operator.task.done)

    with pytest.raises(ExceptionGroup) as caught:
        await lose_lease()
    assert caught.group_contains(LeadershipLostError)


async def test_versions_that_go_back_end_the_process(
    api: "FakeApi", endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the restore of a backup of etcd: the view is void, and a new process reads everything."""
    monkeypatch.setattr(freshness, "SECONDS_BETWEEN_CHECKS", 0.2)
    monkeypatch.setattr(freshness, "SECONDS_AFTER_FAILURE", 0.1)

    async def restore() -> None:
        async with operating(endpoint) as operator:
            await operator.until_ready()
            api.restore()
            await until(operator.task.done)

    with pytest.raises(ExceptionGroup) as caught:
        await restore()
    assert caught.group_contains(VersionsWentBackError)


class FakeTiming:
    """Time that passes only by waiting, until some runs of Kopf are over."""

    def __init__(self) -> None:
        """Start at zero."""
        self.now = 0.0
        self.waits: list[float] = []
        self.timing = Timing(sleep=self._sleep, clock=lambda: self.now)

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


async def test_the_back_off_of_kopf_doubles(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts again after a run that was long enough; a signal ends the process."""
    time, runs = FakeTiming(), iter([0.0] * 8 + [STABLE_SECONDS, 0.0])

    async def run_kopf(_: Endpoint, process: ProcessContext[Settings], __: OperatorMetrics) -> Exception | None:
        lasted = next(runs, None)
        if lasted is None:
            process.stopping.set()
            return None
        time.now += lasted
        return ValueError("broken")

    monkeypatch.setattr(app, "run_kopf", run_kopf)
    await app.run(endpoint, Settings(listen=""), time.timing)
    assert time.waits == [1, 2, 4, 8, 16, *[MAX_RESTART_SECONDS] * 3, 1, 2]


async def test_a_signal_that_kopf_handles_ends_the_process(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may arrive before our handlers replace Kopf's."""

    async def operator(*, memo: kopf.Memo, **_: object) -> None:
        await memo.run.stop()

    monkeypatch.setattr(kopf, "operator", operator)
    async with asyncio.timeout(WAIT_SECONDS):
        await app.run(endpoint, Settings(listen=""))
