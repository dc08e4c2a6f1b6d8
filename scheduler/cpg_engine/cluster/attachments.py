"""Which claims are in use where, and how many volumes of each CSI driver are attached to each node.

What is counted is the use of claims by pods, since that is additive. Which volume a claim stands for, and so how many
distinct volumes a node has, follows from the storage catalog. It is updated with every pod while the catalog stays the
same, and computed again when the catalog changes.
"""

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from cpg_engine.cluster.axes import Rows, Scores
from cpg_engine.cluster.nodes import NodeColumns
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.cluster.storage import NO_LIMIT, StorageCatalog
from cpg_engine.cluster.volumes import VolumeHandle

Key = TypeVar("Key", str, int)


class Attachments:
    """A tally of claims and of inline volumes."""

    def __init__(self, storage: StorageCatalog, cluster: NodeColumns) -> None:
        """Start with nothing in use."""
        self.users: dict[str, int] = {}
        self._storage = storage
        self._cluster = cluster
        self._claims_at: dict[int, dict[str, int]] = {}
        self._inline_at: dict[int, dict[str, int]] = {}
        self._seen = (-1, -1)
        self._attached: dict[VolumeHandle, dict[int, int]] = {}
        self._counts: dict[str, Scores] = {}
        """The volumes that each row has attached, by driver; pods may name thousands of drivers without limits."""
        self._limits: dict[str, Scores] = {}

    def add(self, pod_class: PodClass, row: int, number: int) -> None:
        """Count so many more pods of the class at a node; a negative number counts them out."""
        volumes = pod_class.volumes
        if volumes is None:
            return
        current = self._seen == (self._storage.version, self._cluster.labels_version)
        for key in volumes.keys:
            _count(self.users, key, number)
            _count(self._claims_at.setdefault(row, {}), key, number)
            if current:
                self._attach(key, row, number)
        for driver, each in volumes.inline:
            _count(self._inline_at.setdefault(row, {}), driver, number * each)
            if current and driver in self._counts:
                self._counts[driver][row] += number * each
        for table in (self._claims_at, self._inline_at):
            if not table.get(row, True):
                del table[row]

    def forget(self, row: int) -> None:
        """Set the counts of a row to zero: its node is gone."""
        self._inline_at.pop(row, None)
        for key, number in self._claims_at.pop(row, {}).items():
            _count(self.users, key, -number)
        self._seen = (-1, -1)

    def limits(self) -> Mapping[str, Scores]:
        """Return for each driver with a limit how many volumes each row may have attached."""
        self._refresh()
        return self._limits

    def attached(self, driver: str) -> Scores:
        """Return how many volumes of a driver with a limit each row has attached."""
        self._refresh()
        return self._counts[driver]

    def rows_with(self, handle: VolumeHandle) -> list[int]:
        """Return the rows that have a volume attached."""
        self._refresh()
        return list(self._attached.get(handle, ()))

    def uses(self, handle: VolumeHandle, rows: Rows) -> Scores:
        """Return by how many claims of pods a volume is in use on each of the rows."""
        self._refresh()
        at = self._attached.get(handle, {})
        return np.array([at.get(row, 0) for row in rows.tolist()], dtype=np.int64)

    def _attach(self, key: str, row: int, number: int) -> None:
        """Count uses of a claim; its volume is attached with the first use on a node and detached with the last."""
        handle = self._storage.handle_of(key)
        if handle is None:
            return
        at = self._attached.setdefault(handle, {})
        was_there = row in at
        _count(at, row, number)
        if handle.driver in self._counts:
            self._counts[handle.driver][row] += (row in at) - was_there
        if not at:
            del self._attached[handle]

    def _refresh(self) -> None:
        now = (self._storage.version, self._cluster.labels_version)
        if self._seen == now:
            return
        self._seen = now
        self._attached.clear()
        self._limits = self._read_limits()
        self._counts = {driver: np.zeros(self._cluster.size, dtype=np.int64) for driver in self._limits}
        for row, claims in self._claims_at.items():
            for key, number in claims.items():
                self._attach(key, row, number)
        for row, inline in self._inline_at.items():
            for driver, number in inline.items():
                if driver in self._counts:
                    self._counts[driver][row] += number

    def _read_limits(self) -> dict[str, Scores]:
        found: dict[str, Scores] = {}
        for node, drivers in self._storage.drivers.items():
            row = self._cluster.row_of.get(node)
            for name, driver in drivers.items() if row is not None else ():
                if driver.limit < NO_LIMIT:
                    column = found.setdefault(name, np.full(self._cluster.size, NO_LIMIT, dtype=np.int64))
                    column[row] = driver.limit
        return found


def _count(table: dict[Key, int], key: Key, number: int) -> None:
    """Add to a count; a count of zero is removed, so that undoing leaves no trace."""
    total = table.get(key, 0) + number
    if total:
        table[key] = total
    else:
        table.pop(key, None)
