"""One cycle: a root unit in, a decision out.

1. Look at the unit: is it admissible, do running members contradict it?
2. Search for a place, minimums first, then everybody else.
3. Read off who goes where, and why not.
4. Take everything back: performing the decision is the shell's business, and so is assuming it.
"""

from cpg_engine.decisions import Bind, Decision
from cpg_engine.errors import ContradictionError
from cpg_engine.gangs.allocation import Options, Search
from cpg_engine.gangs.unit import Unit
from cpg_engine.gangs.world import World
from cpg_engine.verdicts import Counts, Explanation, Finding, NodeReport


def decide(world: World, unit: Unit, options: Options) -> Decision:
    """Decide where the pods of a unit go; the ledger is afterwards what it was before."""
    mark = world.ledger.mark()
    search = Search(world, unit, options)
    try:
        finding = search.run()
        placed = finding is Finding.PLACED
        binds = tuple(
            Bind(uid=member.uid, node=world.ledger.cluster.name(row)) for member, row in search.seats() if placed
        )
        return Decision(binds=binds, explanation=Explanation(finding=finding, reports=search.reports()))
    except ContradictionError as error:
        reports = tuple(NodeReport(key=node.key, counts=Counts(minimum=node.minimum)) for node in unit.nodes)
        return Decision(
            binds=(), explanation=Explanation(finding=Finding.CONTRADICTION, reports=reports, detail=str(error))
        )
    finally:
        world.ledger.rollback(mark)
