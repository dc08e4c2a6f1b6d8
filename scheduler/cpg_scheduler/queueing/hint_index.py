"""An index of the hints of unschedulable units, by which a changed node finds the units that it may help.

Ten thousand pods that are all different have ten thousand different hints, and with every pod that ends some node has
more room. So hints are indexed in three steps:

1. by a label that a node must have to help, such as one that a node selector names, or by an extended resource that it
   must offer: a node is compared only with hints for the labels and resources that it has;
2. by everything else about the node, except room: hints that require the same of a node, and the same extended
   resources, share a *table*, and the filters run once for all of them;
3. by room: the requests of a table are arrays, and one comparison per resource finds the hints that fit a node; of
   these, those that tolerate the taints of the node are found by a number for their tolerations.

As in ``hints``, an approximation may cause a useless attempt and must never prevent one that would succeed.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cpg_api.core.node import Taint
from cpg_api.selectors import NAME_FIELD
from cpg_engine.cluster.axes import BASE, Amounts, Rows
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.filters import node_resources
from cpg_engine.filters.registry import blocking_taints, selects_nodes, statically_feasible
from cpg_engine.snapshot import Snapshot
from cpg_scheduler.queueing.hints import RequeueHint
from cpg_scheduler.queueing.toleration_index import TolerationIndex

NodeLabel: TypeAlias = tuple[str, str]
"""A label and its value; the name of a node counts as a label, and so do the resources that it offers."""

ANY_NODE: NodeLabel = ("", "")
"""What every node has."""

OFFERS = ""
"""The label whose values are the resources that a node offers; no label of a node has this name."""

NEVER_FITS = np.iinfo(np.int64).max
"""More than any node has: the request at an unused position."""


class _HintTable:
    """Hints for room on the same nodes: their requests, one column per resource."""

    def __init__(self, pod_class: PodClass, labels: frozenset[NodeLabel]) -> None:
        self.pod_class = pod_class
        self.labels = labels
        self.requests: dict[str, NDArray[np.int64]] = {}
        self.tolerations = np.zeros(0, dtype=np.intp)
        self.keys: list[Hashable] = []
        self.unused: list[int] = []

    @property
    def is_empty(self) -> bool:
        return len(self.unused) == len(self.keys)

    def put(self, key: Hashable, requests: dict[str, int], tolerations: int) -> int:
        """Add a hint, with the number of its tolerations; return its position."""
        if not self.unused:
            self._grow()
        for name in requests.keys() - self.requests.keys():
            self.requests[name] = np.zeros(len(self.keys), dtype=np.int64)
            self.requests[name][self.unused] = NEVER_FITS
        position = self.unused.pop()
        self.keys[position], self.tolerations[position] = key, tolerations
        for name, column in self.requests.items():
            column[position] = requests.get(name, 0)
        return position

    def remove(self, position: int) -> None:
        """Remove a hint; every pod requests something, so an unused position never fits."""
        self.unused.append(position)
        for column in self.requests.values():
            column[position] = NEVER_FITS

    def fitting(
        self, free: Amounts, columns: Mapping[str, int], taints: Sequence[tuple[Taint, ...]], index: TolerationIndex
    ) -> Iterator[Hashable]:
        """Yield the keys of the hints that fit one of the nodes, by what each node has free, and by its taints."""
        # A resource that a hint does not request may be overdrawn.
        free = np.maximum(free, 0)
        rest = self._that_fit(np.arange(len(self.keys)), free.max(axis=0, initial=0), columns)
        for row, found in zip(free, taints, strict=True):
            if not len(rest):
                return
            fitting = self._that_fit(rest, row, columns)
            if found:
                fitting = fitting[index.tolerates(self.tolerations[fitting], found)]
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
        self.tolerations = np.pad(self.tolerations, (0, more))
        self.requests = {
            name: np.pad(column, (0, more), constant_values=NEVER_FITS) for name, column in self.requests.items()
        }


class HintIndex:
    """Requeue hints, by any key."""

    def __init__(self) -> None:
        """Start empty."""
        self._hints: dict[Hashable, RequeueHint] = {}
        self._any_change: dict[Hashable, None] = {}
        self._by_member_node: dict[str, dict[Hashable, None]] = {}
        self._tables: dict[Hashable, _HintTable] = {}
        self._by_label: dict[NodeLabel, dict[Hashable, _HintTable]] = {}
        self._positions: dict[Hashable, list[tuple[Hashable, int]]] = {}
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

    def put(self, key: Hashable, hint: RequeueHint) -> None:
        """Set the hint of a key."""
        self.remove(key)
        self._hints[key] = hint
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
        for name in hint.member_nodes:
            del self._by_member_node[name][key]
            if not self._by_member_node[name]:
                del self._by_member_node[name]
        for table_key, position in self._positions.pop(key):
            table = self._tables[table_key]
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
        for table in self._tables_for(snapshot, rows).values():
            found.update(dict.fromkeys(_fitting(table, snapshot, rows, self._tolerations)))
        return list(found)

    def _put_class(self, key: Hashable, pod_class: PodClass) -> tuple[Hashable, int]:
        """Add a class of pods of a hint; return where."""
        table_key = _table_key(pod_class)
        table = self._tables.get(table_key)
        if table is None:
            table = self._tables[table_key] = _HintTable(pod_class, self._required_labels(pod_class))
            for label in table.labels:
                self._by_label.setdefault(label, {})[table_key] = table
        return table_key, table.put(key, pod_class.requests, self._tolerations.add(pod_class.tolerations))

    def _remove_table(self, table_key: Hashable, table: _HintTable) -> None:
        del self._tables[table_key]
        for label in table.labels:
            del self._by_label[label][table_key]
            if not self._by_label[label]:
                del self._by_label[label]

    def _required_labels(self, pod_class: PodClass) -> frozenset[NodeLabel]:
        """Return labels one of which a node must have to take a pod of the class; of a selector's, the rarest here."""
        if pod_class.node_name:
            return frozenset({(NAME_FIELD, pod_class.node_name)})
        required = (*pod_class.node_selector.equal, *((OFFERS, name) for name in sorted(_extended(pod_class))))
        if required:
            return frozenset({min(required, key=lambda label: len(self._by_label.get(label, ())))})
        terms = pod_class.node_affinity.terms if pod_class.node_affinity is not None else ()
        listed = [
            next((one for one in (*term.fields, *term.expressions) if one.operator == "In"), None) for term in terms
        ]
        labels = frozenset((one.key, value) for one in listed if one is not None for value in one.values)
        return labels if labels and None not in listed else frozenset({ANY_NODE})

    def _tables_for(self, snapshot: Snapshot, rows: Rows) -> dict[Hashable, _HintTable]:
        """Return the tables for which one of the nodes has a required label."""
        labels = {ANY_NODE}
        for row in rows.tolist():
            node = snapshot.ledger.cluster.nodes[row]
            if node is not None:
                labels.update(node.metadata.labels.items())
                labels.add((NAME_FIELD, node.metadata.name))
                labels.update((OFFERS, name) for name in node.status.allocatable or ())
        return {key: table for label in labels for key, table in self._by_label.get(label, {}).items()}


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


def _fitting(table: _HintTable, snapshot: Snapshot, rows: Rows, index: TolerationIndex) -> Iterator[Hashable]:
    ledger, cluster = snapshot.ledger, snapshot.ledger.cluster
    rows = rows[selects_nodes(table.pod_class, cluster, rows)]
    taints = [blocking_taints(cluster, row) for row in rows.tolist()]
    return table.fitting(ledger.allocatable[rows] - ledger.used[rows], ledger.classes.axis.places, taints, index)


def _table_key(pod_class: PodClass) -> Hashable:
    """Return what decides which nodes the pods of a class may use, except tolerations, and what they request there."""
    return pod_class.node_name, pod_class.node_selector, pod_class.node_affinity, _extended(pod_class)


def _extended(pod_class: PodClass) -> frozenset[str]:
    """Return the extended resources that a class requests; it may be thousands, so not every table has all of them."""
    return frozenset(pod_class.requests.keys() - set(BASE))
