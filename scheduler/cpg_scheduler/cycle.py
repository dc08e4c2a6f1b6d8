"""The scheduling loop.

One pass of it:

1. **Outcomes.** Take the events of binder and evictor from the inbox.
2. **Requeue.** Take the changes of the cluster from the cache; units that they may help become active.
3. **Pop.** Take the next unit from the queue.
4. **Build.** Build the unit from its groups and pods, or find out why it is inadmissible.
5. **Decide.** The engine places its pods, as far as it can.
6. **Preempt.** Where pods are left, preemption may plan to evict others.
7. **Perform.** Instructions are performed: pods are assumed and bound, others nominated or evicted.
8. **Status.** What was found is reported. When no unit is active, the status of other trees is brought up to date.

All passes run on one task, so every decision sees all decisions before it: pods are assumed before their binds are
sent, and no request delays the next pass.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Collection, Iterable
from functools import partial

from msgspec import Struct
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from cpg_api.scheduling.forest import Group, GroupKey, key_of
from cpg_engine.cycle import decide
from cpg_engine.decisions import Decision
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.verdicts import Finding
from cpg_scheduler.binding.batch import BindBatch, BindDelayed, BindFailed, BindFailure, BindSucceeded
from cpg_scheduler.binding.binder import Binder
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.inadmissible import Inadmissible
from cpg_scheduler.inbox import EventInbox
from cpg_scheduler.instructions import Requeue
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.observability.metrics import Metrics
from cpg_scheduler.observability.overcommit import OvercommittedNode
from cpg_scheduler.preemption.events import BindsFailed, PodsAssumed, PodsPlaced, UnitInadmissible
from cpg_scheduler.preemption.jobs import Executor, PreemptionInstruction
from cpg_scheduler.preemption.machine import PreemptionMachine
from cpg_scheduler.preemption.results import PreemptionResult
from cpg_scheduler.preemption.terminating import OVERDUE_SECONDS
from cpg_scheduler.queueing.hints import ANY_CHANGE, FailedAttempt, failed_attempt, signature_of
from cpg_scheduler.queueing.requeue import Requeuer
from cpg_scheduler.queueing.scheduling_queue import SchedulingQueue
from cpg_scheduler.status.conditions import StatusWriter
from cpg_scheduler.status.events import EventWriter
from cpg_scheduler.status.log_fields import plan_fields
from cpg_scheduler.status.messages.units import inadmissible_text
from cpg_scheduler.status.reasons import REASON_SCHEDULER_ERROR
from cpg_scheduler.status.resync import bound_of, is_theirs, recovered, standing_of
from cpg_scheduler.status.updates import (
    GroupRecovered,
    GroupStatusUpdate,
    PodStatusUpdate,
    StatusUpdate,
    attempt_updates,
    bind_updates,
    error_updates,
    inadmissible_groups,
    inadmissible_updates,
)
from cpg_scheduler.units import SchedulableUnit, build_unit, pending_pods, queue_key_of

MAX_SECONDS_PER_TURN = 0.02
"""Seconds of passes after which the watches and the binds get their turn."""
GATHERING_SECONDS = 0.005
"""Seconds for which changes are gathered after a pass without an attempt: thousands of pods may be terminating."""


class Attempt(Struct, frozen=True):
    """A decision about a unit, and when it was begun."""

    root: UnitKey
    unit: SchedulableUnit
    decision: Decision
    began: float

    @property
    def nodes(self) -> dict[str, str]:
        """Return the nodes of the pods that were placed, by UID."""
        return {bind.uid: bind.node for bind in self.decision.binds}


class SchedulingLoop:
    """Attempts units for as long as there are active ones, and sleeps until there are."""

    def __init__(  # noqa: PLR0913 - it is where all parts come together, each by its name
        self,
        state: ClusterCache,
        queue: SchedulingQueue,
        inbox: EventInbox,
        *,
        binder: Binder,
        executor: Executor,
        preemption: PreemptionMachine,
        status: StatusWriter,
        events: EventWriter,
        metrics: Metrics,
        options: SearchOptions,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        """Wire up; nothing runs yet."""
        self._cache = state
        self._queue = queue
        self._inbox = inbox
        self._requeuer = Requeuer(state, queue)
        self._binder = binder
        self._executor = executor
        self._preemption = preemption
        self._status = status
        self._events = events
        self._metrics = metrics
        self._options = options
        self._clock = clock
        self._log = log
        self._batch_ids = itertools.count()
        self._binding: dict[int, Attempt] = {}
        """The attempts whose binds are in flight, by the id of their batch."""
        self._is_ending = False

    async def run(self) -> None:
        """Run passes, and when attempts have been stopped handle outcomes, until cancelled."""
        if not self._is_ending:
            self.recover()
        while not self._is_ending:
            began, attempts = self._clock(), 0
            while self.run_pass():
                attempts += 1
                if self._clock() - began > MAX_SECONDS_PER_TURN:
                    await asyncio.sleep(0)
                    began = self._clock()
            await self._sleep(0.0 if attempts else GATHERING_SECONDS)
        await self._handle_outcomes_as_they_come()

    def recover(self) -> None:
        """Take up the preemptions of a previous leader."""
        self._perform(self._preemption.recover())

    def stop_attempts(self) -> None:
        """Attempt no more units; the outcomes of what was begun are still handled."""
        self._is_ending = True
        self._inbox.wake()

    def run_pass(self) -> bool:
        """Run one pass; return whether there was anything to do."""
        self._handle_outcomes()
        if self._is_ending:
            return False
        now = self._clock()
        self._requeue(now)
        root = self._requeuer.pop(now)
        if root is None:
            return self._report_shared() or self._resync()
        self._guard(root, self._schedule)
        return True

    async def _sleep(self, gathering: float = 0.0) -> None:
        """Sleep until there are events, and more have been gathered, or until a unit's backoff has ended."""
        wake = self._queue.next_wake()
        timeout = None if wake is None else max(wake - self._clock(), 0.0)
        try:
            async with asyncio.timeout(timeout):
                await self._inbox.wait()
        except TimeoutError:
            return
        if gathering:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(gathering):
                    await self._handle_outcomes_as_they_come()
        self._inbox.clear()

    def _guard(self, root: UnitKey, act: Callable[[UnitKey], None]) -> None:
        """Do something about a unit; a defect of ours in one tree must not stop all others."""
        try:
            act(root)
        except Exception as error:  # noqa: BLE001 - whatever it is
            self._log.error("attempt failed", root=str(root.key), flavour=root.flavour, exc_info=error)
            self._queue.add_unschedulable(root, 1, self._clock(), FailedAttempt(hint=ANY_CHANGE))
            self._metrics.held(REASON_SCHEDULER_ERROR)
            self._metrics.mistaken()
            self._perform(error_updates(pending_pods(self._cache, root), error))

    # 1. Outcomes.

    async def _handle_outcomes_as_they_come(self) -> None:
        """Handle outcomes until cancelled: each may make room for the next eviction."""
        while True:
            await self._inbox.wait_for_event()
            self._handle_outcomes()

    def _handle_outcomes(self) -> None:
        for event in self._inbox.take():
            match event:
                case BindSucceeded(batch=batch):
                    self._on_bound(self._binding.pop(batch.id))
                case BindFailed(batch=batch, failure=failure):
                    self._on_bind_failed(self._binding.pop(batch.id), failure)
                case BindDelayed(batch=batch, failure=failure) if batch.id in self._binding:
                    self._report_unbound(self._binding[batch.id], failure, while_binding=True)
                case BindDelayed():
                    pass
                case _:
                    self._perform(self._preemption.handle(event))

    def _on_bound(self, attempt: Attempt) -> None:
        """Report the groups whose minimum is bound now."""
        root, unit, binds = attempt.root, attempt.unit, attempt.decision.binds
        self._queue.finish_binding(root)
        top = unit.groups[0] if unit.groups else next(iter(unit.pods.values()))
        kind, created = "podgroup" if unit.groups else "pod", top.metadata.creation_timestamp
        self._metrics.placed(kind, len(binds), seconds=self._clock() - attempt.began, created=created)
        self._log.info("bound", root=str(root.key), flavour=root.flavour, binds=len(binds))
        for bind in binds:
            self._events.placed(unit.pods[bind.uid], bind.node)
        self._report_placed(root)
        if len(binds) < len(unit.pods) and self._preemption.could_help(unit):
            # The pods left may preempt, now that no pod of the tree is to be bound in the same pass.
            self._requeue_unit(Requeue(root, at_once=True))

    def _on_bind_failed(self, attempt: Attempt, failure: BindFailure) -> None:
        """Attempt a unit again after some of its binds failed; those that worked pin its domains."""
        root, nodes = attempt.root, attempt.nodes
        self._perform(self._preemption.handle(BindsFailed(root, {uid: nodes[uid] for uid in failure.uids})))
        key = queue_key_of(self._cache, root)
        if key is None:
            self._queue.finish_binding(root)
        elif failure.is_outdated:
            self._queue.activate(key)
        else:
            self._queue.retry_after_backoff(key, len(failure.uids), self._clock())
        self._report_unbound(attempt, failure, while_binding=False)

    # 2. Requeue.

    def _requeue(self, now: float) -> None:
        """Let the changes of the cluster activate the units that they may help."""
        self._perform(self._preemption.handle(self._requeuer.take_events(now)))

    def _requeue_unit(self, requeue: Requeue) -> None:
        """Have a unit attempted at once or after a backoff, if it has pending pods."""
        key = queue_key_of(self._cache, requeue.unit)
        if key is not None and requeue.at_once:
            self._queue.activate(key)
        elif key is not None:
            self._queue.retry_after_backoff(key, 1, self._clock())

    # 3 to 7. An attempt.

    def _schedule(self, root: UnitKey) -> None:
        """Attempt a unit, unless it is inadmissible or shares the result of an equivalent one."""
        unit = build_unit(self._cache, root)
        if isinstance(unit, Inadmissible):
            self._hold(root, unit)
        elif self._preemption.active(root) is not None or not self._queue.join_equivalent(root, signature_of(unit)):
            self._attempt(root, unit)
            self._report_shared()

    def _hold(self, root: UnitKey, unit: Inadmissible) -> None:
        """Park a unit that cannot be attempted, and report why."""
        self._perform(self._preemption.handle(UnitInadmissible(root)))
        self._queue.add_unschedulable(root, len(unit.pods), self._clock(), FailedAttempt())
        text = inadmissible_text(unit.problem)
        self._metrics.held(text.reason)
        self._log.info("held", root=str(root.key), flavour=root.flavour, reason=text.reason, why=text.message)
        self._perform(inadmissible_updates(unit))

    def _attempt(self, root: UnitKey, unit: SchedulableUnit) -> None:
        """Decide about a unit, ask preemption about the pods left, and perform what comes of both."""
        began = self._clock()
        ignored = self._preemption.ignored_by(root, unit)
        decision = decide(self._cache.snapshot, unit.unit, self._options, ignored=ignored)
        attempt, seconds = Attempt(root, unit, decision, began), self._clock() - began
        nodes = attempt.nodes
        left = {uid: pod for uid, pod in unit.pods.items() if uid not in nodes}
        self._perform(self._preemption.handle(PodsPlaced(root, nodes)))
        result = self._preemption.attempt(root, unit, decision, left)
        self._perform(result.instructions)
        counted = self._metrics.attempted(
            decision.explanation.finding,
            seconds,
            waits=result.is_waiting,
            placed=len(nodes),
            left=len(left),
            tries=decision.placements,
        )
        self._log_attempt(attempt, result, seconds)
        self._note_result(attempt, left, result)
        self._perform(self._updates(attempt, left, result))
        self._metrics.ended(counted, self._clock() - began)
        # From here on nothing may fail: assumed pods have to be bound, or their room is lost.
        if nodes:
            self._perform((self._batch(attempt),))
        elif decision.explanation.finding is Finding.PLACED:
            # No pod is to be bound; an earlier leader may have bound them and not have reported it.
            self._report_placed(root)
        self._perform(self._preemption.handle(PodsAssumed(root)))

    def _note_result(self, attempt: Attempt, left: Collection[str], result: PreemptionResult) -> None:
        """Tell the queue the result of an attempt."""
        root, unit = attempt.root, attempt.unit
        if not left:
            self._queue.start_binding(root)
            return
        failure = failed_attempt(self._cache.snapshot, unit, attempt.decision, left)
        self._requeuer.add_unschedulable(root, unit, _with_preemption(failure, unit, result), self._clock())

    def _updates(self, attempt: Attempt, left: Iterable[str], result: PreemptionResult) -> Iterable[StatusUpdate]:
        """Return the status updates of an attempt."""
        unit = attempt.unit
        unplaced = {uid: self._cache.group_of(unit.pods[uid]) for uid in left}
        explanation = attempt.decision.explanation
        return attempt_updates(unit, explanation, unplaced, outlook=result.outlook, nominated=result.nominated)

    def _batch(self, attempt: Attempt) -> BindBatch:
        """Return the binds of an attempt as a batch, for which the attempt is remembered."""
        batch = BindBatch(
            id=next(self._batch_ids),
            root=attempt.root,
            pods={bind.uid: attempt.unit.pods[bind.uid] for bind in attempt.decision.binds},
            nodes=attempt.nodes,
            allocations={bind.uid: bind.allocations for bind in attempt.decision.binds if bind.allocations},
        )
        self._binding[batch.id] = attempt
        return batch

    def _log_attempt(self, attempt: Attempt, result: PreemptionResult, seconds: float) -> None:
        root = attempt.root
        if result.plan is not None:
            fields = plan_fields(self._cache.pods, result.plan)
            self._log.info("preempting", root=str(root.key), flavour=root.flavour, **fields)
        preemption = {"preemption": result.outcome, "victims": result.victims} if result.outcome else {}
        self._log.info(
            "attempt",
            root=str(root.key),
            flavour=root.flavour,
            finding=attempt.decision.explanation.finding.value,
            pods=len(attempt.unit.pods),
            binds=len(attempt.decision.binds),
            milliseconds=round(seconds * 1000, 3),
            **preemption,
        )

    def _perform(self, instructions: Iterable[BindBatch | StatusUpdate | PreemptionInstruction]) -> None:
        """Perform instructions, in order."""
        for instruction in instructions:
            match instruction:
                case BindBatch():
                    self._bind(instruction)
                case Requeue():
                    self._requeue_unit(instruction)
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

    # 8. Status.

    def _report_shared(self) -> bool:
        """Report to one unit what was found for an equivalent one; return whether there was one.

        One after each attempt, and the others when no unit is active: so reporting is never postponed for ever.
        """
        found = self._queue.next_unreported()
        if found is None:
            return False
        root, failure = found
        self._guard(root, lambda known: self._report_failure(known, failure))
        return True

    def _report_failure(self, root: UnitKey, failure: FailedAttempt) -> None:
        unit = build_unit(self._cache, root)
        explanation = failure.explained_for(unit.unit) if isinstance(unit, SchedulableUnit) else None
        if isinstance(unit, SchedulableUnit) and explanation is not None:
            unplaced = {uid: self._cache.group_of(pod) for uid, pod in unit.pods.items()}
            self._perform(attempt_updates(unit, explanation, unplaced, outlook=failure.outlook))

    def _resync(self) -> bool:
        """Bring the status of one tree without pending pods up to date; return whether there was one."""
        root = self._requeuer.pop_settled()
        if root is None:
            return False
        self._guard(root, self._resync_tree)
        return True

    def _resync_tree(self, root: UnitKey) -> None:
        if is_theirs(self._cache, root):
            self._report_recovered(root)
            return
        unit = standing_of(self._cache, root)
        if isinstance(unit, Inadmissible):
            self._perform(inadmissible_groups(unit))
        elif unit is not None:
            explanation = decide(self._cache.snapshot, unit.unit, self._options).explanation
            self._perform(attempt_updates(unit, explanation, {}))
            if explanation.finding is Finding.PLACED:
                self._report_placed(root)

    def _report_placed(self, root: UnitKey) -> Collection[GroupKey]:
        """Report the groups whose minimum is bound, as they are by now, and return their keys."""
        placed = bound_of(self._cache, root, self._cache.binds_in_flight)
        self._perform(GroupStatusUpdate(group, scheduled=True) for group in placed.values())
        self._report_recovered(root)
        return placed.keys()

    def _report_recovered(self, root: UnitKey) -> None:
        """Report the groups that were evicted as a whole and have their minimum again."""
        groups = self._recovered(root)
        self._perform(GroupRecovered(group, partial(self._has_recovered, root, key)) for key, group in groups.items())

    def _recovered(self, root: UnitKey) -> dict[GroupKey, Group]:
        """Return the groups whose condition says that they are evicted as a whole, and that have their minimum."""
        found = {key_of(group): group for group in recovered(self._cache, root, self._preemption.awaits)}
        placed = bound_of(self._cache, root, self._cache.binds_in_flight) if found else {}
        return {key: group for key, group in found.items() if key in placed}

    def _has_recovered(self, root: UnitKey, key: GroupKey) -> bool:
        return key in self._recovered(root)

    def _report_unbound(self, attempt: Attempt, failure: BindFailure, *, while_binding: bool) -> None:
        """Report why pods that have been given a node are not bound to it, or not yet."""
        placed = self._report_placed(attempt.root)
        explanation = attempt.decision.explanation
        self._perform(bind_updates(attempt.unit, explanation, failure, placed, while_binding=while_binding))


def _with_preemption(failure: FailedAttempt, unit: SchedulableUnit, result: PreemptionResult) -> FailedAttempt:
    """Return a failure with what preemption does about it.

    A unit that waits for its victims is equivalent to no other, and any change may help it: room elsewhere as well as
    the end of its victims.
    """
    if result.is_waiting:
        return replace(failure, hint=ANY_CHANGE, signature=None, outlook=result.outlook, retry_after=OVERDUE_SECONDS)
    if result.is_unproven:
        return replace(failure, hint=ANY_CHANGE, outlook=result.outlook)
    hint = failure.hint
    if hint is not None and unit.preempts:
        hint = replace(hint, preempts_below=unit.priority)
    return replace(failure, hint=hint, outlook=result.outlook)
