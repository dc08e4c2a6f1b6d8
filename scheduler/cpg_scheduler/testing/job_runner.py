"""An executor over a fake connection, with an eviction job."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import structlog
from msgspec.structs import replace

from cpg_api.core.pod import Pod, PodCondition, PodStatus
from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.forest import GroupKey
from cpg_client.connection import Connection
from cpg_client.resources import CPG_POD_GROUPS, Resource
from cpg_client.stall_guard import StallGuard
from cpg_client.timing import Timing
from cpg_engine.preemption.values import EvictionReason
from cpg_engine.testing.builders import metadata, pod, pod_group
from cpg_scheduler.inbox import EventInbox
from cpg_scheduler.observability.metrics import SchedulerMetrics
from cpg_scheduler.preemption.evictions import Evictions, JobProgress
from cpg_scheduler.preemption.executor import EvictionExecutor
from cpg_scheduler.preemption.jobs import (
    CancelJob,
    EvictUnit,
    ExecutorEvent,
    ExecutorInstruction,
    PlanPrepared,
    PodRefused,
    Preemptor,
    PreparationStopped,
    UnitEvicted,
    UnitFailed,
    UnitStalled,
    Victim,
)
from cpg_scheduler.preemption.outbox import Outbox
from cpg_scheduler.testing.fake_connection import FakeConnection
from cpg_scheduler.write_gate import WriteGate

TREE = pod_group("train", meta=metadata("train", namespace="ml"))
ALL_GROUP = pod_group("whole", all_=True)
PREEMPTOR = Preemptor(GroupKey("PodGroup", "ml", "train"), "uid-train", TREE)
VICTIM_MESSAGE = "cpg-scheduler: preempting to accommodate a higher priority podgroup ml/train uid-train"
REASON = EvictionReason(preemptor=PREEMPTOR.key, node="n1", resource="cpu", amount=1000)
IN_FLIGHT = 9
Related = tuple[Resource, ObjectMeta] | None


async def no_time(_: float) -> None:
    """Wait for nothing."""
    await asyncio.sleep(0)


class WireNominator:
    """Nominates through a connection."""

    def __init__(self, api: FakeConnection) -> None:
        self._api = api

    async def nominate(self, pod: Pod, node: str) -> None:
        """SentRequest the nomination alone."""
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}/status"
        await self._api.patch(path, {"status": {"nominatedNodeName": node}})


class JobRunner:
    """An executor and a job for two victims; units start as the machine starts them, but unvalidated."""

    def __init__(self, api: FakeConnection | None = None, *, is_resumed: bool = False) -> None:
        self.api = api or FakeConnection(Timing(sleep=no_time))
        self.metrics = SchedulerMetrics("", lambda: 0.0)
        self.log = structlog.testing.CapturingLogger()
        self.inbox, self.gate, self.outbox = EventInbox(), WriteGate(), Outbox()
        self.evictions = Evictions(IN_FLIGHT, self.outbox)
        self.is_resumed = is_resumed
        self.is_valid = True
        self.seconds_stalled = 0.0
        self.guard = StallGuard(lambda: self.seconds_stalled, asyncio.Event().wait)
        self.refused: list[str] = []
        self.victims = [
            Victim([pod(name, node_name="n1")], REASON, groups) for name, groups in (("v0", [ALL_GROUP]), ("v1", []))
        ]
        self.nominations = [] if is_resumed else [(pod("p0"), "n1")]
        self.pods_to_evict: Callable[[Victim], Sequence[Pod] | None] = lambda victim: victim.pods
        self.events: list[tuple[str, Preemptor, EvictionReason | None, Related]] = []
        self.tasks: asyncio.TaskGroup
        self.executor: EvictionExecutor

    def preempted(self, pod: Pod, preemptor: Preemptor, reason: EvictionReason | None, related: Related) -> None:
        """Keep an event."""
        self.events.append((pod.metadata.name, preemptor, reason, related))

    async def run(self, *instructions: ExecutorInstruction, job: bool = True) -> None:
        """Perform instructions, then the job, to the end."""
        async with asyncio.TaskGroup() as self.tasks:
            self.executor = EvictionExecutor(
                cast("Connection", self.api),
                lambda _: CPG_POD_GROUPS,
                self.tasks,
                inbox=self.inbox,
                gate=self.gate,
                nominator=WireNominator(self.api),
                events=self,
                scheduler_name="cpg-scheduler",
                metrics=self.metrics,
                log=structlog.wrap_logger(self.log, processors=[]),
                in_flight=IN_FLIGHT,
                guard=self.guard,
            )
            for instruction in instructions:
                self.executor.perform(instruction)
            if job:
                self.evictions.start(
                    PREEMPTOR,
                    self.victims,
                    preemption=None,
                    nominations=self.nominations,
                    is_resumed=self.is_resumed,
                )
            await self._drive()
            await self.gate.wait_open()

    async def _drive(self) -> None:
        while True:
            while (found := self.evictions.next()) is not None:
                self._start(*found)
            for instruction in self.outbox.take():
                self.executor.perform(cast("ExecutorInstruction", instruction))
            if not len(self.evictions):
                return
            await self.inbox.wait_for_event()
            for event in self.inbox.take():
                self._handle(event)

    def _start(self, progress: JobProgress, number: int) -> None:
        job, victim = progress.job, progress.job.victims[number]
        pods = None if self.refused and not job.is_resumed else self.pods_to_evict(victim)
        if not pods:
            self.evictions.finish(job.id, number, has_worked=pods is not None)
            return
        is_partial = job.is_resumed or len(pods) < len(victim.pods)
        self.outbox.add(EvictUnit(job.id, number, replace(victim, pods=pods), is_partial))

    def _handle(self, event: ExecutorEvent) -> None:
        progress = self.evictions.get(event.job_id)
        match event:
            case PlanPrepared() if self.is_valid:
                self.evictions.proceed(progress)
            case PlanPrepared() | PreparationStopped():
                self.outbox.clear_nominations(one for one, _ in self.nominations)
                self.evictions.end(progress, has_worked=False)
            case PodRefused():
                self.refused.append(event.pod.metadata.name)
                if not self.is_resumed:
                    self.outbox.add(CancelJob(event.job_id))
            case UnitStalled():
                self.evictions.stall(event.job_id, event.number)
            case UnitEvicted() | UnitFailed():
                has_worked = isinstance(event, UnitEvicted)
                self.evictions.finish(event.job_id, event.number, has_worked=has_worked)

    def unite(self) -> None:
        """Make both victims one unit."""
        pods = [victim.pods[0] for victim in self.victims]
        self.victims = [Victim(pods, REASON, [ALL_GROUP])]

    def deleted(self) -> list[str]:
        """Return the pods that were to be deleted, dry runs aside."""
        deletions = (one for one in self.api.writes if one.method == "DELETE" and "dryRun" not in one.body)
        return [write.path.rsplit("/")[-1] for write in deletions]

    def conditions(self, name: str) -> list[dict[str, Any]]:
        """Return the conditions that were written on a pod."""
        path = f"pods/{name}/status"
        found = (write.body["status"].get("conditions", ()) for write in self.api.writes if write.path.endswith(path))
        return [one for conditions in found for one in conditions]

    def marks(self, name: str = "whole") -> list[str]:
        """Return the status of the conditions that were written on a group."""
        found = (one for one in self.api.writes if one.path.endswith(f"podgroups/{name}/status"))
        return [one.body["status"]["conditions"][0].status for one in found]

    def sent(self) -> list[str]:
        """Return what was sent, in short."""
        return [f"{write.method} {write.path.rsplit('namespaces/default/')[-1]}" for write in self.api.writes]


def marked(name: str) -> Pod:
    """Return a pod with the condition of a victim."""
    condition = PodCondition(
        type="DisruptionTarget", status="True", reason="PreemptionByScheduler", message=VICTIM_MESSAGE
    )
    return replace(pod(name, node_name="n1"), status=PodStatus(conditions=(condition,)))
