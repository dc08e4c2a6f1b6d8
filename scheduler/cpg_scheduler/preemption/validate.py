"""One more look at a plan, just before the first is evicted for it, and at each unit when its turn has come.

The plan was made some requests ago. What has happened since may have made room without it, or taken the room that it
counts on, and whoever went would go in vain.
"""

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from cpg_api.core.pod import Pod
from cpg_engine.cluster.axes import Amounts
from cpg_engine.cycle import decide
from cpg_engine.filters.registry import statically_feasible
from cpg_engine.gangs.search import SearchOptions
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.preemption.states import ActivePreemption
from cpg_scheduler.units import SchedulableUnit, build_unit

ROOM = "there is room without it by now"


def validate_plan(state: ClusterCache, record: ActivePreemption, options: SearchOptions) -> str:
    """Say what speaks by now against evicting anybody for a plan; empty where nothing does."""
    ready = build_unit(state, record.root)
    if not isinstance(ready, SchedulableUnit) or ready.pods.keys() != record.pods:
        return "its pods are others now"
    if ready.priority != record.priority or not ready.preempts:
        return "it may not evict them any more"
    units = [eviction.unit.pods for eviction in record.plan.evictions] if record.plan is not None else []
    if any(is_other(state, unit, record.priority) for unit in units):
        return "somebody whom it is to evict goes with others by now, or is more important"
    left = state.budgets.allowed_after(state.pods[uid] for uid in record.evicts if uid in state.pods)
    if any(allowed < min(record.allowed.get(name, 0), 0) for name, allowed in left.items()):
        return "a PodDisruptionBudget allows less by now"
    passed = state.reservations.ignored_by(record.root, record.priority)
    return ROOM if decide(state.snapshot, ready.unit, options, ignored=passed).binds else ""


def count_assignments(
    state: ClusterCache, record: ActivePreemption, others: Collection[str], options: SearchOptions
) -> int:
    """Return how many pods of a plan's root would be placed if those had gone whom it evicts, or waits for.

    And if ``others`` had, who go for ghosts that are in its way.
    """
    ready = build_unit(state, record.root)
    if not isinstance(ready, SchedulableUnit):
        return 0
    passed = state.reservations.ignored_by(record.root, record.priority)
    ignored = (*passed, *record.evicts, *record.victims, *others)
    return len(decide(state.snapshot, ready.unit, options, ignored=ignored).binds)


def is_other(state: ClusterCache, unit: Collection[str], below: int) -> bool:
    """Tell whether of a unit somebody runs who goes with more pods by now, or is no longer less important."""
    planned, seen = frozenset(unit), set[str]()
    for pod in who_stays(state, unit):
        if pod.metadata.uid in seen:
            continue
        found = state.victims.victim_unit_of(pod)
        if found is None or found[0] >= below or not planned.issuperset(found[1]):
            return True
        seen.update(found[1])
    return False


def takes(state: ClusterCache, node: str, uid: str) -> bool:
    """Tell whether a node is there and takes such pods; of one that is gone nothing is known."""
    ledger, pod = state.snapshot.ledger, state.pods.get(uid)
    row = ledger.cluster.row_of.get(node)
    if row is None or pod is None:
        return row is not None
    return bool(statically_feasible(ledger.class_of(pod), ledger.cluster, np.array([row], dtype=np.intp)).all())


def renominate(state: ClusterCache, record: ActivePreemption, going: Iterable[str]) -> dict[str, str]:
    """Return who of those who are nominated where there is no room for them moves to which of the nodes that are freed.

    Who is ``going`` takes no room.
    """
    room, found = _room(state, {*record.freed, *record.nominations.values()}, going), dict[str, str]()
    freed = [node for node in dict.fromkeys(record.freed) if node in room]
    for uid, node in record.nominations.items():
        if node not in room or (room[node] >= 0).all():
            continue
        need = state.snapshot.ledger.classes.vector_of(state.snapshot.ledger.class_of(state.pods[uid]))
        able = (one for one in freed if (room[one] >= need).all() and takes(state, one, uid))
        if (seat := next(able, None)) is not None:
            room[node], room[seat], found[uid] = room[node] + need, room[seat] - need, seat
    return found


def _room(state: ClusterCache, nodes: Iterable[str], going: Iterable[str]) -> dict[str, Amounts]:
    """Return what is left of each node once some have gone; where there is too little, it is less than nothing."""
    ledger = state.snapshot.ledger
    mark, rows = ledger.mark(), ledger.cluster.row_of
    ledger.ignore(going)
    try:
        return {node: ledger.allocatable[rows[node]] - ledger.used[rows[node]] for node in nodes if node in rows}
    finally:
        ledger.rollback(mark)


def who_stays(state: ClusterCache, unit: Collection[str]) -> Sequence[Pod]:
    """Return who of a unit is still there, and neither at its end nor on its way out."""
    known = (state.pods.get(uid) for uid in unit)
    return [pod for pod in known if pod is not None and not pod.is_terminal and not pod.is_terminating]
