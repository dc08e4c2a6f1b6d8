"""Which pod of a preemptor is nominated to which node, while pods are placed, binds fail, and nodes become free."""

from collections.abc import Iterable, Mapping

from cpg_engine.cluster.axes import Amounts
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.cache.nominations import own_nomination
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.preemption.active import ActivePreemptions
from cpg_scheduler.preemption.jobs import Nominate
from cpg_scheduler.preemption.lifecycle import Lifecycle
from cpg_scheduler.preemption.outbox import Outbox
from cpg_scheduler.preemption.planner import Planner
from cpg_scheduler.preemption.recovery import Recovery
from cpg_scheduler.preemption.states import ActivePreemption, PreemptionState
from cpg_scheduler.preemption.validate import takes
from cpg_scheduler.units import pending_pods


class Assignments:
    """Brings nominations and reservations up to date with the binds of the preemptors."""

    def __init__(
        self,
        cache: ClusterCache,
        active: ActivePreemptions,
        lifecycle: Lifecycle,
        planner: Planner,
        recovery: Recovery,
        outbox: Outbox,
    ) -> None:
        """Wire up."""
        self._cache = cache
        self._active = active
        self._lifecycle = lifecycle
        self._planner = planner
        self._recovery = recovery
        self._outbox = outbox

    def on_placed(self, key: UnitKey, nodes: Mapping[str, str]) -> None:
        """Drop the reservations of pods that hold room of their own from now on."""
        for uid in nodes:
            self._cache.reservations.remove(uid)
        preemption = self._active.get(key)
        if preemption is None or not nodes:
            return
        preemption.pods -= nodes.keys()
        left = {uid: preemption.nominations.pop(uid) for uid in nodes if uid in preemption.nominations}
        preemption.freed_nodes = [node for uid, node in left.items() if node != nodes[uid]]
        if not preemption.nominations:
            self._lifecycle.end(preemption)
        elif preemption.state is PreemptionState.PREPARING:
            self._lifecycle.break_off(preemption, "some of its pods have been placed without it")

    def on_assumed(self, key: UnitKey) -> None:
        """Renominate pods to the nodes that the placed pods did not need, if their own nodes have been taken."""
        preemption = self._active.get(key)
        if preemption is None or not preemption.freed_nodes or not preemption.is_reserving:
            return
        moves = renominate(self._cache, preemption, self._planner.leaving())
        preemption.freed_nodes = []
        for uid, node in moves.items():
            self._active.reserve(preemption, uid, node)
        self._nominate(preemption, moves)

    def on_binds_failed(self, key: UnitKey, nodes: Mapping[str, str]) -> None:
        """Keep the room that nominated pods were given, though their binds have failed.

        Otherwise other pods would take it during the backoff, and would have to be evicted as well. A pod that has left
        the tree meanwhile is not nominated any more.
        """
        known = (self._cache.pods.get(uid) for uid in nodes)
        nominated = [pod for pod in known if pod is not None and own_nomination(pod)]
        pending = {pod.metadata.uid for pod in pending_pods(self._cache, key)}
        lost = [pod for pod in nominated if pod.metadata.uid not in pending]
        self._outbox.clear_nominations(filter(self._cache.is_pending, lost))
        kept = {pod.metadata.uid: nodes[pod.metadata.uid] for pod in nominated if pod.metadata.uid in pending}
        preemption = self._active.get(key)
        if kept and preemption is not None and preemption.state in {PreemptionState.PREPARING, PreemptionState.DROPPED}:
            self._lifecycle.break_off(preemption, "a bind of its unit has failed meanwhile")
            self._lifecycle.end(preemption)
        if kept and key not in self._active:
            self._recovery.take_up(key, kept)
        self._keep_room(key, kept)

    def _keep_room(self, key: UnitKey, nodes: Mapping[str, str]) -> None:
        """Reserve room for pods at these nodes, as far as the nodes still take them."""
        preemption = self._active.get(key)
        if preemption is None or not preemption.is_reserving:
            return
        for uid, node in nodes.items():
            if takes(self._cache, node, uid):
                preemption.pods.add(uid)
                self._active.reserve(preemption, uid, node)
        self._nominate(preemption, nodes)

    def _nominate(self, preemption: ActivePreemption, uids: Iterable[str]) -> None:
        """Have pods nominated to the nodes that are reserved for them, where the API server has another node."""
        reserved = ((self._cache.pods[uid], preemption.nominations.get(uid)) for uid in uids)
        moved = ((pod, node) for pod, node in reserved if node is not None and pod.status.nominated_node_name != node)
        self._outbox.add(*(Nominate(pod, node) for pod, node in moved))


def renominate(cache: ClusterCache, preemption: ActivePreemption, leaving: Iterable[str]) -> dict[str, str]:
    """Return which nominated pods move to a freed node, because the node that they are nominated to is too full.

    Pods that are ``leaving`` take no room.
    """
    room, found = _room(cache, {*preemption.freed_nodes, *preemption.nominations.values()}, leaving), dict[str, str]()
    freed = [node for node in dict.fromkeys(preemption.freed_nodes) if node in room]
    for uid, node in preemption.nominations.items():
        if node not in room or (room[node] >= 0).all():
            continue
        need = cache.snapshot.ledger.classes.vector_of(cache.snapshot.ledger.class_of(cache.pods[uid]))
        able = (one for one in freed if (room[one] >= need).all() and takes(cache, one, uid))
        if (target := next(able, None)) is not None:
            room[node], room[target], found[uid] = room[node] + need, room[target] - need, target
    return found


def _room(cache: ClusterCache, nodes: Iterable[str], leaving: Iterable[str]) -> dict[str, Amounts]:
    """Return the free room of nodes without the leaving pods; it is negative where a node is too full."""
    ledger = cache.snapshot.ledger
    mark, rows = ledger.mark(), ledger.cluster.row_of
    ledger.ignore(leaving)
    try:
        return {node: ledger.allocatable[rows[node]] - ledger.used[rows[node]] for node in nodes if node in rows}
    finally:
        ledger.rollback(mark)
