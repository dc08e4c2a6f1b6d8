"""The requeuer: lets the changes of the cluster activate units.

1. Nodes with more room and free devices come first, so that units that have just arrived find equivalent ones in the
   right place.
2. Units of which something has changed become active, or are removed where they have no pending pods any more. A
   Workload may change thousands of them at once, so this takes several passes, with no attempt before the last.
3. When the turn of a requeued unit comes, its hint is checked again, since others may have taken the room.
4. A unit in backoff is activated early if it had no place by the bounds on room, and has one now.
5. When a selector has asked for a new label, units that were equivalent may differ: their classes are dissolved.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from itertools import islice, takewhile

from cpg_scheduler.cache.cluster import SINGLE_POD, ClusterCache
from cpg_scheduler.cache.events import ClusterEvents
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.queueing.hint_index import may_help
from cpg_scheduler.queueing.hints import FailedAttempt, RequeueHint
from cpg_scheduler.queueing.policy import MAX_STALE_ENTRIES
from cpg_scheduler.queueing.scheduling_queue import SchedulingQueue
from cpg_scheduler.units import SchedulableUnit, build_unit, queue_key_of

MAX_UNITS_PER_PASS = 500
"""Changed units that one pass requeues: about a hundredth of a second."""


class Requeuer:
    """Brings the changes of a cluster cache into a scheduling queue."""

    def __init__(self, cache: ClusterCache, queue: SchedulingQueue) -> None:
        """Start with no events taken."""
        self._cache = cache
        self._queue = queue
        self._asked_labels = cache.snapshot.ledger.asked_labels
        self._highest_preemptor: int | None = None
        """The highest priority of a unit that has failed and may preempt."""
        self._changed: dict[UnitKey, None] = {}
        self._settled: dict[UnitKey, None] = {}
        self._freed_nodes: dict[str, int] = {}
        """The nodes with more room, each with the number of the last move request for it, the latest last."""
        self._forgotten_moves = 0
        """The number of the last move request for a node that is not remembered any more, or for all units."""
        self._device_moves = 0
        """The number of the last move request for units that need devices."""

    def take_events(self, now: float) -> ClusterEvents:
        """Take all cluster events, let them activate units, and return them."""
        cache, queue = self._cache, self._queue
        events = cache.take_events()
        if events.freed_nodes:
            # A unit may ignore reservations, or evict pods, so for hints their room counts as free.
            with self._cleared(events.freed_nodes, self._highest_preemptor):
                queue.move_to_active_or_backoff(now, lambda hints: hints.helped_by(cache.snapshot, events.freed_nodes))
            self._remember(events.freed_nodes)
        elif events.any_change:
            queue.move_to_active_or_backoff(now)
        if events.device_classes_changed:
            queue.move_to_active_or_backoff(now, list)
            self._forgotten_moves = queue.move_requests
        elif events.devices_changed:
            queue.move_to_active_or_backoff(now, lambda hints: hints.for_devices)
            self._device_moves = queue.move_requests
        self._changed.update(dict.fromkeys(events.changed_units))
        self._requeue_changed()
        # The ledger makes a new set for each label that is added, so the comparison is by identity.
        if cache.snapshot.ledger.asked_labels is not self._asked_labels:
            self._asked_labels = cache.snapshot.ledger.asked_labels
            queue.dissolve_classes()
        return events

    @property
    def is_behind(self) -> bool:
        """Return whether there are changed units for the next pass."""
        return bool(self._changed)

    def pop(self, now: float) -> UnitKey | None:
        """Return the next unit to attempt, or None where there is none yet."""
        return self._queue.pop(now, self._may_help)

    def end_backoff(self, could_place: Callable[[UnitKey, SchedulableUnit], bool]) -> bool:
        """End the backoff of one unit that an event may have helped, if it could be placed now.

        Return whether there was such a unit.
        """

        def has_place(key: UnitKey) -> bool:
            unit = build_unit(self._cache, key)
            return isinstance(unit, SchedulableUnit) and could_place(key, unit)

        return self._queue.end_backoff(has_place)

    def pop_settled(self) -> UnitKey | None:
        """Return a tree that has changed and has no pending pods, or was to be resynced later; each once."""
        unit = next(iter(self._settled), None)
        if unit is not None:
            del self._settled[unit]
        return unit

    def resync_later(self, tree: UnitKey) -> None:
        """Have the status of a tree resynced although nothing of it changes now."""
        self._settled[self._cache.current_unit(tree)] = None

    def add_unschedulable(self, key: UnitKey, unit: SchedulableUnit, failure: FailedAttempt, now: float) -> None:
        """Let a unit wait after its attempt has failed."""
        if unit.preempts:
            self._highest_preemptor = max(self._highest_preemptor or unit.priority, unit.priority)
        self._queue.add_unschedulable(key, len(unit.pods), now, failure)

    def _remember(self, freed_nodes: Iterable[str]) -> None:
        """Remember that nodes have more room; of removed nodes not for ever."""
        for node in freed_nodes:
            self._freed_nodes.pop(node, None)
            self._freed_nodes[node] = self._queue.move_requests
        row_of = self._cache.snapshot.ledger.cluster.row_of
        if len(self._freed_nodes) > 2 * len(row_of) + MAX_STALE_ENTRIES:
            self._forgotten_moves = max(move for node, move in self._freed_nodes.items() if node not in row_of)
            self._freed_nodes = {node: move for node, move in self._freed_nodes.items() if node in row_of}

    def _may_help(self, hint: RequeueHint, since: int) -> bool:
        """Return whether the nodes of the move requests after ``since`` still may help a unit."""
        if since < (max(self._device_moves, self._forgotten_moves) if hint.needs_devices else self._forgotten_moves):
            return True
        later = takewhile(lambda item: item[1] > since, reversed(self._freed_nodes.items()))
        nodes = [node for node, _ in later]
        with self._cleared(nodes, hint.preempts_below):
            return may_help(self._cache.snapshot, hint, nodes)

    def _cleared(self, nodes: Collection[str], below: int | None) -> AbstractContextManager[None]:
        """Ignore the reservations on these nodes, and the pods of units below a priority, for a block."""
        victims = self._cache.victims.uids_on(nodes, below) if below is not None else ()
        return self._cache.reservations.ignored(nodes, victims)

    def _requeue_changed(self) -> None:
        changed = set(islice(self._changed, MAX_UNITS_PER_PASS))
        current = {self._cache.current_unit(unit) for unit in changed}
        for unit in changed:
            del self._changed[unit]
        for unit in changed - current:
            self._queue.remove(unit)
        for unit in current:
            self._requeue(unit)

    def _requeue(self, unit: UnitKey) -> None:
        """Activate a unit that has changed, if it has pending pods."""
        queue_key = queue_key_of(self._cache, unit)
        if queue_key is not None:
            self._queue.activate(queue_key)
            return
        self._queue.remove(unit)
        if unit.flavour != SINGLE_POD:
            self._settled[unit] = None
