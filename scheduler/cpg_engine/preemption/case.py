"""One question: who asks, what is to be reached, and what budgets allow."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from cpg_engine.gangs.feasibility import Needs
from cpg_engine.preemption.allowances import Allowances
from cpg_engine.preemption.candidates import NOW, PotentialVictim, violators_first
from cpg_engine.preemption.trying import Seats, Trials

Cost = tuple[int, int, int, int, int]
"""Violations, the highest priority, units, pods, and how old the oldest of the highest priority is: less is better."""


NOBODY = -(2**31) - 1
"""A priority that nobody has."""


class Attempt(Struct, frozen=True, eq=False):
    """Who would go, the most important first, and who would be where then."""

    gone: Sequence[PotentialVictim]
    seats: Seats


class Comparison(Struct, frozen=True, eq=False):
    """The best of so many places; there were more of them than the budget allowed where it is exhausted."""

    best: Attempt
    compared: int
    exhausted: bool = False


class Case(Struct, frozen=True, eq=False):
    """What all steps of a plan look at; ``goal`` is how many pods get a place if everybody goes who may."""

    trials: Trials
    needs: Needs
    allowances: Allowances
    ages: Mapping[str, int]
    goal: int

    def reaches(self, seats: Seats) -> bool:
        """Tell whether that is as good as if everybody went."""
        return len(seats) >= self.goal

    def violating(self, gone: Sequence[PotentialVictim]) -> list[tuple[str, ...]]:
        """Return for each of those who go, the most important first, which budgets do not allow it."""
        return self.allowances.violated([found.unit for found in gone])

    def cost(self, gone: Sequence[PotentialVictim]) -> Cost:
        """Return what it costs if these go."""
        highest = max((found.unit.priority for found in gone), default=NOBODY)
        return (
            sum(map(bool, self.violating(gone))),
            highest,
            len(gone),
            sum(len(found.unit.pods) for found in gone),
            -min((self.age(found) for found in gone if found.unit.priority == highest), default=0),
        )

    def age(self, found: PotentialVictim) -> int:
        """Return a number that is the larger, the later a unit started."""
        return self.ages[found.unit.since or NOW]

    def in_order_of_reprieve(self, gone: Sequence[PotentialVictim]) -> list[PotentialVictim]:
        """Return those who go, violators of budgets first, then the most important."""
        return violators_first(gone, self.violating(gone))
