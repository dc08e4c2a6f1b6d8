"""From an attempt to one in which nobody goes in vain, and which the next cycle will find by itself.

Reprieve and search take turns: whoever may stay with the seats as they are stays, the search is asked again with those
that still have to go, and its seats are the next to be held against. Nobody is left to be spared in the end, and the
seats are those that an ordinary cycle finds once the victims have gone.

Where pods of several shapes compete, the search may miss in the fuller cluster what it found in the emptier one. Then
it is asked for every reprieve, in batches, as long as the budget lasts. What the search has found stands where too much
has been done for the plan: then somebody may go who could have stayed, but nobody goes for nothing.
"""

from collections.abc import Sequence

from cpg_engine.preemption.candidates import PotentialVictim, without
from cpg_engine.preemption.case import Attempt, Case
from cpg_engine.preemption.sparing import put_back, spared


def settled(case: Case, attempt: Attempt) -> Attempt:
    """Return an attempt in which nobody of those who go could stay."""
    while True:
        smaller = reprieved(case, attempt)
        if smaller is attempt:
            return attempt
        seats = case.trials.seats(smaller.gone)
        if not case.reaches(seats):
            return _searched(case, attempt)
        attempt = Attempt(smaller.gone, seats)
        if case.trials.tired():
            return attempt


def reprieved(case: Case, attempt: Attempt) -> Attempt:
    """Return the attempt without those who may stay with the seats as they are; the same one where there are none."""
    order = case.in_order_of_reprieve(attempt.gone)
    staying = spared(case.trials.snapshot, attempt.seats, order)
    return Attempt(without(attempt.gone, staying), attempt.seats) if staying else attempt


def _searched(case: Case, attempt: Attempt) -> Attempt:
    """Return the attempt without those who may stay as the search finds, asked for each batch."""
    best, budget = attempt, case.trials.options.budget

    def fit(some: Sequence[PotentialVictim]) -> bool:
        nonlocal best, budget
        budget -= 1
        gone = without(best.gone, some)
        seats = case.trials.seats(gone) if budget >= 0 and not case.trials.tired() else ()
        if case.reaches(seats):
            best = Attempt(gone, seats)
            return True
        return False

    put_back(case.in_order_of_reprieve(attempt.gone), fit)
    return best
