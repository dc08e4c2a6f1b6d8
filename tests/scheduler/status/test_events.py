"""Where pods went: an event for each, behind everything else, and never at any price."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from cpg_client.connection import Connection
from cpg_client.errors import ApiError
from cpg_engine.testing.builders import node, pod
from cpg_scheduler.status import events
from cpg_scheduler.status.events import EventWriter
from cpg_scheduler.testing.stage import Stage
from cpg_scheduler.testing.wire import Wire


class Booth:
    """An announcer at work, and what it wrote."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.calm = asyncio.Event()
        self.announcer = EventWriter(cast("Connection", self.wire), instance="me", calm=self.calm.wait)

    async def told(self) -> list[dict[str, Any]]:
        """Return the events, when all who had something to do have done it."""
        await asyncio.sleep(0.01)
        for _ in range(100):
            await asyncio.sleep(0)
        return [write.body for write in self.wire.writes]


@pytest.fixture
async def booth(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Booth]:
    """Let an announcer work for as long as the test lasts."""
    monkeypatch.setattr(events, "PACE", 0.001)
    made = Booth()
    work = asyncio.create_task(made.announcer.run())
    yield made
    work.cancel()
    await asyncio.wait({work})


async def test_a_pod_that_was_bound_is_told_of_in_the_words_of_kube_scheduler(booth: Booth) -> None:
    """Boards and people look for the reason, and `kubectl describe` shows the note."""
    booth.calm.set()
    booth.announcer.placed(pod("worker-0"), "node-1")
    (event,) = await booth.told()
    said = {name: event[name] for name in ("type", "reason", "action", "note", "reportingController")}
    assert said == {
        "type": "Normal",
        "reason": "Scheduled",
        "action": "Binding",
        "note": "Successfully assigned default/worker-0 to node-1",
        "reportingController": "cpg-scheduler",
    }
    assert event["regarding"]["name"] == "worker-0"


async def test_little_is_told_while_there_is_more_important_to_write(booth: Booth) -> None:
    """Binds come first; an event now and then is told beside them, however long they go on, and the rest afterwards."""
    booth.wire.open.clear()
    await booth.told()
    for number in range(20):
        booth.announcer.placed(pod(f"worker-{number}"), "node-1")
    await booth.told()
    assert booth.wire.in_flight == 1
    booth.wire.open.set()
    while len(await booth.told()) < 20:
        assert booth.wire.most_in_flight == 1
    booth.wire.open.clear()
    booth.calm.set()
    for number in range(20):
        booth.announcer.placed(pod(f"late-{number}"), "node-1")
    await booth.told()
    assert booth.wire.in_flight == events.WRITERS
    booth.wire.open.set()
    while len(await booth.told()) < 40:
        pass


async def test_few_are_told_while_there_is_more_important_to_write() -> None:
    """Each costs the server as much as the bind of a pod: the second has to wait, as long as binds go on."""
    busy = Booth()
    work = asyncio.create_task(busy.announcer.run())
    for number in range(3):
        busy.announcer.placed(pod(f"worker-{number}"), "node-1")
    while not await busy.told():
        pass
    assert len(await busy.told()) == 1
    busy.calm.set()
    assert len(await busy.told()) == 3
    work.cancel()
    await asyncio.wait({work})


async def test_of_too_many_the_oldest_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is busy for long costs events, not memory."""
    monkeypatch.setattr(events, "MOST", 2)
    few = Booth()
    work = asyncio.create_task(few.announcer.run())
    for number in range(30):
        few.announcer.placed(pod(f"worker-{number}"), "node-1")
    few.calm.set()
    assert {event["regarding"]["name"] for event in await few.told()} == {"worker-28", "worker-29"}
    few.announcer.placed(pod("late"), "node-1")
    assert len(await few.told()) == 3
    work.cancel()
    await asyncio.wait({work})


async def test_an_event_that_is_refused_is_dropped_and_the_next_is_told(booth: Booth) -> None:
    """The pod itself says where it is."""
    booth.calm.set()
    booth.wire.error = lambda write: ApiError(403, "Forbidden", "no") if "worker-0" in str(write.body) else None
    booth.announcer.placed(pod("worker-0"), "node-1")
    booth.announcer.placed(pod("worker-1"), "node-1")
    assert [event["regarding"]["name"] for event in await booth.told()] == ["worker-1"]


def test_the_driver_announces_a_pod_once_it_is_bound() -> None:
    """A decision alone is no news: the bind may yet fail."""
    stage, told = Stage(node("node-1"), pod("worker-0")), list[tuple[str, str]]()
    stage.driver._announce = lambda found, where: told.append((found.metadata.name, where))
    stage.cycles()
    assert told == []
    stage.perform()
    assert told == [("worker-0", "node-1")]
