"""Tries: what the search makes of it if some candidates are gone."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from cpg_engine.errors import ContradictionError
from cpg_engine.gangs.next_step import next_step
from cpg_engine.gangs.search import PlacementSearch, SearchOptions
from cpg_engine.gangs.unit import PendingPod, Unit
from cpg_engine.preemption.candidates import PotentialVictim, uids_of
from cpg_engine.snapshot import Snapshot
from cpg_engine.topology.domains import Scope
from cpg_engine.verdicts import Explanation, Finding

EFFORT = 1000
"""What all searches of a plan may take for each retry that is allowed in one of them, and once more.

By the default budget it is a second or so.
"""

Seats = tuple[tuple[PendingPod, int], ...]
"""Who would be at which row, in the order of the tree."""


class Trials:
    """Tries for one unit. Each leaves the ledger as it found it."""

    def __init__(self, snapshot: Snapshot, unit: Unit, options: SearchOptions) -> None:
        """Try nothing yet."""
        self.snapshot = snapshot
        self.unit = unit
        self.options = options
        self._terse = replace(options, detail=False)
        self._left = EFFORT * (options.budget + 1)
        self.is_cut = False
        """Whether anything was left undone since too much had been done."""

    def spend(self, effort: int) -> None:
        """Count what has been done for the plan."""
        self._left -= effort

    def tired(self) -> bool:
        """Tell whether so much has been done that what could still be made better is left as it is."""
        self.is_cut |= self._left <= 0
        return self._left <= 0

    def look(self, gone: Sequence[PotentialVictim] = ()) -> tuple[Seats, Explanation]:
        """Return who has a place when some are gone, and what becomes of each group; as it is now without detail."""
        ledger = self.snapshot.ledger
        mark = ledger.mark()
        try:
            ledger.ignore(uids_of(gone))
            search = PlacementSearch(self.snapshot, self.unit, self.options if gone else self._terse)
            finding = _run(search)
            self.spend(search.effort)
            reports = search.reports()
            seats = tuple(search.seats()) if finding is Finding.PLACED else ()
        finally:
            ledger.rollback(mark)
        return seats, Explanation(finding, reports, next_step(finding, reports))

    def seats(self, gone: Iterable[PotentialVictim], within: Scope | None = None) -> Seats:
        """Return who has a place when some are gone, nobody if the minimum has none; all of it inside the scope."""
        ledger = self.snapshot.ledger
        mark = ledger.mark()
        try:
            ledger.ignore(uids_of(gone))
            search = PlacementSearch(self.snapshot, self.unit, self._terse, within)
            finding = search.run()
            self.spend(search.effort)
            return tuple(search.seats()) if finding is Finding.PLACED else ()
        finally:
            ledger.rollback(mark)


def _run(search: PlacementSearch) -> Finding:
    try:
        return search.run()
    except ContradictionError:
        return Finding.CONTRADICTION
