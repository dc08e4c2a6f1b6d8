"""The executor: performs eviction jobs, in an order that shows a new leader how far a job has come.

1. It asks the API server for the deletions of all units with several pods in a dry run, so that no unit is evicted in
   part because one of its pods is refused.
2. It nominates the preemptor's pods. No victim has been touched so far. The machine validates the plan now.
3. It evicts the units that the machine starts. It marks the groups that are disrupted as a whole, then all pods of the
   unit by a condition that names the preemptor, and then deletes these. So after a crash in the middle of a unit, all
   pods that are left of it bear the condition.

Failed requests are retried. A refusal is final. The machine cancels the job then: a unit of which no pod has been
deleted stays, and its conditions are retracted. A unit of which a pod has been deleted is completed.

Two errors are doubtful. A 403 that names a user can be transient while the API server starts, and a 500 may come from
a webhook that cannot be called for a moment. Both count as refusals after some retries, so that no plan waits for ever.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence

from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from cpg_api.core.pod import Pod
from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.forest import Group
from cpg_client.connection import Connection
from cpg_client.errors import ClientError
from cpg_client.resources import Resource
from cpg_client.retrying import WatchBackoff
from cpg_client.stall_guard import StallGuard
from cpg_scheduler.inbox import EventInbox
from cpg_scheduler.observability.metrics import SchedulerMetrics
from cpg_scheduler.ports import Nominator
from cpg_scheduler.preemption.jobs import (
    CancelJob,
    ClearNominations,
    EndJob,
    EvictionEvents,
    EvictionJob,
    EvictUnit,
    ExecutorInstruction,
    Nominate,
    PlanPrepared,
    PodRefused,
    PreparationStopped,
    RetractEvictions,
    StartJob,
    UnitEvicted,
    UnitFailed,
    UnitStalled,
    Victim,
)
from cpg_scheduler.preemption.requests import Act, EvictionRequests, failure_of, is_doubtful, is_final, is_harmless
from cpg_scheduler.preemption.victim_condition import is_victim_of
from cpg_scheduler.write_gate import WriteGate

BACKOFF = WatchBackoff(first=0.25, longest=10.0)
MAX_DOUBTFUL_ERRORS = 8
"""Doubtful errors in a row that are retried; by the backoff, half a minute."""
FAILURES_UNTIL_STALLED = 3


class _Run(Struct, eq=False):
    """A job that is performed."""

    job: EvictionJob
    began: float
    is_cancelled: bool = False


class _Unit(Struct, eq=False):
    """A unit that is evicted; it ``has_lost`` a pod if one has been deleted or had ended, and is completed then."""

    run: _Run
    number: int
    victim: Victim
    has_lost: bool


class EvictionExecutor:
    """Performs the instructions of the preemption machine, each in a task of its own."""

    def __init__(  # noqa: PLR0913 - all that it reports to or waits for, each by its name
        self,
        connection: Connection,
        resource_of: Callable[[Group], Resource | None],
        tasks: asyncio.TaskGroup,
        *,
        inbox: EventInbox,
        gate: WriteGate,
        nominator: Nominator,
        events: EvictionEvents,
        scheduler_name: str,
        metrics: SchedulerMetrics,
        log: FilteringBoundLogger,
        in_flight: int,
        guard: StallGuard,
    ) -> None:
        """Have at most ``in_flight`` requests in flight; keep the gate closed while a job is performed."""
        self._requests = EvictionRequests(connection, resource_of, scheduler_name=scheduler_name)
        self._timing = connection.timing
        self._tasks = tasks
        self._inbox = inbox
        self._gate = gate
        self._nominator = nominator
        self._events = events
        self._metrics = metrics
        self._log = log
        self._stalls = guard
        self._slots = asyncio.Semaphore(in_flight)
        self._runs: dict[int, _Run] = {}
        self._retractions: set[asyncio.Task[None]] = set()
        self._nominating: dict[str, int] = {}
        """The job that is nominating a pod now, by UID; an older job must not clear that nomination."""

    def perform(self, instruction: ExecutorInstruction) -> None:
        """Begin to perform an instruction."""
        match instruction:
            case EvictUnit():
                self._evict(instruction)
            case StartJob():
                self._start(instruction.job)
            case CancelJob():
                self._runs[instruction.job_id].is_cancelled = True
            case EndJob():
                self._end(instruction)
            case Nominate():
                pod = instruction.pod
                self._spawn(self._try(self._nominator.nominate(pod, instruction.node), pod.metadata))
            case ClearNominations():
                self._spawn(self._clear(instruction.pods))
            case RetractEvictions():
                task = self._spawn(self._retract(instruction.pods, instruction.groups))
                self._retractions.add(task)
                task.add_done_callback(self._retractions.discard)

    def _spawn(self, work: Awaitable[object]) -> asyncio.Task[None]:
        """Have something done in a task, with the gate closed."""

        async def run() -> None:
            await work

        self._gate.enter()
        task = self._tasks.create_task(run())
        task.add_done_callback(lambda _: self._gate.leave())
        return task

    # Jobs.

    def _start(self, job: EvictionJob) -> None:
        self._gate.enter()
        self._runs[job.id] = run = _Run(job, self._timing.clock())
        if not job.is_resumed:
            self._nominating.update((pod.metadata.uid, job.id) for pod, _ in job.nominations)
            self._spawn(self._prepare(run))

    def _end(self, instruction: EndJob) -> None:
        run = self._runs.pop(instruction.job_id)
        seconds = self._timing.clock() - run.began
        self._metrics.preemption.executed(run.job.preemptor.kind, seconds, worked=instruction.has_worked)
        self._gate.leave()

    async def _prepare(self, run: _Run) -> None:
        """Ask whether units may be evicted as a whole, then nominate."""
        job = run.job
        whole = (pod for victim in job.victims if len(victim.pods) > 1 for pod in victim.pods)
        dry_runs = [(pod, self._requests.deletion(pod, dry_run=True)) for pod in whole]
        nominations = [(pod, self._nomination(pod, node)) for pod, node in job.nominations]
        is_prepared = await self._all(run, dry_runs) and await self._all(run, nominations) and not run.is_cancelled
        for pod, _ in job.nominations:
            if self._nominating.get(pod.metadata.uid) == job.id:
                del self._nominating[pod.metadata.uid]
        self._inbox.put(PlanPrepared(job.id) if is_prepared else PreparationStopped(job.id))

    async def _all(self, run: _Run, acts: Iterable[tuple[Pod, Act]]) -> bool:
        return all(await asyncio.gather(*(self._insist(run, pod, act) for pod, act in acts)))

    def _nomination(self, pod: Pod, node: str) -> Act:
        return lambda: self._nominator.nominate(pod, node)

    # Units.

    def _evict(self, instruction: EvictUnit) -> None:
        run = self._runs[instruction.job_id]
        unit = _Unit(run, instruction.number, instruction.victim, has_lost=instruction.is_partial)
        self._spawn(self._evict_unit(unit))

    async def _evict_unit(self, unit: _Unit) -> None:
        has_worked = await self._mark(unit) and await self._delete(unit)
        outcome = UnitEvicted if has_worked else UnitFailed
        self._inbox.put(outcome(unit.run.job.id, unit.number))

    async def _mark(self, unit: _Unit) -> bool:
        """Mark all groups and pods of a unit; return whether it is still to be evicted."""
        if self._retractions:  # or an older condition would be written over this one
            await asyncio.wait(self._retractions)
        job, victim = unit.run.job, unit.victim
        await self._try_all(
            (self._requests.mark_group(group, job.preemptor), group.metadata) for group in victim.groups
        )
        unmarked = [pod for pod in victim.pods if not (job.is_resumed and is_victim_of(pod, job.preemptor.uid))]
        marks = ((pod, self._requests.victim_mark(pod, job.preemptor)) for pod in unmarked)
        marked = await asyncio.gather(*(self._insist(unit.run, pod, act, unit=unit) for pod, act in marks))
        if all(marked) and not unit.run.is_cancelled:
            return True
        await self._retract(itertools.compress(unmarked, marked), victim.groups)
        return False

    async def _delete(self, unit: _Unit) -> bool:
        """Delete all pods of a unit; return whether that has worked."""
        victim = unit.victim

        async def delete(pod: Pod) -> bool:
            is_deleted = await self._insist(unit.run, pod, self._requests.deletion(pod), unit=unit, is_begun=True)
            unit.has_lost |= is_deleted
            return is_deleted

        deleted = await asyncio.gather(*map(delete, victim.pods))
        for pod in itertools.compress(victim.pods, deleted):
            preemptor = unit.run.job.preemptor
            self._events.preempted(pod, preemptor, victim.reason, self._requests.reference(preemptor))
        if not all(deleted):
            staying = (pod for pod, is_deleted in zip(victim.pods, deleted, strict=True) if not is_deleted)
            await self._retract(staying, victim.groups)
        return all(deleted)

    # Requests.

    async def _insist(
        self, run: _Run, pod: Pod, act: Act, *, unit: _Unit | None = None, is_begun: bool = False
    ) -> bool:
        """Retry a request until it works or is refused, or its job is cancelled; return whether it has worked.

        Once deletions have ``begun``, no cancellation stops them. A doubtful refusal is reported but retried on, where
        other pods of the unit have been deleted.
        """
        failures = doubts = 0
        while is_begun or not run.is_cancelled:
            async with self._slots:
                await self._stalls.wait_current()
                if run.is_cancelled and not is_begun:
                    return False
                error = await failure_of(act)
            if error is None:
                return True
            doubtful = is_doubtful(error)
            doubts += doubtful
            if doubts == MAX_DOUBTFUL_ERRORS + 1 if doubtful else is_final(error):
                self._log.warning("eviction refused", pod=pod.metadata.key, error=str(error))
                self._inbox.put(PodRefused(run.job.id, pod, error))
                if not (doubtful and unit is not None and unit.has_lost):
                    return False
            failures += 1
            if failures == FAILURES_UNTIL_STALLED and unit is not None:
                self._inbox.put(UnitStalled(run.job.id, unit.number))
            await self._back_off(pod, failures, error)
        return False

    async def _back_off(self, pod: Pod, failures: int, error: ClientError) -> None:
        wait = BACKOFF.wait(failures, error)
        self._log.warning("eviction failed", pod=pod.metadata.key, error=str(error), retry_in=wait)
        await self._timing.sleep(wait)

    async def _clear(self, pods: Sequence[Pod]) -> None:
        await self._try_all(
            (self._requests.clear_nomination(pod), pod.metadata)
            for pod in pods
            if pod.metadata.uid not in self._nominating
        )

    async def _retract(self, pods: Iterable[Pod], groups: Sequence[Group] = ()) -> None:
        """Set the conditions of pods and groups that stay."""
        await self._try_all((self._requests.retract_group(group), group.metadata) for group in groups)
        await self._try_all((self._requests.retraction(pod)(), pod.metadata) for pod in pods)

    async def _try_all(self, writes: Iterable[tuple[Awaitable[object], ObjectMeta]]) -> None:
        await asyncio.gather(*(self._try(write, target) for write, target in writes))

    async def _try(self, write: Awaitable[object], target: ObjectMeta) -> None:
        """Send a write that nothing depends on; an error is logged."""
        async with self._slots:
            await self._stalls.wait_current()
            try:
                await write
            except ClientError as error:
                if not is_harmless(error):
                    self._log.warning("status write failed", about=target.key, error=str(error))
