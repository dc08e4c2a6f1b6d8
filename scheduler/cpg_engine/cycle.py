"""One scheduling cycle: a unit in, a decision out.

1. Ignore the reservations that the unit may take.
2. Search for a placement: the minimums first, then all other pods.
3. Read off the binds, with their allocations, and the report of every group.
4. Roll everything back. Assuming and performing the decision is up to the scheduler.
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
    """Decide where the pods of a unit go; the ledger is unchanged afterwards.

    The ledger holds nominated pods as if they ran. ``ignored`` are the UIDs of nominated pods that give way to the
    unit: pods of its own tree, and of trees that it outranks.
    """
    ledger = snapshot.ledger
    mark = ledger.mark()
    try:
        ledger.ignore(ignored)
        search = PlacementSearch(snapshot, unit, options)
        finding, contradiction = _run(search)
        assignments = search.assignments() if finding is Finding.PLACED else ()
        binds = tuple(
            Bind(pod.uid, ledger.cluster.name(row), ledger.allocators.allocations(pod.pod_class, row))
            for pod, row in assignments
        )
        reports = search.reports()
        limitations = search.limitations(finding)
        placements = search.placement_counts()
    finally:
        ledger.rollback(mark)
    explanation = Explanation(finding, reports, next_step(finding, reports), contradiction, limitations)
    return Decision(binds=binds, explanation=explanation, placements=placements)


def _run(search: PlacementSearch) -> tuple[Finding, Contradiction | None]:
    """Return what the search found, and the contradiction where running members contradict their tree."""
    try:
        return search.run(), None
    except ContradictionError as error:
        return Finding.CONTRADICTION, error.contradiction
