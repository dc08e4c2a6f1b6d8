"""From which nodes a volume can be reached, and for which nodes one can be provisioned; kept until a node changes.

A thousand local volumes have a thousand node affinities that name one node each. So a term is evaluated by looking up
the rows with a wanted label value instead of testing all nodes, and only those rows are kept.
"""

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from cpg_api.selectors import Expression, NodeMatcher, NodeTermMatcher
from cpg_engine.cluster.axes import Flags, Rows
from cpg_engine.cluster.node_selection import term_holds
from cpg_engine.cluster.nodes import ABSENT, NodeColumns
from cpg_engine.cluster.volumes import ZONE_KEYS, StorageClassInfo, VolumeInfo

MAX_CACHED_AFFINITIES = 10_000
"""Node affinities of volumes that are kept: volumes come and go while nodes stay."""
NO_ROWS: Rows = np.zeros(0, dtype=np.intp)


class VolumeReach:
    """The rows of node affinities and of the topologies of storage classes."""

    def __init__(self, cluster: NodeColumns) -> None:
        """Start empty."""
        self._cluster = cluster
        self._version = -1
        self._everything = NO_ROWS
        self._rows: dict[NodeMatcher, Rows] = {}
        self._places: dict[tuple[tuple[Expression, ...], ...], Rows] = {}
        self._sorted: dict[str, tuple[Rows, NDArray[np.int32]]] = {}

    def rows(self, volume: VolumeInfo) -> Rows:
        """Return the nodes that can reach a volume."""
        self._refresh()
        if volume.node_affinity is None:
            return self._everything
        found = self._rows.get(volume.node_affinity)
        if found is None:
            if len(self._rows) >= MAX_CACHED_AFFINITIES:
                self._rows.clear()
            # Here kube-scheduler evaluates labels alone: the fields of a term hold on all nodes.
            pieces = [self._term(replace(term, fields=())) for term in volume.node_affinity.terms]
            found = self._rows[volume.node_affinity] = _union(pieces)
        return found

    def provisionable_rows(self, provisioning: StorageClassInfo | None) -> Rows:
        """Return the nodes for which a storage class can provision volumes."""
        self._refresh()
        if provisioning is None or not provisioning.can_provision:
            return NO_ROWS
        if provisioning.allowed_topologies is None:
            return self._everything
        found = self._places.get(provisioning.allowed_topologies)
        if found is None:
            pieces = [self._term(NodeTermMatcher(expressions=term)) for term in provisioning.allowed_topologies]
            found = self._places[provisioning.allowed_topologies] = _union(pieces)
        return found

    def alike(self, row: int, keys: tuple[str, ...]) -> Rows:
        """Return the nodes with the same values of some labels as a row; that row alone if it lacks one of them."""
        self._refresh()
        rows = self._everything
        for key in keys:
            codes = self._cluster.label(key).codes
            if codes[row] == ABSENT:
                return np.array([row], dtype=np.intp)
            rows = rows[codes[rows] == codes[row]]
        return rows

    def in_zones(self, volume: VolumeInfo, rows: Rows) -> Flags:
        """Return which nodes are where the labels of a volume say; a node without zone and region labels always is."""
        columns = {key: self._cluster.label(key) for key in ZONE_KEYS}
        somewhere = np.zeros(len(rows), dtype=np.bool_)
        for column in columns.values():
            somewhere |= column.codes[rows] != ABSENT
        answer = ~somewhere
        inside = np.ones(len(rows), dtype=np.bool_)
        for key, values in volume.zones:
            wanted = Expression(key, "In", values)
            inside &= np.where(
                columns[key].codes[rows] != ABSENT,
                columns[key].holds(wanted, rows),
                columns[ZONE_KEYS[key]].holds(wanted, rows),
            )
        return answer | inside

    def _refresh(self) -> None:
        if self._version != self._cluster.labels_version:
            self._version = self._cluster.labels_version
            self._everything = self._cluster.everything()
            self._rows.clear()
            self._places.clear()
            self._sorted.clear()

    def _term(self, term: NodeTermMatcher) -> Rows:
        """Return the nodes that a term selects, testing only those that have one of the values that it names."""
        named = next((each for each in term.expressions if each.operator == "In"), None)
        rows = self._everything if named is None else self._having(named)
        return rows[term_holds(term, self._cluster, rows)]

    def _having(self, expression: Expression) -> Rows:
        """Return the rows that have one of the values, by bisection."""
        column = self._cluster.label(expression.key)
        found = self._sorted.get(expression.key)
        if found is None:
            order = np.argsort(column.codes, kind="stable")
            found = self._sorted[expression.key] = (order, column.codes[order])
        order, codes = found
        wanted = [code for value in expression.values if (code := column.code_of(value)) is not None]
        starts, ends = (np.searchsorted(codes, wanted, side=side) for side in ("left", "right"))
        return _union([order[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)])


def _union(pieces: list[Rows]) -> Rows:
    """Return the rows of any of the pieces, in order."""
    if not pieces:
        return NO_ROWS
    return np.unique(np.concatenate(pieces)) if len(pieces) > 1 else np.sort(pieces[0])
