"""The queue of status writes: one write per object at a time, groups first, and most workers pause for binds."""

import asyncio
from typing import TYPE_CHECKING

import pytest

from cpg_client.errors import ApiError
from cpg_engine.testing.builders import pod, pod_group
from cpg_scheduler.status.write_queue import WORKERS, WORKERS_THAT_NEVER_PAUSE

if TYPE_CHECKING:
    from tests.scheduler.status.conftest import StatusFixture

OVERCOMMITTED = (
    "Warning",
    "OverCommitted",
    "its pods request more than it has: cpu by 1; of cpg-scheduler are default/p",
)
FAILED = ("Warning", "FailedScheduling", "no room")


async def test_a_burst_of_reports_is_one_write_per_object(status: "StatusFixture") -> None:
    """Only the last report of each object is written."""
    for number in range(50):
        status.report(pod("p"), f"attempt {number}")
        status.report(pod_group("pg"), f"attempt {number}")
    await status.writer.drained()
    assert status.messages() == ["attempt 49"] * 2


async def test_the_writes_of_one_object_never_overlap(status: "StatusFixture") -> None:
    """On two connections the newer one could arrive first, and the older one would stay."""
    status.api.open.clear()
    for message in ("first", "second", "third"):
        status.report(pod("p"), message)
        await asyncio.sleep(0.01)
    assert status.api.in_flight == 1
    status.api.open.set()
    await status.writer.drained()
    assert status.messages() == ["first", "third"]


async def test_a_bind_can_wait_for_a_write_that_is_being_sent(status: "StatusFixture") -> None:
    """It waits for this one alone."""
    status.api.open.clear()
    status.report(pod("p"), "no room")
    while not status.api.in_flight:  # noqa: ASYNC110 - each step of the loop counts
        await asyncio.sleep(0)
    waiting = asyncio.create_task(status.gate.wait_written({pod("p").metadata.uid}))
    await asyncio.wait_for(status.gate.wait_written({"other"}), 1)
    assert not waiting.done()
    status.api.open.set()
    await asyncio.wait_for(waiting, 1)
    assert status.messages() == ["no room"]


async def test_groups_come_before_pods_and_binds_before_both(status: "StatusFixture") -> None:
    """While binds are in flight, all but two workers pause after the write that they have begun to wait for."""
    status.gate.enter()
    await asyncio.sleep(0)
    for number in range(100):
        status.report(pod(f"p{number}"), "no room")
    status.report(pod_group("pg"), "too few")
    while len(status.api.writes) < 2 * WORKERS:  # noqa: ASYNC110 - each step of the loop counts
        await asyncio.sleep(0)
    assert "podgroups/pg" in status.status_writes()[0].path
    status.api.most_in_flight = 0
    await asyncio.wait_for(status.writer.drained(), 5)
    assert len(status.status_writes()) == 101
    assert status.api.most_in_flight <= WORKERS_THAT_NEVER_PAUSE


async def test_a_failed_write_is_repeated_unless_a_newer_one_replaces_it(status: "StatusFixture") -> None:
    """Otherwise an unschedulable pod would have no condition until its next attempt."""
    status.api.error = lambda _: ApiError(500, "InternalError", "")
    for name in ("p", "q"):
        status.report(pod(name), "no room")
    await status.writer.drained()
    status.api.error = lambda _: None
    status.report(pod("q"), "still no room")
    await asyncio.sleep(0.1)
    await status.writer.drained()
    assert sorted(status.messages())[:2] == ["no room", "still no room"]


async def test_writes_that_are_not_remembered_are_repeated_too(status: "StatusFixture") -> None:
    """A group that has recovered, and an event about a node."""
    status.api.error = lambda _: ApiError(500, "InternalError", "")
    status.report_recovered(pod_group("pg"))
    status.report_overcommitted("n1")
    await status.writer.drained()
    status.api.error = lambda _: None
    await asyncio.sleep(0.1)
    await status.writer.drained()
    assert [condition["type"] for condition in status.conditions()] == ["DisruptionTarget"]
    assert status.events() == [OVERCOMMITTED]


