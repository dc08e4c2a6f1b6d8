"""The nodes: labels, taints and names as columns, changed only between cycles.

A row belongs to one node for as long as the node exists, and is reused afterwards. ``ranks`` has the order of the nodes
by name, so that no decision depends on the order in which nodes arrived.

A pod may ask for ten thousand labels that no node has. So there is a column for each label that some node has at
present, and one column for all others.
"""

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from cpg_api.core.node import Node, Taint
from cpg_api.selectors import Expression, Labels
from cpg_engine.cluster.axes import Flags, Rows, Scores
from cpg_engine.cluster.images import Images

MAX_STALE_CODES = 64
"""Values of labels, or sets of taints, that no node has any more, beyond as many as there are nodes."""
ABSENT = -1
"""The code of a label that a node does not have."""
NO_LABELS: Labels = {}


class LabelColumn:
    """The values of one label over all rows, as codes."""

    def __init__(self, rows: int) -> None:
        """Start with the label absent on all rows."""
        self.codes = np.full(rows, ABSENT, dtype=np.int32)
        self.values: list[str] = []
        self._code_of: dict[str, int] = {}

    def put(self, row: int, value: str | None) -> None:
        """Set the value of a row."""
        self.codes[row] = ABSENT if value is None else self._code(value)

    def fill(self, values: Mapping[int, str]) -> None:
        """Set the values of many rows of an empty column."""
        self.values = list(dict.fromkeys(values.values()))
        self._code_of = {value: code for code, value in enumerate(self.values)}
        self.codes[list(values)] = [self._code_of[value] for value in values.values()]

    def code_of(self, value: str) -> int | None:
        """Return the code of a value, or None where no node ever had it."""
        return self._code_of.get(value)

    def _code(self, value: str) -> int:
        code = self._code_of.setdefault(value, len(self.values))
        if code == len(self.values):
            self.values.append(value)
        return code

    def grow(self, rows: int) -> None:
        """Add rows."""
        self.codes = np.concatenate([self.codes, np.full(rows - len(self.codes), ABSENT, dtype=np.int32)])

    def holds(self, expression: Expression, rows: Rows) -> Flags:
        """Return for each row whether its value meets the expression; each distinct value is evaluated once."""
        if not self.values:
            return np.full(len(rows), expression.matches({}), dtype=np.bool_)
        codes = self.codes[rows]
        if expression.operator in {"In", "NotIn"}:
            wanted = [code for value in expression.values if (code := self._code_of.get(value)) is not None]
            found: Flags = np.isin(codes, wanted)
            return found if expression.operator == "In" else ~found
        table = np.zeros(len(self.values) + 1, dtype=np.bool_)
        for code, value in enumerate(self.values):
            table[code] = expression.matches({expression.key: value})
        table[ABSENT] = expression.matches({})
        answer: Flags = table[codes]
        return answer


