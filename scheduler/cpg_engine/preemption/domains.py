"""In which domain a tree is to have its place: the one that costs least.

Every domain has a bound on its cost: the fewest units that free what is missing there of some resource. Domains are
tried in the order of their bounds, and once none of those that are left can be better than the best so far, they are
not looked at. A bound may promise too much, never too little.
"""

from collections.abc import Collection, Sequence

import numpy as np
from msgspec import Struct

from cpg_engine.cluster.axes import Rows
from cpg_engine.preemption.candidates import PotentialVictim
from cpg_engine.preemption.case import Attempt, Case, Comparison, Cost
from cpg_engine.preemption.clearing import Clearing
from cpg_engine.preemption.narrowing import narrowed
from cpg_engine.preemption.settling import reprieved
from cpg_engine.topology.domains import Scope


class Place(Struct, frozen=True, eq=False):
    """A domain, the candidates that have a pod there, and how many units have to go at the least."""

    scope: Scope
    some: Sequence[PotentialVictim]
    least: int


def cheapest_domain(case: Case, some: Sequence[PotentialVictim], key: str) -> Comparison | None:
    """Return the attempt in the domain of a label that costs least, of those who are at the lowest levels that do.

    It is not reprieved yet, but costs what it will once it is.
    """
    covered = any(found.is_covered for found in some)
    floor = int(covered), (min if covered else max)(found.unit.priority for found in some)
    best: tuple[Cost, Attempt] | None = None
    number, exhausted = 0, False
    for place in _places(case, some, key):
        if best is not None and best[0][:4] <= (*floor, place.least, place.least):
            break
        exhausted = case.trials.tired() or (number >= case.trials.options.budget and best is not None)
        if exhausted:
            break
        number += 1
        attempt = narrowed(case, place.some, place.scope)
        if attempt is not None:
            cost = case.cost(reprieved(case, attempt).gone)
            if best is None or cost < best[0]:
                best = cost, attempt
    return Comparison(best[1], number, exhausted=exhausted) if best else None


def _places(case: Case, some: Sequence[PotentialVictim], key: str) -> list[Place]:
    """Return the domains that could hold as many pods as there should be, the most promising first."""
    snapshot = case.trials.snapshot
    scopes = snapshot.topology.partition(snapshot.topology.whole(), key).scopes
    domain_of = np.full(snapshot.ledger.cluster.size, -1)
    for number, scope in enumerate(scopes):
        domain_of[scope.rows] = number
    inside: list[list[PotentialVictim]] = [[] for _ in scopes]
    for found in some:
        for number in sorted({int(domain_of[row]) for row in found.rows}):
            if number >= 0:
                inside[number].append(found)
    clearing, open_to = Clearing(case, some), _open(case, domain_of.tolist())
    places = []
    for number, (scope, there) in enumerate(zip(scopes, inside, strict=True)):
        if there and number in open_to and clearing.most(scope.rows) >= case.goal:
            places.append((Place(scope, there, _least(case, scope.rows, there)), int(clearing.liking(scope.rows))))
    places.sort(key=lambda pair: (pair[0].least, -pair[1]))
    return [place for place, _ in places]


def _open(case: Case, domain_of: Sequence[int]) -> Collection[int]:
    """Return which domains running members leave open: their own, or all where there are none."""
    row_of = case.trials.snapshot.ledger.cluster.row_of
    homes = [home for node in case.needs.unit.nodes for home in node.member_nodes if home in row_of]
    return {domain_of[row_of[home]] for home in homes} if homes else set(domain_of)


def _least(case: Case, rows: Rows, some: Sequence[PotentialVictim]) -> int:
    """Return how many units have to go from some rows at the least, so that there is enough of everything in sum."""
    ledger = case.trials.snapshot.ledger
    wanted = np.stack([ledger.vector_of(found) for found in case.needs.classes.values()]).min(axis=0) * case.goal
    free = np.maximum(ledger.allocatable[rows] - ledger.used[rows], 0).sum(axis=0)
    inside = set(rows.tolist())
    taken = np.stack(
        [sum(ledger.vector_of(pod_class) for pod_class, row in found.homes if row in inside) for found in some]
    )
    largest = np.cumsum(np.sort(taken, axis=0)[::-1], axis=0)
    missing = wanted - free
    short = np.flatnonzero(missing > 0)
    return max([1, *(int(np.searchsorted(largest[:, column], missing[column])) + 1 for column in short)])
