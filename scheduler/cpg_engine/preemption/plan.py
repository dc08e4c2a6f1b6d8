"""Who has to go so that a tree can come: the one way in.

1. Look at the cluster as it is: could evictions help at all?
2. Take everybody out who is less important. What the search places then is the goal; nothing more can be reached.
3. Leave the violations of budgets and the high priorities alone as far as the goal allows: find the lowest levels of
   units without which it is still reached.
4. Among those, find the nodes, or for a tree that needs one, the domain, where the fewest have to go.
5. Put back everybody who may stay, and let the search have the last word.

For a single pod steps 2 to 5 are those of kube-scheduler, node by node (``nodes``); where no node can be cleared for
it, it is treated like a tree.
"""

from collections.abc import Iterable, Sequence

from cpg_engine.gangs.feasibility import Needs
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.gangs.unit import POD, Unit
from cpg_engine.preemption.allowances import Allowances
from cpg_engine.preemption.candidates import ages, potential_victims
from cpg_engine.preemption.case import Case, Comparison
from cpg_engine.preemption.choosing import cheapest
from cpg_engine.preemption.nodes import node_for
from cpg_engine.preemption.reasons import reasons
from cpg_engine.preemption.trying import Seats, Trials
from cpg_engine.preemption.values import DisruptionBudget, Eviction, Nomination, PlanOutcome, PreemptionPlan, VictimUnit
from cpg_engine.snapshot import Snapshot
from cpg_engine.verdicts import Explanation, Finding, Status

_NOBODY = frozenset({PlanOutcome.NOT_HELPFUL, PlanOutcome.NO_VICTIMS, PlanOutcome.NOT_ENOUGH})
"""What is found where no eviction helps."""


def plan_preemption(
    snapshot: Snapshot,
    unit: Unit,
    options: SearchOptions,
    *,
    priority: int,
    units: Sequence[VictimUnit],
    budgets: Sequence[DisruptionBudget],
    ignored: Iterable[str] = (),
) -> PreemptionPlan:
    """Plan who of the units has to go so that as many pods of a unit as possible find a place, if its minimum can.

    Where nobody else helps, those are nominated who find a place in the room of those that are lifted.
    The ledger is afterwards what it was before. ``ignored`` are nominated pods that need not be minded, as in
    ``decide``.
    """
    ledger, apart = snapshot.ledger, tuple(ignored)
    mark = ledger.mark()
    try:
        ledger.ignore(apart)
        trials = Trials(snapshot, unit, options)
        now, explanation = trials.look()
        as_it_is = PreemptionPlan(outcome=PlanOutcome.PLANNED, nominations=_nominations(snapshot, now))
        if len(now) == sum(len(node.pending) for node in unit.nodes):
            return as_it_is
        found = _plan(trials, units, priority, Allowances(budgets), now=len(now), explanation=explanation)
        return as_it_is if now and apart and found.outcome in _NOBODY else found
    finally:
        ledger.rollback(mark)


def _plan(
    trials: Trials,
    units: Sequence[VictimUnit],
    priority: int,
    allowances: Allowances,
    *,
    now: int,
    explanation: Explanation,
) -> PreemptionPlan:
    if not _could_help(explanation):
        return PreemptionPlan(outcome=PlanOutcome.NOT_HELPFUL)
    below = [found for found in units if found.priority < priority]
    if trials.unit.nodes[0].key.kind == POD:
        (member,) = trials.unit.nodes[0].pending
        found = node_for(trials.snapshot, member, below, allowances=allowances, budget=trials.options.budget)
        if found.best is not None:
            comparison = Comparison(found.best, found.compared, exhausted=found.exhausted)
            return _planned(trials, allowances, comparison, found.considered)
    some = potential_victims(trials.snapshot.ledger, below)
    if not some:
        return PreemptionPlan(outcome=PlanOutcome.NO_VICTIMS)
    most, explanation = trials.look(some)
    if len(most) <= now:
        return PreemptionPlan(outcome=PlanOutcome.NOT_ENOUGH, considered=len(some), explanation=explanation)
    case = Case(trials=trials, needs=Needs(trials.unit), allowances=allowances, ages=ages(some), goal=len(most))
    return _planned(trials, allowances, cheapest(case, some), len(some))


def _could_help(explanation: Explanation) -> bool:
    """Tell whether evictions might help: at the root, or for the pods that a tree has beyond its minimum."""
    if explanation.finding in {Finding.INADMISSIBLE, Finding.CONTRADICTION}:
        return False
    root = explanation.reports[0]
    if root.status is Status.SUCCESS:
        return any(report.counts.unschedulable for report in explanation.reports)
    return root.status is Status.UNSCHEDULABLE


def _planned(trials: Trials, allowances: Allowances, comparison: Comparison, considered: int) -> PreemptionPlan:
    best = comparison.best
    units = [found.unit for found in best.gone]
    why = reasons(trials.snapshot, trials.unit, best.seats, best.gone)
    return PreemptionPlan(
        outcome=PlanOutcome.PLANNED,
        evictions=tuple(map(Eviction, units, why, allowances.violated(units))),
        nominations=_nominations(trials.snapshot, best.seats),
        considered=considered,
        domains=comparison.compared,
        exhausted=comparison.exhausted or trials.is_cut,
    )


def _nominations(snapshot: Snapshot, seats: Seats) -> tuple[Nomination, ...]:
    return tuple(Nomination(member.uid, snapshot.ledger.cluster.name(row)) for member, row in seats)
