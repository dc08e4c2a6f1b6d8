"""The score cache: for each class of pods, one number per node that says how good the node is now.

The number packs the score above the node's rank by name, so that the best node has the largest number, ties are broken
by name, and -1 means that the node is infeasible. The scores of a class are refreshed for the nodes that have changed
since they were last read; after a gang of three on 5,000 nodes, that is three nodes.
"""

from collections import OrderedDict

import numpy as np

from cpg_engine.cluster.axes import Flags, Rows, Scores
from cpg_engine.cluster.device_variants import Room
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.filters import node_resources
from cpg_engine.filters.registry import catalog_checks, statically_feasible
from cpg_engine.scores.registry import dynamic_score, static_score
from cpg_engine.weights import Weights

INFEASIBLE = -1
NO_CATALOGS = (-1, -1)
"""The versions of catalogs that a class does not depend on."""
SCORE_SHIFT = 32
_LAST_RANK = 2**32 - 1
MAX_IDLE_CLASSES = 64
"""Classes kept beside those of the current unit; a thousand would take more memory than the rest of the engine."""
MAX_CACHED_SCORES = 2_000_000
"""Scores kept for the classes of the current unit: about sixty megabytes, or 400 classes on 5,000 nodes."""


class ClassScores:
    """The scores of all nodes for one class."""

    def __init__(self, pod_class: PodClass, ledger: Ledger, weights: Weights) -> None:
        """Score every node."""
        self.pod_class = pod_class
        self.feasible: Flags = np.zeros(0, dtype=np.bool_)
        self.keys: Scores = np.zeros(0, dtype=np.int64)
        self._ledger = ledger
        self._weights = weights
        self._bonus: Scores = np.zeros(0, dtype=np.int64)
        self._slots: Scores = np.zeros(0, dtype=np.int64)
        self._slots_version = -1
        self._empty_slots: Scores | None = None
        self._version = -1
        self._catalogs = NO_CATALOGS
        self._has_catalogs = pod_class.volumes is not None or pod_class.devices is not None
        self._devices: Room | None = None
        self.refresh()

    def refresh(self) -> None:
        """Score the nodes that have changed."""
        ledger = self._ledger
        catalogs = self._catalog_versions() if self._has_catalogs else NO_CATALOGS
        if self._version == ledger.version and self._catalogs == catalogs:
            return
        if self._catalogs != catalogs or self._version < ledger.node_version:
            self._score_all_nodes()
        else:
            rows = ledger.changed_since(self._version)
            self.keys[rows] = self.keyed(rows)
            if self._devices is not None:
                self._empty_slots = None  # a slice of one of these nodes may be new
        self._version, self._catalogs = ledger.version, catalogs

    def _catalog_versions(self) -> tuple[int, int]:
        """Return the versions of what else the class depends on: volumes, and the devices that there are."""
        ledger, pod_class = self._ledger, self.pod_class
        if pod_class.devices is not None:
            ledger.device_allocator.refresh()
        return (
            ledger.storage.version if pod_class.volumes is not None else 0,
            ledger.device_allocator.version if pod_class.devices is not None else 0,
        )

    def keyed(self, rows: Rows, extra: int = 0) -> Scores:
        """Return the numbers of some nodes, as if ``extra`` more pods of the class were on each of them."""
        score = self._bonus[rows] + dynamic_score(
            self.pod_class, self._ledger, rows, weights=self._weights, extra=extra
        )
        room = self.feasible[rows] & node_resources.passes(self.pod_class, self._ledger, rows, extra)
        if self._devices is not None:
            room &= self._devices.slots(rows) > extra
        packed = (score << SCORE_SHIFT) + (_LAST_RANK - self._ledger.cluster.ranks[rows])
        answer: Scores = np.where(room, packed, INFEASIBLE)
        return answer

    def slots(self) -> Scores:
        """Return for each row for how many more pods of the class it has room, in an array that must not be kept."""
        ledger = self._ledger
        if self._slots_version != ledger.version:
            rows = ledger.changed_since(self._slots_version)
            slots = node_resources.slots(self.pod_class, ledger, rows) * self.feasible[rows]
            self._slots[rows] = slots if self._devices is None else np.minimum(slots, self._devices.most(rows))
            self._slots_version = ledger.version
        return self._slots

    def empty_slots(self) -> Scores:
        """Return for each row for how many pods of the class it would have room if nothing ran there."""
        if self._empty_slots is None:
            every = np.arange(len(self.feasible))
            slots = node_resources.empty_slots(self.pod_class, self._ledger, every) * self.feasible
            self._empty_slots = slots if self._devices is None else np.minimum(slots, self._devices.most_if_free(every))
        return self._empty_slots

    def device_groups(self, rows: Rows) -> Rows | None:
        """Return numbers that are equal for nodes with the same devices left, or None where devices do not matter."""
        return None if self._devices is None else self._devices.groups(rows)

    def _score_all_nodes(self) -> None:
        ledger, devices = self._ledger, self.pod_class.devices
        allocator = ledger.device_allocator
        self._devices = allocator.room(devices) if devices is not None and allocator.is_columnar(devices) else None
        every: Rows = np.arange(ledger.cluster.size)
        self.feasible = statically_feasible(self.pod_class, ledger.cluster, every)
        for _, passed in catalog_checks(self.pod_class, ledger, every):
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
    """The scores of the classes that were used last."""

    def __init__(self, ledger: Ledger, weights: Weights) -> None:
        """Start empty."""
        self._ledger = ledger
        self._weights = weights
        self._by_class: OrderedDict[int, ClassScores] = OrderedDict()
        self._kept = MAX_IDLE_CLASSES

    def reserve_capacity(self, classes: int) -> None:
        """Keep as many classes as one unit needs, within limits, so that none of them is scored twice for it."""
        self._kept = MAX_IDLE_CLASSES + min(classes, MAX_CACHED_SCORES // max(self._ledger.cluster.size, 1))
        self._drop()

    def of(self, pod_class: PodClass) -> ClassScores:
        """Return the scores of a class as they are now."""
        class_scores = self._by_class.get(pod_class.index)
        if class_scores is None:
            class_scores = self._by_class[pod_class.index] = ClassScores(pod_class, self._ledger, self._weights)
            self._drop()
        else:
            self._by_class.move_to_end(pod_class.index)
            class_scores.refresh()
        return class_scores

    def _drop(self) -> None:
        while len(self._by_class) > self._kept:
            self._by_class.popitem(last=False)


class ScoreLevels:
    """The numbers of some nodes after one, two, three more pods of the class, each level computed on demand."""

    def __init__(self, class_scores: ClassScores, rows: Rows) -> None:
        """Start at level zero, where no pod has been added."""
        self._scores = class_scores
        self._rows = rows
        self._levels: dict[int, Scores] = {}

    def key(self, place: int, level: int) -> int:
        """Return the number of the node at a position in the rows, with ``level`` more pods."""
        keys = self._levels.get(level)
        if keys is None:
            keys = self._levels[level] = self._scores.keyed(self._rows, level)
        return int(keys[place])


def choose_nodes(class_scores: ClassScores, rows: Rows, count: int) -> Rows:
    """Return the nodes of up to ``count`` pods of a class among the rows, as if each pod was placed after the others.

    Only the best ``count`` of the rows can be chosen: before another row is, each of these would have been, and then
    all pods have a node.
    """
    places = _best(class_scores.keys[rows], count)
    rows = rows[places]
    keys = class_scores.keys[rows]
    score_levels = ScoreLevels(class_scores, rows)
    levels = [0] * len(rows)
    chosen: list[int] = []
    while len(chosen) < count and len(rows):
        place = int(keys.argmax())
        if keys[place] == INFEASIBLE:
            break
        chosen.append(place)
        levels[place] += 1
        if len(chosen) < count:
            keys[place] = score_levels.key(place, levels[place])
    return rows[np.array(chosen, dtype=np.intp)]


MAX_ARGMAX_COUNT = 32
"""Up to so many, repeated ``argmax`` is faster than one ``argpartition``."""


def _best(keys: Scores, count: int) -> Rows:
    """Return the positions of at most ``count`` largest numbers, in any order; the numbers are overwritten."""
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
