"""The pods on the nodes, by class, and how many pods per node a query selects.

The first is stored and grows with the pods. The second is computed when it is first asked for, also during a
simulation, and from then on updated with every pod that comes or goes. Only the queries used last are kept, so that ten
thousand jobs with ten thousand selectors do not fill the memory.

A query is a value with a weight per class of pods. What a selector selects, which host ports conflict, which pods
reject another: all of it is the same sum, so one place counts and one rollback undoes it. Most selectors ask for one
value of one label. So classes are indexed by their labels, and classes with affinity terms by the labels that the terms
ask for. A thousand jobs that each select their own pods alone are not compared with each other.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from cpg_api.selectors import Labels
from cpg_engine.cluster.nodes import NodeColumns
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.cluster.pod_relations import PortNumber

Counts = NDArray[np.int32]
"""One number per row."""

MAX_CACHED_QUERIES = 128
"""Queries kept; at 20,000 nodes they take 10 MB."""
MAX_CACHED_QUERIES_PER_KEY = 4
"""Queries kept in addition for each key of the nodes' labels: a pod with terms asks so many about the domains of each.

All of them have to be kept until the pod is scheduled again.
"""

Label = tuple[str, str]
Classes = dict[PodClass, None]
"""A set that keeps its order."""


Key = TypeVar("Key", bound=Hashable)


class PodCountQuery(Hashable, Protocol):
    """What is to be counted."""

    def relevant_classes(self, pod_index: "PodIndex") -> Iterable[PodClass]:
        """Return the classes that may have a weight; all others have none."""

    def weight(self, pod_class: PodClass, namespaces: Mapping[str, Labels]) -> int:
        """Return what a pod of a class counts, given the labels of the namespaces."""


class PodIndex:
    """The pods on the nodes, including those that a simulation has placed."""

    def __init__(self, cluster: NodeColumns) -> None:
        """Start without pods."""
        self.namespaces: dict[str, Labels] = {}
        self.namespaces_version = 0
        self.classes_with_terms: Classes = {}
        self.nominated = 0
        """How many classes of nominated pods have pods on nodes."""
        self._labelled: dict[Label, Classes] = {}
        self._asking: dict[Label | None, Classes] = {}
        self._taking: dict[PortNumber, Classes] = {}
        self._cluster = cluster
        self._rows: dict[PodClass, dict[int, int]] = {}
        self._answers: OrderedDict[PodCountQuery, Counts] = OrderedDict()
        self._effects: dict[PodClass, tuple[tuple[Counts, int], ...]] = {}

    @property
    def classes(self) -> Iterable[PodClass]:
        """Return the classes with pods on nodes."""
        return self._rows

    def with_label(self, label: Label | None) -> Iterable[PodClass]:
        """Return the classes with a label; all classes for None."""
        return self._rows if label is None else self._labelled.get(label, ())

    def possible_selectors_of(self, pod_class: PodClass) -> Classes:
        """Return the classes that have terms which may select this one."""
        found = dict(self._asking.get(None, ()))
        for label in pod_class.labels.items():
            found.update(self._asking.get(label, ()))
        return found

    def taking(self, numbers: Iterable[PortNumber]) -> Classes:
        """Return the classes that use one of these host ports, at any address."""
        return {found: None for number in numbers for found in self._taking.get(number, ())}

    def counts(self, query: PodCountQuery) -> Counts:
        """Return for each row the sum of the weights of its pods, in an array that must not be kept."""
        answer = self._answers.get(query)
        if answer is None:
            answer = self._answers[query] = self._counted(query)
            if len(self._answers) > MAX_CACHED_QUERIES + MAX_CACHED_QUERIES_PER_KEY * len(self._cluster.label_keys):
                self._answers.popitem(last=False)
            self._effects.clear()
        else:
            self._answers.move_to_end(query)
        return answer

    def add(self, pod_class: PodClass, row: int, number: int) -> None:
        """Count so many more pods of the class at a node; a negative number counts them out."""
        rows = self._rows.get(pod_class)
        if rows is None:
            rows = self._rows[pod_class] = {}
            self._add_class(pod_class)
        total = rows.get(row, 0) + number
        if total:
            rows[row] = total
        else:
            del rows[row]
            if not rows:
                self._remove_class(pod_class)
        effects = self._effects.get(pod_class)
        if effects is None:
            if len(self._effects) > 2 * len(self._rows) + MAX_CACHED_QUERIES:
                self._effects.clear()
            effects = self._effects[pod_class] = self._affected(pod_class)
        for answer, weight in effects:
            answer[row] += number * weight

    def forget(self, row: int) -> None:
        """Set the counts of a row to zero: its node is gone."""
        for pod_class, rows in list(self._rows.items()):
            rows.pop(row, None)
            if not rows:
                self._remove_class(pod_class)
        for answer in self._answers.values():
            answer[row] = 0

    def put_namespace(self, name: str, labels: Labels | None) -> None:
        """Set the labels of a namespace, or None when it is gone."""
        if self.namespaces.get(name) == labels:
            return
        if labels is None:
            del self.namespaces[name]
        else:
            self.namespaces[name] = labels
        self.namespaces_version += 1
        self.clear_cache()

    def clear_cache(self) -> None:
        """Drop all counts: rows were added, or selectors select other namespaces."""
        self._answers.clear()
        self._effects.clear()

    def _counted(self, query: PodCountQuery) -> Counts:
        answer = np.zeros(self._cluster.size, dtype=np.int32)
        for pod_class in query.relevant_classes(self):
            weight = query.weight(pod_class, self.namespaces)
            if weight:
                for row, number in self._rows[pod_class].items():
                    answer[row] += weight * number
        return answer

    def _affected(self, pod_class: PodClass) -> tuple[tuple[Counts, int], ...]:
        weights = ((answer, query.weight(pod_class, self.namespaces)) for query, answer in self._answers.items())
        return tuple((answer, weight) for answer, weight in weights if weight)

    def _add_class(self, pod_class: PodClass) -> None:
        self.nominated += pod_class.nominated
        for label in pod_class.labels.items():
            self._labelled.setdefault(label, {})[pod_class] = None
        for number in pod_class.relations.addresses:
            self._taking.setdefault(number, {})[pod_class] = None
        if pod_class.relations.terms:
            self.classes_with_terms[pod_class] = None
            for asked in pod_class.relations.terms.needed_labels:
                self._asking.setdefault(asked, {})[pod_class] = None

    def _remove_class(self, pod_class: PodClass) -> None:
        del self._rows[pod_class]
        self.nominated -= pod_class.nominated
        for label in pod_class.labels.items():
            _drop(self._labelled, label, pod_class)
        for number in pod_class.relations.addresses:
            _drop(self._taking, number, pod_class)
        if pod_class.relations.terms:
            del self.classes_with_terms[pod_class]
            for asked in pod_class.relations.terms.needed_labels:
                _drop(self._asking, asked, pod_class)


def _drop(index: dict[Key, Classes], key: Key, pod_class: PodClass) -> None:
    """Remove a class from an index, and its key with the last class."""
    del index[key][pod_class]
    if not index[key]:
        del index[key]
