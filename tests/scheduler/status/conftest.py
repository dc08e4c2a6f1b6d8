"""A status writer at work, and what it wrote."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
from msgspec import to_builtins
from msgspec.structs import replace

from cpg_api.core.pod import Pod, PodCondition, PodStatus
from cpg_api.scheduling.forest import Group, GroupKey, key_of
from cpg_api.scheduling.podgroup import PodGroup
from cpg_client.connection import Connection
from cpg_client.resources import CPG_COMPOSITE_POD_GROUPS, CPG_POD_GROUPS, NATIVE_POD_GROUPS_ALPHA, Resource
from cpg_client.timing import Timing
from cpg_engine.testing.builders import pod
from cpg_scheduler.cache.assumed import BindsInFlight
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.inadmissible import GroupMissing
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.observability.overcommit import OvercommittedNode
from cpg_scheduler.status.attempts import AttemptResult
from cpg_scheduler.status.conditions import StatusWriter
from cpg_scheduler.status.updates import GroupRecovered, GroupStatusUpdate, PodStatusUpdate
from cpg_scheduler.status.write_queue import WriteQueue
from cpg_scheduler.testing.fake_connection import FakeConnection, SentRequest
from cpg_scheduler.write_gate import WriteGate

NOW = "2026-11-18T12:00:00Z"


class PendingPods(dict[str, Pod]):
    """Pods by UID, as in a cache; every pod is pending, except those that were put."""

    def get(self, uid: str, default: Any = None) -> Any:  # noqa: ANN401 - as in dict
        """Return a pod."""
        return super().get(uid, default or pod(uid))


class StatusFixture:
    """A status writer over a fake connection; groups are in the cache once ``show`` was called."""

    def __init__(self, settle_seconds: float = 0.02) -> None:
        """Start the writer's parts; nothing is sent before ``writer.run``."""
        self.seconds = 0.0
        """The time by the clock of the writer."""
        self.api = FakeConnection(Timing(wall=dt.datetime.fromisoformat(NOW).timestamp, clock=lambda: self.seconds))
        self.log = structlog.testing.CapturingLogger()
        self.gate = WriteGate()
        self.pods, self.binds_in_flight = PendingPods(), BindsInFlight()
        self.cached_groups: dict[GroupKey, Group] = {}
        self.deferred: list[Callable[[], Awaitable[None]]] = []
        """The writes of events that can wait."""
        self.queue = WriteQueue(
            self.gate,
            log=structlog.wrap_logger(self.log, processors=[]),
            retry_seconds=0.02,
            settle_seconds=settle_seconds,
        )
        cache = SimpleNamespace(pods=self.pods, binds_in_flight=self.binds_in_flight, scheduler_name="cpg-scheduler")
        self.evicted_again: set[GroupKey] = set()
        self.writer = StatusWriter(
            cast("Connection", self.api),
            self._current,
            cache=cast("ClusterCache", cache),
            has_recovered=lambda _, group: group not in self.evicted_again,
            queue=self.queue,
            events=self,
            instance="me",
        )

    def later(self, write: Callable[[], Awaitable[None]]) -> None:
        """Take the write of an event that can wait."""
        self.deferred.append(write)

    def show(self, group: Group) -> None:
        """Let the watch show a group."""
        self.cached_groups[key_of(group)] = group
        self.writer.on_seen(group)

    def show_unschedulable(self, pod: Pod, message: str) -> None:
        """Let the watch show a pod with the condition that it is unschedulable."""
        condition = PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message=message)
        self.writer.on_seen(replace(pod, status=PodStatus(conditions=(condition,))))

    def report(
        self, target: Pod | Group, message: str, *, cause: str = "", reason: str = "Unschedulable", number: int = 1
    ) -> None:
        """Report that a pod or group is not scheduled; a group after an attempt of that number."""
        if isinstance(target, Pod):
            self.writer.write(PodStatusUpdate(target, reason, message, cause))
            return
        attempt = AttemptResult(number, problem=GroupMissing(GroupKey("PodGroup", "default", "missing")))
        failure = GroupStatusUpdate(
            target, scheduled=False, attempt=attempt, reason=reason, message=message, cause=cause
        )
        self.writer.write(failure)

    def report_nominated(self, pod: Pod, message: str) -> None:
        """Report that a pod that is being nominated is not scheduled."""
        self.writer.write(PodStatusUpdate(pod, "Unschedulable", message, is_nominated=True))

    def report_scheduled(self, group: Group) -> None:
        """Report that the minimum of a group is placed."""
        self.writer.write(GroupStatusUpdate(group, scheduled=True, attempt=AttemptResult()))

    def report_recovered(self, group: Group, *, still: bool = True) -> None:
        """Report that an evicted group has its minimum again."""
        if not still:
            self.evicted_again.add(key_of(group))
        self.writer.write(GroupRecovered(group, UnitKey("crd", key_of(group))))

    def report_overcommitted(self, name: str) -> None:
        """Report a node on which pods request a CPU more than it has."""
        self.writer.write(OvercommittedNode(name, {"cpu": 1000}, ("default/p",)))

    def status_writes(self) -> list[SentRequest]:
        """Return what was written into statuses."""
        return [write for write in self.api.writes if write.path.endswith("/status")]

    def conditions(self) -> list[dict[str, Any]]:
        """Return the conditions that were written."""
        return [to_builtins(write.body)["status"]["conditions"][0] for write in self.status_writes()]

    def attempts(self) -> list[dict[str, Any]]:
        """Return the attempts that were written, of each write to a group of ours."""
        bodies = (to_builtins(write.body)["status"] for write in self.status_writes())
        return [body["attempt"] for body in bodies if "attempt" in body]

    def messages(self) -> list[str]:
        """Return the messages of the conditions that were written."""
        return [condition["message"] for condition in self.conditions()]

    def events(self) -> list[tuple[str, str, str]]:
        """Return type, reason and note of the events that were written."""
        events = [write.body for write in self.api.writes if "/events" in write.path]
        return [(event["type"], event["reason"], event["note"]) for event in events]

    def _current(self, group: Group) -> tuple[Group, Resource] | None:
        if group.metadata.name == "gone":
            return None
        if group.metadata.name == "native":
            return group, NATIVE_POD_GROUPS_ALPHA
        resource = CPG_POD_GROUPS if isinstance(group, PodGroup) else CPG_COMPOSITE_POD_GROUPS
        known = self.cached_groups.get(key_of(group), group)
        return (known, resource) if known.metadata.uid == group.metadata.uid else None


@pytest.fixture
async def status(request: pytest.FixtureRequest) -> AsyncIterator[StatusFixture]:
    """Run a status writer for as long as the test lasts; the parameter is the settle time in seconds."""
    made = StatusFixture(getattr(request, "param", 0.02))
    work = asyncio.create_task(made.writer.run())
    yield made
    work.cancel()
    await asyncio.wait({work})
