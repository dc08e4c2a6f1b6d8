"""Which devices each node can use, and what is taken of them: the truth about devices within the ledger.

Whatever takes devices is a *holder*: a claim of the API, an assumed one, or a reservation of the simulation. Holders
only add and subtract, so letting one go leaves everything as it was before.

The pools of most drivers belong to one node each. A change of such a pool is noted at its row, like any other change
of a node. The pools that several nodes can use have a version of their own.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable

from cpg_engine.cluster.nodes import NodeColumns
from cpg_engine.devices.catalog import DeviceCatalog
from cpg_engine.devices.pools import Pool, PoolTarget, build_pool, in_order, target
from cpg_engine.devices.results import Taken
from cpg_engine.devices.values import FREE, Amounts, PoolId, PoolState

NO_TARGETS: tuple[PoolTarget, ...] = ()


class _Holds:
    """How often a device is taken as a whole, how many share it, and what they consume."""

    def __init__(self) -> None:
        self.whole = 0
        self.shares = 0
        self.consumed: dict[str, int] = {}

    def count(self, amounts: Amounts | None, sign: int) -> bool:
        """Count a holder in or out; return whether any is left."""
        if amounts is None:
            self.whole += sign
        else:
            self.shares += sign
            for name, amount in amounts:
                self.consumed[name] = self.consumed.get(name, 0) + sign * amount
        return bool(self.whole or self.shares)


class DeviceStock:
    """The pools of devices by node, and their states."""

    def __init__(self, catalog: DeviceCatalog, cluster: NodeColumns, touch: Callable[[int], None]) -> None:
        """Start without pools; ``touch`` notes a change at a row."""
        self._catalog = catalog
        self._cluster = cluster
        self._touch = touch
        self._labels_seen = -1
        self.version = 0
        """Incremented when the pools change that several nodes can use, or which nodes those are."""
        self.pools: dict[PoolId, Pool] = {}
        self._names: dict[PoolId, list[str]] = {}
        self._local: dict[str, set[PoolId]] = {}
        self._shared: set[PoolId] = set()
        self._targets: dict[str, tuple[PoolTarget, ...]] = {}
        self._states: dict[PoolId, PoolState] = {}
        self._holds: dict[PoolId, dict[str, _Holds]] = {}
        self._by_holder: dict[Hashable, tuple[Taken, ...]] = {}
        self.followers: dict[Hashable, Counter[int]] = {}
        """The rows at which it is noted as well when a holder takes devices or gives them back."""

    def refresh(self) -> None:
        """Bring the pools up to date with the catalog and the nodes."""
        had_shared = bool(self._shared)
        labels, pools = self._cluster.labels_version, self._catalog.changed_pools
        is_shared = False
        for pool in sorted(pools):
            is_shared |= self._rebuild(pool)
        pools.clear()
        if is_shared or (self._labels_seen != labels and (had_shared or self._shared)):
            self._targets.clear()
            self.version += 1
        self._labels_seen = labels

    @property
    def rows(self) -> int:
        """Return how many rows there are, with or without a node."""
        return self._cluster.size

    def device_name(self, pool: PoolId, position: int) -> str:
        """Return the name of the device at a position of a pool."""
        return self._names[pool][position]

    def targets(self, row: int) -> tuple[PoolTarget, ...]:
        """Return the pools that the node of a row can use, in the order in which they are tried.

        It is the same object for as long as nothing about these pools changes.
        """
        name = self._cluster.name(row)
        found = self._targets.get(name)
        if found is None:
            found = self._targets[name] = self._find_targets(row)
        return found

    def state(self, pool: PoolId) -> PoolState:
        """Return what is taken of a pool."""
        found = self._states.get(pool)
        if found is None:
            found = self._states[pool] = self._read_state(pool)
        return found

    def states(self, row: int) -> tuple[PoolState, ...]:
        """Return what is taken of the pools of a row."""
        return tuple([self.state(one.pool.id) for one in self.targets(row)])

    def hold(self, holder: Hashable, taken: Iterable[Taken]) -> None:
        """Have a holder take devices, beside what it has; admin access takes nothing."""
        new = tuple(one for one in taken if not one.is_admin)
        self._by_holder[holder] = (*self._by_holder.get(holder, ()), *new)
        self._count(holder, new, 1)

    def release(self, holder: Hashable) -> None:
        """Give back all that a holder has."""
        self._count(holder, self._by_holder.pop(holder, ()), -1)

    def follow(self, holder: Hashable, row: int, number: int) -> None:
        """Have changes of a holder noted at a row for so many more reasons."""
        rows = self.followers.setdefault(holder, Counter())
        rows[row] += number
        if not rows[row]:
            del rows[row]
        if not rows:
            del self.followers[holder]

    def held_by(self, holder: Hashable) -> tuple[Taken, ...]:
        """Return what a holder has taken."""
        return self._by_holder.get(holder, ())

    def is_contested(self, holder: Hashable) -> bool:
        """Return whether a device that a holder has as a whole, or shares, is taken by another one as a whole."""
        return any(
            (found := self._holds[PoolId(one.id.driver, one.id.pool)][one.id.device]).whole + bool(found.shares) > 1
            for one in self.held_by(holder)
        )

    def is_overcommitted(self, row: int) -> bool:
        """Return whether any device that a node can use is taken more often than it can be."""
        return any(self._is_overcommitted(found) for found in self.targets(row))

    def _is_overcommitted(self, found: PoolTarget) -> bool:
        holds = self._holds.get(found.pool.id, {})
        return any(
            (one := holds.get(device.id.device)) is not None and one.whole + bool(one.shares) > 1
            for device in found.devices
        )

    def _count(self, holder: Hashable, taken: Iterable[Taken], sign: int) -> None:
        for row in self.followers.get(holder, ()):
            self._touch(row)
        for one in taken:
            pool = PoolId(one.id.driver, one.id.pool)
            holds = self._holds.setdefault(pool, {})
            found = holds.get(one.id.device)
            if found is None:
                found = holds[one.id.device] = _Holds()
            if not found.count(one.consumed, sign):
                del holds[one.id.device]
                if not holds:
                    del self._holds[pool]
            self._change(pool)

    def _change(self, pool: PoolId) -> None:
        """Note that the state of a pool changes."""
        self._states.pop(pool, None)
        found = self.pools.get(pool)
        if found is None:
            return
        if found.node_name is not None:
            self._touch_node(found.node_name)

    def _touch_node(self, name: str) -> None:
        row = self._cluster.row_of.get(name)
        if row is not None:
            self._touch(row)

    def _rebuild(self, pool: PoolId) -> bool:
        """Build a pool again; return whether several nodes can use it, or could before."""
        slices, before = self._catalog.slices_of.get(pool), self.pools.pop(pool, None)
        self._states.pop(pool, None)
        self._names.pop(pool, None)
        self._shared.discard(pool)
        names = [before.node_name] if before is not None else []
        if before is not None and before.node_name is not None:
            self._local[before.node_name].discard(pool)
            if not self._local[before.node_name]:
                del self._local[before.node_name]
        if slices is not None:
            built = self.pools[pool] = build_pool(list(slices.values()), self._catalog.taint_rules.values())
            self._names[pool] = sorted(built.positions, key=built.positions.__getitem__)
            names.append(built.node_name)
            if built.node_name is None:
                self._shared.add(pool)
            else:
                self._local.setdefault(built.node_name, set()).add(pool)
        for name in names:
            if name is not None:
                self._targets.pop(name, None)
                self._touch_node(name)
        return None in names

    def _find_targets(self, row: int) -> tuple[PoolTarget, ...]:
        node = self._cluster.nodes[row]
        if node is None:
            return NO_TARGETS
        name = node.metadata.name
        pools = sorted([*self._local.get(name, ()), *self._shared])
        found = (target(self.pools[pool], name, node.metadata.labels) for pool in pools)
        return in_order([one for one in found if one is not None])

    def _read_state(self, pool: PoolId) -> PoolState:
        holds, positions = self._holds.get(pool), self.pools[pool].positions
        if not holds:
            return FREE
        taken = 0
        consumed: list[tuple[int, Amounts]] = []
        for device, found in holds.items():
            position = positions.get(device)
            if position is None:
                continue
            if found.whole:
                taken |= 1 << position
            if found.shares:
                consumed.append((position, tuple(sorted((k, v) for k, v in found.consumed.items() if v))))
        return PoolState(taken, tuple(sorted(consumed)))
