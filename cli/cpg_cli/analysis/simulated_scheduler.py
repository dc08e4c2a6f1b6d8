"""The scheduler's own loop over a cluster in memory: binds work at once, and evicted pods are gone at once.

Queue, search, preemption and requeueing are those of a running scheduler. Only the components that would send requests
are others: they change the objects of the cache as the API server's watches would show it.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

import structlog
from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.devices import ResourceClaimStatus
from cpg_api.core.pod import Pod, PodCondition
from cpg_api.core.volumes import PersistentVolumeClaim
from cpg_api.scheduling.forest import GroupKey, key_of
from cpg_api.scheduling.names import DISRUPTION_TARGET, REASON_PREEMPTION
from cpg_cli.analysis.changes import ObjectChange, apply
from cpg_cli.analysis.simulated_devices import released_claims
from cpg_cli.analysis.simulated_storage import bound_claim
from cpg_client.stall_guard import StallGuard
from cpg_engine.decisions import DeviceAllocation, ExtendedAllocation, VolumeAllocation
from cpg_scheduler.binding.batch import BindBatch, BindSucceeded
from cpg_scheduler.binding.claim_writes import carried_out
from cpg_scheduler.binding.extended_claims import carried_out_for
from cpg_scheduler.cycle import SchedulingLoop
from cpg_scheduler.debug.dump import Dump, restored
from cpg_scheduler.inbox import EventInbox
from cpg_scheduler.observability.metrics import SchedulerMetrics
from cpg_scheduler.preemption.jobs import (
    CancelJob,
    ClearNominations,
    EvictionJob,
    EvictUnit,
    ExecutorInstruction,
    Nominate,
    PlanPrepared,
    Preemptor,
    PreparationStopped,
    RetractEvictions,
    StartJob,
    UnitEvicted,
    Victim,
)
from cpg_scheduler.preemption.machine import PreemptionMachine
from cpg_scheduler.preemption.victim_condition import victim_message
from cpg_scheduler.queueing.policy import RequeueBackoff
from cpg_scheduler.queueing.scheduling_queue import SchedulingQueue
from cpg_scheduler.status.resync import TreeStatus
from cpg_scheduler.status.updates import GroupStatusUpdate, PodStatusUpdate, StatusUpdate

UNITS_IN_FLIGHT = 64
"""Victims that are evicted at once, as with the default settings."""
IDLE_WAKE_UPS = 20
"""So often the clock is moved to the end of a backoff although nothing has come of it."""


class ReportedStatus(Struct, frozen=True):
    """The condition that a pod or group would have."""

    reason: str
    message: str


NO_STATUS = ReportedStatus("", "")


class Evicted(Struct, frozen=True):
    """A unit of pods that was evicted, and for which preemptor."""

    preemptor: Preemptor
    victim: Victim


class SimulatedScheduler:
    """A scheduler, and the cluster that it changes."""

    def __init__(self, dump: Dump) -> None:
        """Start with the objects of a dump; nothing is decided yet."""
        dump = replace(dump, options=replace(dump.options, detail=True, candidates=1))  # as messages need it
        self.cache = restored(dump)
        self.nodes: dict[str, str] = {}
        """The pods that were bound, by UID, in order, with their nodes."""
        self.evicted: list[Evicted] = []
        self.preemptors: set[str] = set()
        """The units that have waited for victims, their own or those of another, by the UID of the root."""
        self.pod_status: dict[str, ReportedStatus] = {}
        self.group_status: dict[GroupKey, ReportedStatus] = {}
        self._now = 0.0
        self._batches: list[BindBatch] = []
        self._released: list[DeviceAllocation] = []
        self._jobs: dict[int, EvictionJob] = {}
        self._instructions: list[ExecutorInstruction] = []
        self._cancelled: set[int] = set()
        self._inbox = EventInbox()
        self._queue = SchedulingQueue(RequeueBackoff())
        self.cache.slices.cpu_clock = self._clock
        self._loop = self._wired(dump)
        self._loop.recover()

    def _wired(self, dump: Dump) -> SchedulingLoop:
        log = structlog.wrap_logger(structlog.ReturnLogger(), processors=[])
        metrics = SchedulerMetrics(dump.scheduler_name, self._clock)
        preemption = PreemptionMachine(
            self.cache,
            metrics=metrics,
            options=dump.options,
            max_units_in_flight=UNITS_IN_FLIGHT,
            clock=self._clock,
            log=log,
        )
        self.trees = TreeStatus(self.cache, preemption.awaits, dump.options)
        return SchedulingLoop(
            self.cache,
            self._queue,
            self._inbox,
            binder=self,
            executor=self,
            preemption=preemption,
            trees=self.trees,
            status=self,
            events=self,
            metrics=metrics,
            options=dump.options,
            clock=self._clock,
            guard=StallGuard(lambda: 0.0, asyncio.Event().wait),
            log=log,
        )

    def put(self, *changes: ObjectChange) -> None:
        """Create, change or delete objects."""
        apply(self.cache, changes)

    def labels_of(self, node: str) -> Mapping[str, str] | None:
        """Return the labels of a node, or None if it does not exist."""
        cluster = self.cache.snapshot.ledger.cluster
        row = cluster.row_of.get(node)
        found = cluster.nodes[row] if row is not None else None
        return found.metadata.labels if found is not None else None

    def settle(self) -> None:
        """Schedule until nothing changes, also at the end of the backoffs. Terminating pods end meanwhile."""
        self._run_passes()
        for pod in [pod for pod in self.cache.pods.values() if pod.is_terminating]:
            self.put(ObjectChange(pod, None), *released_claims(pod, self.cache.devices.claims))
        idle = 0
        while idle < IDLE_WAKE_UPS:
            before = len(self.nodes), len(self.evicted)
            self._run_passes()
            idle = idle + 1 if before == (len(self.nodes), len(self.evicted)) else 0
            wake = self._queue.next_wake()
            if wake is None:
                return
            self._now = max(self._now, wake)

    def _run_passes(self) -> None:
        """Run passes and perform what they ask for, until there is nothing to do.

        Each preemption evicts unit after unit, so there are passes between its units, as there are in a cluster.
        """
        while True:
            while self._loop.run_pass():
                pass
            if not (self._batches or self._instructions or self._released):
                return
            released, self._released = self._released, []
            batches, self._batches = self._batches, []
            instructions, self._instructions = self._instructions, []
            for allocation in released:
                claim = self.cache.devices.claims[allocation.claim]
                self.put(ObjectChange(claim, replace(claim, status=ResourceClaimStatus())))
            for batch in batches:
                self._bind(batch)
            for instruction in instructions:
                self._perform(instruction)

    def _clock(self) -> float:
        return self._now

    # What the loop has performed: batches and instructions wait until its pass has ended.

    def start(self, batch: BindBatch) -> None:
        """Begin to bind a batch."""
        self._batches.append(batch)

    def release(self, claims: Sequence[DeviceAllocation], pods: Collection[str]) -> None:  # noqa: ARG002 - as the binder
        """Begin to deallocate claims."""
        self._released.extend(claims)

    def perform(self, instruction: ExecutorInstruction) -> None:
        """Begin to perform an instruction of a preemption."""
        self._instructions.append(instruction)

    def placed(self, pod: Pod, node: str) -> None:
        """Ignore an event: the bind says the same."""

    def write(self, update: StatusUpdate) -> None:
        """Keep the last condition of a pod or group that waits."""
        match update:
            case PodStatusUpdate(pod=pod):
                self.pod_status[pod.metadata.uid] = ReportedStatus(update.reason, update.message)
            case GroupStatusUpdate(group=group, scheduled=False):
                self.group_status[key_of(group)] = ReportedStatus(update.reason, update.message)
            case GroupStatusUpdate(group=group):
                self.group_status.pop(key_of(group), None)

    def _bind(self, batch: BindBatch) -> None:
        for uid, node in batch.nodes.items():
            pod = self.cache.pods[uid]
            for allocation in batch.allocations.get(uid, ()):
                if isinstance(allocation, VolumeAllocation):
                    self._bind_claim(allocation)
                elif isinstance(allocation, ExtendedAllocation):
                    pod, claim = carried_out_for(pod, allocation)
                    self.put(ObjectChange(None, claim))
                else:
                    claim = self.cache.devices.claims[allocation.claim]
                    self.put(ObjectChange(claim, carried_out(claim, allocation, pod)))
            self.nodes[uid] = node
            self.pod_status.pop(uid, None)
            before = replace(pod, spec=replace(pod.spec, node_name=""))
            self.put(ObjectChange(before, replace(pod, spec=replace(pod.spec, node_name=node))))
        self.cache.binds_in_flight.end(batch.id, batch.nodes)
        self._inbox.put(BindSucceeded(batch))

    def _bind_claim(self, allocation: VolumeAllocation) -> None:
        """Bind a claim to the volume that was chosen, or to one that is provisioned."""
        claim = self.cache.storage.objects.get((PersistentVolumeClaim.__name__, allocation.claim))
        if isinstance(claim, PersistentVolumeClaim):
            self.put(*bound_claim(claim, claim, allocation.volume))

    def _perform(self, instruction: ExecutorInstruction) -> None:
        match instruction:
            case StartJob(job):
                self._jobs[job.id] = job
                self.preemptors.add(job.preemptor.uid)
                if not job.is_resumed:
                    self._prepare(job)
            case EvictUnit():
                self._evict(instruction)
            case CancelJob(job_id):
                self._cancelled.add(job_id)
            case Nominate(pod, node):
                self._nominate(pod, node)
            case ClearNominations(pods):
                for pod in pods:
                    self._nominate(pod, "")
            case RetractEvictions(pods):
                for pod in pods:
                    self._mark(pod, "False", "")

    def _prepare(self, job: EvictionJob) -> None:
        if job.id in self._cancelled:
            self._inbox.put(PreparationStopped(job.id))
            return
        for pod, node in job.nominations:
            self._nominate(pod, node)
        self._inbox.put(PlanPrepared(job.id))

    def _evict(self, unit: EvictUnit) -> None:
        job = self._jobs[unit.job_id]
        self.evicted.append(Evicted(job.preemptor, unit.victim))
        for pod in unit.victim.pods:
            self._mark(pod, "True", victim_message(self.cache.scheduler_name, job.preemptor))
            found = self.cache.pods.get(pod.metadata.uid)
            if found is not None:
                self.put(ObjectChange(found, None), *released_claims(found, self.cache.devices.claims))
        self._inbox.put(UnitEvicted(unit.job_id, unit.number))

    def _nominate(self, pod: Pod, node: str) -> None:
        self._change(pod, lambda found: replace(found, status=replace(found.status, nominated_node_name=node)))

    def _mark(self, pod: Pod, status: str, message: str) -> None:
        condition = PodCondition(type=DISRUPTION_TARGET, status=status, reason=REASON_PREEMPTION, message=message)
        self._change(pod, lambda found: replace(found, status=replace(found.status, conditions=(condition,))))

    def _change(self, pod: Pod, change: Callable[[Pod], Pod]) -> None:
        found = self.cache.pods.get(pod.metadata.uid)
        if found is not None:
            self.put(ObjectChange(found, change(found)))