class NodeColumns:
    """All nodes by row."""

    def __init__(self) -> None:
        """Start without nodes."""
        self.nodes: list[Node | None] = []
        self.row_of: dict[str, int] = {}
        self.alive: Flags = np.zeros(0, dtype=np.bool_)
        self.unschedulable: Flags = np.zeros(0, dtype=np.bool_)
        self.taint_codes: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self.taint_sets: list[tuple[Taint, ...]] = [()]
        self._taint_code_of: dict[tuple[Taint, ...], int] = {(): 0}
        self.label_keys: Counter[str] = Counter()
        """How many nodes have a label with this key; keys that no node has are not in it."""
        self._labels: dict[str, LabelColumn] = {}
        self._absent = LabelColumn(0)
        self._images = Images()
        self._free: list[int] = []
        self._ranks: NDArray[np.int64] | None = None
        self.labels_version = 0
        """Incremented when a node comes, goes or changes its labels, which most updates do not."""

    @property
    def size(self) -> int:
        """Return the length of every column: the number of rows, with or without a node."""
        return len(self.alive)

    @property
    def ranks(self) -> NDArray[np.int64]:
        """Return each row's position in the order of names."""
        if self._ranks is None:
            self._ranks = np.zeros(self.size, dtype=np.int64)
            for rank, (_, row) in enumerate(sorted(self.row_of.items())):
                self._ranks[row] = rank
        return self._ranks

    def name(self, row: int) -> str:
        """Return the name of the node of a row."""
        node = self.nodes[row]
        return node.metadata.name if node else ""

    def everything(self) -> Rows:
        """Return all rows that have a node."""
        return np.flatnonzero(self.alive)

    def by_taints(self, rows: Rows, ask: Callable[[tuple[Taint, ...]], int]) -> Scores:
        """Return for each of the rows the answer for its node's taints, evaluating each distinct set of taints once."""
        codes = self.taint_codes[rows]
        answers = np.zeros(len(self.taint_sets), dtype=np.int64)
        for code in np.flatnonzero(np.bincount(codes)).tolist():
            answers[code] = ask(self.taint_sets[code])
        found: Scores = answers[codes]
        return found

    def label(self, key: str) -> LabelColumn:
        """Return the column of a label, made on first use; it is valid until a node changes its labels."""
        column = self._labels.get(key)
        if column is None:
            if key not in self.label_keys:
                return self._absent
            column = self._labels[key] = LabelColumn(self.size)
            labels = ((row, node.metadata.labels) for row, node in enumerate(self.nodes) if node is not None)
            column.fill({row: found[key] for row, found in labels if key in found})
        return column

    def _labels_of(self, row: int) -> Labels:
        """Return the labels of the node of a row."""
        node = self.nodes[row]
        return node.metadata.labels if node else NO_LABELS

    def image_sizes(self, image: str) -> NDArray[np.int64]:
        """Return how many bytes of an image each row has already."""
        return self._images.sizes(image, self.size)

    def is_unchanged(self, node: Node) -> bool:
        """Return whether a node differs in nothing that matters to scheduling; if so, it replaces the old object.

        Most updates of nodes are heartbeats, and nothing has to be computed for them.
        """
        row = self.row_of.get(node.metadata.name)
        known = None if row is None else self.nodes[row]
        if row is None or known is None or _relevant(known) != _relevant(node):
            return False
        self.nodes[row] = node
        return True

    def put(self, node: Node) -> int:
        """Add a node or its new state; return its row."""
        name = node.metadata.name
        row = self.row_of.get(name)
        if row is None:
            row = self._new_row()
            self.row_of[name] = row
            self._ranks = None
        if self.nodes[row] is None or self._labels_of(row) != node.metadata.labels:
            self._relabel(row, node.metadata.labels)
        self.nodes[row] = node
        self.alive[row] = True
        self.unschedulable[row] = node.spec.unschedulable
        self.taint_codes[row] = self._taint_code(node.spec.taints or ())
        self._images.put(row, node.status.images)
        return row

    def remove(self, name: str) -> int | None:
        """Remove a node; return the row that it had."""
        row = self.row_of.pop(name, None)
        if row is None:
            return None
        self._relabel(row, NO_LABELS)
        self.nodes[row] = None
        self.alive[row] = False
        self.taint_codes[row] = self._taint_code(())
        self._free.append(row)
        self._ranks = None
        self._images.put(row, ())
        return row

    def _relabel(self, row: int, labels: Labels) -> None:
        """Replace the labels of the node of a row."""
        self.labels_version += 1
        old = self._labels_of(row)
        self.label_keys.update(labels.keys())
        self.label_keys.subtract(old.keys())
        for key in old.keys() | labels.keys():
            if not self.label_keys[key]:
                del self.label_keys[key]
                self._labels.pop(key, None)
            elif key in self._labels:
                column = self._labels[key]
                column.put(row, labels.get(key))
                if len(column.values) > 2 * self.label_keys[key] + MAX_STALE_CODES:
                    del self._labels[key]  # it is made again, with the values that nodes have

    def _taint_code(self, taints: tuple[Taint, ...]) -> int:
        code = self._taint_code_of.get(taints)
        if code is None:
            if len(self.taint_sets) > 2 * len(self.row_of) + MAX_STALE_CODES:
                self._drop_unused_taints()
            code = self._taint_code_of[taints] = len(self.taint_sets)
            self.taint_sets.append(taints)
        return code

    def _drop_unused_taints(self) -> None:
        """Give new codes to the sets of taints that rows have."""
        used, codes = np.unique(self.taint_codes, return_inverse=True)
        self.taint_sets = [self.taint_sets[code] for code in used.tolist()]
        self.taint_codes = codes.astype(np.int32)
        self._taint_code_of = {taints: code for code, taints in enumerate(self.taint_sets)}

    def _new_row(self) -> int:
        if not self._free:
            self._grow(self.size + max(64, self.size // 8))
        return self._free.pop()

    def _grow(self, capacity: int) -> None:
        more = capacity - self.size
        self._free.extend(range(capacity - 1, self.size - 1, -1))
        self.nodes.extend([None] * more)
        self.alive = np.concatenate([self.alive, np.zeros(more, dtype=np.bool_)])
        self.unschedulable = np.concatenate([self.unschedulable, np.zeros(more, dtype=np.bool_)])
        self.taint_codes = np.concatenate([self.taint_codes, np.zeros(more, dtype=np.int32)])
        for column in (self._absent, *self._labels.values()):
            column.grow(capacity)


def _relevant(node: Node) -> tuple[object, ...]:
    return node.metadata.labels, node.spec, node.status.allocatable, node.status.images