async def test_an_event_that_failed_is_repeated_though_the_watch_shows_its_condition(status: "StatusFixture") -> None:
    """The condition was written before the event was refused."""
    status.api.error = lambda write: ApiError(500, "InternalError", "") if "/events" in write.path else None
    status.report(pod("p"), "no room")
    await status.writer.drained()
    status.show_unschedulable(pod("p"), "no room")
    status.api.error = lambda _: None
    await asyncio.sleep(0.1)
    await status.writer.drained()
    assert status.events() == [FAILED]


async def test_the_failed_write_of_a_deleted_object_is_not_repeated(status: "StatusFixture") -> None:
    """There is no object to write it to."""
    status.api.error = lambda _: ApiError(500, "InternalError", "")
    status.report(pod("p"), "no room")
    await status.writer.drained()
    status.api.error = lambda _: None
    status.writer.forget("uid-default-p")
    await asyncio.sleep(0.1)
    assert status.status_writes() == []


async def test_a_404_is_neither_logged_nor_repeated(status: "StatusFixture") -> None:
    """The object was deleted meanwhile; other failures are logged."""
    status.api.error = lambda write: ApiError(404 if "/deleted" in write.path else 500, "", "")
    for name in ("deleted", "other"):
        status.report(pod(name), "no room")
    await status.writer.drained()
    assert [call.kwargs["uid"] for call in status.log.calls] == ["uid-default-other"]


@pytest.mark.parametrize("status", [0.3], indirect=True)
async def test_reports_that_differ_in_numbers_settle_before_they_are_written(status: "StatusFixture") -> None:
    """A gang arrives pod by pod: the first report is written at once, the last one in the end, and few in between."""
    for missing in range(200, 0, -1):
        message = f"waiting for {missing} more pods"
        status.report(pod_group("pg"), message, cause="too few")
        status.report(pod("p"), message, cause="too few")
        if missing % 10 == 0:
            await status.writer.drained()
    await asyncio.sleep(0.4)
    await status.writer.drained()
    assert status.messages()[-2:] == ["waiting for 1 more pods"] * 2
    assert len(status.messages()) <= 8
    assert [reason for _, reason, _ in status.events()] == ["FailedScheduling"] * 2


async def test_a_new_cause_is_written_at_once(status: "StatusFixture") -> None:
    """Also while a report of the cause before is settling."""
    for message, cause in (("2 nodes", "full"), ("3 nodes", "full"), ("tainted", "taint")):
        status.report(pod("p"), message, cause=cause)
        await status.writer.drained()
    assert status.messages() == ["2 nodes", "tainted"]
    await asyncio.sleep(0.1)
    await status.writer.drained()
    assert [note for _, _, note in status.events()] == ["2 nodes", "tainted"]


@pytest.mark.parametrize("status", [0.1], indirect=True)
async def test_an_event_about_waiting_settles(status: "StatusFixture") -> None:
    """While groups are being made, each object waits for one after the other; its conditions say so at once."""
    for message in ("waiting for its group", "waiting for its parent"):
        for target in (pod("p"), pod_group("pg")):
            status.report(target, message, reason="WaitingForGroup")
        await status.writer.drained()
    assert status.events() == []
    assert len(status.messages()) == 4
    await asyncio.sleep(0.1)
    await status.writer.drained()
    assert status.events() == [("Warning", "FailedScheduling", "waiting for its parent")] * 2


async def test_an_event_about_waiting_is_withdrawn(status: "StatusFixture") -> None:
    """Once the pod is bound or gone, or waits for something else."""
    for name in ("bound", "gone", "other"):
        status.report(pod(name), "waiting for its group", reason="WaitingForGroup")
    await status.writer.drained()
    status.writer.on_seen(pod("bound", node_name="n1"))
    status.writer.forget("uid-default-gone")
    status.report(pod("other"), "no room")
    await asyncio.sleep(0.1)
    await status.writer.drained()
    assert status.events() == [FAILED]


async def test_causes_that_alternate_settle_too(status: "StatusFixture") -> None:
    """A user changes the minimum of a group to and fro; the last state is what stays."""
    for _ in range(20):
        for cause in ("too few", "no room"):
            status.report(pod("p"), cause, cause=cause)
            await status.writer.drained()
    assert status.messages() == ["too few", "no room"]
    status.report(pod("p"), "too few", cause="too few")
    await asyncio.sleep(0.3)
    await status.writer.drained()
    assert (status.messages()[-1], len(status.messages())) == ("too few", 3)
    assert status.events()[-1] == ("Warning", "FailedScheduling", "too few")
