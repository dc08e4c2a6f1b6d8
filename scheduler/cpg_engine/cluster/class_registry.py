"""The classes of pods in use, and their requests as vectors on the axis of resources."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from weakref import WeakValueDictionary

import numpy as np

from cpg_api.core.pod import Pod
from cpg_engine.cluster.axes import UNOFFERED, Amounts, ResourceAxis
from cpg_engine.cluster.pod_classes import PodClass, make_class

MAX_STALE_VECTORS = 64
"""Vectors of classes that are gone are dropped once they are this many more than the vectors of the others."""


class ClassRegistry:
    """The classes by signature. A class lives for as long as anything holds it."""

    def __init__(self) -> None:
        """Start without classes, on the axis of the base resources."""
        self.axis = ResourceAxis()
        self.vectors: dict[int, Amounts] = {}
        self.by_signature: WeakValueDictionary[bytes, PodClass] = WeakValueDictionary()
        self._made = 0

    def __len__(self) -> int:
        """Return how many classes there are."""
        return len(self.by_signature)

    def make(self, signature: bytes, pod: Pod, asked_labels: AbstractSet[str]) -> PodClass:
        """Make the class of a pod."""
        if len(self.vectors) > 2 * len(self.by_signature) + MAX_STALE_VECTORS:
            self.vectors = {found.index: self.vectors[found.index] for found in self.by_signature.values()}
        made = self.by_signature[signature] = make_class(self._made, pod, asked_labels)
        self.vectors[self._made] = self.axis.vector(made.requests)
        self._made += 1
        return made

    def grow_axis(self, names: Iterable[str]) -> Mapping[int, Amounts]:
        """Append the resources of a node that the axis lacks.

        Return by the index of each class whose requests are in other columns now how its vector has changed.
        """
        axis = self.axis.grown(names)
        more = axis.size - self.axis.size
        if not more:
            return {}
        self.axis = axis
        before = {found.index: np.pad(self.vectors[found.index], (0, more)) for found in self.by_signature.values()}
        self.vectors = dict(before)
        for found in self.by_signature.values():
            if before[found.index][UNOFFERED]:
                self.vectors[found.index] = axis.vector(found.requests)
        changes = {index: self.vectors[index] - vector for index, vector in before.items() if vector[UNOFFERED]}
        return {index: change for index, change in changes.items() if change.any()}

    def resources_at(self, column: int, pod_class: PodClass) -> tuple[str, ...]:
        """Return the names of the resources in a column; of the shared column, those that the class requests."""
        if column != UNOFFERED:
            return (self.axis.names[column],)
        return tuple(sorted(pod_class.requests.keys() - self.axis.places.keys()))

    def vector_of(self, pod_class: PodClass) -> Amounts:
        """Return the requests of a class on the axis."""
        return self.vectors[pod_class.index]

    def vectors_of(self, indexes: Iterable[int]) -> Amounts:
        """Return the requests of classes by their indexes, one row each."""
        return np.array([self.vectors[index] for index in indexes], dtype=np.int64).reshape(-1, self.axis.size)
