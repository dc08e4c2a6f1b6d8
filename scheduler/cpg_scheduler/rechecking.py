"""One more look at a decision, just before the first of its binds: what has arrived meanwhile may speak against it.

Everything that is looked at is known to the engine as well, so what is objected to here is decided otherwise the next
time. An order in whose time nothing has happened is not looked at: see ``State.disturbances``.
"""

from collections.abc import Mapping

import numpy as np

from cpg_engine.filters.registry import statically_feasible, storage_checks
from cpg_engine.snapshot.axes import Rows
from cpg_engine.snapshot.classes import PodClass
from cpg_engine.snapshot.ledger import Ledger
from cpg_scheduler.caches.state import State


def objection(state: State, nodes: Mapping[str, str]) -> str:
    """Say what speaks by now against binding these pods, by UID, to their nodes; empty where nothing does.

    They are in the ledger already, so that a node with too little room for them shows as one that is overdrawn.
    Room that is kept for nominated pods is not taken.
    """
    ledger = state.world.ledger
    kinds: dict[PodClass, list[int]] = {}
    for uid, node in nodes.items():
        if not state.is_assumed(uid):
            return "one of its pods is gone, or about to go"
        row = ledger.cluster.row_of.get(node)
        if row is None:
            return f"node {node} is gone"
        kinds.setdefault(ledger.class_of(state.pods[uid]), []).append(row)
    mark = ledger.mark()
    ledger.lift(state.nominations.ghosts())
    try:
        problems = (_problem(ledger, kind, np.array(rows, dtype=np.intp)) for kind, rows in kinds.items())
        return next(filter(None, problems), "")
    finally:
        ledger.rollback(mark)


def _problem(ledger: Ledger, pod_class: PodClass, rows: Rows) -> str:
    """Say what is wrong with the nodes that pods of a class have been given."""
    columns = np.flatnonzero(ledger.vector_of(pod_class))
    cells = np.ix_(rows, columns)
    overdrawn = (ledger.used[cells] > ledger.allocatable[cells]).any(axis=1)
    if overdrawn.any():
        return f"node {ledger.cluster.name(int(rows[overdrawn.argmax()]))} has become too small or too full"
    out = ~statically_feasible(pod_class, ledger.cluster, rows)
    if out.any():
        return f"node {ledger.cluster.name(int(rows[out.argmax()]))} takes no such pods any more"
    return next((reason for reason, passed in storage_checks(pod_class, ledger, rows) if not passed.all()), "")
