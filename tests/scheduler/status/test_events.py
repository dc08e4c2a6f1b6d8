"""Events of the lowest priority: one for each bind, written when there is time, and dropped if there is none."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.forest import GroupKey
from cpg_client.connection import Connection
from cpg_client.errors import ApiError
from cpg_client.resources import CPG_POD_GROUPS
from cpg_engine.preemption.values import EvictionReason
from cpg_engine.testing.builders import node, pod
from cpg_scheduler.preemption.jobs import Preemptor
from cpg_scheduler.status import events
from cpg_scheduler.status.events import EventWriter
from cpg_scheduler.testing.fake_connection import FakeConnection
from cpg_scheduler.testing.stage import Stage
from cpg_scheduler.write_gate import WriteGate


class EventFixture:
    """An event writer over a fake connection, with binds in flight."""

    def __init__(self) -> None:
        self.api = FakeConnection()
        self.gate = WriteGate()
        self.gate.enter()
        self.writer = EventWriter(cast("Connection", self.api), instance="me", gate=self.gate)

    async def written(self) -> list[dict[str, Any]]:
        """Return the events that were written, after every worker has done what it can."""
        await asyncio.sleep(0.01)
        for _ in range(100):
            await asyncio.sleep(0)
        return [write.body for write in self.api.writes]


async def _running(fixture: EventFixture) -> AsyncIterator[EventFixture]:
    work = asyncio.create_task(fixture.writer.run())
    yield fixture
    work.cancel()
    await asyncio.wait({work})


@pytest.fixture
async def slow() -> AsyncIterator[EventFixture]:
    """Run an event writer at its usual pace."""
    async for fixture in _running(EventFixture()):
        yield fixture


@pytest.fixture
async def quick(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EventFixture]:
    """Run an event writer that hardly pauses between events."""
    monkeypatch.setattr(events, "SECONDS_BETWEEN_EVENTS", 0.001)
    async for fixture in _running(EventFixture()):
        yield fixture


@pytest.fixture
async def small(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EventFixture]:
    """Run an event writer that keeps two events."""
    monkeypatch.setattr(events, "MAX_QUEUED_EVENTS", 2)
    async for fixture in _running(EventFixture()):
        yield fixture


async def test_the_event_of_a_bound_pod_has_the_words_of_kube_scheduler(quick: EventFixture) -> None:
    """Dashboards match the reason, and `kubectl describe` shows the note."""
    quick.gate.leave()
    quick.writer.placed(pod("worker-0"), "node-1")
    (event,) = await quick.written()
    found = {name: event[name] for name in ("type", "reason", "action", "note", "reportingController")}
    assert found == {
        "type": "Normal",
        "reason": "Scheduled",
        "action": "Binding",
        "note": "Successfully assigned default/worker-0 to node-1",
        "reportingController": "cpg-scheduler",
    }
    assert event["regarding"]["name"] == "worker-0"


async def test_one_worker_writes_while_binds_are_in_flight(quick: EventFixture) -> None:
    """However long binds go on; the other workers continue afterwards."""
    quick.api.open.clear()
    await quick.written()
    for number in range(20):
        quick.writer.placed(pod(f"worker-{number}"), "node-1")
    await quick.written()
    assert quick.api.in_flight == 1
    quick.api.open.set()
    while len(await quick.written()) < 20:
        assert quick.api.most_in_flight == 1
    quick.api.open.clear()
    quick.gate.leave()
    for number in range(20):
        quick.writer.placed(pod(f"late-{number}"), "node-1")
    await quick.written()
    assert quick.api.in_flight == events.WORKERS
    quick.api.open.set()
    while len(await quick.written()) < 40:
        pass


async def test_few_events_are_written_while_binds_are_in_flight(slow: EventFixture) -> None:
    """Each costs the API server as much as a bind, so the second event waits."""
    for number in range(3):
        slow.writer.placed(pod(f"worker-{number}"), "node-1")
    while not await slow.written():
        pass
    assert len(await slow.written()) == 1
    slow.gate.leave()
    assert len(await slow.written()) == 3


async def test_of_too_many_events_the_oldest_are_dropped(small: EventFixture) -> None:
    """An API server that is busy for long costs events, not memory."""
    for number in range(30):
        small.writer.placed(pod(f"worker-{number}"), "node-1")
    small.gate.leave()
    assert {event["regarding"]["name"] for event in await small.written()} == {"worker-28", "worker-29"}
    small.writer.placed(pod("late"), "node-1")
    assert len(await small.written()) == 3


async def test_an_event_that_the_api_server_refuses_is_dropped(quick: EventFixture) -> None:
    """The pod itself shows its node; the next event is written."""
    quick.gate.leave()
    quick.api.error = lambda write: ApiError(403, "Forbidden", "no") if "worker-0" in str(write.body) else None
    quick.writer.placed(pod("worker-0"), "node-1")
    quick.writer.placed(pod("worker-1"), "node-1")
    assert [event["regarding"]["name"] for event in await quick.written()] == ["worker-1"]


def test_a_pod_gets_its_event_once_it_is_bound() -> None:
    """Not when the bind is decided: it may yet fail."""
    stage = Stage(node("node-1"), pod("worker-0"))
    stage.run_passes()
    assert stage.events.bound == []
    stage.complete_binds()
    assert stage.events.bound == [("worker-0", "node-1")]


async def test_the_event_of_an_evicted_pod_names_the_preemptor_and_the_reason(quick: EventFixture) -> None:
    """As kube-scheduler's does. After a restart the reason is not known any more."""
    preemptor = Preemptor(GroupKey("PodGroup", "ml", "train"), "uid-train")
    reason = EvictionReason(preemptor=preemptor.key, node="n1", resource="cpu", amount=2000)
    related = CPG_POD_GROUPS, ObjectMeta(name="train", namespace="ml", uid="uid-train")
    quick.gate.leave()
    quick.writer.preempted(pod("v0"), preemptor, reason, related)
    quick.writer.preempted(pod("v1"), preemptor, None, None)
    first, second = await quick.written()
    assert (first["type"], first["reason"], first["action"]) == ("Normal", "Preempted", "Preempting")
    assert first["note"] == "Preempted by podgroup uid-train: PodGroup ml/train needs its 2 CPU on n1"
    assert (first["related"]["kind"], first["related"]["name"]) == ("PodGroup", "train")
    assert second["note"] == "Preempted by podgroup uid-train: PodGroup ml/train needs its place"
    assert second.get("related") is None
