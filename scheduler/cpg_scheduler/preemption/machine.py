"""Preemption as a state machine: events in, instructions out. It performs nothing.

The planner makes plans, this module keeps at most one preemption per unit, and the executor performs the instructions.
``states.py`` has the states and the transitions. The rules:

1. **When.** A unit preempts if it found no place and evictions could help. If its minimum runs already, it preempts for
   its other pods, unless one of them was placed in this cycle: a unit never binds and preempts in one cycle. ``Never``
   forbids it.
2. **One plan at a time.** While a victim still takes room, no other plan is made, however long the victim takes to
   terminate. The unit is attempted on every event that may help it, and uses room that appears elsewhere.
3. **Room is reserved** for nominated pods. Only units of higher priority ignore a reservation. A pod that is placed on
   the node of another pod of its unit gives its own node to that pod. A failed bind keeps the reservation.
4. **Terminating pods are counted on.** A plan sees the cluster as if all victims of other plans, and all pods that
   terminate for other reasons, had ended. It evicts only what is still missing, and waits for those that it needs.
5. **Overdue pods are not counted on**, because their kubelet may be dead. A plan that waits for an overdue pod is kept
   until there is one that does not need it.
6. **A plan breaks** when one of its nodes is lost or takes its pods no more, when its pods or one of its victim units
   change, when an eviction is refused, when a plan that it counts on breaks, when its victims have ended and it still
   does not fit, and when the validation before its first eviction fails. Units that have not been started stay. Devices
   of victims that have ended are free once they are deallocated; until then the plan is kept.
7. **Only the API remembers.** A new leader waits for the pods that terminate, completes units that were started, and
   plans anew for the rest: see ``recovery``.

**Why this ends.** Take a closed system: evicted pods are created again with their old priority, nodes stay, and no
other scheduler binds. A plan evicts only pods of lower priority. So units of the highest priority are never evicted,
and no unit ignores their reservations: each of them plans once, fits when its victims have ended, and plans no more.
Now suppose that all units above some priority have stopped planning and moving. A unit of that priority cannot lose the
room of its plan: units of equal and lower priority see it taken, and those above take no more. So each such unit makes
at most one more plan, and the next lower priority follows. With finitely many units and priorities, evictions end. Two
units never evict each other: each would need the lower priority.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from cpg_api.core.pod import Pod
from cpg_engine.decisions import Decision
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.preemption.values import Eviction, PlanOutcome, PreemptionPlan
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.cache.events import ClusterEvents
from cpg_scheduler.instructions import Requeue
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.observability.metrics import SchedulerMetrics
from cpg_scheduler.preemption.active import ActivePreemptions
from cpg_scheduler.preemption.assignments import Assignments
from cpg_scheduler.preemption.corrections import Corrections
from cpg_scheduler.preemption.events import BindsFailed, CorrectionDue, PodsAssumed, PodsPlaced, UnitInadmissible
from cpg_scheduler.preemption.evictions import Evictions, JobProgress
from cpg_scheduler.preemption.jobs import (
    CancelJob,
    EvictUnit,
    ExecutorEvent,
    PlanPrepared,
    PodRefused,
    PreemptionInstruction,
    PreparationStopped,
    UnitEvicted,
    UnitFailed,
    UnitStalled,
    Victim,
)
from cpg_scheduler.preemption.lifecycle import Lifecycle
from cpg_scheduler.preemption.outbox import Outbox
from cpg_scheduler.preemption.planner import Planner
from cpg_scheduler.preemption.recovery import Recovery
from cpg_scheduler.preemption.results import (
    NOTHING,
    PreemptionResult,
    forbidden,
    in_vain,
    is_due,
    number_of_victims,
    ongoing,
)
from cpg_scheduler.preemption.states import ActivePreemption, Guard, PreemptionState, Trigger
from cpg_scheduler.preemption.terminating import MAX_GRACE_PERIOD_SECONDS, TerminatingPods
from cpg_scheduler.preemption.validate import (
    ROOM_WITHOUT_EVICTIONS,
    has_unit_changed,
    running_pods,
    takes,
    validate_plan,
)
from cpg_scheduler.units import SchedulableUnit, pending_pods

PreemptionEvent: TypeAlias = (
    ClusterEvents | PodsPlaced | PodsAssumed | BindsFailed | UnitInadmissible | CorrectionDue | ExecutorEvent
)


class PreemptionMachine:
    """The preemptions that are active, and what the events mean for them."""

    def __init__(
        self,
        cache: ClusterCache,
        *,
        metrics: SchedulerMetrics,
        options: SearchOptions,
        max_units_in_flight: int,
        clock: Callable[[], float],
        max_grace_period: float = MAX_GRACE_PERIOD_SECONDS,
        log: FilteringBoundLogger,
    ) -> None:
        """Start with none."""
        self._cache = cache
        self._metrics = metrics
        self._options = options
        self._clock = clock
        self._outbox = Outbox()
        self._active = ActivePreemptions(cache)
        self._terminating = TerminatingPods(cache, clock=clock, max_grace_period=max_grace_period)
        self._evictions = Evictions(max_units_in_flight, self._outbox)
        self._planner = Planner(cache, self._active, self._terminating, options=options, clock=clock)
        self._lifecycle = Lifecycle(cache, self._active, self._terminating, self._evictions, self._outbox, log=log)
        self._recovery = Recovery(cache, self._active, self._lifecycle, self._evictions, self._outbox, log=log)
        self._corrections = Corrections(
            cache, self._active, self._terminating, self._evictions, self._outbox, clock=clock
        )
        self._assignments = Assignments(
            cache, self._active, self._lifecycle, self._planner, self._recovery, self._outbox
        )

    # Questions.

    def active(self, key: UnitKey) -> ActivePreemption | None:
        """Return the preemption that is active for a unit."""
        return self._active.get(key)

    def awaits(self, pod: Pod) -> bool:
        """Return whether a preemption waits for a pod to end."""
        return pod.metadata.uid in self._active.awaited()

    def ignored_by(self, key: UnitKey, unit: SchedulableUnit) -> tuple[str, ...]:
        """Return the reservations that a unit may ignore: its own, and those of lower priority."""
        return self._cache.reservations.ignored_by(key, unit.priority)

    def could_help(self, unit: SchedulableUnit) -> bool:
        """Return whether there is any pod that a unit may evict."""
        return unit.preempts and bool(self._cache.victims.units(unit.priority))

    def explain(self, key: UnitKey, unit: SchedulableUnit) -> PreemptionPlan:
        """Return the plan that would be made for a unit now."""
        return self._planner.plan(key, unit)

    # Events.

    def recover(self) -> list[PreemptionInstruction]:
        """Take up the preemptions of a previous leader, from what the API shows."""
        self._recovery.run()
        return self._instructions()

    def handle(self, event: PreemptionEvent) -> list[PreemptionInstruction]:
        """Take an event; return what is to be performed because of it, in this order."""
        match event:
            case ClusterEvents():
                self._on_cluster_events(event)
            case PodsPlaced():
                self._assignments.on_placed(event.unit, event.nodes)
            case PodsAssumed():
                self._assignments.on_assumed(event.unit)
            case BindsFailed():
                self._assignments.on_binds_failed(event.unit, event.nodes)
            case UnitInadmissible():
                self._end(event.unit)
            case CorrectionDue():
                self._corrections.run()
                self._planner.readmit()
            case _:
                self._on_outcome(event)
        return self._instructions()

    def _on_outcome(self, event: ExecutorEvent) -> None:
        """Take an outcome of the executor."""
        match event:
            case PlanPrepared():
                self._on_plan_prepared(self._evictions.get(event.job_id))
            case PreparationStopped():
                self._drop_job(self._evictions.get(event.job_id))
            case PodRefused():
                self._on_pod_refused(self._evictions.get(event.job_id), event)
            case UnitStalled():
                self._evictions.stall(event.job_id, event.number)
            case UnitEvicted() | UnitFailed():
                has_worked = isinstance(event, UnitEvicted)
                self._evictions.finish(event.job_id, event.number, has_worked=has_worked)

    def attempt(
        self, key: UnitKey, unit: SchedulableUnit, decision: Decision, unplaced: Mapping[str, Pod]
    ) -> PreemptionResult:
        """Return what is done for pods of a unit that were not placed: a plan continues or begins, or there is none."""
        result = self._attempt(key, unit, decision, unplaced)
        instructions = self._instructions()
        return replace(result, instructions=instructions) if instructions else result

    def _instructions(self) -> list[PreemptionInstruction]:
        """Return the instructions for the event at hand, with the units that start now."""
        while (found := self._evictions.next()) is not None:
            self._start_unit(*found)
        return self._outbox.take()

    # Plans.

    def _attempt(
        self, key: UnitKey, unit: SchedulableUnit, decision: Decision, unplaced: Mapping[str, Pod]
    ) -> PreemptionResult:
        before = self._active.get(key)
        waits = before is not None and before.is_reserving and bool(before.awaited)
        if before is not None and waits and (before.has_unstarted or not self._terminating.overdue(before.awaited)):
            return ongoing(before, "Ongoing", len(before.awaited))
        result = self._plan(key, unit, decision, unplaced)
        if before is None or self._active.get(key) is not before:
            return result
        if waits:
            return ongoing(before, "Overdue", len(before.awaited))
        if before.is_reserving and result.is_freed_soon:
            return ongoing(before, "Ongoing", 0)
        self._lifecycle.end(before)
        return result

    def _plan(
        self, key: UnitKey, unit: SchedulableUnit, decision: Decision, unplaced: Mapping[str, Pod]
    ) -> PreemptionResult:
        """Plan, if evictions could help and are allowed, and begin to carry the plan out if there is one."""
        if not is_due(decision, unplaced):
            return NOTHING
        kind = key.key.kind
        if not unit.preempts:
            return forbidden(kind)
        began = self._clock()
        plan = self._planner.plan(key, unit)
        self._metrics.preemption.planned(kind.lower(), plan, self._clock() - began)
        needed = self._planner.needed(key, unit, plan)
        if plan.outcome is not PlanOutcome.PLANNED or not (plan.evictions or needed):
            return in_vain(kind, plan)
        preemption = self._begin(key, unit, plan, needed)
        nominations = [(unplaced[uid], node) for uid, node in preemption.nominations.items()]
        victims = [self._victim(eviction) for eviction in plan.evictions]
        self._evictions.start(preemption.preemptor, victims, preemption=preemption, nominations=nominations)
        return replace(ongoing(preemption, plan.outcome.value, number_of_victims(plan)), plan=plan)

    def _begin(
        self, key: UnitKey, unit: SchedulableUnit, plan: PreemptionPlan, needed: Collection[str]
    ) -> ActivePreemption:
        """Reserve the room of a plan, in place of the plan before."""
        before = self._active.get(key)
        if before is not None:
            self._lifecycle.replace(before, {found.uid for found in plan.nominations})
        preemption = self._planner.start(key, unit, plan, needed)
        self._lifecycle.begin(preemption, Trigger.PLANNED)
        self._cache.budgets.spend(self._cache.pods[uid] for uid in preemption.victims)
        return preemption

    def _victim(self, eviction: Eviction) -> Victim:
        pods = [self._cache.pods[uid] for uid in eviction.unit.pods]
        return Victim(pods, eviction.reason, self._cache.victims.groups_of(eviction.unit))

    # Changes in the cluster.

    def _on_cluster_events(self, events: ClusterEvents) -> None:
        """Note the pods that have ended, and compare the plans with what has changed."""
        self._terminating.note(events.terminating_pods)
        self._terminating.forget(events.removed_pods)
        waiting_no_more = self._active.lose(events.removed_pods & self._active.awaited())
        at_once = {preemption.unit: None for preemption in waiting_no_more}
        for preemption in self._active:
            if preemption.unit in events.changed_units or self._cache.current_unit(preemption.unit) != preemption.unit:
                self._review(preemption)
            if not events.changed_nodes.isdisjoint(preemption.nominations.values()) and not self._holds(preemption):
                self._lifecycle.break_off(preemption, "one of its nodes is gone, or does not take its pods any more")
        at_once.update(dict.fromkeys(self._lifecycle.take_broken()))
        self._outbox.add(*(Requeue(unit, at_once=True) for unit in at_once))

    def _review(self, preemption: ActivePreemption) -> None:
        """Compare a plan with the pods of its preemptor that are pending now."""
        unit = preemption.unit
        pending = {pod.metadata.uid for pod in pending_pods(self._cache, unit)}
        if self._cache.current_unit(unit) != unit or pending.isdisjoint(preemption.nominations):
            self._lifecycle.end(preemption)
        elif pending - preemption.pods or preemption.nominations.keys() - pending:
            self._lifecycle.break_off(preemption, "its pods have changed")

    def _holds(self, preemption: ActivePreemption) -> bool:
        """Return whether its nodes still take their pods, and as many can be placed as when the plan was made."""
        nominations = preemption.nominations
        if not all(takes(self._cache, node, uid) for uid, node in nominations.items()):
            return False
        return self._planner.placeable(preemption) >= min(preemption.placeable, len(nominations))

    def _end(self, key: UnitKey) -> None:
        preemption = self._active.get(key)
        if preemption is not None:
            self._lifecycle.end(preemption)

    # Outcomes of the executor.

    def _on_plan_prepared(self, progress: JobProgress) -> None:
        """Validate a plan before its first eviction, and let its units start."""
        preemption = progress.preemption
        if preemption is None or preemption.state is not PreemptionState.PREPARING:
            self._drop_job(progress)
            return
        progress.is_preparing = False
        problem = validate_plan(self._cache, preemption, self._options)
        if not problem and not self._holds(preemption):
            problem = "it would not make enough room any more"
        if problem:
            at_once = problem == ROOM_WITHOUT_EVICTIONS
            self._lifecycle.break_off(
                preemption, problem, at_once=at_once, trigger=Trigger.PREPARED, guard=Guard.NOT_VALID
            )
            self._evictions.end(progress, has_worked=False)
            return
        preemption.advance(Trigger.PREPARED, _guard(preemption))
        self._evictions.proceed(progress)

    def _drop_job(self, progress: JobProgress) -> None:
        """End a job that was cancelled; what it has nominated is cleared, unless there is another plan for it."""
        nominated = (pod for pod, _ in progress.job.nominations)
        self._outbox.clear_nominations(pod for pod in nominated if pod.metadata.uid not in self._cache.reservations)
        self._evictions.end(progress, has_worked=False)

    def _on_pod_refused(self, progress: JobProgress, event: PodRefused) -> None:
        """Break the plan, and exclude a victim from plans for a while; a refused nomination says nothing about that."""
        uid, preemption = event.pod.metadata.uid, progress.preemption
        is_victim = all(pod.metadata.uid != uid for pod, _ in progress.job.nominations)
        if is_victim:
            self._planner.exclude(uid)
        if preemption is None:
            self._cache.budgets.refund((uid,))
            return
        if not (progress.is_preparing or progress.job.is_resumed):
            self._outbox.add(CancelJob(progress.job.id))
        refused = "evicted" if is_victim else "nominated"
        self._lifecycle.refuse(preemption, f"Pod {event.pod.metadata.key} is not to be {refused}: {event.error}")

    def _start_unit(self, progress: JobProgress, number: int) -> None:
        """Start a unit, unless it is not to be evicted any more, or no pod of it is left."""
        job, planned = progress.job, progress.job.victims[number]
        pods = planned.pods if job.is_resumed else self._pods_to_evict(progress.preemption, planned)
        if not pods:
            self._evictions.finish(job.id, number, has_worked=pods is not None)
            return
        is_partial = job.is_resumed or len(pods) < len(planned.pods)
        self._outbox.add(EvictUnit(job.id, number, replace(planned, pods=pods), is_partial))

    def _pods_to_evict(self, preemption: ActivePreemption | None, planned: Victim) -> Sequence[Pod] | None:
        """Return the pods that are left of a unit, or None if it stays; from here on the unit is completed."""
        if preemption is None or preemption.state is not PreemptionState.EVICTING:
            return None
        uids = [pod.metadata.uid for pod in planned.pods]
        if has_unit_changed(self._cache, uids, preemption.priority):
            self._lifecycle.break_off(preemption, "a victim unit has more pods, or a higher priority", at_once=False)
            return None
        preemption.started.update(uids)
        preemption.advance(Trigger.STARTED, _guard(preemption))
        return running_pods(self._cache, uids)


def _guard(preemption: ActivePreemption) -> Guard:
    return Guard.UNITS_LEFT if preemption.has_unstarted else Guard.ALL_STARTED
