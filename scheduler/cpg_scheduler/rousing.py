"""From news to the queue: whose own affairs have changed, and whom the rest may help.

1. Room that has appeared is told first, so that who comes now finds the lots of its like as they should be.
2. Roots that were touched become active, or are forgotten where no pod of ours waits in them any more.
3. Where pods have come to be known by more labels, roots that were alike may be so no longer.
"""

from cpg_scheduler.attempting import order_of
from cpg_scheduler.caches.state import State
from cpg_scheduler.failing import Relief
from cpg_scheduler.pending import Pending, RootKey


class Rouser:
    """Brings the news of a state into a queue."""

    def __init__(self, state: State, pending: Pending) -> None:
        """Start with no news taken."""
        self._state = state
        self._pending = pending
        self._asked_labels = state.world.ledger.asked_labels

    def absorb(self, now: float) -> None:
        """Take all news there are."""
        state, pending = self._state, self._pending
        news = state.take_news()
        if news.eased:
            pending.stir(now, Relief(state.world, news.eased).helps)
        elif news.moved:
            pending.stir(now)
        anchored = {state.anchored(root) for root in news.touched}
        for root in news.touched - anchored:
            pending.drop(root)
        for root in anchored:
            self._look_at(root)
        if state.world.ledger.asked_labels != self._asked_labels:
            self._asked_labels = state.world.ledger.asked_labels
            pending.scatter()

    def _look_at(self, root: RootKey) -> None:
        order = order_of(self._state, root)
        if order is None:
            self._pending.drop(root)
        else:
            self._pending.put(order)
