"""Leader election on a thread, beside a main loop that is busy or stuck."""

import asyncio
import contextlib
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import structlog

from cpg_client.election_thread import ElectionThread
from cpg_client.errors import ApiError, ConnectionFailedError
from cpg_client.leader_election import LeaderElector, LeadershipLostError, LeaseRecord, LeaseSettings, ObservedRecord
from cpg_client.timing import ELECTION_TIME

SHORT = LeaseSettings(lease_duration=3, renew_deadline=2.0, retry_period=0.1)
STUCK_PROCESS = """
import asyncio, sys, time
from tests.client.test_election_thread import LeaseInMemory, election

lease = LeaseInMemory(on_write=lambda record: print(record.holder_identity or "none", time.monotonic(), flush=True))

async def work():
    print("stuck", time.monotonic(), flush=True)
    time.sleep(60)

asyncio.run(election(lease, max_turns_missed=2)[1].run(work))
"""


class LeaseInMemory:
    """Keeps the record and the times of its writes; it can be unreachable."""

    def __init__(self, on_write: Callable[[LeaseRecord], None] = lambda _: None) -> None:
        self.record: LeaseRecord | None = None
        self.writes: list[float] = []
        self.broken = False
        self.threads: set[str] = set()
        self._on_write = on_write

    async def read(self) -> ObservedRecord | None:
        """Return the record."""
        if self.broken:
            raise ConnectionFailedError("lease", "any", "broken")
        return ObservedRecord(self.record, str(len(self.writes))) if self.record is not None else None

    async def create(self, record: LeaseRecord) -> ObservedRecord:
        """Store the first record."""
        return await self.replace("0", record)

    async def replace(self, version: str, record: LeaseRecord) -> ObservedRecord:
        """Store the next record."""
        await self.read()
        if version != str(len(self.writes)):
            raise ApiError(409, "Conflict", "")
        self.record = record
        self.writes.append(time.monotonic())
        self.threads.add(threading.current_thread().name)
        self._on_write(record)
        return ObservedRecord(record, str(len(self.writes)))


def election(
    lease: LeaseInMemory, settings: LeaseSettings = SHORT, max_turns_missed: int = 30
) -> tuple[LeaderElector, ElectionThread]:
    """Return an elector, and its thread, which uses no connection."""
    elector = LeaderElector(lease, "me", settings, timing=ELECTION_TIME)
    thread = ElectionThread(
        elector, contextlib.AsyncExitStack(), structlog.get_logger(), max_turns_missed=max_turns_missed
    )
    return elector, thread


async def run(thread: ElectionThread, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run the election, for a minute at most."""
    async with asyncio.timeout(60):
        await thread.run(work)


async def test_a_main_loop_without_a_turn_for_eight_seconds_keeps_its_lease() -> None:
    """With the default times of the lease; afterwards it may write, and it releases the lease at its end."""
    lease, settings = LeaseInMemory(), LeaseSettings()
    elector, thread = election(lease, settings)

    async def work() -> None:
        began = time.monotonic()
        time.sleep(8)  # noqa: ASYNC251 - this is the fault
        elector.check()
        during = [began, *(at for at in lease.writes if at > began), time.monotonic()]
        assert max(later - sooner for sooner, later in itertools.pairwise(during)) < settings.renew_deadline

    await run(thread, work)
    assert lease.threads == {"leader election"}
    assert lease.record is not None
    assert not lease.record.holder_identity
    assert not elector.leading


@pytest.mark.parametrize("fault", ["taken", "unreachable"])
async def test_a_lease_that_is_lost_while_the_main_loop_is_busy_allows_no_write(fault: str) -> None:
    """Without a turn of the main loop; with the next one the work is cancelled, and ``run`` raises after its end."""
    lease = LeaseInMemory()
    elector, thread = election(lease)
    ended = False

    async def work() -> None:
        nonlocal ended
        elector.check()
        lease.broken = fault == "unreachable"
        if fault == "taken":
            lease.record = LeaseRecord("other", 10)
            lease.writes.append(time.monotonic())
        time.sleep(SHORT.renew_deadline + 0.5)  # noqa: ASYNC251 - this is the fault
        with pytest.raises(LeadershipLostError):
            elector.check()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.1)
            ended = True

    with pytest.raises(LeadershipLostError):
        await run(thread, work)
    assert ended


async def test_an_error_of_the_work_releases_the_lease() -> None:
    """The error comes out of ``run``."""
    lease = LeaseInMemory()

    async def work() -> None:
        raise ValueError("ours")

    with pytest.raises(ValueError, match="ours"):
        await run(election(lease)[1], work)
    assert lease.record is not None
    assert not lease.record.holder_identity


@pytest.mark.parametrize("holder", ["other", ""])
async def test_a_cancelled_election_ends_the_thread(holder: str) -> None:
    """On standby it leaves the lease to its holder; as the leader it ends the work, and then releases the lease."""
    lease = LeaseInMemory()
    lease.record = LeaseRecord(holder, 10)
    elector, thread = election(lease)
    began, seen = asyncio.Event(), list[str | None]()

    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(lease.record.holder_identity if lease.record else None)

    running = asyncio.create_task(run(thread, work))
    await (asyncio.sleep(0.3) if holder else began.wait())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert lease.record.holder_identity == holder
    assert seen == ([] if holder else ["me"])
    assert not elector.leading
    for one in threading.enumerate():
        if one.name == "leader election":
            one.join(10)
            assert not one.is_alive()


def test_a_stuck_main_loop_ends_the_process() -> None:
    """Without releasing the lease, since the work has not ended."""
    ended = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", STUCK_PROCESS],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    assert "the main loop is stuck" in ended.stdout + ended.stderr
    assert "in work" in ended.stdout + ended.stderr, "the stack of the main loop"
    lines = [line.split() for line in ended.stdout.splitlines() if line.startswith(("me ", "stuck ", "none "))]
    assert lines[0][0] == "me"
    assert {holder for holder, _ in lines[2:]} == {"me"}
    assert len(lines) > 10, "renewed until the end"
