"""Which devices each node can use, and what is taken of them: the truth about devices within the ledger.

Whatever takes devices is a *holder*: a claim of the API, an assumed one, or a reservation of the simulation. Holders
only add and subtract, so letting one go leaves everything as it was before.

The pools of most drivers belong to one node each. A change of such a pool is noted at its row, like any other change
of a node. The pools that several nodes can use have a version of their own.
"""

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
        self._seen = (-1, -1)
        self.version = 0
        """Incremented when pools or the nodes that can use them change."""
        self.shared_version = 0
        """Incremented when something is taken of a pool that several nodes can use, or given back."""
        self.pools: dict[PoolId, Pool] = {}
        self._names: dict[PoolId, list[str]] = {}
        self._local: dict[str, list[PoolId]] = {}
        self._shared: list[PoolId] = []
        self._targets: dict[int, tuple[PoolTarget, ...]] = {}
        self._states: dict[PoolId, PoolState] = {}
        self._holds: dict[PoolId, dict[str, _Holds]] = {}
        self._by_holder: dict[Hashable, tuple[Taken, ...]] = {}

    def refresh(self) -> None:
        """Bring the pools up to date with the catalog and the nodes."""
        now = (self._catalog.inventory_version, self._cluster.labels_version)
        if self._seen == now:
            return
        self._seen = now
        self.version += 1
        for pool in self._catalog.changed_pools:
            self._rebuild(pool)
        self._catalog.changed_pools.clear()
        self._local, self._shared = {}, []
        for found in self.pools.values():
            if found.node_name is None:
                self._shared.append(found.id)
            else:
                self._local.setdefault(found.node_name, []).append(found.id)
        self._targets.clear()

    @property
    def rows(self) -> int:
        """Return how many rows there are, with or without a node."""
        return self._cluster.size

    def device_name(self, pool: PoolId, position: int) -> str:
        """Return the name of the device at a position of a pool."""
        return self._names[pool][position]

    def targets(self, row: int) -> tuple[PoolTarget, ...]:
        """Return the pools that the node of a row can use, in the order in which they are tried."""
        found = self._targets.get(row)
        if found is None:
            found = self._targets[row] = self._find_targets(row)
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
        self._count(new, 1)

    def release(self, holder: Hashable) -> None:
        """Give back all that a holder has."""
        self._count(self._by_holder.pop(holder, ()), -1)

    def held_by(self, holder: Hashable) -> tuple[Taken, ...]:
        """Return what a holder has taken."""
        return self._by_holder.get(holder, ())

    def is_overcommitted(self, row: int) -> bool:
        """Return whether any device that a node can use is taken more often than it can be."""
        return any(self._is_overcommitted(found) for found in self.targets(row))

    def _is_overcommitted(self, found: PoolTarget) -> bool:
        holds = self._holds.get(found.pool.id, {})
        return any(
            (one := holds.get(device.id.device)) is not None and one.whole + bool(one.shares) > 1
            for device in found.devices
        )

    def _count(self, taken: Iterable[Taken], sign: int) -> None:
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
        if found.node_name is None:
            self.shared_version += 1
        elif (row := self._cluster.row_of.get(found.node_name)) is not None:
            self._touch(row)

    def _rebuild(self, pool: PoolId) -> None:
        slices = self._catalog.slices_of.get(pool)
        self._states.pop(pool, None)
        if slices is None:
            self.pools.pop(pool, None)
            self._names.pop(pool, None)
            return
        built = build_pool(list(slices.values()), self._catalog.taint_rules.values())
        self.pools[pool] = built
        self._names[pool] = sorted(built.positions, key=built.positions.__getitem__)

    def _find_targets(self, row: int) -> tuple[PoolTarget, ...]:
        node = self._cluster.nodes[row]
        if node is None:
            return NO_TARGETS
        name = node.metadata.name
        pools = [*self._local.get(name, ()), *self._shared]
        if not pools:
            return NO_TARGETS
        found = [target(self.pools[pool], name, node.metadata.labels) for pool in pools]
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
