"""Who is where, by class; and how many pods that somebody asks about are on each node.

The first is the one thing that is kept: it grows with the pods. The second is derived from it the first time that it
is asked for, also in the middle of a simulation, and from then on follows every pod that comes or goes. Only the
answers asked for last are kept, so that ten thousand jobs with ten thousand selectors do not fill the memory.

A question is a value with a weight per class of pods. What somebody selects, which host ports clash, by whom a pod
is avoided: all of it is the same sum, so one place counts, and one way to undo serves them all. Most selectors ask
for one value of one label. So classes are found by their labels, and those with terms by what their terms ask for:
a thousand jobs, each of which looks out for its own pods alone, do not look at each other.
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
"""Answers kept; at 20,000 nodes they take 10 MB."""
MAX_CACHED_QUERIES_PER_KEY = 4
"""Answers kept on top of that for each key that nodes have labels with: whoever looks at others asks so much about its
domains, and were they not all kept until it looks again, none would be."""

Label = tuple[str, str]
Classes = dict[PodClass, None]
"""A set that keeps its order."""


Key = TypeVar("Key", bound=Hashable)


class PodCountQuery(Hashable, Protocol):
    """What is to be counted."""

    def relevant_classes(self, pod_index: "PodIndex") -> Iterable[PodClass]:
        """Return the classes that may have a weight; others need not be asked about."""

    def weight(self, pod_class: PodClass, namespaces: Mapping[str, Labels]) -> int:
        """Return what a pod of a class counts for, given the labels of the namespaces."""


class PodIndex:
    """The pods on the nodes, those that are only being tried there included."""

    def __init__(self, cluster: NodeColumns) -> None:
        """Start without pods."""
        self.namespaces: dict[str, Labels] = {}
        self.namespaces_version = 0
        self.classes_with_terms: Classes = {}
        self.nominated = 0
        """Of how many classes of nominated pods somebody is somewhere."""
        self._labelled: dict[Label, Classes] = {}
        self._asking: dict[Label | None, Classes] = {}
        self._taking: dict[PortNumber, Classes] = {}
        self._cluster = cluster
        self._rows: dict[PodClass, dict[int, int]] = {}
        self._answers: OrderedDict[PodCountQuery, Counts] = OrderedDict()
        self._effects: dict[PodClass, tuple[tuple[Counts, int], ...]] = {}

    @property
    def classes(self) -> Iterable[PodClass]:
        """Return the classes that are somewhere."""
        return self._rows

    def with_label(self, label: Label | None) -> Iterable[PodClass]:
        """Return the classes with a label, all for None."""
        return self._rows if label is None else self._labelled.get(label, ())

    def possible_selectors_of(self, pod_class: PodClass) -> Classes:
        """Return the classes that may mean this one with their terms."""
        found = dict(self._asking.get(None, ()))
        for label in pod_class.labels.items():
            found.update(self._asking.get(label, ()))
        return found

    def taking(self, numbers: Iterable[PortNumber]) -> Classes:
        """Return the classes that take one of these ports of their nodes, of whatever address."""
        return {found: None for number in numbers for found in self._taking.get(number, ())}

    def counts(self, question: PodCountQuery) -> Counts:
        """Return for each row the sum of the weights of its pods; it is kept up to date, so do not keep it."""
        answer = self._answers.get(question)
        if answer is None:
            answer = self._answers[question] = self._counted(question)
            if len(self._answers) > MAX_CACHED_QUERIES + MAX_CACHED_QUERIES_PER_KEY * len(self._cluster.label_keys):
                self._answers.popitem(last=False)
            self._effects.clear()
        else:
            self._answers.move_to_end(question)
        return answer

    def add(self, pod_class: PodClass, row: int, number: int) -> None:
        """Count so many pods of the class in at a node, or out where the number is negative."""
        rows = self._rows.get(pod_class)
        if rows is None:
            rows = self._rows[pod_class] = {}
            self._welcome(pod_class)
        total = rows.get(row, 0) + number
        if total:
            rows[row] = total
        else:
            del rows[row]
            if not rows:
                self._dismiss(pod_class)
        effects = self._effects.get(pod_class)
        if effects is None:
            if len(self._effects) > 2 * len(self._rows) + MAX_CACHED_QUERIES:
                self._effects.clear()
            effects = self._effects[pod_class] = self._affected(pod_class)
        for answer, weight in effects:
            answer[row] += number * weight

    def forget(self, row: int) -> None:
        """Set a row back to nothing: its node is gone."""
        for pod_class, rows in list(self._rows.items()):
            rows.pop(row, None)
            if not rows:
                self._dismiss(pod_class)
        for answer in self._answers.values():
            answer[row] = 0

    def put_namespace(self, name: str, labels: Labels | None) -> None:
        """Take the labels of a namespace, or None when it is gone."""
        if self.namespaces.get(name) == labels:
            return
        if labels is None:
            del self.namespaces[name]
        else:
            self.namespaces[name] = labels
        self.namespaces_version += 1
        self.clear_cache()

    def clear_cache(self) -> None:
        """Derive everything anew when it is next asked for: rows have been added, or selectors select others."""
        self._answers.clear()
        self._effects.clear()

    def _counted(self, question: PodCountQuery) -> Counts:
        answer = np.zeros(self._cluster.size, dtype=np.int32)
        for pod_class in question.relevant_classes(self):
            weight = question.weight(pod_class, self.namespaces)
            if weight:
                for row, number in self._rows[pod_class].items():
                    answer[row] += weight * number
        return answer

    def _affected(self, pod_class: PodClass) -> tuple[tuple[Counts, int], ...]:
        weights = ((answer, question.weight(pod_class, self.namespaces)) for question, answer in self._answers.items())
        return tuple((answer, weight) for answer, weight in weights if weight)

    def _welcome(self, pod_class: PodClass) -> None:
        self.nominated += pod_class.nominated
        for label in pod_class.labels.items():
            self._labelled.setdefault(label, {})[pod_class] = None
        for number in pod_class.relations.addresses:
            self._taking.setdefault(number, {})[pod_class] = None
        if pod_class.relations.terms:
            self.classes_with_terms[pod_class] = None
            for asked in pod_class.relations.terms.needed_labels:
                self._asking.setdefault(asked, {})[pod_class] = None

    def _dismiss(self, pod_class: PodClass) -> None:
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
    """Take a class out of an index, and its key when it was the last."""
    del index[key][pod_class]
    if not index[key]:
        del index[key]
