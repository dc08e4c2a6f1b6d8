"""The domains of a label inside a scope, kept until a node comes, goes or changes its labels, or there are too many.

A scope is a chain of domains, each inside the one before. A rack of a block has the nodes with both the rack's and the
block's value, so racks of the same name in two blocks are two domains, while a tree that asks for racks without blocks
sees one. Nodes without the label are in no domain.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from cpg_engine.cluster.axes import Rows
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.nodes import ABSENT
from cpg_engine.verdicts import Domain

MAX_CACHED_ROWS = 4_000_000
"""Rows of all partitions that are kept, about sixty megabytes; a domain counts as ``ROWS_PER_DOMAIN`` rows."""
ROWS_PER_DOMAIN = 32


class Scope(Struct, frozen=True, eq=False):
    """Some nodes, and the chain of domains that contains them; the whole cluster has an empty chain."""

    chain: tuple[Domain, ...]
    rows: Rows


class Partition(Struct, frozen=True, eq=False):
    """A scope divided into domains, by value: the rows of all domains, one after the other, and where each begins."""

    scopes: tuple[Scope, ...]
    rows: Rows
    starts: NDArray[np.intp]

    def sums(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sum over each domain of a number per node."""
        if not self.scopes:
            return np.zeros(0, dtype=np.int64)
        answer: NDArray[np.int64] = np.add.reduceat(numbers[self.rows], self.starts)
        return answer


class Topology:
    """The partitions that were used since labels last changed."""

    def __init__(self, ledger: Ledger) -> None:
        """Start empty."""
        self._ledger = ledger
        self._version = -1
        self._whole = Scope(chain=(), rows=np.zeros(0, dtype=np.intp))
        self._partitions: dict[tuple[tuple[Domain, ...], str], Partition] = {}
        self._cached_rows = 0

    def whole(self) -> Scope:
        """Return the scope of the whole cluster."""
        self._refresh()
        return self._whole

    def partition(self, scope: Scope, key: str) -> Partition:
        """Return the domains of a label inside a scope, by value."""
        self._refresh()
        found = self._partitions.get((scope.chain, key))
        if found is None:
            found = self._cut(scope, key)
            self._cached_rows += len(found.rows) + ROWS_PER_DOMAIN * (len(found.scopes) + 1)
            if self._cached_rows > MAX_CACHED_ROWS:
                self._clear()
            self._partitions[scope.chain, key] = found
        return found

    def _refresh(self) -> None:
        newest = self._ledger.cluster.labels_version
        if newest != self._version:
            self._version = newest
            self._clear()
            self._whole = Scope(chain=(), rows=self._ledger.cluster.everything())

    def _clear(self) -> None:
        self._partitions.clear()
        self._cached_rows = 0

    def _cut(self, scope: Scope, key: str) -> Partition:
        column = self._ledger.cluster.label(key)
        codes = column.codes[scope.rows]
        labelled = scope.rows[codes != ABSENT]
        order = np.argsort(column.codes[labelled], kind="stable")
        grouped = labelled[order]
        present, starts = np.unique(column.codes[grouped], return_index=True)
        pieces = np.split(grouped, starts[1:])
        scopes = sorted(
            (
                Scope(chain=(*scope.chain, Domain(key, column.values[code])), rows=rows)
                for code, rows in zip(present.tolist(), pieces, strict=False)
            ),
            key=lambda found: found.chain[-1].value,
        )
        sizes = [len(found.rows) for found in scopes]
        return Partition(
            scopes=tuple(scopes),
            rows=np.concatenate([found.rows for found in scopes]) if scopes else scope.rows[:0],
            starts=np.cumsum([0, *sizes[:-1]]).astype(np.intp),
        )
