"""The domain in which placing a tree costs least.

Every domain has a lower bound on its cost: the fewest units that free what is missing there of some resource. Domains
are tried in the order of their bounds, until no remaining domain can be cheaper than the best so far. A bound may
promise too little cost, never too much.
"""

from collections.abc import Collection, Sequence

import numpy as np
from msgspec import Struct

from cpg_engine.cluster.axes import Rows
from cpg_engine.preemption.reprieve import reprieve
from cpg_engine.preemption.simulation import BestCandidate, Cost, PreemptionCandidate, PreemptionProblem
from cpg_engine.preemption.victim_search import EvictionEstimates, fewest_victims
from cpg_engine.preemption.victims import PotentialVictim
from cpg_engine.topology.domains import Scope


class DomainBound(Struct, frozen=True, eq=False):
    """A domain, the potential victims with a pod there, and how many units have to be evicted at least."""

    scope: Scope
    victims: Sequence[PotentialVictim]
    least: int


def cheapest_domain(problem: PreemptionProblem, victims: Sequence[PotentialVictim], key: str) -> BestCandidate | None:
    """Return the candidate in the domain of a label that costs least; the victims have the lowest levels that suffice.

    The candidate is not reprieved yet, but its cost is compared as it will be after reprieve.
    """
    covered = any(found.is_covered for found in victims)
    floor = int(covered), (min if covered else max)(found.unit.priority for found in victims)
    best: tuple[Cost, PreemptionCandidate] | None = None
    number, exhausted = 0, False
    for domain in _domains_by_bound(problem, victims, key):
        if best is not None and best[0][:4] <= (*floor, domain.least, domain.least):
            break
        over_budget = number >= problem.simulation.options.budget and best is not None
        exhausted = problem.simulation.out_of_effort() or over_budget
        if exhausted:
            break
        number += 1
        candidate = fewest_victims(problem, domain.victims, domain.scope)
        if candidate is not None:
            cost = problem.cost(reprieve(problem, candidate).victims)
            if best is None or cost < best[0]:
                best = cost, candidate
    return BestCandidate(best[1], number, exhausted=exhausted) if best else None


def _domains_by_bound(problem: PreemptionProblem, victims: Sequence[PotentialVictim], key: str) -> list[DomainBound]:
    """Return the domains that could hold the goal, the lowest bound first, then the best score."""
    snapshot = problem.simulation.snapshot
    scopes = snapshot.topology.partition(snapshot.topology.whole(), key).scopes
    domain_of = np.full(snapshot.ledger.cluster.size, -1)
    for number, scope in enumerate(scopes):
        domain_of[scope.rows] = number
    inside: list[list[PotentialVictim]] = [[] for _ in scopes]
    for found in victims:
        for number in sorted({int(domain_of[row]) for row in found.rows}):
            if number >= 0:
                inside[number].append(found)
    estimates, open_domains = EvictionEstimates(problem, victims), _open_domains(problem, domain_of.tolist())
    bounds = []
    for number, (scope, there) in enumerate(zip(scopes, inside, strict=True)):
        if there and number in open_domains and estimates.room_without_victims(scope.rows) >= problem.goal:
            bound = DomainBound(scope, there, _fewest_evictions(problem, scope.rows, there))
            bounds.append((bound, estimates.best_score(scope.rows)))
    bounds.sort(key=lambda pair: (pair[0].least, -pair[1]))
    return [bound for bound, _ in bounds]


def _open_domains(problem: PreemptionProblem, domain_of: Sequence[int]) -> Collection[int]:
    """Return the domains that running members leave open: their own, or all where no member runs."""
    row_of = problem.simulation.snapshot.ledger.cluster.row_of
    names = [name for node in problem.needs.unit.nodes for name in node.member_nodes if name in row_of]
    return {domain_of[row_of[name]] for name in names} if names else set(domain_of)


def _fewest_evictions(problem: PreemptionProblem, rows: Rows, victims: Sequence[PotentialVictim]) -> int:
    """Return how many units have to leave the rows at least, so that there is enough of every resource in sum."""
    ledger = problem.simulation.snapshot.ledger
    wanted = (
        np.stack([ledger.classes.vector_of(found) for found in problem.needs.classes.values()]).min(axis=0)
        * problem.goal
    )
    free = np.maximum(ledger.allocatable[rows] - ledger.used[rows], 0).sum(axis=0)
    inside = set(rows.tolist())
    held = np.stack(
        [
            sum(ledger.classes.vector_of(pod_class) for pod_class, row in found.locations if row in inside)
            for found in victims
        ]
    )
    largest = np.cumsum(np.sort(held, axis=0)[::-1], axis=0)
    missing = wanted - free
    short = np.flatnonzero(missing > 0)
    return max([1, *(int(np.searchsorted(largest[:, column], missing[column])) + 1 for column in short)])
