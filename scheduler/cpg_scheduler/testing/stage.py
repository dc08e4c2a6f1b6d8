"""The stage: a scheduler over a fake API server, with a clock that a test moves.

The fake follows the contract of the real one: changes of an object arrive in order, the watch confirms a bind, and a
status that is written comes back as a change of the object.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal, TypeAlias, cast

import structlog
from msgspec.structs import replace

from cpg_api.core.disruption import PodDisruptionBudget
from cpg_api.core.node import Node
from cpg_api.core.pod import Pod, PodCondition
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.core.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload
from cpg_client.errors import ApiError
from cpg_client.stall_guard import StallGuard
from cpg_client.stores import Added, Change, Deleted, Modified
from cpg_engine.decisions import DeviceAllocation, ExtendedAllocation
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.snapshot import new_snapshot
from cpg_scheduler.binding.batch import (
    BindBatch,
    BindEvent,
    BindFailed,
    BindFailure,
    BindProblem,
    BindRefused,
    BindSucceeded,
)
from cpg_scheduler.binding.claim_writes import carried_out
from cpg_scheduler.binding.extended_claims import carried_out_for
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.cache.devices import DeviceObject
from cpg_scheduler.cache.storage import Stored
from cpg_scheduler.cycle import SchedulingLoop
from cpg_scheduler.inbox import EventInbox
from cpg_scheduler.observability.metrics import SchedulerMetrics
from cpg_scheduler.preemption.jobs import (
    EvictionJob,
    EvictUnit,
    PlanPrepared,
    PodRefused,
    PreparationStopped,
    UnitEvicted,
    Victim,
)
from cpg_scheduler.preemption.machine import PreemptionMachine
from cpg_scheduler.preemption.victim_condition import victim_message
from cpg_scheduler.queueing.policy import RequeueBackoff
from cpg_scheduler.queueing.scheduling_queue import SchedulingQueue
from cpg_scheduler.status.resync import TreeStatus
from cpg_scheduler.testing.fakes import FakeBinder, FakeEventWriter, FakeExecutor, FakeStatusWriter

KubeObject: TypeAlias = Pod | Node | Group | Workload | PriorityClass | PodDisruptionBudget | Stored | DeviceObject
CRD, NATIVE = "crd", "native"
TRANSITION_TIME = "2026-01-01T12:00:00Z"
DENIED = BindRefused("default/p", 0, "n1", "denied")
DELETED = "2026-01-02T00:00:00Z"
"""When a terminating pod should have ended."""


class Stage:
    """A cluster of objects and a scheduler for it."""

    def __init__(
        self,
        *objects: KubeObject,
        flavours: Iterable[str] = (NATIVE, CRD),
        namespaces: Collection[str] = (),
        units_in_flight: int = 1,
    ) -> None:
        """Start with these objects, of the CRD flavour; the scheduler acts in the namespaces, by default in all."""
        self.now = 0.0
        self.cache = ClusterCache(new_snapshot(), flavours, SCHEDULER_NAME, namespaces=namespaces)
        self.cache.slices.cpu_clock = lambda: self.now
        self.metrics = SchedulerMetrics(SCHEDULER_NAME, lambda: 0.0)
        self.queue = SchedulingQueue(RequeueBackoff(), self.metrics.count_incoming)
        self.inbox = EventInbox()
        self.binder, self.executor, self.events = FakeBinder(), FakeExecutor(), FakeEventWriter()
        self.evicted: list[str] = []
        self.victims_linger = False
        """Whether evicted pods stay terminating until the test deletes them."""
        self.log = structlog.testing.CapturingLogger()
        self.preemption = PreemptionMachine(
            self.cache,
            metrics=self.metrics,
            options=SearchOptions(detail=True, candidates=1),
            max_units_in_flight=units_in_flight,
            clock=lambda: self.now,
            log=structlog.wrap_logger(self.log, processors=[]),
        )
        self.trees = TreeStatus(self.cache, self.preemption.awaits, SearchOptions(detail=True, candidates=1))
        self.status = FakeStatusWriter(self.trees.has_recovered, self._condition)
        self.seconds_stalled = 0.0
        self.guard = StallGuard(lambda: self.seconds_stalled, asyncio.Event().wait)
        self.loop = SchedulingLoop(
            self.cache,
            self.queue,
            self.inbox,
            binder=self.binder,
            executor=self.executor,
            preemption=self.preemption,
            trees=self.trees,
            status=self.status,
            events=self.events,
            metrics=self.metrics,
            options=SearchOptions(detail=True, candidates=1),
            clock=lambda: self.now,
            guard=self.guard,
            log=structlog.wrap_logger(self.log, processors=[]),
        )
        self._handlers: Mapping[type, Callable[[Change[Any]], None]] = {
            **self.cache.devices.handlers,
            StorageClass: self.cache.storage.on_storage_class,
            CSINode: self.cache.storage.on_csi_node,
        }
        self._objects: dict[tuple[str, str, str], KubeObject] = {}
        self.put(*objects)

    def put(self, *objects: KubeObject, flavour: str = CRD) -> None:
        """Create or change objects."""
        for target in map(_admitted, objects):
            place = (type(target).__name__, flavour, target.metadata.key)
            old = self._objects.get(place)
            self._objects[place] = target
            key = target.metadata.key
            self._notify(target, Added(key, target) if old is None else Modified(key, old, target), flavour)

    def delete(self, *objects: KubeObject, flavour: str = CRD) -> None:
        """Delete objects."""
        for target in objects:
            old = self._objects.pop((type(target).__name__, flavour, target.metadata.key))
            self._notify(old, Deleted(target.metadata.key, old), flavour)

    def pod(self, name: str, namespace: str = "default") -> Pod:
        """Return a pod as the API server has it."""
        return cast("Pod", self._objects["Pod", CRD, f"{namespace}/{name}"])

    def objects(self) -> list[KubeObject]:
        """Return all objects, as the API server has them."""
        return list(self._objects.values())

    def run_passes(self) -> int:
        """Run passes until there is nothing to do; return their number."""
        count = 0
        while self.loop.run_pass():
            count += 1
        return count

    def complete_binds(self, refused: Collection[str] = ()) -> None:
        """Let the binds in flight work, except those of the pods of these names, and the watch confirm them."""
        batches, self.binder.batches = self.binder.batches, []
        for batch in batches:
            failed = frozenset(uid for uid, pod in batch.pods.items() if pod.metadata.name in refused)
            for uid, node in batch.nodes.items():
                if uid in failed or uid not in self.cache.pods:  # the bind of a deleted pod is no failure
                    self.cache.forget(uid)
                    continue
                pod = self.pod(batch.pods[uid].metadata.name, batch.pods[uid].metadata.namespace)
                for one in batch.allocations.get(uid, ()):
                    if isinstance(one, DeviceAllocation):
                        self.put(carried_out(self.cache.devices.claims[one.claim], one, pod))
                    elif isinstance(one, ExtendedAllocation):
                        pod, claim = carried_out_for(pod, one)
                        self.put(claim)
                self.put(replace(pod, spec=replace(pod.spec, node_name=node)))
            self.end_batch(batch, BindFailed(batch, BindFailure(failed, DENIED)) if failed else BindSucceeded(batch))

    def fail_binds(self, problem: BindProblem | None = None, *, is_outdated: bool = False) -> None:
        """Let all binds in flight fail, with a problem to be reported, or because they are outdated."""
        batches, self.binder.batches = self.binder.batches, []
        for batch in batches:
            for uid in batch.nodes:
                self.cache.forget(uid)
            self.end_batch(batch, BindFailed(batch, BindFailure(frozenset(batch.nodes), problem, is_outdated)))

    def end_batch(self, batch: BindBatch, outcome: BindEvent) -> None:
        """Let a batch end, and the loop handle its outcome."""
        self.cache.binds_in_flight.end(batch.id, batch.nodes)
        self.report(outcome)

    def report(self, outcome: object) -> None:
        """Let the loop handle an outcome."""
        self.inbox.put(outcome)
        self.loop._handle_outcomes()  # noqa: SLF001 - without a pass

    def recover(self) -> None:
        """Let the scheduler begin to lead."""
        self.loop.recover()

    def evict(self) -> None:
        """Perform the instructions of the preemption machine, until there are none."""
        executor = self.executor
        while not executor.is_idle:
            cleared, executor.cleared = executor.cleared, []
            retracted, executor.retracted = executor.retracted, []
            nominated, executor.nominated = executor.nominated, []
            for pod in cleared:
                self._nominate(pod, "")
            for pod in retracted:
                self._mark(pod, "False", "")
            for instruction in nominated:
                self._nominate(instruction.pod, instruction.node)
            if executor.units:
                self.evict_unit(executor.units.pop(0))
            elif executor.preparing:
                self.prepare(executor.preparing[0])

    def prepare(self, job: EvictionJob) -> bool:
        """Prepare a job, unless it has been cancelled; return whether its plan is still valid."""
        self.executor.preparing.remove(job)
        if job.id in self.executor.cancelled:
            self.report(PreparationStopped(job.id))
            return False
        self.nominate(job)
        self.report(PlanPrepared(job.id))
        return job.id not in self.executor.failed

    def evict_unit(self, unit: EvictUnit) -> None:
        """Mark and delete the pods of a unit."""
        self.mark_victims(self.executor.jobs[unit.job_id], unit.victim)
        for pod in unit.victim.pods:
            self.evicted.append(pod.metadata.name)
            self.terminate(pod)
        self.report(UnitEvicted(unit.job_id, unit.number))

    def refuse_eviction(self, job_id: int, pod: Pod) -> None:
        """Let the API server refuse the eviction of a pod."""
        self.report(PodRefused(job_id, pod, ApiError(403, "Forbidden", "no")))

    def nominate(self, job: EvictionJob) -> None:
        """Nominate the pods of a job."""
        for pod, node in job.nominations:
            self._nominate(pod, node)

    def mark_victims(self, job: EvictionJob, *victims: Victim) -> None:
        """Write the conditions of victims."""
        for pod in (pod for victim in victims for pod in victim.pods):
            self._mark(pod, "True", victim_message(SCHEDULER_NAME, job.preemptor))

    def terminate(self, pod: Pod) -> None:
        """Delete a pod, or mark it as terminating where victims linger."""
        found = self._objects.get(("Pod", CRD, pod.metadata.key))
        if not isinstance(found, Pod):
            return
        if self.victims_linger:
            self.mark_deleted(found)
        else:
            self.delete(found)

    def mark_deleted(self, pod: Pod, at: str = DELETED, grace: int | None = None) -> None:
        """Mark a pod as terminating, with a grace period in seconds."""
        meta = replace(pod.metadata, deletion_timestamp=at, deletion_grace_period_seconds=grace)
        self.put(replace(pod, metadata=meta))

    def settle(self, seconds: float = 0.0) -> None:
        """Let time pass, then run passes, bind and evict until nothing happens any more."""
        self.now += seconds
        while self.run_passes() or self.binder.batches or not self.executor.is_idle:
            self.complete_binds()
            self.evict()

    def bound(self) -> dict[str, str]:
        """Return the nodes of the bound pods, by name."""
        pods = (target for target in self._objects.values() if isinstance(target, Pod))
        return {pod.metadata.name: pod.spec.node_name for pod in pods if pod.spec.node_name}

    def _notify(self, target: KubeObject, change: Change[KubeObject], flavour: str) -> None:
        match target:
            case Pod():
                self.cache.on_pod(cast("Change[Pod]", change))
            case PriorityClass():
                self.cache.on_priority_class(cast("Change[PriorityClass]", change))
            case Node():
                self.cache.on_node(cast("Change[Node]", change))
            case PodGroup() | CompositePodGroup():
                self.cache.on_group(flavour)(cast("Change[Group]", change))
            case PodDisruptionBudget():
                self.cache.on_budget(cast("Change[PodDisruptionBudget]", change))
            case Workload():
                self.cache.on_workload(flavour)(cast("Change[Workload]", change))
            case PersistentVolumeClaim():
                self.cache.storage.on_claim(cast("Change[PersistentVolumeClaim]", change))
            case PersistentVolume():
                self.cache.storage.on_volume(cast("Change[PersistentVolume]", change))
            case _:
                self._handlers[type(target)](change)

    def _mark(self, pod: Pod, status: Literal["True", "False"], message: str) -> None:
        condition = PodCondition(
            type="DisruptionTarget",
            status=status,
            reason="PreemptionByScheduler",
            message=message,
            last_transition_time=TRANSITION_TIME,
        )
        found = self._objects.get(("Pod", CRD, pod.metadata.key))
        if isinstance(found, Pod):
            self.put(replace(found, status=replace(found.status, conditions=(condition,))))

    def _nominate(self, pod: Pod, node: str) -> None:
        found = self._objects.get(("Pod", CRD, pod.metadata.key))
        if isinstance(found, Pod):
            self.put(replace(found, status=replace(found.status, nominated_node_name=node)))

    def _condition(self, pod: Pod, reason: str, message: str) -> None:
        """Write the condition of a pod, and let the watch show it."""
        now = self.pod(pod.metadata.name, pod.metadata.namespace)
        condition = PodCondition(type="PodScheduled", status="False", reason=reason, message=message)
        self.put(replace(now, status=replace(now.status, conditions=(condition,))))


def _admitted(target: KubeObject) -> KubeObject:
    """Return an object as the API server admits it: a pod has a phase."""
    if isinstance(target, Pod) and not target.status.phase:
        return replace(target, status=replace(target.status, phase="Pending"))
    return target
