"""Tries: what the search makes of it if some candidates are gone."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from cpg_engine.errors import ContradictionError
from cpg_engine.gangs.advice import next_step
from cpg_engine.gangs.allocation import Options, Search
from cpg_engine.gangs.unit import Member, Unit
from cpg_engine.gangs.world import World
from cpg_engine.preemption.candidates import Candidate, uids_of
from cpg_engine.topology.domains import Scope
from cpg_engine.verdicts import Explanation, Finding

Seats = tuple[tuple[Member, int], ...]
"""Who would be at which row, in the order of the tree."""


class Trials:
    """Tries for one unit. Each leaves the ledger as it found it."""

    def __init__(self, world: World, unit: Unit, options: Options) -> None:
        """Try nothing yet."""
        self.world = world
        self.unit = unit
        self.options = options
        self._terse = replace(options, detail=False)

    def look(self, gone: Sequence[Candidate] = ()) -> tuple[Seats, Explanation]:
        """Return who has a place when some are gone, and what becomes of each group; as it is now without detail."""
        ledger = self.world.ledger
        mark = ledger.mark()
        try:
            ledger.lift(uids_of(gone))
            search = Search(self.world, self.unit, self.options if gone else self._terse)
            finding = _run(search)
            reports = search.reports()
            seats = tuple(search.seats()) if finding is Finding.PLACED else ()
        finally:
            ledger.rollback(mark)
        return seats, Explanation(finding, reports, next_step(finding, reports))

    def seats(self, gone: Iterable[Candidate], within: Scope | None = None) -> Seats:
        """Return who has a place when some are gone, nobody if the minimum has none; all of it inside the scope."""
        ledger = self.world.ledger
        mark = ledger.mark()
        try:
            ledger.lift(uids_of(gone))
            search = Search(self.world, self.unit, self._terse, within)
            return tuple(search.seats()) if search.run() is Finding.PLACED else ()
        finally:
            ledger.rollback(mark)


def _run(search: Search) -> Finding:
    try:
        return search.run()
    except ContradictionError:
        return Finding.CONTRADICTION
