"""One cycle: a root unit in, a decision out.

1. Look at the unit: is it admissible, do running members contradict it?
2. Search for a place, minimums first, then everybody else.
3. Read off who goes where, and why not.
4. Take everything back: performing the decision is the shell's business, and so is assuming it.
"""

from collections.abc import Iterable

from cpg_engine.decisions import Bind, Decision
from cpg_engine.errors import ContradictionError
from cpg_engine.gangs.next_step import next_step
from cpg_engine.gangs.search import PlacementSearch, SearchOptions
from cpg_engine.gangs.unit import Unit
from cpg_engine.snapshot import Snapshot
from cpg_engine.verdicts import Contradiction, Explanation, Finding


def decide(snapshot: Snapshot, unit: Unit, options: SearchOptions, *, ignored: Iterable[str] = ()) -> Decision:
    """Decide where the pods of a unit go; the ledger is afterwards what it was before.

    Pods that are nominated to a node are in the ledger as if they were there. ``ignored`` are those, by UID, that this
    cycle need not mind: of its own tree, and of trees that it outranks.
    """
    ledger = snapshot.ledger
    mark = ledger.mark()
    try:
        ledger.ignore(ignored)
        search = PlacementSearch(snapshot, unit, options)
        finding, contradiction = _run(search)
        seats = search.assignments() if finding is Finding.PLACED else ()
        binds = tuple(
            Bind(member.uid, ledger.cluster.name(row), ledger.allocators.allocations(member.pod_class, row))
            for member, row in seats
        )
        reports = search.reports()
        tries = search.tries()
    finally:
        ledger.rollback(mark)
    step = next_step(finding, reports)
    return Decision(binds=binds, explanation=Explanation(finding, reports, step, contradiction), placements=tries)


def _run(search: PlacementSearch) -> tuple[Finding, Contradiction | None]:
    """Return what the search found, and the contradiction where running members contradict their tree."""
    try:
        return search.run(), None
    except ContradictionError as error:
        return Finding.CONTRADICTION, error.contradiction
