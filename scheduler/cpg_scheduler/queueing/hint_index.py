"""An index of the hints of unschedulable units, by which a changed node finds the units that it may help.

Ten thousand pods that are all different have ten thousand different hints, and with every pod that ends some node has
more room. So hints are indexed in three steps:

1. by an extended resource that a node must offer to help: a node is compared only with hints for the resources that it
   has; hints for the same extended resources share a *table*;
2. by room: the requests of a table are arrays, and one comparison per resource finds the hints that fit a node;
3. by node selector, affinity and tolerations: these have numbers, and each node is compared with all of them at once.

As in ``hints``, an approximation may cause a useless attempt and must never prevent one that would succeed.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from cpg_api.core.node import Taint
from cpg_engine.cluster.axes import BASE, Amounts, Flags, Rows
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.filters import node_resources
from cpg_engine.filters.registry import blocking_taints, statically_feasible
from cpg_engine.snapshot import Snapshot
from cpg_scheduler.queueing.hints import RequeueHint
from cpg_scheduler.queueing.node_selection_index import NodeSelectionIndex
from cpg_scheduler.queueing.toleration_index import TolerationIndex

TableKey: TypeAlias = frozenset[str]
"""Extended resources."""

ANY_NODE = ""
"""Stands for a resource that every node offers."""

NEVER_FITS = np.iinfo(np.int64).max
"""More than any node has: the request at an unused position."""


class _HintTable:
    """Hints for the same extended resources: their requests, one column per resource.

    A node is compared with them if it offers ``resource``.
    """

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self.requests: dict[str, NDArray[np.int64]] = {}
        self.selections = np.zeros(0, dtype=np.intp)
        self.tolerations = np.zeros(0, dtype=np.intp)
        self.keys: list[Hashable] = []
        self.unused: list[int] = []

    @property
    def is_empty(self) -> bool:
        return len(self.unused) == len(self.keys)

    def put(self, key: Hashable, requests: dict[str, int], selection: int, tolerations: int) -> int:
        """Add a hint, with the numbers of its node selection and its tolerations; return its position."""
        if not self.unused:
            self._grow()
        for name in requests.keys() - self.requests.keys():
            self.requests[name] = np.zeros(len(self.keys), dtype=np.int64)
            self.requests[name][self.unused] = NEVER_FITS
        position = self.unused.pop()
        self.keys[position] = key
        self.selections[position], self.tolerations[position] = selection, tolerations
        for name, column in self.requests.items():
            column[position] = requests.get(name, 0)
        return position

    def remove(self, position: int) -> None:
        """Remove a hint; every pod requests something, so an unused position never fits."""
        self.unused.append(position)
        for column in self.requests.values():
            column[position] = NEVER_FITS

    def fitting(self, nodes: "_ChangedNodes", columns: Mapping[str, int], index: TolerationIndex) -> Iterator[Hashable]:
        """Yield the keys of the hints that fit one of the nodes."""
        # A resource that a hint does not request may be overdrawn.
        free = np.maximum(nodes.free, 0)
        rest = self._that_fit(np.arange(len(self.keys)), free.max(axis=0, initial=0), columns)
        for row, selected, taints in zip(free, nodes.selected, nodes.taints, strict=True):
            if not len(rest):
                return
            fitting = rest[selected[self.selections[rest]]]
            fitting = self._that_fit(fitting, row, columns)
            if taints:
                fitting = fitting[index.tolerates(self.tolerations[fitting], taints)]
            yield from (self.keys[position] for position in fitting.tolist())
            rest = np.setdiff1d(rest, fitting, assume_unique=True)

    def _that_fit(
        self, positions: NDArray[np.intp], free: NDArray[np.int64], columns: Mapping[str, int]
    ) -> NDArray[np.intp]:
        for name, requests in self.requests.items():
            available = free[columns[name]] if name in columns else 0
            positions = positions[requests[positions] <= available]
        return positions

    def _grow(self) -> None:
        more = max(len(self.keys), 16)
        self.unused = [*range(len(self.keys) + more - 1, len(self.keys) - 1, -1)]
        self.keys += [None] * more
        self.selections = np.pad(self.selections, (0, more))
        self.tolerations = np.pad(self.tolerations, (0, more))
        self.requests = {
            name: np.pad(column, (0, more), constant_values=NEVER_FITS) for name, column in self.requests.items()
        }


class _ChangedNodes(Struct, frozen=True, eq=False):
    """What each of some nodes has free, which node selections select it, and its taints."""

    free: Amounts
    selected: Sequence[Flags]
    taints: Sequence[tuple[Taint, ...]]


class HintIndex:
    """Requeue hints, by any key."""

    def __init__(self) -> None:
        """Start empty."""
        self._hints: dict[Hashable, RequeueHint] = {}
        self._any_change: dict[Hashable, None] = {}
        self._devices: dict[Hashable, None] = {}
        self._by_member_node: dict[str, dict[Hashable, None]] = {}
        self._tables: dict[TableKey, _HintTable] = {}
        self._by_resource: dict[str, dict[TableKey, _HintTable]] = {}
        self._positions: dict[Hashable, list[tuple[TableKey, int]]] = {}
        self._selections = NodeSelectionIndex()
        self._tolerations = TolerationIndex()

    def __len__(self) -> int:
        return len(self._hints)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._hints)

    def __getitem__(self, key: Hashable) -> RequeueHint:
        return self._hints[key]

    @property
    def for_any_change(self) -> list[Hashable]:
        """Return the keys of the units that any change may help."""
        return list(self._any_change)

    @property
    def for_devices(self) -> list[Hashable]:
        """Return the keys of the units that a change of devices may help, beside those that any change may help."""
        return list(self._devices)

    def put(self, key: Hashable, hint: RequeueHint) -> None:
        """Set the hint of a key."""
        self.remove(key)
        self._hints[key] = hint
        if hint.needs_devices:
            self._devices[key] = None
        if hint.any_change:
            self._any_change[key] = None
        for name in hint.member_nodes:
            self._by_member_node.setdefault(name, {})[key] = None
        self._positions[key] = [self._put_class(key, pod_class) for pod_class in hint.classes]

    def remove(self, key: Hashable) -> None:
        """Remove the hint of a key, if it has one."""
        hint = self._hints.pop(key, None)
        if hint is None:
            return
        self._any_change.pop(key, None)
        self._devices.pop(key, None)
        for name in hint.member_nodes:
            del self._by_member_node[name][key]
            if not self._by_member_node[name]:
                del self._by_member_node[name]
        for table_key, position in self._positions.pop(key):
            table = self._tables[table_key]
            self._selections.release(int(table.selections[position]))
            self._tolerations.release(int(table.tolerations[position]))
            table.remove(position)
            if table.is_empty:
                self._remove_table(table_key, table)

    def helped_by(self, snapshot: Snapshot, nodes: Iterable[str]) -> list[Hashable]:
        """Return the keys of the units that may be helped because these nodes have more room now, or are gone."""
        found = dict(self._any_change)
        names = list(nodes)
        for name in names:
            found.update(self._by_member_node.get(name, {}))
        rows = _rows(snapshot, names)
        tables = self._tables_for(snapshot, rows)
        if tables:
            changed = self._changed_nodes(snapshot, rows)
            for table in tables:
                keys = table.fitting(changed, snapshot.ledger.classes.axis.places, self._tolerations)
                found.update(dict.fromkeys(keys))
        return list(found)

    def _put_class(self, key: Hashable, pod_class: PodClass) -> tuple[TableKey, int]:
        """Add a class of pods of a hint; return where."""
        requests = _limited(pod_class)
        extended = frozenset(requests.keys() - set(BASE))
        table = self._tables.get(extended)
        if table is None:
            rarest = min(sorted(extended), key=lambda name: len(self._by_resource.get(name, ())), default=ANY_NODE)
            table = self._tables[extended] = _HintTable(rarest)
            self._by_resource.setdefault(rarest, {})[extended] = table
        selection, tolerations = self._selections.add(pod_class), self._tolerations.add(pod_class.tolerations)
        return extended, table.put(key, requests, selection, tolerations)

    def _remove_table(self, table_key: TableKey, table: _HintTable) -> None:
        del self._tables[table_key]
        del self._by_resource[table.resource][table_key]
        if not self._by_resource[table.resource]:
            del self._by_resource[table.resource]

    def _tables_for(self, snapshot: Snapshot, rows: Rows) -> list[_HintTable]:
        """Return the tables for which one of the nodes offers the resource."""
        resources = {ANY_NODE: None}
        for row in rows.tolist():
            node = snapshot.ledger.cluster.nodes[row]
            resources.update(dict.fromkeys(() if node is None else node.status.allocatable or ()))
        return [table for name in resources for table in self._by_resource.get(name, {}).values()]

    def _changed_nodes(self, snapshot: Snapshot, rows: Rows) -> _ChangedNodes:
        ledger, cluster = snapshot.ledger, snapshot.ledger.cluster
        nodes = [(row, node) for row in rows.tolist() if (node := cluster.nodes[row]) is not None]
        rows = np.array([row for row, _ in nodes], dtype=np.intp)
        return _ChangedNodes(
            free=ledger.allocatable[rows] - ledger.used[rows],
            selected=self._selections.selecting(node for _, node in nodes),
            taints=[blocking_taints(cluster, row) for row, _ in nodes],
        )


def may_help(snapshot: Snapshot, hint: RequeueHint, nodes: Iterable[str]) -> bool:
    """Return whether it may help a unit with this hint that these nodes have more room now, or are gone."""
    names = list(nodes)
    if hint.any_change or not hint.member_nodes.isdisjoint(names):
        return True
    rows = _rows(snapshot, names)
    return any(_has_room(snapshot, pod_class, rows) for pod_class in hint.classes)


def _rows(snapshot: Snapshot, names: Iterable[str]) -> Rows:
    row_of = snapshot.ledger.cluster.row_of
    return np.array([row_of[name] for name in names if name in row_of], dtype=np.intp)


def _has_room(snapshot: Snapshot, pod_class: PodClass, rows: Rows) -> bool:
    rows = rows[node_resources.passes(pod_class, snapshot.ledger, rows)]
    return bool(len(rows)) and bool(statically_feasible(pod_class, snapshot.ledger.cluster, rows).any())


def _limited(pod_class: PodClass) -> dict[str, int]:
    """Return what a class requests of every node, without the resources that it may be given as devices instead."""
    backed = {need.resource for need in pod_class.devices.extended} if pod_class.devices is not None else set()
    return {name: amount for name, amount in pod_class.requests.items() if name not in backed}
