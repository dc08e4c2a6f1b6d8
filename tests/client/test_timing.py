"""Waiting with time as an argument."""

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from cpg_client.timing import ELECTION_TIME, Timing, cancel_and_wait

if TYPE_CHECKING:
    from tests.client.conftest import VirtualTime


async def test_work_within_the_time_returns_its_result(virtual: "VirtualTime") -> None:
    """The sleep is cancelled."""

    async def work() -> str:
        await virtual.sleep(2)
        return "done"

    waiting = asyncio.create_task(virtual.timing.within(3, work()))
    await virtual.advance(2)
    assert await waiting == "done"


async def test_work_beyond_the_time_is_cancelled(virtual: "VirtualTime") -> None:
    """The error has the seconds, and the work has ended when it is raised."""
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(virtual.timing.within(3, work()))
    await virtual.advance(3)
    assert waiting.done()
    assert ended.is_set()
    with pytest.raises(TimeoutError, match="no answer within 3 s"):
        await waiting


async def test_an_exception_of_the_work_is_raised() -> None:
    """It is no time-out."""

    async def work() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await Timing().within(60, work())


async def test_cancel_and_wait_waits_for_the_end() -> None:
    """Also of a task with a slow or failing clean-up; its result is ignored."""

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            raise ValueError("while cleaning up")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    await cancel_and_wait(task)
    assert task.done()


def test_timestamps_are_micro_times() -> None:
    """In UTC with six digits, as in the API."""
    assert Timing(wall=lambda: 1_800_000_000.25).timestamp() == "2027-01-15T08:00:00.250000Z"


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no such clock")
def test_the_clock_of_the_election_counts_suspended_time() -> None:
    """The kernel's clock since boot does; ``time.monotonic`` does not."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= ELECTION_TIME.clock() <= time.clock_gettime(time.CLOCK_BOOTTIME)
