"""One cycle: a root unit in, a decision out.

1. Look at the unit: is it admissible, do running members contradict it?
2. Search for a place, minimums first, then everybody else.
3. Read off who goes where, and why not.
4. Take everything back: performing the decision is the shell's business, and so is assuming it.
"""

from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from cpg_engine.decisions import Bind, Decision
from cpg_engine.errors import ContradictionError
from cpg_engine.filters.volumebinding import volume_choices
from cpg_engine.gangs.advice import next_step
from cpg_engine.gangs.allocation import Options, Search
from cpg_engine.gangs.unit import Unit
from cpg_engine.gangs.world import World
from cpg_engine.snapshot.classes import PodClass
from cpg_engine.verdicts import Explanation, Finding


class Reservation(Struct, frozen=True):
    """Room that a pod holds before it has it."""

    pod_class: PodClass
    node: str


def decide(world: World, unit: Unit, options: Options, reserved: Iterable[Reservation] = ()) -> Decision:
    """Decide where the pods of a unit go; the ledger is afterwards what it was before.

    ``reserved`` is room that is kept for others: pods of at least this priority that are nominated to a node.
    """
    ledger = world.ledger
    mark = ledger.mark()
    try:
        for found in reserved:
            row = ledger.cluster.row_of.get(found.node)
            if row is not None:
                ledger.place(found.pod_class, np.array([row]))
        search = Search(world, unit, options)
        finding, detail = _run(search)
        seats = search.seats() if finding is Finding.PLACED else ()
        binds = tuple(
            Bind(member.uid, ledger.cluster.name(row), volume_choices(ledger, member.pod_class, row))
            for member, row in seats
        )
        reports = search.reports()
    finally:
        ledger.rollback(mark)
    step = next_step(finding, reports)
    return Decision(binds=binds, explanation=Explanation(finding, reports, step, detail))


def _run(search: Search) -> tuple[Finding, str]:
    """Return what the search found, and, of members that contradict their tree, what contradicts it."""
    try:
        return search.run(), ""
    except ContradictionError as error:
        return Finding.CONTRADICTION, str(error)
