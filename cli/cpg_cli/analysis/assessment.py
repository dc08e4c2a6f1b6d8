"""What the scheduler would find for a unit if it attempted it now, and what preemption would do."""

from collections.abc import Sequence

from msgspec import Struct

from cpg_cli.cluster.offline_scheduler import OfflineScheduler
from cpg_engine.decisions import Decision
from cpg_engine.preemption.values import PlanOutcome, PreemptionPlan, VictimUnit
from cpg_engine.verdicts import Finding
from cpg_scheduler.inadmissible import Inadmissible
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.preemption.results import is_due
from cpg_scheduler.preemption.states import ActivePreemption
from cpg_scheduler.status.messages.preemption import eviction_message
from cpg_scheduler.units import SchedulableUnit, build_unit

HIGHEST_PRIORITY = 1 << 31
"""Above every priority."""
MAX_NAMES = 3
OUTCOMES = {
    "Forbidden": "not allowed: the preemptionPolicy is Never",
    "NoVictims": "would not help: no pods of lower priority run",
    "NotEnough": "would not help: evicting all pods of lower priority does not make enough room",
    "NoHelp": "would not help: pods of lower priority hold nothing that is missing",
}
"""The text of an outcome of which no more is known."""


class PlannedEviction(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A unit that is evicted as a whole, why, and the disruption budgets that forbid it."""

    unit: str
    priority: int
    pods: tuple[str, ...]
    reason: str = ""
    violates: tuple[str, ...] = ()


class PreemptionAnswer(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What preemption does or would do.

    ``outcome`` is Ongoing, WouldEvict, Forbidden (by the preemptionPolicy), NoVictims, NotEnough or NoHelp.
    """

    outcome: str
    text: str
    evictions: tuple[PlannedEviction, ...] = ()
    waits_for: tuple[str, ...] = ()
    """Pods that are terminating and have to end first."""


class Assessment(Struct, frozen=True):
    """What an attempt at a unit would find."""

    unit: UnitKey
    attempt: SchedulableUnit | Inadmissible
    decision: Decision | None = None
    preemption: PreemptionAnswer | None = None

    @property
    def is_placed(self) -> bool:
        """Return whether the minimum of the unit is placed, or can be."""
        return self.decision is not None and self.decision.explanation.finding is Finding.PLACED


def assess(scheduler: OfflineScheduler, unit: UnitKey) -> Assessment:
    """Attempt a unit in the present state of the cache, in detail."""
    attempt = build_unit(scheduler.cache, unit)
    if isinstance(attempt, Inadmissible):
        return Assessment(unit, attempt)
    decision = scheduler.decide(unit, attempt, detail=True)
    return Assessment(unit, attempt, decision, _preemption(scheduler, unit, attempt, decision))


def planned_evictions(scheduler: OfflineScheduler, plan: PreemptionPlan) -> tuple[PlannedEviction, ...]:
    """Return the evictions of a plan, with the names of the pods."""
    pods = scheduler.cache.pods
    return tuple(
        PlannedEviction(
            unit=str(found.unit.key),
            priority=found.unit.priority,
            pods=tuple(pods[uid].metadata.key for uid in found.unit.pods if uid in pods),
            reason=eviction_message(found.reason),
            violates=found.violates,
        )
        for found in plan.evictions
    )


def evictions_text(evictions: Sequence[PlannedEviction]) -> str:
    """Return which pods are evicted, and which budgets forbid it."""
    pods = sum(len(found.pods) for found in evictions)
    units = named([f"{found.unit} (priority {found.priority})" for found in evictions])
    budgets = sorted({name for found in evictions for name in found.violates})
    against = f", against PodDisruptionBudget {named(budgets)}" if budgets else ""
    return f"{pods} pod{'s' * (pods != 1)}: {units}{against}"


def named(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    rest = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def _preemption(
    scheduler: OfflineScheduler, unit: UnitKey, attempt: SchedulableUnit, decision: Decision
) -> PreemptionAnswer | None:
    active = scheduler.preemption.active(unit)
    if active is not None:
        awaited = _awaited(scheduler, active)
        return PreemptionAnswer("Ongoing", f"under way: waits for the end of {named(awaited)}", waits_for=awaited)
    report = decision.explanation.reports[0]
    if not attempt.pods or decision.binds or report.lack is not None:
        return None
    if not is_due(decision, attempt.pods):
        return PreemptionAnswer("NoHelp", "would not help: the nodes do not fit even if they are empty")
    if not attempt.preempts:
        return PreemptionAnswer("Forbidden", OUTCOMES["Forbidden"])
    return _planned(scheduler, unit, scheduler.preemption.explain(unit, attempt))


def _awaited(scheduler: OfflineScheduler, active: ActivePreemption) -> tuple[str, ...]:
    """Return the pods that a preemption waits for, else those that terminate on its nodes."""
    pods, nodes = scheduler.cache.pods, set(active.nominations.values())
    awaited = [pods[uid] for uid in active.awaited if uid in pods]
    near = (pod for pod in scheduler.cache.victims.terminating.values() if pod.spec.node_name in nodes)
    return tuple(sorted(pod.metadata.key for pod in awaited or near))


def _planned(scheduler: OfflineScheduler, unit: UnitKey, plan: PreemptionPlan) -> PreemptionAnswer:
    match plan.outcome:
        case PlanOutcome.PLANNED if plan.evictions:
            evictions = planned_evictions(scheduler, plan)
            return PreemptionAnswer("WouldEvict", f"would evict {evictions_text(evictions)}", evictions)
        case PlanOutcome.PLANNED:
            pods = tuple(sorted(pod.metadata.key for pod in scheduler.cache.victims.terminating.values()))
            return PreemptionAnswer("Ongoing", f"not needed: {named(pods)} will end", waits_for=pods)
        case PlanOutcome.NO_VICTIMS:
            return PreemptionAnswer("NoVictims", f"would not help: {_lowest(scheduler, unit)}")
        case PlanOutcome.NOT_ENOUGH:
            return PreemptionAnswer("NotEnough", OUTCOMES["NotEnough"])
        case _:
            return PreemptionAnswer("NoHelp", OUTCOMES["NoHelp"])


def _lowest(scheduler: OfflineScheduler, unit: UnitKey) -> str:
    units = scheduler.cache.victims.units(HIGHEST_PRIORITY)
    others = [found.priority for found in units if not is_part_of(scheduler, unit, found)]
    return f"all candidates have priority {min(others)} or higher" if others else "no pods run that could be evicted"


def is_part_of(scheduler: OfflineScheduler, unit: UnitKey, victim: VictimUnit) -> bool:
    """Return whether a victim is a part of the unit itself."""
    pods = (scheduler.cache.pods.get(uid) for uid in victim.pods)
    return any(pod is not None and scheduler.cache.unit_of(pod) == unit for pod in pods)
