"""Boards: for one class of pods, how good each node is now, as one number per node.

The number packs the score above the node's place by name, so that the best node is the largest number, ties are
broken by name, and -1 means that the node is out. A board notices by itself which nodes have changed since it was
last looked at and scores only those anew; after a gang of three on 5,000 nodes, that is three.
"""

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from cpg_engine.filters import fit
from cpg_engine.filters.registry import statically_feasible
from cpg_engine.scores.registry import dynamic_score, static_score
from cpg_engine.snapshot.axes import Flags, Rows, Scores
from cpg_engine.snapshot.classes import PodClass
from cpg_engine.snapshot.ledger import Ledger
from cpg_engine.weights import Weights

OUT = -1
SCORE_SHIFT = 32
_LAST_RANK = 2**32 - 1
KEPT = 64
"""Boards kept; a thousand of them would take more memory than the rest of the engine."""


class Board:
    """The nodes as one class sees them."""

    def __init__(self, pod_class: PodClass, ledger: Ledger, weights: Weights) -> None:
        """Look at every node once."""
        self.pod_class = pod_class
        self.feasible: Flags = np.zeros(0, dtype=np.bool_)
        self.keys: Scores = np.zeros(0, dtype=np.int64)
        self._ledger = ledger
        self._weights = weights
        self._bonus: Scores = np.zeros(0, dtype=np.int64)
        self._slots: tuple[int, Scores] | None = None
        self._version = -1
        self.refresh()

    def refresh(self) -> None:
        """Score anew what has changed."""
        ledger = self._ledger
        if self._version == ledger.version:
            return
        if self._version < 0 or len(ledger.node_changed_since(self._version)):
            self._look_at_nodes()
        else:
            rows = ledger.changed_since(self._version)
            self.keys[rows] = self.keyed(rows)
        self._version = ledger.version

    def keyed(self, rows: Rows, extra: int = 0) -> Scores:
        """Return the numbers of some nodes, as if so many more pods of the class were on each of them."""
        score = self._bonus[rows] + dynamic_score(
            self.pod_class, self._ledger, rows, weights=self._weights, extra=extra
        )
        room = self.feasible[rows] & fit.passes(self.pod_class, self._ledger, rows, extra)
        packed = (score << SCORE_SHIFT) + (_LAST_RANK - self._ledger.cluster.ranks[rows])
        answer: Scores = np.where(room, packed, OUT)
        return answer

    def slots(self) -> Scores:
        """Return for each row how many more pods of the class it has room for."""
        ledger = self._ledger
        if self._slots is None or self._slots[0] != ledger.version:
            every = np.arange(len(self.feasible))
            self._slots = (ledger.version, fit.slots(self.pod_class, ledger, every) * self.feasible)
        return self._slots[1]

    def _look_at_nodes(self) -> None:
        ledger = self._ledger
        every: Rows = np.arange(ledger.cluster.size)
        self.feasible = statically_feasible(self.pod_class, ledger.cluster, every)
        rows = np.flatnonzero(self.feasible)
        self._bonus = np.zeros(len(every), dtype=np.int64)
        self._bonus[rows] = static_score(self.pod_class, ledger.cluster, rows, self._weights)
        self.keys = np.full(len(every), OUT, dtype=np.int64)
        self.keys[rows] = self.keyed(rows)
        self._slots = None


class Boards:
    """The boards of the classes looked at last."""

    def __init__(self, ledger: Ledger, weights: Weights) -> None:
        """Start without any."""
        self._ledger = ledger
        self._weights = weights
        self._boards: OrderedDict[int, Board] = OrderedDict()

    def of(self, pod_class: PodClass) -> Board:
        """Return the board of a class as it is now."""
        board = self._boards.get(pod_class.index)
        if board is None:
            board = self._boards[pod_class.index] = Board(pod_class, self._ledger, self._weights)
            if len(self._boards) > KEPT:
                self._boards.popitem(last=False)
        else:
            self._boards.move_to_end(pod_class.index)
            board.refresh()
        return board


class Ladder:
    """The numbers of some nodes after one, two, three more pods of the class, computed as far as they are asked for.

    A long run asks for most nodes at most levels, so a whole level is computed at once; a short one asks for a
    handful of nodes, each by itself.
    """

    def __init__(self, board: Board, rows: Rows, run: int) -> None:
        """Start at the ground, where nobody has been added."""
        self._board = board
        self._rows = rows
        self._levels: dict[int, Scores] | None = {} if run > SHORT_RUN else None

    def key(self, place: int, level: int) -> int:
        """Return the number of the node at a place in the rows, with so many more pods."""
        if self._levels is None:
            return int(self._board.keyed(self._rows[place : place + 1], level)[0])
        keys = self._levels.get(level)
        if keys is None:
            keys = self._levels[level] = self._board.keyed(self._rows, level)
        return int(keys[place])


SHORT_RUN = 12


def fill(board: Board, rows: Rows, count: int) -> NDArray[np.intp]:
    """Return where up to ``count`` pods of a class go among the rows, each as if it came alone after the others."""
    keys = board.keys[rows]
    if not len(keys):
        return np.zeros(0, dtype=np.intp)
    ladder = Ladder(board, rows, count)
    levels: dict[int, int] = {}
    chosen: list[int] = []
    for _ in range(count):
        place = int(keys.argmax())
        if keys[place] < 0:
            break
        chosen.append(place)
        level = levels[place] = levels.get(place, 0) + 1
        keys[place] = ladder.key(place, level)
    return rows[chosen]
