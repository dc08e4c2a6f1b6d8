"""One more look at a decision, just before the first of its binds: what has arrived meanwhile may speak against it.

Everything that is looked at is known to the engine as well, so what is objected to here is decided otherwise the next
time. An order in whose time nothing has happened is not looked at: see ``State.disturbances``.

Of pods that see each other, one may stand where it could not come any more once all the others are there: whom to be
near, and how far to spread, is asked of newcomers alone. Who has stood like this from the beginning bears a *grudge*.
That is no objection later: it would be decided like this again.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from cpg_engine.cluster.axes import Rows
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.filters.registry import statically_feasible, storage_checks
from cpg_engine.snapshot import Snapshot
from cpg_scheduler.cache.cluster import ClusterCache

Kinds = Mapping[PodClass, Mapping[str, int]]
"""Pods by class, each by its UID with the row that it is at."""
KnownViolations = frozenset[tuple[str, str]]
"""Pods, by UID, each with a filter that would not let it come where it is."""


def known_violations(state: ClusterCache, uids: Iterable[str]) -> KnownViolations:
    """Tell who of these pods, just assumed, would not be let in if it came last; most see nobody, and cost nothing."""
    kinds, snapshot = _kinds(state.snapshot.ledger, uids), state.snapshot
    if not any(found.pre_filter(kind) for kind in kinds for found in snapshot.dynamic_filters):
        return frozenset()
    with _room_of_ghosts(state):
        return frozenset(_discontent(snapshot, kinds))


def validate_binds(state: ClusterCache, nodes: Mapping[str, str], borne: KnownViolations = frozenset()) -> str:
    """Say what speaks by now against binding these pods, by UID, to their nodes; empty where nothing does.

    They are in the ledger already, so that a node with too little room for them shows as one that is overdrawn.
    Room that is kept for nominated pods is not taken.
    """
    ledger = state.snapshot.ledger
    if not all(uid in state.assumed for uid in nodes):
        return "one of its pods is gone, or about to go"
    gone = next((node for node in nodes.values() if node not in ledger.cluster.row_of), None)
    if gone is not None:
        return f"node {gone} is gone"
    kinds = _kinds(ledger, nodes)
    with _room_of_ghosts(state):
        problems = (
            _problem(ledger, kind, np.array(list(rows.values()), dtype=np.intp)) for kind, rows in kinds.items()
        )
        found = next(filter(None, problems), "")
        if found:
            return found
        new = next((one for one in _discontent(state.snapshot, kinds) if one not in borne), None)
    return "" if new is None else f"pods have come or gone that speak against node {nodes[new[0]]} ({new[1]})"


@contextmanager
def _room_of_ghosts(state: ClusterCache) -> Iterator[None]:
    """Look at the ledger as if nobody were nominated."""
    ledger = state.snapshot.ledger
    mark = ledger.mark()
    ledger.ignore(state.reservations.reserved_uids())
    try:
        yield
    finally:
        ledger.rollback(mark)


def _kinds(ledger: Ledger, uids: Iterable[str]) -> Kinds:
    kinds: dict[PodClass, dict[str, int]] = {}
    for uid in uids:
        found = ledger.location_of(uid)
        if found is not None:
            kinds.setdefault(found[0], {})[uid] = found[1]
    return kinds


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


def _discontent(snapshot: Snapshot, kinds: Kinds) -> Iterator[tuple[str, str]]:
    """Yield the pods that would not be let in if they came last, each with the filter that would not."""
    for kind, homes in kinds.items():
        rows = np.array(list(homes.values()), dtype=np.intp)
        for found in snapshot.dynamic_filters:
            view = found.pre_filter(kind)
            if view is not None:
                name = type(found).__name__
                yield from ((uid, name) for uid, stays in zip(homes, view.still_passes(rows), strict=True) if not stays)
