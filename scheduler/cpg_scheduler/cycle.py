"""The scheduling loop.

One pass of it:

1. **Outcomes.** Take the events of binder and executor from the inbox.
2. **Requeue.** Take the changes of the cluster from the cache; units that they may help become active.
3. **Pop.** Take the next unit from the queue.
4. **Build.** Build the unit from its groups and pods, or find out why it is inadmissible.
5. **Decide.** The engine places its pods, as far as it can.
6. **Preempt.** For pods that are not placed, preemption may plan evictions.
7. **Perform.** Instructions are performed: pods are assumed and bound, nominated or evicted, conditions are written.
8. **Resync.** When no unit is active, the status of other units and trees is brought up to date.

All passes run on one task, so every decision sees all decisions before it: pods are assumed before their binds are
sent, and no request delays the next pass. A long pass is suspended between two steps of a search (``time_slices``); the
cache does not change meanwhile.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from cpg_api.core.pod import Pod
from cpg_client.stall_guard import StallGuard
from cpg_engine.cycle import could_place, decide
from cpg_engine.decisions import DeviceAllocation
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.verdicts import Finding
from cpg_scheduler.attempt import Attempt, attempt_of, bind_batch, failure_of, log_fields, status_updates
from cpg_scheduler.binding.batch import BindBatch, BindDelayed, BindFailed, BindFailure, BindSucceeded
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.expected_reservations import ExpectedReservations
from cpg_scheduler.inadmissible import Inadmissible
from cpg_scheduler.inbox import EventInbox
from cpg_scheduler.instructions import Requeue, ResyncTree
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.observability.metrics import SchedulerMetrics
from cpg_scheduler.observability.overcommit import OvercommittedNode
from cpg_scheduler.preemption.events import BindsFailed, PodsAssumed, PodsPlaced, UnitInadmissible
from cpg_scheduler.preemption.jobs import Executor, PreemptionInstruction
from cpg_scheduler.preemption.machine import PreemptionMachine
from cpg_scheduler.preemption.results import PreemptionResult
from cpg_scheduler.queueing.hints import ANY_CHANGE, FailedAttempt, signature_of
from cpg_scheduler.queueing.requeue import Requeuer
from cpg_scheduler.queueing.scheduling_queue import SchedulingQueue
from cpg_scheduler.status.log_fields import plan_fields
from cpg_scheduler.status.messages.units import inadmissible_text
from cpg_scheduler.status.reasons import REASON_SCHEDULER_ERROR
from cpg_scheduler.status.resync import TreeStatus
from cpg_scheduler.status.updates import (
    GroupRecovered,
    GroupStatusUpdate,
    PodStatusUpdate,
    StatusUpdate,
    bind_updates,
    error_updates,
    inadmissible_updates,
)
from cpg_scheduler.units import SchedulableUnit, build_unit, groups_of, pending_pods, queue_key_of

MAX_SECONDS_PER_TURN = 0.02
"""Seconds of passes after which the watches and the binds get their turn."""
MAX_SECONDS_OF_OTHERS = 0.05
"""The longest turn of the watches and the binds; it is a tenth of a long attempt."""
GATHERING_SECONDS = 0.005
"""Seconds for which changes are gathered after a pass without an attempt: thousands of pods may be terminating."""


class BatchBinder(Protocol):
    """What binds pods; the outcome of each batch arrives in the inbox."""

    def start(self, batch: BindBatch) -> None:
        """Begin to bind the pods of a batch."""

    def release(self, claims: Sequence[DeviceAllocation], pods: Collection[str]) -> None:
        """Begin to deallocate claims that none but these pods, by UID, use."""


class StatusReporter(Protocol):
    """What writes conditions."""

    def write(self, update: StatusUpdate) -> None:
        """Write an update as soon as there is time."""


class PlacementReporter(Protocol):
    """What writes events about pods that were bound."""

    def placed(self, pod: Pod, node: str) -> None:
        """Write that a pod was bound to a node."""


class SchedulingLoop:
    """Attempts units for as long as there are active ones, and sleeps until there are."""

    def __init__(  # noqa: PLR0913 - all parts come together here, each by its name
        self,
        cache: ClusterCache,
        queue: SchedulingQueue,
        inbox: EventInbox,
        *,
        binder: BatchBinder,
        executor: Executor,
        preemption: PreemptionMachine,
        trees: TreeStatus,
        status: StatusReporter,
        events: PlacementReporter,
        metrics: SchedulerMetrics,
        options: SearchOptions,
        clock: Callable[[], float],
        guard: StallGuard,
        log: FilteringBoundLogger,
    ) -> None:
        """Wire up; nothing runs yet."""
        self._cache = cache
        self._slices = cache.slices
        self._queue = queue
        self._inbox = inbox
        self._expected = ExpectedReservations(cache, options)
        self._requeuer = Requeuer(cache, queue)
        self._binder = binder
        self._executor = executor
        self._preemption = preemption
        self._trees = trees
        self._status = status
        self._events = events
        self._metrics = metrics
        self._options = options
        self._clock = clock
        self._stalls = guard
        self._log = log
        self._batch_ids = itertools.count()
        self._binding: dict[int, Attempt] = {}
        """The attempts with binds in flight, by the id of their batch."""
        self._is_ending = False
        self._passes = 0
        """The passes so far in which there was anything to do."""

    async def run(self) -> None:
        """Run passes, and when attempts have been stopped handle outcomes, until cancelled."""
        if not self._is_ending:
            await self._slices.run(self.recover)
        while not self._is_ending:
            await self._stalls.wait_current()
            before = self._passes
            if seconds := await self._slices.run(self._run_turn):
                await asyncio.sleep(_turn_of_others(seconds))
            elif not self._stalls.is_stalled:
                await self._sleep(0.0 if self._passes > before else GATHERING_SECONDS)
        while True:
            await self._inbox.wait_for_event()
            await self._slices.run(self._handle_outcomes)

    def _run_turn(self) -> float:
        """Run passes for one turn; return its seconds, or zero where there is nothing more to do."""
        began, suspended = self._clock(), self._slices.suspended_seconds
        while self.run_pass():
            self._passes += 1
            seconds = self._clock() - began
            if seconds > MAX_SECONDS_PER_TURN:
                return seconds - (self._slices.suspended_seconds - suspended)
        return 0.0

    def recover(self) -> None:
        """Take up the preemptions of a previous leader, and its reservations for pods that do not exist yet."""
        self._perform(self._preemption.recover())
        for key in self._expected.units():
            self._guard(key, self._expected.recover)

    def stop_attempts(self) -> None:
        """Attempt no more units; the outcomes of what was begun are still handled."""
        self._is_ending = True
        self._inbox.wake()

    def run_pass(self) -> bool:
        """Run one pass; return whether there was anything to do. After a stall nothing is decided on old data."""
        self._handle_outcomes()
        if self._is_ending or self._stalls.is_stalled:
            return False
        now = self._clock()
        self._expected.expire()
        self._requeue(now)
        if self._requeuer.is_behind:
            return True
        key = self._requeuer.pop(now)
        if key is None:
            return self._requeuer.end_backoff(self._could_place) or self._report_shared() or self._resync()
        self._guard(key, self._schedule)
        return True

    async def _sleep(self, gathering: float = 0.0) -> None:
        """Sleep until there are events, and more have been gathered, or until a unit's backoff has ended."""
        wake, expiry = self._queue.next_wake(), self._expected.seconds_left()
        timeout = expiry if wake is None else max(wake - self._clock(), 0.0)
        if timeout is not None and expiry is not None:
            timeout = min(timeout, expiry)
        try:
            async with asyncio.timeout(timeout):
                await self._inbox.wait()
        except TimeoutError:
            return
        until = asyncio.get_running_loop().time() + gathering
        with contextlib.suppress(TimeoutError):
            while gathering:
                async with asyncio.timeout_at(until):
                    await self._inbox.wait_for_event()
                # Each outcome may make room for the next eviction.
                await self._slices.run(self._handle_outcomes)
        self._inbox.clear()

    def _guard(self, key: UnitKey, act: Callable[[UnitKey], None]) -> None:
        """Act on a unit; a defect of ours in one tree must not stop all others."""
        try:
            act(key)
        except Exception as error:  # noqa: BLE001 - whatever it is
            self._log.error("attempt failed", root=str(key.key), flavour=key.flavour, exc_info=error)
            self._queue.add_unschedulable(key, 1, self._clock(), FailedAttempt(hint=ANY_CHANGE))
            self._metrics.held(REASON_SCHEDULER_ERROR)
            self._metrics.mistaken()
            self._perform(error_updates(pending_pods(self._cache, key), groups_of(self._cache, key), error))

    # 1. Outcomes.

    def _handle_outcomes(self) -> None:
        for event in self._inbox.take():
            match event:
                case BindSucceeded(batch=batch):
                    self._on_bound(self._binding.pop(batch.id))
                case BindFailed(batch=batch, failure=failure):
                    self._on_bind_failed(self._binding.pop(batch.id), failure)
                case BindDelayed(batch=batch, failure=failure):
                    self._report_unbound(self._binding[batch.id], failure, while_binding=True)
                case _:
                    self._perform(self._preemption.handle(event))
            if isinstance(event, BindSucceeded | BindFailed) and not self._trees.is_placed(event.batch.unit):
                # The tree may have changed while binds were in flight, and was not resynced then.
                self._requeuer.resync_later(event.batch.unit)

    def _on_bound(self, attempt: Attempt) -> None:
        """Report the groups that have their minimum now."""
        key, unit, nodes = attempt.key, attempt.unit, attempt.nodes
        self._queue.finish_binding(key)
        top = unit.groups[0] if unit.groups else next(iter(unit.pods.values()))
        kind, created = "podgroup" if unit.groups else "pod", top.metadata.creation_timestamp
        self._metrics.placed(kind, len(nodes), seconds=self._clock() - attempt.began, created=created)
        self._log.info("bound", root=str(key.key), flavour=key.flavour, binds=len(nodes))
        for uid, node in nodes.items():
            self._events.placed(unit.pods[uid], node)
        self._perform(self._trees.placed(key, attempt.number))
        if attempt.unplaced and self._preemption.could_help(unit):
            # The other pods may preempt, now that no pod of the tree is to be bound in the same pass.
            self._requeue_unit(Requeue(key, at_once=True))

    def _on_bind_failed(self, attempt: Attempt, failure: BindFailure) -> None:
        """Attempt a unit again after some of its binds failed; those that worked pin its domains."""
        key, nodes = attempt.key, attempt.nodes
        self._perform(self._preemption.handle(BindsFailed(key, {uid: nodes[uid] for uid in failure.uids})))
        queue_key = queue_key_of(self._cache, key)
        if queue_key is None:
            self._queue.finish_binding(key)
        elif failure.is_outdated:
            self._queue.activate(queue_key)
        else:
            self._queue.retry_after_backoff(queue_key, len(failure.uids), self._clock())
        self._report_unbound(attempt, failure, while_binding=False)

    def _report_unbound(self, attempt: Attempt, failure: BindFailure, *, while_binding: bool) -> None:
        """Report why pods that have been given a node are not bound to it, or not yet.

        Groups are concerned that would have their minimum with these pods. The others are placed, or lack something
        else, which an attempt or a resync reports.
        """
        key, number = attempt.key, attempt.number
        self._perform(self._trees.placed(key, number))
        concerned = self._trees.placed_groups(key, failure.uids).keys() - self._trees.placed_groups(key).keys()
        self._perform(bind_updates(attempt.unit, failure, concerned, number=number, while_binding=while_binding))

    # 2. Requeue.

    def _requeue(self, now: float) -> None:
        """Let the changes of the cluster activate the units that they may help."""
        events = self._requeuer.take_events(now)
        self._perform(self._preemption.handle(events))
        self._expected.review(events.changed_units)

    def _requeue_unit(self, requeue: Requeue) -> None:
        """Have a unit attempted at once or after a backoff, if it has pending pods."""
        queue_key = queue_key_of(self._cache, requeue.unit)
        if queue_key is not None and requeue.at_once:
            self._queue.activate(queue_key)
        elif queue_key is not None:
            self._queue.retry_after_backoff(queue_key, 1, self._clock())

    def _could_place(self, key: UnitKey, unit: SchedulableUnit) -> bool:
        """Return whether there may be room for a unit in backoff; a preemption that is active is waited for."""
        if self._preemption.active(key) is not None:
            return False
        ignored = self._preemption.ignored_by(key, unit)
        return could_place(self._cache.snapshot, unit.unit, self._options, ignored=ignored)

    # 4. Build.

    def _schedule(self, key: UnitKey) -> None:
        """Attempt a unit, unless it is inadmissible or shares the result of an equivalent one."""
        began, placed = self._slices.work_seconds(), 0
        try:
            unit = build_unit(self._cache, key)
            if isinstance(unit, Inadmissible):
                self._hold(key, unit)
            elif self._preemption.active(key) is not None or not self._queue.join_equivalent(key, signature_of(unit)):
                placed = self._attempt(key, unit)
                self._report_shared()
        finally:
            self._queue.charge(key, self._slices.work_seconds() - began, self._clock(), placed=placed)

    def _hold(self, key: UnitKey, unit: Inadmissible) -> None:
        """Let a unit wait that cannot be attempted, and report why."""
        self._perform(self._preemption.handle(UnitInadmissible(key)))
        self._queue.add_unschedulable(key, len(unit.pods), self._clock(), FailedAttempt())
        text = inadmissible_text(unit.problem)
        self._metrics.held(text.reason)
        self._log.info("held", root=str(key.key), flavour=key.flavour, reason=text.reason, why=text.message)
        self._perform(inadmissible_updates(unit, self._queue.attempts(key)))

    # 5 and 6. Decide and preempt.

    def _attempt(self, key: UnitKey, unit: SchedulableUnit) -> int:
        """Decide about a unit, ask preemption about the pods that are not placed, and perform what follows.

        Return for how many pods there is a place, or will be one after the evictions of a new plan.
        """
        attempt = self._decide(key, unit)
        self._perform(self._preemption.handle(PodsPlaced(key, attempt.nodes)))
        if attempt.decision.released:
            # The unit is attempted again when the claims show that their devices are free: nothing is evicted for it.
            self._binder.release(attempt.decision.released, unit.pods.keys())
            preemption = PreemptionResult()
        else:
            preemption = self._preemption.attempt(key, unit, attempt.decision, attempt.unplaced)
        self._perform(preemption.instructions)
        self._expected.reserve(attempt)
        result = self._record(attempt, preemption)
        if attempt.unplaced:
            self._requeuer.add_unschedulable(key, unit, failure_of(self._cache, attempt, preemption), self._clock())
        else:
            self._queue.start_binding(key)
        self._perform(status_updates(self._cache, attempt, preemption))
        self._metrics.ended(result, self._clock() - attempt.began)
        # From here on nothing may fail: assumed pods have to be bound, or their room is lost.
        if attempt.nodes:
            self._perform((self._batch(attempt),))
        elif attempt.decision.explanation.finding is Finding.PLACED:
            # No pod is to be bound; an earlier leader may have bound them and not have reported it.
            self._perform(self._trees.placed(key, attempt.number))
        self._perform(self._preemption.handle(PodsAssumed(key)))
        return len(attempt.nodes) + (len(preemption.nominated) if preemption.plan is not None else 0)

    def _decide(self, key: UnitKey, unit: SchedulableUnit) -> Attempt:
        began = self._clock()
        ignored = self._preemption.ignored_by(key, unit)
        decision = decide(self._cache.snapshot, unit.unit, self._options, ignored=ignored)
        number = self._queue.attempts(key) + 1
        return attempt_of(key, unit, decision, began=began, ended=self._clock(), number=number)

    def _record(self, attempt: Attempt, preemption: PreemptionResult) -> str:
        """Log and count an attempt; return its result, by which metrics count its end."""
        if preemption.plan is not None:
            fields = plan_fields(self._cache.pods, preemption.plan)
            self._log.info("preempting", root=str(attempt.key.key), flavour=attempt.key.flavour, **fields)
        self._log.info("attempt", **log_fields(attempt, preemption))
        return self._metrics.attempted(
            attempt.decision.explanation.finding,
            attempt.seconds,
            waits=preemption.is_waiting,
            placed=len(attempt.nodes),
            left=len(attempt.unplaced),
            tries=attempt.decision.placements,
        )

    def _batch(self, attempt: Attempt) -> BindBatch:
        """Return the binds of an attempt; the attempt is remembered until their outcome is known."""
        batch = bind_batch(attempt, next(self._batch_ids))
        self._binding[batch.id] = attempt
        return batch

    # 7. Perform.

    def _perform(self, instructions: Iterable[BindBatch | StatusUpdate | PreemptionInstruction]) -> None:
        """Perform instructions, in order."""
        for instruction in instructions:
            match instruction:
                case BindBatch():
                    self._bind(instruction)
                case Requeue():
                    self._requeue_unit(instruction)
                case ResyncTree(tree=tree):
                    self._requeuer.resync_later(tree)
                case PodStatusUpdate() | GroupStatusUpdate() | GroupRecovered() | OvercommittedNode():
                    self._status.write(instruction)
                case _:
                    self._executor.perform(instruction)

    def _bind(self, batch: BindBatch) -> None:
        """Assume the pods of a batch, and have them bound."""
        for uid, node in batch.nodes.items():
            self._cache.assume(uid, node, batch.allocations.get(uid, ()))
        self._cache.binds_in_flight.begin(batch.id, batch.nodes)
        self._binder.start(batch)

    # 8. Resync.

    def _report_shared(self) -> bool:
        """Report to one unit what was found for an equivalent one; return whether there was one.

        One after each attempt, and the others when no unit is active: so reporting is never postponed for ever.
        """
        found = self._queue.next_unreported()
        if found is None:
            return False
        unit, failure = found
        self._guard(unit, lambda key: self._perform(self._trees.shared(key, failure, self._queue.attempts(key))))
        return True

    def _resync(self) -> bool:
        """Bring the status of one tree up to date, as far as no attempt does; return whether there was one."""
        tree = self._requeuer.pop_settled()
        if tree is None:
            return False
        self._guard(tree, lambda key: self._perform(self._trees.resync(key)))
        return True


def _turn_of_others(seconds: float) -> float:
    """Return how long the watches and the binds have their turn after passes of so many seconds.

    One step of the event loop is enough after short ones. It reads one change or none, so after a long attempt there
    are more steps, or units that arrive would not be seen for as long as there are such attempts.
    """
    return min(0.1 * seconds, MAX_SECONDS_OF_OTHERS) if seconds > 2 * MAX_SECONDS_PER_TURN else 0.0
