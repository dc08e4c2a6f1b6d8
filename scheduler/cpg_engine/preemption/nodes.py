"""Preemption for a single pod, by the rules of kube-scheduler.

1. A node is a candidate if the pod could run there without all units of lower priority that have a pod on the node.
2. On each, units are put back: those whose eviction would violate a budget first, then the most important. A budget's
   allowance is used up by the units of the node in the order of importance.
3. Of the nodes one is chosen by: the fewest violations; the lowest of the highest priorities; the smallest sum of
   priorities, each raised above zero, so that fewer victims of one priority win; the fewest pods; the latest start of
   the oldest among those of the highest priority; then by name.

Where room alone matters, all nodes are looked at at once. Where the pod sees others, nodes are simulated one after the
other in the order of what room alone would cost, as many as the budget of the search allows.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from cpg_engine.cluster.axes import Flags, Rows
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.filters import node_resources
from cpg_engine.gangs.placement import depends_on_other_pods, pre_filter_states
from cpg_engine.gangs.unit import PendingPod
from cpg_engine.preemption.allowances import Allowances
from cpg_engine.preemption.candidates import NOW, PotentialVictim, potential_victims, uids_of, violators_first, without
from cpg_engine.preemption.case import Attempt
from cpg_engine.preemption.stands import Stands, by_importance, lowest, stands_of, victims, violating
from cpg_engine.preemption.values import VictimUnit
from cpg_engine.snapshot import Snapshot

RAISED = 2**31
"""What makes every priority positive."""


class Found(Struct, frozen=True, eq=False):
    """The best of so many nodes, if any; there were more of them than the budget allowed where it is exhausted.

    ``considered`` units take room somewhere.
    """

    considered: int
    best: Attempt | None = None
    compared: int = 0
    exhausted: bool = False


def node_for(
    snapshot: Snapshot, member: PendingPod, units: Sequence[VictimUnit], *, allowances: Allowances, budget: int
) -> Found:
    """Return who of some units has to go so that a pod finds room, on the node where that costs least."""
    kind, ledger = member.pod_class, snapshot.ledger
    columns = np.flatnonzero(ledger.vector_of(kind))
    stands = stands_of(snapshot, units, columns)
    considered = len(np.unique(stands.owners))
    if not considered:
        return Found(considered)
    room = ledger.allocatable[:, columns] - ledger.used[:, columns] - ledger.vector_of(kind)[columns]
    able = snapshot.score_cache.of(kind).feasible
    if allowances or depends_on_other_pods(snapshot, kind):
        room += stands.total(len(room))
        stands = stands.only((able & (room >= 0).all(axis=1))[stands.rows])
    else:
        stands, room = lowest(stands, room, able)
    stands = by_importance(stands)
    violates = violating(stands, allowances)
    order = np.lexsort((~violates, stands.rows))
    stands, violates = stands.only(order), violates[order]
    gone = victims(stands, room)
    rows = _best_first(snapshot, stands.only(gone), violates[gone], np.unique(stands.rows))
    if depends_on_other_pods(snapshot, kind):
        best = _best_of(snapshot, member, {row: stands.at(row) for row in rows[:budget].tolist()}, allowances)
        return Found(considered, best, len(rows[:budget]), exhausted=len(rows) > budget)
    if not len(rows):
        return Found(considered)
    chosen = int(rows[0])
    some = potential_victims(ledger, stands.only(gone).at(chosen))
    return Found(considered, Attempt(some, ((member, chosen),)), len(rows))


def _best_first(snapshot: Snapshot, gone: Stands, violates: Flags, rows: Rows) -> Rows:
    """Return the rows, the one first that is chosen by the rules."""
    size = snapshot.ledger.cluster.size
    highest, total = np.full(size, -RAISED, dtype=np.int64), np.zeros(size, dtype=np.int64)
    sizes = gone.sizes()
    np.maximum.at(highest, gone.rows, gone.priorities)
    np.add.at(total, gone.rows, sizes * (gone.priorities + RAISED))
    pods, oldest = np.zeros(size, dtype=np.int64), np.full(size, np.iinfo(np.int64).max)
    np.add.at(pods, gone.rows, sizes)
    top = gone.priorities == highest[gone.rows]
    np.minimum.at(oldest, gone.rows[top], gone.ages()[top])
    violations = np.bincount(gone.rows[violates], minlength=size)
    keys = (snapshot.ledger.cluster.ranks, -oldest, pods, total, highest, violations)
    return rows[np.lexsort([key[rows] for key in keys])]


# One node after the other, for a pod that sees others.


class _Tried(Struct, frozen=True, eq=False):
    """A node that was simulated: who has to go, and what it is chosen by.

    That is violations, the highest priority, the sum of priorities and the number of pods, then the start.
    """

    gone: list[PotentialVictim]
    row: int
    rank: tuple[int, int, int, int]
    start: str


def _best_of(
    snapshot: Snapshot, member: PendingPod, units_at: dict[int, list[VictimUnit]], allowances: Allowances
) -> Attempt | None:
    """Return the best of some rows, given who is there."""
    tried = [
        found
        for row, units in units_at.items()
        if (found := _tried(snapshot, member.pod_class, row, potential_victims(snapshot.ledger, units), allowances))
    ]
    if not tried:
        return None
    least = min(found.rank for found in tried)
    tied = [found for found in tried if found.rank == least]
    latest = max(found.start for found in tied)
    chosen = min(
        (found for found in tied if found.start == latest), key=lambda found: snapshot.ledger.cluster.name(found.row)
    )
    return Attempt(chosen.gone, ((member, chosen.row),))


def _tried(
    snapshot: Snapshot, kind: PodClass, row: int, some: Sequence[PotentialVictim], allowances: Allowances
) -> _Tried | None:
    """Return who has to go from a row, or None where not even all who are there would be enough."""
    ledger = snapshot.ledger
    mark = ledger.mark()
    names = allowances.violated([found.unit for found in some])
    gone = violators_first(some, names)
    try:
        ledger.ignore(uids_of(some))
        if not _passes(snapshot, kind, row):
            return None
        while staying := [found for found in gone if _stays(snapshot, kind, row, found)]:
            gone = without(gone, staying)
    finally:
        ledger.rollback(mark)
    violations = sum(bool(found) for one, found in zip(some, names, strict=True) if one in gone)
    highest = max((found.unit.priority for found in gone), default=-RAISED)
    sizes = [len(found.unit.pods) for found in gone]
    total = sum(size * (found.unit.priority + RAISED) for size, found in zip(sizes, gone, strict=True))
    return _Tried(
        gone=[found for found in some if found in gone],
        row=row,
        rank=(violations, highest, total, sum(sizes)),
        start=min((found.unit.since or NOW for found in gone if found.unit.priority == highest), default=NOW),
    )


def _stays(snapshot: Snapshot, kind: PodClass, row: int, found: PotentialVictim) -> bool:
    """Put a unit back if the pod could still run at a row; return whether it could."""
    ledger = snapshot.ledger
    mark = ledger.mark()
    ledger.restore(found.uids)
    if _passes(snapshot, kind, row):
        return True
    ledger.rollback(mark)
    return False


def _passes(snapshot: Snapshot, kind: PodClass, row: int) -> bool:
    at = np.array((row,), dtype=np.intp)
    return bool(node_resources.passes(kind, snapshot.ledger, at)[0]) and all(
        view.passes(at)[0] for view in pre_filter_states(snapshot, kind)
    )
