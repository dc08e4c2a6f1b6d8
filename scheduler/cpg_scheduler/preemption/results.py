"""What preemption does for a unit that found no place, as a value for the scheduling loop."""

from collections.abc import Collection, Sequence

from msgspec import Struct

from cpg_engine.decisions import Decision
from cpg_engine.preemption.values import PlanOutcome, PreemptionPlan
from cpg_engine.verdicts import Finding, Status
from cpg_scheduler.outlook import PreemptionOutlook, PreemptionVerdict
from cpg_scheduler.preemption.jobs import PreemptionInstruction
from cpg_scheduler.preemption.states import ActivePreemption
from cpg_scheduler.queueing.hints import UNPROVEN


class PreemptionResult(Struct, frozen=True, kw_only=True):
    """What preemption does for a unit that found no place, and what has to be performed for that."""

    outlook: PreemptionOutlook | None = None
    is_waiting: bool = False
    """Whether a preemption is active, for the ``nominated`` pods."""
    is_unproven: bool = False
    """Whether any change in the cluster may make a plan possible."""
    is_freed_soon: bool = False
    """Whether pods have a place once the devices are deallocated of pods that are gone, without any eviction."""
    outcome: str = ""
    victims: int = 0
    nominated: frozenset[str] = frozenset()
    plan: PreemptionPlan | None = None
    """The plan that has been begun."""
    instructions: Sequence[PreemptionInstruction] = ()


NOTHING = PreemptionResult()
"""The result of a failure that evictions have no part in."""


def is_due(decision: Decision, unplaced: Collection[str]) -> bool:
    """Return whether an eviction could help, and is allowed in this cycle."""
    explanation = decision.explanation
    if not unplaced or decision.binds or explanation.finding is Finding.CONTRADICTION:
        return False
    return explanation.finding is Finding.PLACED or explanation.reports[0].status is Status.UNSCHEDULABLE


def number_of_victims(plan: PreemptionPlan) -> int:
    """Return how many pods a plan evicts."""
    return sum(len(eviction.unit.pods) for eviction in plan.evictions)


def ongoing(preemption: ActivePreemption, outcome: str, victims: int) -> PreemptionResult:
    """Return the result for a unit with an active preemption; victims are counted until the first has ended."""
    number = (
        None
        if preemption.plan is None or len(preemption.awaited) < preemption.awaited_at_first
        else number_of_victims(preemption.plan)
    )
    return PreemptionResult(
        outlook=PreemptionOutlook(PreemptionVerdict.ONGOING, preemption.unit.key.kind, number or None),
        is_waiting=True,
        outcome=outcome,
        victims=victims,
        nominated=frozenset(preemption.nominations),
    )


def forbidden(kind: str) -> PreemptionResult:
    """Return the result for a unit with a preemption policy that forbids evictions."""
    return PreemptionResult(outlook=PreemptionOutlook(PreemptionVerdict.FORBIDDEN, kind))


def in_vain(kind: str, plan: PreemptionPlan) -> PreemptionResult:
    """Return the result for a unit that no eviction helps."""
    explanation = plan.explanation
    match plan.outcome:
        case PlanOutcome.NO_VICTIMS:
            outlook = PreemptionOutlook(PreemptionVerdict.NO_VICTIMS, kind)
        case PlanOutcome.NOT_ENOUGH if explanation is not None:
            outlook = PreemptionOutlook(PreemptionVerdict.NOT_ENOUGH, kind, explanation=explanation)
        case _:
            outlook = PreemptionOutlook(PreemptionVerdict.NO_HELP, kind)
    is_unproven = explanation is not None and explanation.finding in UNPROVEN
    return PreemptionResult(
        outlook=outlook,
        is_unproven=is_unproven,
        is_freed_soon=plan.outcome is PlanOutcome.PLANNED,
        outcome=plan.outcome.value,
    )
