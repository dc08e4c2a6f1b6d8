"""As few nodes as possible: how many of them have to be cleared, in the order of what they cost."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from cpg_engine.preemption.candidates import Candidate
from cpg_engine.preemption.case import Attempt, Case
from cpg_engine.preemption.clearing import Clearing
from cpg_engine.snapshot.axes import Rows
from cpg_engine.topology.domains import Scope

T = TypeVar("T")


def narrowed(case: Case, some: Sequence[Candidate], within: Scope | None = None) -> Attempt | None:
    """Return an attempt that clears no more nodes of the scope than needed, or None where clearing all is not enough.

    Nobody goes who has no pod in the scope.
    """
    scope = within or case.trials.world.topology.whole()
    clearing = Clearing(case, some)
    found = []
    for order in clearing.orders(scope.rows):
        enough = np.flatnonzero(clearing.fits(order, scope.rows) >= case.goal)
        guess = max(int(enough[0]), 1) if len(enough) else len(order)
        # Units that stand on one node each give nothing elsewhere, so that with fewer nodes the bounds forbid it.
        least = 1 if clearing.is_shared else guess
        attempt = smallest(_clearing_of(case, some, order, within), guess=guess, least=least, most=len(order))
        if attempt is not None:
            found.append(attempt)
    return min(found, key=lambda attempt: case.cost(attempt.gone), default=None)


def _clearing_of(
    case: Case, some: Sequence[Candidate], order: Rows, within: Scope | None
) -> Callable[[int], Attempt | None]:
    """Return what clears so many nodes of an order, and has the search say whether that is enough."""
    place = {row: number for number, row in enumerate(order.tolist())}
    first = [min((place[row] for row in found.rows if row in place), default=len(order)) for found in some]

    def attempt(nodes: int) -> Attempt | None:
        gone = [found for found, number in zip(some, first, strict=True) if number < nodes]
        seats = case.trials.seats(gone, within)
        return Attempt(gone, seats) if case.reaches(seats) else None

    return attempt


def smallest(attempt: Callable[[int], T | None], *, guess: int, least: int, most: int) -> T | None:
    """Return the first success of an attempt with a number from the least to the most, looked for around a guess.

    From the guess on the steps are doubled, first up, then down, and what is left between a failure and a success is
    halved. A success is taken to be one with any larger number, too.
    """
    failed, step, number = least - 1, 1, min(guess, most)
    found = attempt(number) if most else None
    while found is None:
        if number >= most:
            return None
        failed, number, step = number, min(number + step, most), 2 * step
        found = attempt(number)
    step = 1
    while number - failed > 1:
        middle = max((failed + number) // 2, number - step)
        better = attempt(middle)
        if better is None:
            failed = middle
        else:
            found, number, step = better, middle, 2 * step
    return found
