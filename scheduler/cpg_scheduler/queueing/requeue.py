"""From news to the queue: whose own affairs have changed, and whom the rest may help.

1. Room that has appeared is told first, so that who comes now finds the lots of its like as they should be.
2. Roots that were touched become active, or are forgotten where no pod of ours waits in them any more.
3. Hope is looked at again when it is a root's turn, since others may have taken the room.
4. Where pods have come to be known by more labels, roots that were alike may be so no longer.
"""

from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from itertools import takewhile

from cpg_scheduler.cache.cluster import SINGLE_POD, ClusterCache
from cpg_scheduler.cache.events import ClusterEvents
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.queueing.equivalence import FEW
from cpg_scheduler.queueing.hint_index import fulfilled
from cpg_scheduler.queueing.hints import RequeueHint
from cpg_scheduler.queueing.scheduling_queue import SchedulingQueue
from cpg_scheduler.units import queue_key_of


class Requeuer:
    """Brings the news of a state into a queue."""

    def __init__(self, state: ClusterCache, pending: SchedulingQueue) -> None:
        """Start with no news taken."""
        self._state = state
        self._pending = pending
        self._asked_labels = state.snapshot.ledger.asked_labels
        self.below: int | None = None
        """The most important of those who have failed and might evict others."""
        self._quiet: dict[UnitKey, None] = {}
        self._eased: dict[str, int] = {}
        """With which stir of the queue a node was last told to be better, the latest last."""
        self._forgotten = 0

    def absorb(self, now: float) -> ClusterEvents:
        """Take all news there are, and return them."""
        state, pending = self._state, self._pending
        news = state.take_events()
        if news.freed_nodes:
            # Some may pass the room that is kept for others or evict them, so for hopes it counts as free.
            with self._cleared(news.freed_nodes, self.below):
                pending.stir(now, lambda hopes: hopes.helped(state.snapshot, news.freed_nodes))
            self._remember(news.freed_nodes)
        elif news.any_change:
            pending.stir(now)
        anchored = {state.current_unit(root) for root in news.changed_units}
        for root in news.changed_units - anchored:
            pending.drop(root)
        for root in anchored:
            self._look_at(root)
        # They only become more, in a set of their own each time: to compare what is in them would cost each cycle.
        if state.snapshot.ledger.asked_labels is not self._asked_labels:
            self._asked_labels = state.snapshot.ledger.asked_labels
            pending.scatter()
        return news

    def next(self, now: float) -> UnitKey | None:
        """Return the next root to attempt, or None where nobody may be attempted yet."""
        return self._pending.pop(now, self._fulfilled)

    def quiet(self) -> UnitKey | None:
        """Return a tree of which something has changed, and in which nobody waits: each once for each change."""
        root = next(iter(self._quiet), None)
        if root is not None:
            del self._quiet[root]
        return root

    def _remember(self, eased: Iterable[str]) -> None:
        """Remember that nodes were told to be better, but not for ever of those that are gone."""
        for node in eased:
            self._eased.pop(node, None)
            self._eased[node] = self._pending.stirs
        row_of = self._state.snapshot.ledger.cluster.row_of
        if len(self._eased) > 2 * len(row_of) + FEW:
            self._forgotten = max(told for node, told in self._eased.items() if node not in row_of)
            self._eased = {node: told for node, told in self._eased.items() if node in row_of}

    def _fulfilled(self, hope: RequeueHint, since: int) -> bool:
        if since < self._forgotten:
            return True
        news = takewhile(lambda told: told[1] > since, reversed(self._eased.items()))
        nodes = [node for node, _ in news]
        with self._cleared(nodes, hope.below):
            return fulfilled(self._state.snapshot, hope, nodes)

    def _cleared(self, nodes: Collection[str], below: int | None) -> AbstractContextManager[None]:
        """Look at these nodes as if no room were kept there, and nobody were less important than that."""
        lesser = self._state.victims.uids_on(nodes, below) if below is not None else ()
        return self._state.reservations.ignored(nodes, lesser)

    def _look_at(self, root: UnitKey) -> None:
        order = queue_key_of(self._state, root)
        if order is not None:
            self._pending.put(order)
            return
        self._pending.drop(root)
        if root.flavour != SINGLE_POD:
            self._quiet[root] = None
