"""Detects nodes that pods of ours and of another scheduler over-commit together.

Two schedulers on the same nodes race: each decides by what it has seen, and the API server refuses no bind because a
node is full. We validate each decision again before its first bind; what remains is the time until the other scheduler
sees a bind. If that goes wrong, the kubelet rejects a pod (phase Failed, reason OutOfcpu). A failed member does not
count, so its unit waits for its controller to create another pod, and is completed then.

So nothing has to be repaired here. It is reported once for as long as it lasts: in the log, an event and a metric.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_client.stores import Added, Change, Deleted, Modified
from cpg_engine.cluster.axes import UNOFFERED
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.cache.relevance import node_change_matters, pod_change_matters
from cpg_scheduler.cache.reservations import RESERVATION_PREFIX


class OvercommittedNode(Struct, frozen=True):
    """A node with pods of ours on which all pods together request more than it has."""

    name: str
    excess: Mapping[str, int]
    """How much more they request, by resource, in base units."""
    pods: tuple[str, ...]
    """Our pods on the node, in order."""


class OvercommitWatch:
    """The over-committed nodes."""

    def __init__(self, cache: ClusterCache, log: FilteringBoundLogger) -> None:
        """Start without any."""
        self._cache = cache
        self._log = log
        self._known: set[str] = set()

    def count(self) -> int:
        """Return the number of over-committed nodes."""
        return len(self._known)

    def check(self, change: Change[Pod] | Change[Node]) -> OvercommittedNode | None:
        """Return the node of a change, which the cache has taken, if it has become over-committed."""
        if isinstance(change, Deleted):
            node = _node_of(change.old)
            return self._check(node) if node in self._known else None
        if isinstance(change, Added) or (isinstance(change, Modified) and _matters(change.old, change.new)):
            return self._check(_node_of(change.new))
        return None

    def check_all(self) -> Iterator[OvercommittedNode]:
        """Yield all nodes that are over-committed and not reported yet."""
        for name in self._cache.snapshot.ledger.cluster.row_of:
            found = self._check(name)
            if found is not None:
                yield found

    def _check(self, name: str) -> OvercommittedNode | None:
        excess = self._excess(name)
        if name in self._known:
            if not excess:
                self._known.remove(name)
            return None
        pods = self._our_pods(name) if excess else ()
        if not pods:
            return None
        self._known.add(name)
        self._log.warning("node over-committed", node=name, lacking=excess, ours=list(pods))
        return OvercommittedNode(name, excess, pods)

    def _excess(self, name: str) -> dict[str, int]:
        """Return how much more of each resource is requested than the node has.

        Reservations do not count: a nominated pod waits until its room is free.
        """
        ledger = self._cache.snapshot.ledger
        row = ledger.cluster.row_of.get(name)
        if row is None:
            return {}
        excess = ledger.used[row] - ledger.allocatable[row]
        if not (excess > 0).any():
            return {}
        unoffered = Counter[str]()
        for uid in ledger.uids_on_node(name):
            found = ledger.location_of(uid)
            if found is None:
                continue
            if uid.startswith(RESERVATION_PREFIX):
                excess = excess - ledger.classes.vector_of(found[0])
            elif excess[UNOFFERED] > 0:
                names = ledger.classes.resources_at(UNOFFERED, found[0])
                unoffered.update({resource: found[0].requests[resource] for resource in names})
        places = ledger.classes.axis.places
        return {resource: int(excess[place]) for resource, place in places.items() if excess[place] > 0} | unoffered

    def _our_pods(self, node: str) -> tuple[str, ...]:
        ledger, ours = self._cache.snapshot.ledger, self._cache.scheduler_name
        found = (self._cache.pods.get(uid) for uid in ledger.uids_on_node(node))
        return tuple(sorted(pod.metadata.key for pod in found if pod is not None and pod.spec.scheduler_name == ours))


def _node_of(changed: Pod | Node) -> str:
    """Return the node that a change is about; empty for a pod that has none."""
    return changed.metadata.name if isinstance(changed, Node) else changed.spec.node_name


def _matters(old: Pod | Node, new: Pod | Node) -> bool:
    if isinstance(old, Pod) and isinstance(new, Pod):
        return pod_change_matters(old, new)
    return not (isinstance(old, Node) and isinstance(new, Node)) or node_change_matters(old, new)
