"""Plans which pods to evict so that a unit can be placed: the entry point of preemption.

1. Search the cluster as it is, with the devices that pods that are gone are about to release. If no eviction could
   help, stop.
2. Ignore all units of lower priority and search again. What this places is the goal, since nothing more can be reached.
3. Find the lowest levels of victims that reach the goal: first the priority of units that no budget covers, then that
   of units that a budget protects.
4. Among those, find the nodes, or for a tree that requires a domain, the domain, with the fewest victims.
5. Reprieve victims, and let an ordinary search confirm the result.

For a single pod, steps 2 to 5 are those of kube-scheduler, node by node (``single_pod``). Where no single node can be
freed for it, it is treated like a tree.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from cpg_engine.gangs.needs import Needs
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.gangs.unit import POD, Unit
from cpg_engine.preemption.budgets import BudgetAllowances, BudgetSource
from cpg_engine.preemption.domains import cheapest_domain
from cpg_engine.preemption.eviction_reasons import eviction_reasons
from cpg_engine.preemption.reprieve import reprieve, reprieve_until_stable
from cpg_engine.preemption.simulation import (
    NO_PRIORITY,
    Assignments,
    BestCandidate,
    PreemptionCandidate,
    PreemptionProblem,
    Simulation,
)
from cpg_engine.preemption.single_pod import preempt_for_pod
from cpg_engine.preemption.values import (
    Eviction,
    Nomination,
    PlanOutcome,
    PreemptionPlan,
    VictimUnit,
)
from cpg_engine.preemption.victim_search import fewest_victims, smallest_success
from cpg_engine.preemption.victims import PotentialVictim, potential_victims, start_ranks
from cpg_engine.snapshot import Snapshot
from cpg_engine.verdicts import Explanation, Finding, Status

_NO_EVICTIONS = frozenset({PlanOutcome.NOT_HELPFUL, PlanOutcome.NO_VICTIMS, PlanOutcome.NOT_ENOUGH})
"""The outcomes where no eviction helps."""


def plan_preemption(
    snapshot: Snapshot,
    unit: Unit,
    options: SearchOptions,
    *,
    priority: int,
    units: Sequence[VictimUnit],
    budgets: BudgetSource,
    ignored: Iterable[str] = (),
) -> PreemptionPlan:
    """Plan which of the units to evict so that as many pods of a unit as possible are placed, if its minimum can be.

    ``ignored`` are nominated pods that give way to the unit, as in ``decide``. Where no eviction helps, pods that find
    a place in their room are nominated there. The ledger is unchanged afterwards.
    """
    ledger, own = snapshot.ledger, tuple(ignored)
    with ledger.device_allocator.claims.without_released():
        mark = ledger.mark()
        try:
            ledger.ignore(own)
            simulation = Simulation(snapshot, unit, options)
            now, explanation = simulation.explain()
            as_it_is = PreemptionPlan(
                outcome=PlanOutcome.PLANNED,
                nominations=_nominations(snapshot, now),
                reserved=_nominations(snapshot, now, expected=True),
            )
            if len(now) == sum(len(node.pending) for node in unit.nodes):
                return as_it_is
            found = _plan(
                simulation, units, priority, BudgetAllowances(budgets), placed_now=len(now), explanation=explanation
            )
            return as_it_is if now and own and found.outcome in _NO_EVICTIONS else found
        finally:
            ledger.rollback(mark)


def _plan(
    simulation: Simulation,
    units: Sequence[VictimUnit],
    priority: int,
    budgets: BudgetAllowances,
    *,
    placed_now: int,
    explanation: Explanation,
) -> PreemptionPlan:
    if not _could_help(explanation):
        return PreemptionPlan(outcome=PlanOutcome.NOT_HELPFUL)
    below = [found for found in units if found.priority < priority]
    if simulation.unit.nodes[0].key.kind == POD:
        (member,) = simulation.unit.nodes[0].pending
        found = preempt_for_pod(
            simulation.snapshot, member, below, budgets=budgets, max_nodes=simulation.options.budget
        )
        if found.best is not None:
            best = BestCandidate(found.best, found.compared, exhausted=found.exhausted)
            return _planned(simulation, budgets, best, found.considered)
    victims = potential_victims(simulation.snapshot.ledger, below)
    if not victims:
        return PreemptionPlan(outcome=PlanOutcome.NO_VICTIMS)
    most, explanation = simulation.explain(victims)
    if len(most) <= placed_now:
        return PreemptionPlan(outcome=PlanOutcome.NOT_ENOUGH, considered=len(victims), explanation=explanation)
    problem = PreemptionProblem(
        simulation=simulation,
        needs=Needs(simulation.unit),
        budgets=budgets,
        start_ranks=start_ranks(victims),
        goal=len(most),
    )
    return _planned(simulation, budgets, cheapest_candidate(problem, victims), len(victims))


def _could_help(explanation: Explanation) -> bool:
    """Return whether evictions might help: at the root, or for the pods that a tree has beyond its minimum."""
    if explanation.finding in {Finding.INADMISSIBLE, Finding.CONTRADICTION}:
        return False
    root = explanation.reports[0]
    if root.status is Status.SUCCESS:
        return any(report.counts.unschedulable for report in explanation.reports)
    return root.status is Status.UNSCHEDULABLE


def _planned(
    simulation: Simulation, budgets: BudgetAllowances, found: BestCandidate, considered: int
) -> PreemptionPlan:
    units = [victim.unit for victim in found.best.victims]
    reasons = eviction_reasons(simulation.snapshot, simulation.unit, found.best)
    return PreemptionPlan(
        outcome=PlanOutcome.PLANNED,
        evictions=tuple(map(Eviction, units, reasons, budgets.violated_names(units))),
        nominations=_nominations(simulation.snapshot, found.best.assignments),
        reserved=_nominations(simulation.snapshot, found.best.assignments, expected=True),
        considered=considered,
        domains=found.compared,
        exhausted=found.exhausted or simulation.is_truncated,
    )


def _nominations(snapshot: Snapshot, assignments: Assignments, *, expected: bool = False) -> tuple[Nomination, ...]:
    name = snapshot.ledger.cluster.name
    return tuple(Nomination(member.uid, name(row)) for member, row in assignments if member.is_expected is expected)


# Steps 3 to 5 for a tree.


def cheapest_candidate(problem: PreemptionProblem, victims: Sequence[PotentialVictim]) -> BestCandidate:
    """Return the cheapest candidate that reaches the goal, which evicting all victims reaches.

    The victims are ordered by importance, the most important first.
    """
    ways = (
        _cheapest_below(problem, lowest)
        for marked in _marked_by_budgets(problem, victims)
        for lowest in _lowest_levels(problem, marked)
    )
    found: list[BestCandidate] = []
    for candidate in ways:
        found.append(candidate)
        if problem.simulation.out_of_effort():
            break
    return min(found, key=lambda candidate: problem.cost(candidate.best.victims))


def _marked_by_budgets(problem: PreemptionProblem, victims: Sequence[PotentialVictim]) -> list[list[PotentialVictim]]:
    """Return the victims, marked by whether a budget forbids their eviction, in the ways to decide that.

    A budget that allows some evictions does not say which. Either the least important units use its allowance, or every
    unit counts as allowed that would be if it were evicted alone.
    """
    units = [found.unit for found in victims]
    least_first = problem.budgets.violations(units[::-1])[::-1]
    alone = problem.budgets.violations_alone(units)
    ways = [least_first] if least_first == alone else [least_first, alone]
    return [
        [replace(found, is_covered=True) if violates else found for found, violates in zip(victims, way, strict=True)]
        for way in ways
    ]


def _cheapest_below(problem: PreemptionProblem, lowest: PreemptionCandidate) -> BestCandidate:
    """Return the cheapest candidate that evicts only victims of another one."""
    key = problem.needs.unit.nodes[0].required
    found = None if key is None else cheapest_domain(problem, lowest.victims, key)
    if found is not None:
        return replace(found, best=_confirmed(problem, found.best))
    candidates = [fewest_victims(problem, lowest.victims) or lowest]
    if any(found.is_covered for found in lowest.victims) and not problem.simulation.out_of_effort():
        # The order of nodes is an estimate. Where budgets are violated, a second way is worth its cost.
        candidates.append(lowest)
    best = min(
        (reprieve_until_stable(problem, candidate) for candidate in candidates),
        key=lambda candidate: problem.cost(candidate.victims),
    )
    return BestCandidate(best, len(candidates))


def _lowest_levels(problem: PreemptionProblem, victims: Sequence[PotentialVictim]) -> list[PreemptionCandidate]:
    """Return the candidates that evict all victims up to the lowest level that reaches the goal.

    The level is the lowest priority of the victims that no budget covers. If all of those are not enough, it is the
    lowest priority of the covered victims. A second candidate then has the lowest priority of uncovered victims that
    is enough beside them, since it may spare more.
    """
    free = sorted({found.unit.priority for found in victims if not found.is_covered})
    covered = sorted({found.unit.priority for found in victims if found.is_covered})
    found = _up_to(problem, victims, [(priority, NO_PRIORITY) for priority in free])
    if found is not None:
        return [found]
    most = free[-1] if free else NO_PRIORITY
    found = _up_to(problem, victims, [(most, priority) for priority in covered])
    assert found is not None  # noqa: S101 - the last level has all victims, and that is enough
    least = max(one.unit.priority for one in found.victims if one.is_covered)
    above = [(priority, least) for priority in (least, *free) if least <= priority < most]
    lower = _up_to(problem, victims, above)
    return [found] if lower is None else [found, lower]


def _up_to(
    problem: PreemptionProblem, victims: Sequence[PotentialVictim], levels: Sequence[tuple[int, int]]
) -> PreemptionCandidate | None:
    """Return the candidate for the first of some levels that reaches the goal; each level includes those before it.

    A level is a priority for the victims that no budget covers, and one for the covered victims.
    """

    def evict(number: int) -> PreemptionCandidate | None:
        chosen = [found for found in victims if found.unit.priority <= levels[number - 1][found.is_covered]]
        assignments = problem.simulation.assign(chosen)
        return PreemptionCandidate(chosen, assignments) if problem.is_solved_by(assignments) else None

    return smallest_success(evict, 1, len(levels), stop=problem.simulation.out_of_effort)


def _confirmed(problem: PreemptionProblem, candidate: PreemptionCandidate) -> PreemptionCandidate:
    """Return the candidate of a domain as an ordinary search, free to choose another domain, would place it.

    If the search then places fewer pods, which members elsewhere may cause, the domain's assignments stand.
    """
    assignments = problem.simulation.assign(candidate.victims)
    if not problem.is_solved_by(assignments):
        return reprieve(problem, candidate)
    return reprieve_until_stable(problem, PreemptionCandidate(candidate.victims, assignments))
