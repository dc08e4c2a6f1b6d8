"""Boards: for one class of pods, how good each node is now, as one number per node.

The number packs the score above the node's place by name, so that the best node is the largest number, ties are
broken by name, and -1 means that the node is out. A board notices by itself which nodes have changed since it was
last looked at and scores only those anew; after a gang of three on 5,000 nodes, that is three.
"""

from collections import OrderedDict

import numpy as np

from cpg_engine.cluster.axes import Flags, Rows, Scores
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.filters import node_resources
from cpg_engine.filters.registry import statically_feasible, storage_checks
from cpg_engine.scores.registry import dynamic_score, static_score
from cpg_engine.weights import Weights

INFEASIBLE = -1
SCORE_SHIFT = 32
_LAST_RANK = 2**32 - 1
MAX_IDLE_CLASSES = 64
"""Boards kept beside those of the unit at hand; a thousand would take more memory than the rest of the engine."""
MAX_CACHED_SCORES = 2_000_000
"""Nodes on all boards of the unit at hand: some sixty megabytes, 400 classes on 5,000 nodes."""


class ClassScores:
    """The nodes as one class sees them."""

    def __init__(self, pod_class: PodClass, ledger: Ledger, weights: Weights) -> None:
        """Look at every node once."""
        self.pod_class = pod_class
        self.feasible: Flags = np.zeros(0, dtype=np.bool_)
        self.keys: Scores = np.zeros(0, dtype=np.int64)
        self._ledger = ledger
        self._weights = weights
        self._bonus: Scores = np.zeros(0, dtype=np.int64)
        self._slots: Scores = np.zeros(0, dtype=np.int64)
        self._slots_version = -1
        self._empty_slots: Scores | None = None
        self._version = self._storage_version = -1
        self.refresh()

    def refresh(self) -> None:
        """Score anew what has changed."""
        ledger = self._ledger
        storage = ledger.storage.version if self.pod_class.volumes is not None else 0
        if self._version == ledger.version and self._storage_version == storage:
            return
        if self._storage_version != storage or self._version < ledger.node_version:
            self._look_at_nodes()
        else:
            rows = ledger.changed_since(self._version)
            self.keys[rows] = self.keyed(rows)
        self._version, self._storage_version = ledger.version, storage

    def keyed(self, rows: Rows, extra: int = 0) -> Scores:
        """Return the numbers of some nodes, as if so many more pods of the class were on each of them."""
        score = self._bonus[rows] + dynamic_score(
            self.pod_class, self._ledger, rows, weights=self._weights, extra=extra
        )
        room = self.feasible[rows] & node_resources.passes(self.pod_class, self._ledger, rows, extra)
        packed = (score << SCORE_SHIFT) + (_LAST_RANK - self._ledger.cluster.ranks[rows])
        answer: Scores = np.where(room, packed, INFEASIBLE)
        return answer

    def slots(self) -> Scores:
        """Return for each row how many more pods of the class it has room for; do not keep it, it will be changed."""
        ledger = self._ledger
        if self._slots_version != ledger.version:
            rows = ledger.changed_since(self._slots_version)
            self._slots[rows] = node_resources.slots(self.pod_class, ledger, rows) * self.feasible[rows]
            self._slots_version = ledger.version
        return self._slots

    def empty_slots(self) -> Scores:
        """Return for each row how many pods of the class it would have room for if nothing ran there."""
        if self._empty_slots is None:
            every = np.arange(len(self.feasible))
            self._empty_slots = node_resources.empty_slots(self.pod_class, self._ledger, every) * self.feasible
        return self._empty_slots

    def _look_at_nodes(self) -> None:
        ledger = self._ledger
        every: Rows = np.arange(ledger.cluster.size)
        self.feasible = statically_feasible(self.pod_class, ledger.cluster, every)
        for _, passed in storage_checks(self.pod_class, ledger, every):
            self.feasible &= passed
        rows = np.flatnonzero(self.feasible)
        self._bonus = np.zeros(len(every), dtype=np.int64)
        self._bonus[rows] = static_score(self.pod_class, ledger.cluster, rows, self._weights)
        self.keys = np.full(len(every), INFEASIBLE, dtype=np.int64)
        self.keys[rows] = self.keyed(rows)
        self._slots = np.zeros(len(every), dtype=np.int64)
        self._slots_version = -1
        self._empty_slots = None


class ScoreCache:
    """The boards of the classes looked at last."""

    def __init__(self, ledger: Ledger, weights: Weights) -> None:
        """Start without any."""
        self._ledger = ledger
        self._weights = weights
        self._score_cache: OrderedDict[int, ClassScores] = OrderedDict()
        self._kept = MAX_IDLE_CLASSES

    def reserve_capacity(self, classes: int) -> None:
        """Keep as many as one unit needs at a time, so that none of them is made twice for it, but not without end."""
        self._kept = MAX_IDLE_CLASSES + min(classes, MAX_CACHED_SCORES // max(self._ledger.cluster.size, 1))
        self._drop()

    def of(self, pod_class: PodClass) -> ClassScores:
        """Return the board of a class as it is now."""
        board = self._score_cache.get(pod_class.index)
        if board is None:
            board = self._score_cache[pod_class.index] = ClassScores(pod_class, self._ledger, self._weights)
            self._drop()
        else:
            self._score_cache.move_to_end(pod_class.index)
            board.refresh()
        return board

    def _drop(self) -> None:
        while len(self._score_cache) > self._kept:
            self._score_cache.popitem(last=False)


class ScoreLevels:
    """The numbers of some nodes after one, two, three more pods of the class, a level at once, when it is asked for."""

    def __init__(self, board: ClassScores, rows: Rows) -> None:
        """Start at the ground, where nobody has been added."""
        self._board = board
        self._rows = rows
        self._levels: dict[int, Scores] = {}

    def key(self, place: int, level: int) -> int:
        """Return the number of the node at a place in the rows, with so many more pods."""
        keys = self._levels.get(level)
        if keys is None:
            keys = self._levels[level] = self._board.keyed(self._rows, level)
        return int(keys[place])


def choose_nodes(board: ClassScores, rows: Rows, count: int) -> Rows:
    """Return where up to ``count`` pods of a class go among the rows, each as if it came alone after the others.

    Only the best ``count`` of the rows are looked at any further: before another one could be chosen, each of these
    must have been, and then all pods have their place.
    """
    places = _best(board.keys[rows], count)
    rows = rows[places]
    keys = board.keys[rows]
    ladder = ScoreLevels(board, rows)
    levels = [0] * len(rows)
    chosen: list[int] = []
    while len(chosen) < count and len(rows):
        place = int(keys.argmax())
        if keys[place] == INFEASIBLE:
            break
        chosen.append(place)
        levels[place] += 1
        if len(chosen) < count:
            keys[place] = ladder.key(place, levels[place])
    return rows[np.array(chosen, dtype=np.intp)]


MAX_ARGMAX_COUNT = 32
"""Up to so many, looking for the largest number again and again is faster than one partition by size."""


def _best(keys: Scores, count: int) -> Rows:
    """Return the places of the largest numbers, at most so many, in any order; the numbers are used up."""
    if count > MAX_ARGMAX_COUNT:
        return np.argpartition(keys, -count)[-count:] if count < len(keys) else np.arange(len(keys))
    places: list[int] = []
    for _ in range(min(count, len(keys))):
        place = int(keys.argmax())
        if keys[place] == INFEASIBLE:
            break
        places.append(place)
        keys[place] = INFEASIBLE
    return np.array(places, dtype=np.intp)
