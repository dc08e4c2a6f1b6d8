"""The domain in which placing a tree costs least.

Every domain has a lower bound on its cost: the fewest units that free what is missing there of some resource. Domains
are tried in the order of their bounds, until no remaining domain can be cheaper than the best so far. A bound may
promise too little cost, never too much.

Of domains that cost the same, the one that ends up fuller wins. Every domain has an upper bound on that as well. Once
the best so far costs no more than the bound of the next domain, that one is tried only if it can become fuller.
"""

from collections.abc import Collection, Sequence

import numpy as np
from msgspec import Struct

from cpg_engine.cluster.axes import Amounts, Rows
from cpg_engine.preemption.fullness import SCORED, DomainUsage, scored, usage_by_domain
from cpg_engine.preemption.reprieve import reprieve
from cpg_engine.preemption.simulation import BestCandidate, PreemptionCandidate, PreemptionProblem
from cpg_engine.preemption.victim_search import EvictionEstimates, fewest_victims
from cpg_engine.preemption.victims import PotentialVictim
from cpg_engine.topology.domains import Scope

MAX_FULLER_DOMAINS = 3
"""Domains that are tried only because they could become fuller; each takes as long as finding the first candidate."""

DomainCost = tuple[int, int, int, int]
"""Budget violations, highest priority, units and pods: what decides before fullness does."""


class DomainBound(Struct, frozen=True, eq=False):
    """A domain, the potential victims with a pod there, and its bounds.

    At least ``least`` units have to be evicted, and ``fullness`` is the most that the domain can have afterwards.
    """

    scope: Scope
    victims: Sequence[PotentialVictim]
    least: int
    usage: DomainUsage
    fullness: int


class _DomainSearch:
    """The best candidate so far, and what it is compared by."""

    def __init__(self, problem: PreemptionProblem, victims: Sequence[PotentialVictim]) -> None:
        self._problem = problem
        covered = any(found.is_covered for found in victims)
        self._floor = int(covered), (min if covered else max)(found.unit.priority for found in victims)
        self._tried: list[DomainUsage] = []
        self._fuller_tried = 0
        self._fullness = 0
        self._cost: tuple[int, ...] = ()
        self.best: PreemptionCandidate | None = None

    @property
    def tried(self) -> int:
        """Return how many domains were tried."""
        return len(self._tried)

    def is_finished(self, domain: DomainBound) -> bool:
        """Return whether neither this domain nor one with higher bounds can be better than the best."""
        if self.best is None or self._cost[:4] > self._least_cost(domain):
            return False
        can_win = self._cost[:4] == self._least_cost(domain) and domain.fullness > self._fullness
        return not can_win or self._fuller_tried >= MAX_FULLER_DOMAINS

    def is_superfluous(self, domain: DomainBound) -> bool:
        """Return whether the domain is like one that was tried, and can only equal the cost of the best."""
        can_be_cheaper = self.best is None or self._cost[:4] > self._least_cost(domain)
        return not can_be_cheaper and any(found.profile == domain.usage.profile for found in self._tried)

    def attempt(self, domain: DomainBound) -> None:
        """Look for a candidate in the domain; its cost is compared as it will be after reprieve."""
        self._tried.append(domain.usage)
        self._fuller_tried += self.best is not None and self._cost[:4] <= self._least_cost(domain)
        candidate = fewest_victims(self._problem, domain.victims, domain.scope)
        if candidate is None:
            return
        smaller = reprieve(self._problem, candidate)
        *cost, age = self._problem.cost(smaller.victims)
        fullness = domain.usage.fullness_after(smaller)
        if self.best is None or (*cost, -fullness, age) < self._cost:
            self.best, self._cost, self._fullness = candidate, (*cost, -fullness, age), fullness

    def _least_cost(self, domain: DomainBound) -> DomainCost:
        return *self._floor, domain.least, domain.least


