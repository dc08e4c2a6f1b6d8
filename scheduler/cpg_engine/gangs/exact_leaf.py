"""An exact search for a few pods of one group: every pod on every node, within a number of steps.

The placement search is greedy inside a leaf. Where it finds nothing for a small gang or a single pod, this search
either finds a placement or proves that there is none.

What cannot make a difference is not tried. Pods of one class are interchangeable, so each goes to no earlier node than
the one before. Nodes with the same room for all of the pods are interchangeable as well, unless it matters to the pods
where other pods are; of these only the first is tried.
"""

from collections.abc import Sequence

import numpy as np

from cpg_engine.cluster.axes import Rows
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.gangs.placement import depends_on_other_pods, pre_filter_states
from cpg_engine.gangs.unit import PendingPod
from cpg_engine.score_cache import INFEASIBLE
from cpg_engine.snapshot import Snapshot

MAX_PODS = 8
"""Larger gangs are left to the greedy search."""
MAX_STEPS = 100
"""Pods that are placed in vain before the search gives up; with thousands of nodes each takes about a millisecond."""

Assigned = tuple[tuple[PendingPod, int], ...]


class ExactLeafSearch:
    """The search for some pods of one group; the ledger holds what it found until the caller rolls back."""

    def __init__(self, snapshot: Snapshot, pods: Sequence[PendingPod]) -> None:
        """Start with all steps left."""
        self._snapshot = snapshot
        self._pods = pods
        classes = {pod.pod_class.index: pod.pod_class for pod in pods}
        self._classes = list(classes.values())
        self._is_dependent = any(depends_on_other_pods(snapshot, found) for found in self._classes)
        self._columns = np.flatnonzero(snapshot.ledger.classes.vectors_of(classes).any(axis=0))
        self._order: dict[int, Rows] = {}
        self.steps = 0
        self.is_exhausted = False
        """Whether the steps were used up, so that finding nothing proves nothing."""

    def place(self, rows: Rows, needed: int) -> Assigned | None:
        """Place so many of the pods on the rows; return where, or None if that was not possible."""
        for found in self._classes:
            keys = self._snapshot.score_cache.of(found).keys[rows]
            able = rows[keys != INFEASIBLE]
            self._order[found.index] = able[np.argsort(-keys[keys != INFEASIBLE], kind="stable")]
        return self._place(0, needed, first=0)

    def _place(self, index: int, needed: int, *, first: int) -> Assigned | None:
        """Place so many of the pods from a position on; the next one goes no earlier than ``first`` in its order."""
        if not needed:
            return ()
        if len(self._pods) - index < needed:
            return None
        pod, ledger = self._pods[index], self._snapshot.ledger
        for place, row in self._candidates(pod.pod_class, first):
            if self.steps >= MAX_STEPS:
                self.is_exhausted = True
                return None
            self.steps += 1
            self._snapshot.pause()
            mark = ledger.mark()
            ledger.place(pod.pod_class, np.array((row,), dtype=np.intp))
            is_alike = index + 1 < len(self._pods) and self._pods[index + 1].pod_class is pod.pod_class
            rest = self._place(index + 1, needed - 1, first=place if is_alike else 0)
            if rest is not None:
                return ((pod, row), *rest)
            ledger.rollback(mark)
        # If this pod is left out, so are all of its class that follow.
        alike = (other for other in range(index, len(self._pods)) if self._pods[other].pod_class is not pod.pod_class)
        return self._place(next(alike, len(self._pods)), needed, first=0)

    def _candidates(self, pod_class: PodClass, first: int) -> list[tuple[int, int]]:
        """Return the rows that may take a pod of a class, each with its position in the order of the class."""
        order = self._order[pod_class.index]
        places = np.arange(first, len(order))
        able = self._snapshot.score_cache.of(pod_class).keys[order[places]] != INFEASIBLE
        for state in pre_filter_states(self._snapshot, pod_class):
            able &= state.passes(order[places])
        places = places[able]
        if not self._is_dependent:
            places = np.sort(places[self._first_of_each_kind(order[places])])
        return list(zip(places.tolist(), order[places].tolist(), strict=True))

    def _first_of_each_kind(self, rows: Rows) -> Rows:
        """Return the positions of rows without those that have the same room for all of the pods as an earlier one."""
        ledger, cache = self._snapshot.ledger, self._snapshot.score_cache
        room = (ledger.allocatable[rows][:, self._columns] - ledger.used[rows][:, self._columns]).T
        devices = (groups for found in self._classes if (groups := cache.of(found).device_groups(rows)) is not None)
        kinds = np.stack([*room, *devices, *(cache.of(found).feasible[rows] for found in self._classes)])
        _, first = np.unique(kinds, axis=1, return_index=True)
        return first
