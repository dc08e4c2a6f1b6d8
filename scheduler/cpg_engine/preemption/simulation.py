"""One preemption problem, and the simulation of evictions that answers it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from cpg_engine.errors import ContradictionError
from cpg_engine.gangs.needs import Needs
from cpg_engine.gangs.next_step import next_step
from cpg_engine.gangs.search import PlacementSearch, SearchOptions
from cpg_engine.gangs.unit import PendingPod, Unit
from cpg_engine.preemption.budgets import BudgetAllowances
from cpg_engine.preemption.victims import UNKNOWN_START, PotentialVictim, uids_of, violators_first
from cpg_engine.snapshot import Snapshot
from cpg_engine.topology.domains import Scope
from cpg_engine.verdicts import Explanation, Finding

MAX_EFFORT_PER_RETRY = 1000
"""Effort that all searches of a plan may use, for each retry that a search is allowed and once more.

With the default budget of 100 retries it takes about a second.
"""

NO_PRIORITY = -(2**31) - 1
"""Lower than every priority."""

Assignments = tuple[tuple[PendingPod, int], ...]
"""The row of each pod that is placed, in the order of the tree."""

Cost = tuple[int, int, int, int, int]
"""Budget violations, highest priority, units, pods, and the age of the oldest unit of the highest priority.

Less is better.
"""


class PreemptionCandidate(Struct, frozen=True, eq=False):
    """Victims, the most important first, and where the preemptor's pods are placed without them."""

    victims: Sequence[PotentialVictim]
    assignments: Assignments


class BestCandidate(Struct, frozen=True, eq=False):
    """The best of the candidates that were compared.

    ``exhausted`` says that the budget ended the comparison and there were more.
    """

    best: PreemptionCandidate
    compared: int
    exhausted: bool = False


class Simulation:
    """Searches for one unit in the cluster without some victims. Each leaves the ledger as it was."""

    def __init__(self, snapshot: Snapshot, unit: Unit, options: SearchOptions) -> None:
        """Start with the whole effort."""
        self.snapshot = snapshot
        self.unit = unit
        # An exact search for each step of a plan would take too long.
        self.options = replace(options, exact=False)
        self._terse = replace(self.options, detail=False)
        self._effort_left = MAX_EFFORT_PER_RETRY * (options.budget + 1)
        self.is_truncated = False
        """Whether an improvement was left out because the effort was used up."""

    def spend(self, effort: int) -> None:
        """Count effort that the plan has used."""
        self._effort_left -= effort

    def out_of_effort(self) -> bool:
        """Return whether the effort is used up; the caller then leaves out what would only improve the plan."""
        self.is_truncated |= self._effort_left <= 0
        return self._effort_left <= 0

    def explain(self, victims: Sequence[PotentialVictim] = ()) -> tuple[Assignments, Explanation]:
        """Return the assignments without some victims and the reports; without victims, the reports have no detail."""
        ledger = self.snapshot.ledger
        mark = ledger.mark()
        try:
            ledger.ignore(uids_of(victims))
            search = PlacementSearch(self.snapshot, self.unit, self.options if victims else self._terse)
            finding = _run(search)
            self.spend(search.effort)
            reports = search.reports()
            limitations = search.limitations(finding)
            assignments = tuple(search.assignments()) if finding is Finding.PLACED else ()
        finally:
            ledger.rollback(mark)
        return assignments, Explanation(finding, reports, next_step(finding, reports), limitations=limitations)

    def assign(self, victims: Iterable[PotentialVictim], within: Scope | None = None) -> Assignments:
        """Return the assignments without some victims, all inside a scope; none where the minimum finds no place."""
        ledger = self.snapshot.ledger
        mark = ledger.mark()
        try:
            ledger.ignore(uids_of(victims))
            search = PlacementSearch(self.snapshot, self.unit, self._terse, within)
            finding = search.run()
            self.spend(search.effort)
            return tuple(search.assignments()) if finding is Finding.PLACED else ()
        finally:
            ledger.rollback(mark)


def _run(search: PlacementSearch) -> Finding:
    try:
        return search.run()
    except ContradictionError:
        return Finding.CONTRADICTION


class PreemptionProblem(Struct, frozen=True, eq=False):
    """What all steps of one plan share; ``goal`` is how many pods are placed without any potential victim."""

    simulation: Simulation
    needs: Needs
    budgets: BudgetAllowances
    start_ranks: Mapping[str, int]
    goal: int

    def is_solved_by(self, assignments: Assignments) -> bool:
        """Return whether the assignments reach the goal."""
        return len(assignments) >= self.goal

    def violations(self, victims: Sequence[PotentialVictim]) -> list[bool]:
        """Return for each victim, the most important first, whether its eviction violates a budget."""
        return self.budgets.violations([found.unit for found in victims])

    def cost(self, victims: Sequence[PotentialVictim]) -> Cost:
        """Return the cost of evicting the victims."""
        highest = max((found.unit.priority for found in victims), default=NO_PRIORITY)
        return (
            sum(self.violations(victims)),
            highest,
            len(victims),
            sum(len(found.unit.pods) for found in victims),
            -min((self.start_rank(found) for found in victims if found.unit.priority == highest), default=0),
        )

    def start_rank(self, victim: PotentialVictim) -> int:
        """Return a number that is larger for a unit that started later."""
        return self.start_ranks[victim.unit.since or UNKNOWN_START]

    def reprieve_order(self, victims: Sequence[PotentialVictim]) -> list[PotentialVictim]:
        """Return the victims with those that violate budgets first, then the most important."""
        return violators_first(victims, self.violations(victims))


@contextmanager
def preempted(snapshot: Snapshot, assignments: Assignments, victims: Iterable[PotentialVictim]) -> Iterator[None]:
    """Have the ledger hold the preemptor's pods and not the victims, for as long as the block runs."""
    ledger = snapshot.ledger
    mark = ledger.mark()
    try:
        ledger.ignore(uids_of(victims))
        for pod_class, alike in groupby(assignments, key=lambda pair: pair[0].pod_class):
            ledger.place(pod_class, np.array([row for _, row in alike], dtype=np.intp))
        yield
    finally:
        ledger.rollback(mark)