def cheapest_domain(problem: PreemptionProblem, victims: Sequence[PotentialVictim], key: str) -> BestCandidate | None:
    """Return the candidate in the domain of a label that costs least; the victims have the lowest levels that suffice.

    The candidate is not reprieved yet.
    """
    search = _DomainSearch(problem, victims)
    exhausted = False
    for domain in _domains_by_bound(problem, victims, key):
        if search.is_finished(domain):
            break
        if search.is_superfluous(domain):
            continue
        over_budget = search.tried >= problem.simulation.options.budget and search.best is not None
        exhausted = problem.simulation.out_of_effort() or over_budget
        if exhausted:
            break
        search.attempt(domain)
    return BestCandidate(search.best, search.tried, exhausted=exhausted) if search.best else None


def _domains_by_bound(problem: PreemptionProblem, victims: Sequence[PotentialVictim], key: str) -> list[DomainBound]:
    """Return the domains that could hold the goal: the lowest cost first, then the fullest, then the best score."""
    snapshot = problem.simulation.snapshot
    partition = snapshot.topology.partition(snapshot.topology.whole(), key)
    domain_of = np.full(snapshot.ledger.cluster.size, -1)
    for number, scope in enumerate(partition.scopes):
        domain_of[scope.rows] = number
    inside: list[list[PotentialVictim]] = [[] for _ in partition.scopes]
    for found in victims:
        for number in sorted({int(domain_of[row]) for row in found.rows}):
            if number >= 0:
                inside[number].append(found)
    estimates, open_domains = EvictionEstimates(problem, victims), _open_domains(problem, domain_of.tolist())
    usages = usage_by_domain(snapshot.ledger, partition, domain_of, estimates.entries)
    most = problem.needs.most[0].items()
    placed = scored(problem.needs.classes[found] for found, number in most for _ in range(number))
    bounds = []
    for number, (scope, there) in enumerate(zip(partition.scopes, inside, strict=True)):
        if there and number in open_domains and estimates.room_without_victims(scope.rows) >= problem.goal:
            bound = _bound(problem, scope, there, usage=usages[number], placed=placed)
            bounds.append((bound, estimates.best_score(scope.rows)))
    bounds.sort(key=lambda pair: (pair[0].least, -pair[0].fullness, -pair[1]))
    return [bound for bound, _ in bounds]


def _bound(
    problem: PreemptionProblem, scope: Scope, victims: Sequence[PotentialVictim], *, usage: DomainUsage, placed: Amounts
) -> DomainBound:
    missing = _missing(problem, scope.rows)
    least = _fewest_evictions(problem, scope.rows, victims, missing)
    fullness = usage.most_fullness(least, missing[SCORED], placed)
    return DomainBound(scope, victims, least, usage, fullness)


def _open_domains(problem: PreemptionProblem, domain_of: Sequence[int]) -> Collection[int]:
    """Return the domains that running members leave open: their own, or all where no member runs."""
    row_of = problem.simulation.snapshot.ledger.cluster.row_of
    names = [name for node in problem.needs.unit.nodes for name in node.member_nodes if name in row_of]
    return {domain_of[row_of[name]] for name in names} if names else set(domain_of)


def _missing(problem: PreemptionProblem, rows: Rows) -> Amounts:
    """Return how much of every resource has to be freed on the rows at least, so that there is enough in sum."""
    ledger = problem.simulation.snapshot.ledger
    vectors = [ledger.classes.vector_of(found) for found in problem.needs.classes.values()]
    free = np.maximum(ledger.allocatable[rows] - ledger.used[rows], 0).sum(axis=0)
    missing: Amounts = np.stack(vectors).min(axis=0) * problem.goal - free
    return missing


def _fewest_evictions(
    problem: PreemptionProblem, rows: Rows, victims: Sequence[PotentialVictim], missing: Amounts
) -> int:
    """Return how many units have to leave the rows at least to free what is missing."""
    ledger = problem.simulation.snapshot.ledger
    inside = set(rows.tolist())
    held = np.stack(
        [
            sum(ledger.classes.vector_of(pod_class) for pod_class, row in found.locations if row in inside)
            for found in victims
        ]
    )
    largest = np.cumsum(np.sort(held, axis=0)[::-1], axis=0)
    short = np.flatnonzero(missing > 0)
    return max([1, *(int(np.searchsorted(largest[:, column], missing[column])) + 1 for column in short)])
