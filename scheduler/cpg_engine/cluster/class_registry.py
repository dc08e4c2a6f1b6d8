"""The classes of pods in use, and their requests as vectors on the axis of resources.

Pods come and go for months, and each may name its own labels and resources. So a class ends with the last pod, hint or
cache that holds it. What is derived from classes is collected in sweeps: a table is rebuilt from the classes in use
once more than half of it may be unused, so the cost of a sweep is spread over the additions before it.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from weakref import WeakValueDictionary

import numpy as np

from cpg_api.core.pod import Pod
from cpg_engine.cluster.axes import UNOFFERED, Amounts, ResourceAxis, moved_columns
from cpg_engine.cluster.device_needs import PodDevices
from cpg_engine.cluster.pod_classes import PodClass, make_class, signature
from cpg_engine.cluster.pod_relations import asked_labels

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

    def of(self, pod: Pod, asked_labels: AbstractSet[str], devices: PodDevices | None) -> PodClass:
        """Return the class of a pod; make it if there is none."""
        key = signature(pod, asked_labels, devices)
        return self.by_signature.get(key) or self.make(key, pod, asked_labels, devices)

    def make(self, key: bytes, pod: Pod, asked_labels: AbstractSet[str], devices: PodDevices | None) -> PodClass:
        """Make the class of a pod."""
        if len(self.vectors) > 2 * len(self.by_signature) + MAX_STALE_VECTORS:
            self.vectors = {found.index: self.vectors[found.index] for found in self.by_signature.values()}
        made = self.by_signature[key] = make_class(self._made, pod, asked_labels, devices)
        self.vectors[self._made] = self.axis.vector(made.requests)
        self._made += 1
        return made

    def asked_labels(self) -> frozenset[str]:
        """Return the keys of labels that selectors of the classes ask for."""
        return frozenset(key for found in self.by_signature.values() for key in asked_labels(found.pod.spec))

    def replace_axis(self, axis: ResourceAxis) -> Mapping[int, Amounts]:
        """Move all vectors to another axis.

        Return by the index of each class what its vector has beyond the columns that both axes have.
        """
        classes = list(self.by_signature.values())
        kept = moved_columns(self.vectors_of(found.index for found in classes), self.axis, axis)
        self.axis = axis
        self.vectors = {found.index: axis.vector(found.requests) for found in classes}
        changes = {found.index: self.vectors[found.index] - row for found, row in zip(classes, kept, strict=True)}
        return {index: change for index, change in changes.items() if change.any()}

    def resources_at(self, column: int, pod_class: PodClass) -> tuple[str, ...]:
        """Return the names of the resources in a column; of the shared column, those that the class requests."""
        if column != UNOFFERED:
            return (self.axis.names[column],)
        return tuple(sorted(pod_class.requests.keys() - self.axis.places.keys() - self.axis.backed))

    def vector_of(self, pod_class: PodClass) -> Amounts:
        """Return the requests of a class on the axis."""
        return self.vectors[pod_class.index]

    def vectors_of(self, indexes: Iterable[int]) -> Amounts:
        """Return the requests of classes by their indexes, one row each."""
        return np.array([self.vectors[index] for index in indexes], dtype=np.int64).reshape(-1, self.axis.size)
