"""Validation of a plan just before its first eviction, and of each victim unit just before it is evicted.

Requests lie between a plan and its first eviction. Meanwhile room may have appeared without it, or the room that it
counts on may have been taken: then every eviction would be in vain.
"""

from collections.abc import Collection, Sequence

import numpy as np

from cpg_api.core.pod import Pod
from cpg_engine.cycle import decide
from cpg_engine.filters.registry import statically_feasible
from cpg_engine.gangs.search import SearchOptions
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.preemption.states import ActivePreemption
from cpg_scheduler.units import SchedulableUnit, build_unit

ROOM_WITHOUT_EVICTIONS = "there is room without evictions"


def validate_plan(cache: ClusterCache, preemption: ActivePreemption, options: SearchOptions) -> str:
    """Return why a plan must not be carried out any more; empty where it may."""
    unit = build_unit(cache, preemption.unit)
    if not isinstance(unit, SchedulableUnit) or unit.pods.keys() != preemption.pods:
        return "its pods have changed"
    if unit.priority != preemption.priority or not unit.preempts:
        return "its priority or preemptionPolicy has changed"
    victims = [eviction.unit.pods for eviction in preemption.plan.evictions] if preemption.plan is not None else []
    if any(has_unit_changed(cache, pods, preemption.priority) for pods in victims):
        return "a victim unit has more pods, or a higher priority"
    excess = cache.budgets.overdrawn_by(cache.pods[uid] for uid in preemption.victims if uid in cache.pods)
    if any(number > preemption.overdrawn.get(name, 0) for name, number in excess.items()):
        return "a PodDisruptionBudget allows fewer disruptions"
    ignored = cache.reservations.ignored_by(preemption.unit, preemption.priority)
    return ROOM_WITHOUT_EVICTIONS if decide(cache.snapshot, unit.unit, options, ignored=ignored).binds else ""


def count_placeable(
    cache: ClusterCache, preemption: ActivePreemption, ending: Collection[str], options: SearchOptions
) -> int:
    """Return how many pods could be placed once all victims, the awaited pods and the ``ending`` ones have ended."""
    unit = build_unit(cache, preemption.unit)
    if not isinstance(unit, SchedulableUnit):
        return 0
    ignored = cache.reservations.ignored_by(preemption.unit, preemption.priority)
    ignored = (*ignored, *preemption.victims, *preemption.awaited, *ending)
    return len(decide(cache.snapshot, unit.unit, options, ignored=ignored).binds)


def takes(cache: ClusterCache, node: str, uid: str) -> bool:
    """Return whether a node exists and passes the static filters for a pod; for an unknown pod it only has to exist."""
    ledger, pod = cache.snapshot.ledger, cache.pods.get(uid)
    row = ledger.cluster.row_of.get(node)
    if row is None or pod is None:
        return row is not None
    return bool(statically_feasible(ledger.class_of(pod), ledger.cluster, np.array([row], dtype=np.intp)).all())


def has_unit_changed(cache: ClusterCache, pods: Collection[str], below: int) -> bool:
    """Return whether a running pod of a unit is in a larger unit now, or the priority is not lower than ``below``."""
    planned, seen = frozenset(pods), set[str]()
    for pod in running_pods(cache, pods):
        if pod.metadata.uid in seen:
            continue
        found = cache.victims.victim_unit_of(pod)
        if found is None or found[0] >= below or not planned.issuperset(found[1]):
            return True
        seen.update(found[1])
    return False


def running_pods(cache: ClusterCache, uids: Collection[str]) -> Sequence[Pod]:
    """Return which of these pods exist and neither have ended nor terminate."""
    known = (cache.pods.get(uid) for uid in uids)
    return [pod for pod in known if pod is not None and not pod.is_terminal and not pod.is_terminating]
