"""Where pods that ask for the same devices fit, and how many of them.

What a search for devices finds depends on the views of a node's pools and on what is taken of them. Nodes that agree in
both form a *group*, and one search serves the group. Where every device that could be chosen belongs to one node alone,
the number of pods that a node has devices for is a column like the room for any other resource.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
from msgspec import Struct

from cpg_engine.cluster.axes import Flags, Rows, Scores
from cpg_engine.cluster.device_selectors import selects
from cpg_engine.cluster.device_stock import DeviceStock
from cpg_engine.devices.pools import PoolTarget
from cpg_engine.devices.results import Taken
from cpg_engine.devices.search import after, search
from cpg_engine.devices.shapes import DeviceShape
from cpg_engine.devices.values import FREE, DeviceId, Pick, PoolState, PoolView
from cpg_engine.devices.views import Viewer

MAX_STEPS = 10_000
"""Steps of one search for devices: about twenty milliseconds."""
MAX_STEPS_IN_SUM = 200_000
"""Steps of all searches for one shape until devices or classes change, ..."""
MIN_STEPS = 100
"""... after which a search may take no more than so many: a claim may be made to be hard on every node."""
MAX_SOLUTIONS = 100_000
"""Solutions that are kept for one shape."""
MAX_STALE_GROUPS = 1_000
"""Groups without a node that are kept, beyond as many as there are nodes."""
UNLIMITED = 2**20
"""For more pods no node has room."""

NO_SLOTS: Scores = np.zeros(0, dtype=np.int64)
Views = tuple[PoolView, ...]
States = tuple[PoolState, ...]


class Changes(Protocol):
    """What has changed since when: the ledger."""

    version: int

    def changed_since(self, version: int) -> Rows:
        """Return the rows that changed after a version."""


class Solution(Struct, frozen=True):
    """The devices for one pod, and the states once it has them; None where there are none."""

    picks: tuple[Pick, ...] | None
    states: States = ()
    steps: int = 0
    is_cut: bool = False


class SearchEffort:
    """What all searches for devices have cost: their steps, and how many of them used up theirs."""

    def __init__(self) -> None:
        """Start at nothing."""
        self.steps = 0
        self.cuts = 0


class DeviceRoom:
    """The nodes as pods of one shape see them."""

    def __init__(
        self,
        shape: DeviceShape,
        stock: DeviceStock,
        changes: Changes,
        states_at: Callable[[int], States],
        effort: SearchEffort,
    ) -> None:
        """Look at no node yet; ``states_at`` returns what is taken of the pools of a row."""
        self.shape = shape
        self._viewer = Viewer(shape, selects)
        self._states_at = states_at
        self._is_coupled = False
        self._is_plain = True
        self._effort = effort
        self._steps = 0
        self._stock = stock
        self._changes = changes
        self._version = self._stock_version = -1
        self._views: list[Views] = []
        self._number_of: dict[Views, int] = {}
        self._numbers: dict[int, tuple[tuple[PoolTarget, ...], int]] = {}
        """By row, its pools and the number of its views."""
        self._solutions: dict[tuple[int, States], Solution] = {}
        self._slots = self._most = NO_SLOTS
        self._reset(0)

    # By node.

    def solve(self, row: int) -> Solution:
        """Return the devices for one more pod at a node."""
        self._refresh()
        found = self._solve(self._number(row), self._masked(row, self._states_at(row)))
        self._effort.steps += found.steps
        self._effort.cuts += found.is_cut
        return found

    def states_after(self, row: int, states: States) -> States:
        """Return what is taken of the pools of a node once one more pod has devices there, if there are any."""
        self._refresh()
        found = self._solve(self._number(row), self._masked(row, states))
        if found.picks is None:
            return states
        views = self._views[self._number(row)]
        return tuple([new if view.devices else old for view, old, new in zip(views, states, found.states, strict=True)])

    def slots(self, rows: Rows) -> Scores:
        """Return for how many more pods each node has devices if each is given the first that fit."""
        self._refresh()
        self._fill_tables()
        found: Scores = self._slots[self._groups[rows]]
        return found

    def most(self, rows: Rows) -> Scores:
        """Return for how many more pods each node has devices at most, however they are given."""
        self._refresh()
        self._fill_tables()
        found: Scores = self._most[self._groups[rows]]
        return found

    def most_if_free(self, rows: Rows) -> Scores:
        """Return for how many pods each node would have devices at most if none was taken."""
        self._refresh()
        free = [self._bound(number, (FREE,) * len(views)) for number, views in enumerate(self._views)]
        table = np.array([free[number] for number, _ in self._keys], dtype=np.int64)
        found: Scores = table[self._groups[rows]]
        return found

    def groups(self, rows: Rows) -> Rows:
        """Return the group of each node."""
        self._refresh()
        found: Rows = self._groups[rows]
        return found

    def is_coupled(self) -> bool:
        """Return whether a device that could be chosen can be used by several nodes."""
        self._refresh()
        return self._is_coupled

    def is_exact(self) -> bool:
        """Return whether a node could not have devices for more pods if earlier pods had been given other ones."""
        self._refresh()
        return self._is_plain and not self._is_coupled

    def fits(self, rows: Rows) -> Flags:
        """Return which nodes have devices for one more pod."""
        self._refresh()
        if not self._is_coupled:
            return self.slots(rows) > 0
        groups, first, place = np.unique(self._groups[rows], return_index=True, return_inverse=True)
        answers = [self.solve(int(rows[position])).picks is not None for position in first.tolist()]
        found: Flags = np.array(answers, dtype=np.bool_)[place] if len(groups) else np.zeros(0, dtype=np.bool_)
        return found

    def taken(self, row: int, picks: Sequence[Pick]) -> Iterator[Taken]:
        """Yield what picks at a node take; admin access takes nothing."""
        views, targets = self._views[self._number(row)], self._stock.targets(row)
        for alternative, place, position in picks:
            if not self.shape.alternatives[alternative].is_admin:
                pool = targets[place].pool.id
                view = next(found for found in views[place].devices if found.position == position)
                amounts = view.amounts[view.accepted.index(alternative)] if view.is_shareable else None
                yield Taken(DeviceId(*pool, self._stock.device_name(pool, position)), amounts, is_admin=False)

    def reach_key(self, row: int) -> object:
        """Return what nodes have in common that would give a pod the same devices, of which none is theirs alone."""
        picks, targets = self.solve(row).picks or (), self._stock.targets(row)
        pools = [targets[pick.pool].pool for pick in picks]
        if any(pool.node_name is not None for pool in pools):
            return row
        return tuple((pool.id, pick.position) for pool, pick in zip(pools, picks, strict=True))

    def targets(self, row: int) -> tuple[PoolTarget, ...]:
        """Return the pools that picks at a node refer to."""
        return self._stock.targets(row)

    # The groups.

    def _reset(self, rows: int) -> None:
        self._groups = np.zeros(rows, dtype=np.intp)
        self._keys: list[tuple[int, States]] = []
        self._group_of: dict[tuple[int, States], int] = {}
        self._slots = self._most = NO_SLOTS

    def _refresh(self) -> None:
        self._stock.refresh()
        size = self._stock.rows
        if self._stock_version != self._stock.version or len(self._views) > 2 * size + MAX_STALE_GROUPS:
            self._forget_views()
            self._stock_version = self._stock.version
            changed = range(size)
        elif self._version == self._changes.version:
            return
        elif len(self._groups) != size or len(self._keys) > 2 * size + MAX_STALE_GROUPS:
            self._reset(size)
            changed = range(size)
        else:
            changed = self._changes.changed_since(self._version).tolist()
        self._version = self._changes.version
        for row in changed:
            self._groups[row] = self._group(row)

    def _forget_views(self) -> None:
        self._views, self._number_of, self._numbers = [], {}, {}
        self._solutions.clear()
        self._steps = 0
        alternatives = self.shape.alternatives
        self._is_plain = len(alternatives) == 1 and alternatives[0].count > 0 and not self.shape.claims[0].constraints
        self._is_coupled = False
        self._reset(self._stock.rows)

    def _group(self, row: int) -> int:
        key = (self._number(row), self._masked(row, self._states_at(row), is_group=True))
        group = self._group_of.setdefault(key, len(self._keys))
        if group == len(self._keys):
            self._keys.append(key)
        return group

    def _number(self, row: int) -> int:
        """Return the number of the views of a row."""
        targets, found = self._stock.targets(row), self._numbers.get(row)
        if found is not None and found[0] is targets:
            return found[1]
        views = self._look(targets)
        number = self._number_of.setdefault(views, len(self._views))
        if number == len(self._views):
            self._views.append(views)
        self._numbers[row] = (targets, number)
        return number

    def _look(self, targets: tuple[PoolTarget, ...]) -> Views:
        """Return the views of some pools, and note what they say about the shape."""
        views = self._viewer.views_of(targets)
        for view, target in zip(views, targets, strict=True):
            if view.devices:
                self._is_coupled |= target.pool.node_name is None
                self._is_plain &= not any(device.counters or device.is_shareable for device in view.devices)
        return views

    def _masked(self, row: int, states: States, *, is_group: bool = False) -> States:
        """Return the states of the pools that matter; for a group, without those that several nodes can use."""
        views = self._views[self._number(row)]
        return tuple(
            [
                FREE if not view.devices or (is_group and found.pool.node_name is None) else state
                for view, found, state in zip(views, self._stock.targets(row), states, strict=True)
            ]
        )

    def _fill_tables(self) -> None:
        """Count the pods for groups that are new."""
        new = self._keys[len(self._slots) :]
        if new:
            slots = np.array([self._count(*key) for key in new], dtype=np.int64)
            most = np.array([self._bound(*key) for key in new], dtype=np.int64)
            self._slots, self._most = np.concatenate([self._slots, slots]), np.concatenate([self._most, most])

    # Searches.

    def _solve(self, number: int, states: States) -> Solution:
        key = (number, states)
        found = self._solutions.get(key)
        if found is None:
            if len(self._solutions) >= MAX_SOLUTIONS:
                self._solutions.clear()
            found = self._solutions[key] = self._search(self._views[number], states)
        return found

    def _search(self, views: Views, states: States) -> Solution:
        result = search(self.shape, views, states, MAX_STEPS if self._steps < MAX_STEPS_IN_SUM else MIN_STEPS)
        self._steps += result.steps
        new = () if result.picks is None else after(self.shape, views, states, result.picks)
        return Solution(result.picks, new, steps=result.steps, is_cut=result.is_cut)

    def _count(self, number: int, states: States) -> int:
        """Return for how many pods there are devices, one after the other."""
        pods = 0
        while (found := self._solve(number, states)).picks is not None:
            pods += 1
            if found.states == states:
                return UNLIMITED
            states = found.states
        return pods

    def _bound(self, number: int, states: States) -> int:
        """Return for how many pods there are devices at most: none for one pod, or none for more by their number."""
        if self._is_plain:
            return self._count(number, states)
        found = self._solve(number, states)
        if found.picks is None and not found.is_cut:
            return 0
        return self._most_by_number(self._views[number], states)

    def _most_by_number(self, views: Views, states: States) -> int:
        """Return for how many pods there are enough devices, if any device served any request."""
        if any(found.is_admin or not found.count for found in self.shape.alternatives):
            return UNLIMITED
        each = sum(
            min(self.shape.alternatives[index].count for index in request)
            for claim in self.shape.claims
            for request in claim.requests
        )
        free = 0
        for view, state in zip(views, states, strict=True):
            for device in view.devices:
                if device.is_shareable:
                    return UNLIMITED
                free += not state.taken >> device.position & 1
        return free // max(each, 1)
