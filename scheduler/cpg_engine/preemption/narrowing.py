"""As few as possible: how many have to go, node by node in the order of what nodes cost.

The search has the say; but that it need not be asked often, the bounds tell how many it takes at the least.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from cpg_engine.cluster.axes import Rows
from cpg_engine.gangs.search import LOOK
from cpg_engine.preemption.candidates import PotentialVictim
from cpg_engine.preemption.case import Attempt, Case
from cpg_engine.preemption.clearing import Clearing
from cpg_engine.topology.domains import Scope

T = TypeVar("T")


def narrowed(case: Case, some: Sequence[PotentialVictim], within: Scope | None = None) -> Attempt | None:
    """Return an attempt in which no more go than needed, or None where all who have a pod in the scope are too few."""
    scope = within or case.trials.snapshot.topology.whole()
    clearing = Clearing(case, some)
    case.trials.spend(3 * LOOK * len(case.needs.classes))
    found = []
    for nodes in clearing.orders(scope.rows):
        order = _order(some, nodes)
        enough = np.flatnonzero(clearing.fits(order, scope.rows) >= case.goal)
        guess = max(int(enough[0]), 1) if len(enough) else len(order)
        attempt = smallest(_going(case, some, order, within), guess, len(order), tired=case.trials.tired)
        if attempt is not None:
            found.append(attempt)
    return min(found, key=lambda attempt: case.cost(attempt.gone), default=None)


def _order(some: Sequence[PotentialVictim], nodes: Rows) -> list[int]:
    """Return the places of those who have a pod at one of the nodes, in the order in which they would go.

    Node by node, those whom no budget covers first, then the least important.
    """
    rank = {row: number for number, row in enumerate(nodes.tolist())}
    first = [min((rank[row] for row in found.rows if row in rank), default=None) for found in some]
    going = [(node, some[place].is_covered, -place) for place, node in enumerate(first) if node is not None]
    return [-place for *_, place in sorted(going)]


def _going(
    case: Case, some: Sequence[PotentialVictim], order: Sequence[int], within: Scope | None
) -> Callable[[int], Attempt | None]:
    """Return what lets so many of an order go, and has the search say whether that is enough."""

    def attempt(number: int) -> Attempt | None:
        gone = [some[place] for place in sorted(order[:number])]
        seats = case.trials.seats(gone, within)
        return Attempt(gone, seats) if case.reaches(seats) else None

    return attempt


def smallest(
    attempt: Callable[[int], T | None], least: int, most: int, *, tired: Callable[[], bool] = bool
) -> T | None:
    """Return the first success of an attempt with a number from the least to the most.

    From the least on the steps are doubled, and what is left between a failure and a success is halved. A success is
    taken to be one with any larger number, too. Who is tired tries the most, or takes what has been found.
    """
    failed, step, number = least - 1, 1, least
    found = attempt(number) if least <= most else None
    while found is None:
        if number >= most:
            return None
        failed, number, step = number, most if tired() else min(number + step, most), 2 * step
        found = attempt(number)
    while number - failed > 1 and not tired():
        middle = (failed + number) // 2
        better = attempt(middle)
        if better is None:
            failed = middle
        else:
            found, number = better, middle
    return found
