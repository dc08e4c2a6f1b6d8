"""Where pods that ask for the same devices fit, and how many of them.

What a search for devices finds depends on the views of a node's pools and on what is taken of them. Nodes that agree in
both form a *group*. Where every device that could be chosen belongs to one node alone, the number of pods that a node
has devices for is a column like the room for any other resource.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from cpg_engine.cluster.axes import Flags, Rows, Scores
from cpg_engine.cluster.device_selectors import selects
from cpg_engine.cluster.device_solver import DeviceSolver, Picks, Solution, States
from cpg_engine.cluster.device_stock import DeviceStock
from cpg_engine.devices.pools import PoolTarget
from cpg_engine.devices.results import Taken
from cpg_engine.devices.shapes import DeviceShape
from cpg_engine.devices.values import FREE, DeviceId, Pick
from cpg_engine.devices.views import Viewer

MAX_ALTERNATIVES = 8
"""The most alternatives of a request."""
MAX_STALE_GROUPS = 1_000
"""Groups without a node that are kept, beyond as many as there are nodes."""
NO_COUNTS: Scores = np.zeros((0, 2), dtype=np.int64)


class Changes(Protocol):
    """What has changed since when: the ledger."""

    version: int

    def changed_since(self, version: int) -> Rows:
        """Return the rows that changed after a version."""


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
        self._states_at = states_at
        self._effort = effort
        self._stock = stock
        self._changes = changes
        self._version = self._stock_version = -1
        self._forget_views()

    # By node.

    def solve(self, row: int) -> Solution:
        """Return the devices for one more pod at a node."""
        self._refresh()
        found = self._solver.solve(self._number(row), self._masked(row, self._states_at(row)))
        self._effort.steps += found.steps
        self._effort.cuts += found.is_cut
        return found

    def solve_together(self, row: int, pods: int) -> tuple[Picks, ...] | None:
        """Return the devices for each of so many more pods at a node, or None."""
        self._refresh()
        return self._solver.solve_together(self._number(row), self._masked(row, self._states_at(row)), pods)

    def states_after(self, row: int, states: States) -> States:
        """Return what is taken of the pools of a node once one more pod has devices there, if there are any."""
        self._refresh()
        number = self._number(row)
        found = self._solver.solve(number, self._masked(row, states))
        if found.picks is None:
            return states
        views = self._solver.views[number]
        return tuple([new if view.devices else old for view, old, new in zip(views, states, found.states, strict=True)])

    def taken(self, row: int, picks: Sequence[Pick]) -> Iterator[Taken]:
        """Yield what picks at a node take; admin access takes nothing."""
        views, targets = self._solver.views[self._number(row)], self._stock.targets(row)
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

    # By many nodes.

    def is_coupled(self) -> bool:
        """Return whether a device that could be chosen can be used by several nodes."""
        self._refresh()
        return self._is_coupled

    def is_exact(self) -> bool:
        """Return whether no node could have devices for more pods than were found, whichever they are given."""
        self._refresh()
        counts = self._counted()
        return not self._is_coupled and bool((counts[:, 0] == counts[:, 1]).all())

    def fits(self, rows: Rows) -> Flags:
        """Return which nodes have devices for one more pod."""
        self._refresh()
        if not self._is_coupled:
            return self.slots(rows) > 0
        _, first, place = np.unique(self._groups[rows], return_index=True, return_inverse=True)
        answers = [self.solve(int(rows[position])).picks is not None for position in first.tolist()]
        found: Flags = np.array(answers, dtype=np.bool_)[place.reshape(-1)]
        return found

    def has_alternatives(self) -> bool:
        """Return whether a request has several alternatives."""
        return self.shape.has_alternatives

    def ranks(self, rows: Rows) -> Scores:
        """Return for each node how early the alternatives are that a pod would be given, in sum over its requests."""
        groups, first, place = np.unique(self.groups(rows), return_index=True, return_inverse=True)
        ranks = np.zeros(len(groups), dtype=np.int64)
        for group, position in enumerate(first.tolist()):
            given = {pick.alternative for pick in self.solve(int(rows[position])).picks or ()}
            ranks[group] = sum(
                MAX_ALTERNATIVES - request.index(one)
                for claim in self.shape.claims
                for request in claim.requests
                if len(request) > 1
                for one in given.intersection(request)
            )
        found: Scores = ranks[place.reshape(-1)]
        return found

    def slots(self, rows: Rows) -> Scores:
        """Return for how many more pods each node has devices."""
        self._refresh()
        found: Scores = self._counted()[self._groups[rows], 0]
        return found

    def most(self, rows: Rows) -> Scores:
        """Return for how many more pods each node has devices at most: no search has shown that there are fewer."""
        self._refresh()
        found: Scores = self._counted()[self._groups[rows], 1]
        return found

    def most_if_free(self, rows: Rows) -> Scores:
        """Return for how many pods each node would have devices at most if none was taken."""
        self._refresh()
        free = [
            self._solver.count(number, (FREE,) * len(views)).most for number, views in enumerate(self._solver.views)
        ]
        table = np.array([free[number] for number, _ in self._keys], dtype=np.int64)
        found: Scores = table[self._groups[rows]]
        return found

    def groups(self, rows: Rows) -> Rows:
        """Return the group of each node."""
        self._refresh()
        found: Rows = self._groups[rows]
        return found

    # Groups.

    def _reset(self, rows: int) -> None:
        self._groups = np.zeros(rows, dtype=np.intp)
        self._keys: list[tuple[int, States]] = []
        self._group_of: dict[tuple[int, States], int] = {}
        self._counts = NO_COUNTS

    def _forget_views(self) -> None:
        self._viewer = Viewer(self.shape, selects)
        self._solver = DeviceSolver(self.shape)
        self._numbers: dict[int, tuple[tuple[PoolTarget, ...], int]] = {}
        self._is_coupled = False
        self._reset(self._stock.rows)

    def _refresh(self) -> None:
        self._stock.refresh()
        size = self._stock.rows
        if self._stock_version != self._stock.version or len(self._solver.views) > 2 * size + MAX_STALE_GROUPS:
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
        views = self._viewer.views_of(targets)
        self._is_coupled |= any(
            view.devices and target.pool.node_name is None for view, target in zip(views, targets, strict=True)
        )
        number = self._solver.number(views)
        self._numbers[row] = (targets, number)
        return number

    def _masked(self, row: int, states: States, *, is_group: bool = False) -> States:
        """Return the states of the pools that matter; for a group, without those that several nodes can use."""
        views = self._solver.views[self._number(row)]
        return tuple(
            [
                FREE if not view.devices or (is_group and found.pool.node_name is None) else state
                for view, found, state in zip(views, self._stock.targets(row), states, strict=True)
            ]
        )

    def _counted(self) -> Scores:
        """Return for each group for how many pods there are devices, and at most."""
        new = self._keys[len(self._counts) :]
        if new:
            counts = np.array([self._solver.count(*key) for key in new], dtype=np.int64)
            self._counts = np.concatenate([self._counts, counts])
        return self._counts
