"""Nodes that hold more than they have, and pods of ours among it: nobody else may see that.

Two schedulers on the same nodes race: each decides on what it has seen, and no API server refuses a bind because a node
is full. What can be prevented is: a decision is looked at again before its first bind. What is left is the time that a
bind takes to be seen by the other. Where that goes wrong, a kubelet turns a pod away (phase Failed, reason OutOfcpu).
A failed member does not count, so the tree waits for its controller to make another, and is then completed: that is
the repair, and it is not ours. Ours is to say it, once for as long as it lasts: in the log, an event and a metric.
"""

from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_client.stores import Added, Change, Deleted, Modified
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.cache.relevance import node_change_matters, pod_change_matters
from cpg_scheduler.cache.reservations import RESERVATION_PREFIX

NAMED = 3
"""Pods that are named; of more it is said how many."""


class OvercommitWatch:
    """The nodes that are known to be over-committed with pods of ours."""

    def __init__(
        self,
        state: ClusterCache,
        *,
        tell: Callable[[str, str], None],
        count: Callable[[int], None],
        log: FilteringBoundLogger,
    ) -> None:
        """Know of none; ``tell`` says something about a node by name, ``count`` takes how many are known."""
        self._state = state
        self._tell = tell
        self._count = count
        self._log = log
        self._known: set[str] = set()

    def saw(self, change: Change[Pod] | Change[Node]) -> None:
        """Look at the node that a change is about, once the state has taken it."""
        if isinstance(change, Deleted):
            if (name := _node_of(change.old)) in self._known:
                self._look(name)
        elif isinstance(change, Added) or (isinstance(change, Modified) and _matters(change.old, change.new)):
            self._look(_node_of(change.new))

    def look_around(self) -> None:
        """Look at all nodes: others may have been filled before there was anybody to tell."""
        for name in self._state.snapshot.ledger.cluster.row_of:
            self._look(name)

    def _look(self, name: str) -> None:
        lacking = self._lacking(name)
        if name in self._known:
            if not lacking:
                self._known.remove(name)
                self._count(len(self._known))
        elif lacking and (ours := self._ours(name)):
            self._known.add(name)
            self._count(len(self._known))
            what = ", ".join(f"{resource} by {amount}" for resource, amount in lacking.items())
            more = f" and {len(ours) - NAMED} more" if len(ours) > NAMED else ""
            message = f"over-committed: {what} (in base units), with {', '.join(ours[:NAMED])}{more} of {self._name}"
            self._log.warning("node over-committed", node=name, lacking=lacking, ours=ours)
            self._tell(name, message)

    @property
    def _name(self) -> str:
        return self._state.scheduler_name

    def _lacking(self, name: str) -> dict[str, int]:
        """Return of which resources a node has given away more than it has, and by how much.

        Room that is kept for nominated pods is not given away: they wait until it is free.
        """
        ledger = self._state.snapshot.ledger
        row = ledger.cluster.row_of.get(name)
        if row is None:
            return {}
        over = ledger.used[row] - ledger.allocatable[row]
        if not (over > 0).any():
            return {}
        for uid in ledger.uids_on_node(name):
            if uid.startswith(RESERVATION_PREFIX) and (found := ledger.location_of(uid)) is not None:
                over = over - ledger.vector_of(found[0])
        return {
            resource: amount for resource, amount in zip(ledger.axis.names, over.tolist(), strict=True) if amount > 0
        }

    def _ours(self, name: str) -> list[str]:
        """Return the pods of ours that take room on a node, in order."""
        found = (self._state.pods.get(uid) for uid in self._state.snapshot.ledger.uids_on_node(name))
        return sorted(pod.metadata.key for pod in found if pod is not None and pod.spec.scheduler_name == self._name)


def _node_of(thing: Pod | Node) -> str:
    """Return the node that something is about; empty for a pod that has none."""
    return thing.metadata.name if isinstance(thing, Node) else thing.spec.node_name


def _matters(old: Pod | Node, new: Pod | Node) -> bool:
    if isinstance(old, Pod) and isinstance(new, Pod):
        return pod_change_matters(old, new)
    return not (isinstance(old, Node) and isinstance(new, Node)) or node_change_matters(old, new)
