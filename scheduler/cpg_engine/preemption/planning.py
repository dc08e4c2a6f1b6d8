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

from cpg_engine.gangs.allocation import Options
from cpg_engine.gangs.feasibility import Needs
from cpg_engine.gangs.unit import POD, Unit
from cpg_engine.gangs.world import World
from cpg_engine.preemption.allowances import Allowances
from cpg_engine.preemption.candidates import ages, candidates
from cpg_engine.preemption.case import Case, Comparison
from cpg_engine.preemption.choosing import cheapest
from cpg_engine.preemption.nodes import node_for
from cpg_engine.preemption.reasons import reasons
from cpg_engine.preemption.trying import Seats, Trials
from cpg_engine.preemption.values import Budget, Eviction, Nomination, Outcome, Plan, VictimUnit
from cpg_engine.verdicts import Explanation, Finding, Status

_NOBODY = frozenset({Outcome.HOPELESS, Outcome.NO_VICTIMS, Outcome.NOT_ENOUGH})
"""What is found where no eviction helps."""


def plan(
    world: World,
    unit: Unit,
    options: Options,
    *,
    priority: int,
    units: Sequence[VictimUnit],
    budgets: Sequence[Budget],
    lifted: Iterable[str] = (),
) -> Plan:
    """Plan who of the units has to go so that as many pods of a unit as possible find a place, if its minimum can.

    Where nobody else helps, those are nominated who find a place in the room of those that are lifted.
    The ledger is afterwards what it was before. ``lifted`` are nominated pods that need not be minded, as in
    ``decide``.
    """
    ledger, apart = world.ledger, tuple(lifted)
    mark = ledger.mark()
    try:
        ledger.lift(apart)
        trials = Trials(world, unit, options)
        now, explanation = trials.look()
        as_it_is = Plan(outcome=Outcome.PLANNED, nominations=_nominations(world, now))
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
) -> Plan:
    if not _could_help(explanation):
        return Plan(outcome=Outcome.HOPELESS)
    below = [found for found in units if found.priority < priority]
    if trials.unit.nodes[0].key.kind == POD:
        (member,) = trials.unit.nodes[0].pending
        found = node_for(trials.world, member, below, allowances=allowances, budget=trials.options.budget)
        if found.best is not None:
            comparison = Comparison(found.best, found.compared, exhausted=found.exhausted)
            return _planned(trials, allowances, comparison, found.considered)
    some = candidates(trials.world.ledger, below)
    if not some:
        return Plan(outcome=Outcome.NO_VICTIMS)
    most, explanation = trials.look(some)
    if len(most) <= now:
        return Plan(outcome=Outcome.NOT_ENOUGH, considered=len(some), explanation=explanation)
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


def _planned(trials: Trials, allowances: Allowances, comparison: Comparison, considered: int) -> Plan:
    best = comparison.best
    units = [found.unit for found in best.gone]
    why = reasons(trials.world, trials.unit, best.seats, best.gone)
    return Plan(
        outcome=Outcome.PLANNED,
        evictions=tuple(map(Eviction, units, why, allowances.violated(units))),
        nominations=_nominations(trials.world, best.seats),
        considered=considered,
        domains=comparison.compared,
        exhausted=comparison.exhausted or trials.is_cut,
    )


def _nominations(world: World, seats: Seats) -> tuple[Nomination, ...]:
    return tuple(Nomination(member.uid, world.ledger.cluster.name(row)) for member, row in seats)
