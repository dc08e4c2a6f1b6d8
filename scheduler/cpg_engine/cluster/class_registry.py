"""The classes of pods in use, and their requests as vectors on the axis of resources."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from weakref import WeakValueDictionary

import numpy as np

from cpg_api.core.pod import Pod
from cpg_engine.cluster.axes import Amounts, ResourceAxis
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
        """Make the class of a pod; its resources have to be on the axis."""
        if len(self.vectors) > 2 * len(self.by_signature) + MAX_STALE_VECTORS:
            self.vectors = {found.index: self.vectors[found.index] for found in self.by_signature.values()}
        made = self.by_signature[signature] = make_class(self._made, pod, asked_labels)
        self.vectors[self._made] = self.axis.vector(made.requests)
        self._made += 1
        return made

    def grow_axis(self, names: Iterable[str]) -> int:
        """Append resources that the axis lacks; return how many."""
        axis = self.axis.grown(names)
        more = axis.size - self.axis.size
        if more:
            self.axis = axis
            self.vectors = {index: np.pad(vector, (0, more)) for index, vector in self.vectors.items()}
        return more

    def vector_of(self, pod_class: PodClass) -> Amounts:
        """Return the requests of a class on the axis."""
        return self.vectors[pod_class.index]

    def vectors_of(self, indexes: Iterable[int]) -> Amounts:
        """Return the requests of classes by their indexes, one row each."""
        return np.array([self.vectors[index] for index in indexes], dtype=np.int64).reshape(-1, self.axis.size)
