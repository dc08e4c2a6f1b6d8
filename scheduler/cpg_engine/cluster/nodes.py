"""The nodes: labels, taints and names as columns, changed only between cycles.

A row belongs to one node for as long as the node exists and is reused afterwards; ``ranks`` gives the nodes' order
by name, so that no decision depends on which node happened to come first.

Anybody may ask for a label that no node has, and for ten thousand of them in one pod. So there are columns for labels
that some node has at present, and one for all others.
"""

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from cpg_api.core.node import Node, Taint
from cpg_api.selectors import Expression, Labels
from cpg_engine.cluster.axes import Flags, Rows, Scores
from cpg_engine.cluster.images import Images

ABSENT = -1
"""The code of a label that a node does not have."""
NO_LABELS: Labels = {}


class LabelColumn:
    """The values of one label over all rows, as codes."""

    def __init__(self, rows: int) -> None:
        """Start with the label absent everywhere."""
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
        """Make room for more rows."""
        self.codes = np.concatenate([self.codes, np.full(rows - len(self.codes), ABSENT, dtype=np.int32)])

    def holds(self, expression: Expression, rows: Rows) -> Flags:
        """Tell for each row whether its value meets the expression; each distinct value is asked once."""
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
        self.taint_sets: list[tuple[Taint, ...]] = []
        self._taint_code_of: dict[tuple[Taint, ...], int] = {}
        self.label_keys: Counter[str] = Counter()
        """How many nodes have a label with this key; those that none has are not in it."""
        self._labels: dict[str, LabelColumn] = {}
        self._nowhere = LabelColumn(0)
        self._images = Images()
        self._free: list[int] = []
        self._ranks: NDArray[np.int64] | None = None
        self.labels_version = 0
        """Told by a node that comes, goes, or changes its labels; most news of nodes are none of these."""

    @property
    def size(self) -> int:
        """Return the number of rows, those without a node included: the length of every column."""
        return len(self.alive)

    @property
    def ranks(self) -> NDArray[np.int64]:
        """Return each row's place in the order of names."""
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
        """Return for each of the rows the answer for its node's taints; each set of taints is asked about once."""
        codes = self.taint_codes[rows]
        answers = np.zeros(len(self.taint_sets), dtype=np.int64)
        for code in np.flatnonzero(np.bincount(codes)).tolist():
            answers[code] = ask(self.taint_sets[code])
        found: Scores = answers[codes]
        return found

    def label(self, key: str) -> LabelColumn:
        """Return the column of a label, made when it is first asked for; it holds until a node changes its labels."""
        column = self._labels.get(key)
        if column is None:
            if key not in self.label_keys:
                return self._nowhere
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
        """Tell whether a node differs in nothing that scheduling looks at; if so, it stands for the old one now.

        Most of what nodes report is that they are still alive, and nothing has to be computed anew for that.
        """
        row = self.row_of.get(node.metadata.name)
        known = None if row is None else self.nodes[row]
        if row is None or known is None or _told(known) != _told(node):
            return False
        self.nodes[row] = node
        return True

    def put(self, node: Node) -> int:
        """Add a node or take its new state; return its row."""
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
        """Forget a node; return the row it had."""
        row = self.row_of.pop(name, None)
        if row is None:
            return None
        self._relabel(row, NO_LABELS)
        self.nodes[row] = None
        self.alive[row] = False
        self._free.append(row)
        self._ranks = None
        self._images.put(row, ())
        return row

    def _relabel(self, row: int, labels: Labels) -> None:
        """Put labels in the place of those that the node of a row has."""
        self.labels_version += 1
        old = self._labels_of(row)
        self.label_keys.update(labels.keys())
        self.label_keys.subtract(old.keys())
        for key in old.keys() | labels.keys():
            if not self.label_keys[key]:
                del self.label_keys[key]
                self._labels.pop(key, None)
            elif key in self._labels:
                self._labels[key].put(row, labels.get(key))

    def _taint_code(self, taints: tuple[Taint, ...]) -> int:
        code = self._taint_code_of.setdefault(taints, len(self.taint_sets))
        if code == len(self.taint_sets):
            self.taint_sets.append(taints)
        return code

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
        for column in (self._nowhere, *self._labels.values()):
            column.grow(capacity)


def _told(node: Node) -> tuple[object, ...]:
    return node.metadata.labels, node.spec, node.status.allocatable, node.status.images
