"""Affinity and anti-affinity to other pods, required and preferred, as InterPodAffinity has them.

It works both ways: running pods may reject or prefer the incoming pod, too. Every rule is a number per node: how many
of its pods a term selects, or the sum of their weights. Summed over the domains of the term's topology key, it is the
number of each node's domain. Nodes without the label are in no domain.

Nominated pods count for all rules but one: a pod that may never come does not satisfy required affinity. The first pod
of a group that requires its own kind goes near nominated pods of that kind, if there are any, so that its place is
right whether they come or not.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np
from msgspec import Struct

from cpg_api.selectors import Labels
from cpg_engine.cluster.axes import Flags, Rows, Scores
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.nodes import ABSENT
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.cluster.pod_index import PodCountQuery, PodIndex
from cpg_engine.cluster.pod_relations import AffinityTerm, required_label
from cpg_engine.weights import Weights

AFFINITY_REASON = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY_REASON = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY_REASON = "node(s) didn't satisfy existing pods anti-affinity rules"


class RequiredAffinityQuery(Struct, frozen=True, cache_hash=True):
    """Counts pods that all of these terms select: only such a pod satisfies any of them.

    Nominated pods are left out unless requested.
    """

    terms: tuple[AffinityTerm, ...]
    nominated: bool = False

    def relevant_classes(self, pod_index: PodIndex) -> Iterable[PodClass]:
        """Return the classes with a label that the first term asks for."""
        return pod_index.with_label(required_label(self.terms[0].labels))

    def weight(self, pod_class: PodClass, namespaces: Mapping[str, Labels]) -> int:
        """Return 1 for pods that count, and 0 for others."""
        counts = self.nominated or not pod_class.nominated
        return int(counts and all(selects(term, pod_class, namespaces) for term in self.terms))


class AntiAffinityQuery(Struct, frozen=True, cache_hash=True):
    """Counts pods that any of these terms selects."""

    terms: tuple[AffinityTerm, ...]

    def relevant_classes(self, pod_index: PodIndex) -> Iterable[PodClass]:
        """Return the classes with a label that one of the terms asks for."""
        return _asked_for(self.terms, pod_index)

    def weight(self, pod_class: PodClass, namespaces: Mapping[str, Labels]) -> int:
        """Return 1 for pods that count, and 0 for others."""
        return int(any(selects(term, pod_class, namespaces) for term in self.terms))


class ExistingAntiAffinityQuery(Struct, frozen=True):
    """Counts pods with required anti-affinity, by a term of this topology key, to the incoming pod."""

    incoming: PodClass
    key: str

    def relevant_classes(self, pod_index: PodIndex) -> Iterable[PodClass]:
        """Return the classes with terms that may select the incoming pod."""
        return pod_index.possible_selectors_of(self.incoming)

    def weight(self, pod_class: PodClass, namespaces: Mapping[str, Labels]) -> int:
        """Return 1 for pods that count, and 0 for others."""
        terms = pod_class.relations.terms.required_anti_by_key.get(self.key, ())
        return int(any(selects(term, self.incoming, namespaces) for term in terms))


class PreferredAffinityQuery(Struct, frozen=True):
    """Adds up the preferences of the incoming pod and of other pods for each other, by terms of this topology key."""

    incoming: PodClass
    key: str
    hard_weight: int

    def relevant_classes(self, pod_index: PodIndex) -> Iterable[PodClass]:
        """Return the classes with terms that may select the incoming pod, and those that its own terms may select."""
        found = pod_index.possible_selectors_of(self.incoming)
        preferred = self.incoming.relations.terms.preferred_by_key.get(self.key)
        if preferred:
            found.update(dict.fromkeys(_asked_for([term for _, term in preferred], pod_index)))
        return found

    def weight(self, pod_class: PodClass, namespaces: Mapping[str, Labels]) -> int:
        """Return the weights of both sides' preferences; required affinity of the other side counts, too."""
        mine, theirs = self.incoming.relations.terms, pod_class.relations.terms
        return (
            _sum_of_weights(mine.preferred_by_key.get(self.key, ()), pod_class, namespaces)
            + _sum_of_weights(theirs.preferred_by_key.get(self.key, ()), self.incoming, namespaces)
            + self.hard_weight
            * sum(selects(term, self.incoming, namespaces) for term in theirs.required_by_key.get(self.key, ()))
        )


def selects(term: AffinityTerm, pod_class: PodClass, namespaces: Mapping[str, Labels]) -> bool:
    """Return whether a term selects the pods of a class."""
    return term.selects(pod_class.namespace, pod_class.labels, namespaces)


def _sum_of_weights(
    preferred: Iterable[tuple[int, AffinityTerm]], pod_class: PodClass, namespaces: Mapping[str, Labels]
) -> int:
    """Return the weights of the preferences that select a class."""
    return sum(weight for weight, term in preferred if selects(term, pod_class, namespaces))


def _asked_for(terms: Collection[AffinityTerm], pod_index: PodIndex) -> Iterable[PodClass]:
    """Return the classes with a label that one of the terms asks for."""
    labels = {required_label(term.labels): None for term in terms}
    if len(labels) > 1:
        return {found: None for label in labels for found in pod_index.with_label(label)}
    return pod_index.with_label(*labels)


class TermKeys(Struct, frozen=True):
    """The topology keys by which the terms of another pod reject an incoming pod, or change its score."""

    existing_anti_affinity: frozenset[str]
    preferred: frozenset[str]


NO_TERM_KEYS = TermKeys(existing_anti_affinity=frozenset(), preferred=frozenset())
MAX_CACHED_CLASSES = 256
"""Classes that have their term keys cached."""


class InterPodAffinity:
    """The filter and score.

    Which keys matter to a class depends on the classes on the nodes that have terms which may select it. The keys
    between two classes are computed once and cached.
    """

    def __init__(self, ledger: Ledger, weights: Weights) -> None:
        """Use the pods of a ledger."""
        self._ledger = ledger
        self._weights = weights
        self._term_keys: OrderedDict[PodClass, dict[PodClass, TermKeys]] = OrderedDict()
        self._version = -1
        self._keys: frozenset[str] = frozenset()

    def pre_filter(self, pod_class: PodClass) -> "InterPodAffinityState | None":
        """Return the state of a class that has terms or is selected by terms of pods on nodes, else None.

        It is valid for as long as only pods of the class are placed. A label that no node has makes no domains, so its
        anti-affinity and preferences have no effect.
        """
        terms, keys = pod_class.relations.terms, self._ledger.cluster.label_keys
        anti_affinity = {
            key: AntiAffinityQuery(alike) for key, alike in terms.required_anti_by_key.items() if key in keys
        }
        existing_anti_affinity: set[str] = set()
        preferred = {key for key in terms.preferred_by_key if key in keys}
        for found in self._term_keys_of(pod_class):
            existing_anti_affinity |= found.existing_anti_affinity
            preferred |= found.preferred
        if not (terms.required or anti_affinity or existing_anti_affinity or preferred):
            return None
        return InterPodAffinityState(
            self._ledger,
            pod_class,
            required=terms.required,
            anti_affinity=anti_affinity,
            existing_anti_affinity={
                key: ExistingAntiAffinityQuery(pod_class, key) for key in sorted(existing_anti_affinity)
            },
            preferred={
                key: PreferredAffinityQuery(pod_class, key, self._weights.hard_pod_affinity)
                for key in sorted(preferred)
            },
            own=all(selects(term, pod_class, self._ledger.pod_index.namespaces) for term in terms.required),
            weight=self._weights.pod_affinity,
        )

    def _term_keys_of(self, pod_class: PodClass) -> Iterator[TermKeys]:
        """Yield the term keys between the class and all classes with terms, itself included."""
        pod_index = self._ledger.pod_index
        self._refresh()
        cached = self._term_keys.setdefault(pod_class, {})
        self._term_keys.move_to_end(pod_class)
        if len(self._term_keys) > MAX_CACHED_CLASSES:
            self._term_keys.popitem(last=False)
        if len(cached) > 2 * len(pod_index.classes_with_terms) + MAX_CACHED_CLASSES:
            cached.clear()
        for other in (pod_class, *pod_index.possible_selectors_of(pod_class)):
            found = cached.get(other)
            if found is None:
                found = cached[other] = self._keys_between(pod_class, other)
            if found is not NO_TERM_KEYS:
                yield found

    def _refresh(self) -> None:
        """Drop the cached keys when the labels of a namespace or the label keys of nodes have changed."""
        version, keys = self._ledger.pod_index.namespaces_version, self._ledger.cluster.label_keys.keys()
        if self._version != version or self._keys != keys:
            self._version, self._keys = version, frozenset(keys)
            self._term_keys.clear()

    def _keys_between(self, incoming: PodClass, other: PodClass) -> TermKeys:
        namespaces, terms = self._ledger.pod_index.namespaces, other.relations.terms

        def selects_incoming(found: Iterable[AffinityTerm]) -> bool:
            return any(selects(term, incoming, namespaces) for term in found)

        existing_anti_affinity = frozenset(
            key for key in self._keys if selects_incoming(terms.required_anti_by_key.get(key, ()))
        )
        preferred = frozenset(
            key
            for key in self._keys
            if selects_incoming(term for _, term in terms.preferred_by_key.get(key, ()))
            or (self._weights.hard_pod_affinity and selects_incoming(terms.required_by_key.get(key, ())))
        )
        return TermKeys(existing_anti_affinity, preferred) if existing_anti_affinity or preferred else NO_TERM_KEYS


class InterPodAffinityState:
    """The terms that concern one class."""

    def __init__(
        self,
        ledger: Ledger,
        pod_class: PodClass,
        *,
        required: tuple[AffinityTerm, ...],
        anti_affinity: Mapping[str, PodCountQuery],
        existing_anti_affinity: Mapping[str, PodCountQuery],
        preferred: Mapping[str, PodCountQuery],
        own: bool,
        weight: int,
    ) -> None:
        """Evaluate each query over the domains of its key; ``own`` if the class satisfies its own required affinity."""
        self._ledger = ledger
        self._pod_class = pod_class
        self._required = required
        self._anti_affinity = anti_affinity
        self._existing_anti_affinity = existing_anti_affinity
        self._preferred = preferred
        self._own = own
        self._weight = weight
        self.terms = len(required) + len(anti_affinity) + len(existing_anti_affinity) + len(preferred)

    def passes(self, rows: Rows) -> Flags:
        """Return which nodes satisfy the required affinity and no anti-affinity of either side rejects."""
        answer = np.ones(len(rows), dtype=np.bool_)
        for _, passed in self.checks(rows):
            answer &= passed
        return answer

    def checks(self, rows: Rows) -> Iterator[tuple[str, Flags]]:
        """Yield the three rules in kube-scheduler's order."""
        if self._required:
            yield AFFINITY_REASON, self._near_all(rows, 0)
        if self._anti_affinity:
            yield ANTI_AFFINITY_REASON, self._free_of(self._anti_affinity, rows)
        if self._existing_anti_affinity:
            yield EXISTING_ANTI_AFFINITY_REASON, self._free_of(self._existing_anti_affinity, rows)

    def could_ever_pass(self, rows: Rows, companions: Collection[PodClass] = (), /) -> Flags:
        """Return which nodes satisfy the required affinity: evictions bring no pods near, only remove some.

        With companions that may be placed anywhere, and for the first pod of a group that requires its own kind, it is
        enough that the node is in a domain.
        """
        return self._labelled(rows) if companions else self._near_all(rows, 0)

    def still_passes(self, rows: Rows) -> Flags:
        """Return which nodes pass all three rules for the pod that is there; it does not satisfy its own affinity."""
        answer = self._near_all(rows, int(self._own))
        for queries in (self._anti_affinity, self._existing_anti_affinity):
            answer &= self._free_of(queries, rows, without=self._pod_class)
        return answer

    def _near_all(self, rows: Rows, own: int) -> Flags:
        """Return which nodes satisfy the required affinity; ``own`` is 1 if the pods counted include the pod itself."""
        if not self._required:
            return np.ones(len(rows), dtype=np.bool_)
        if not all(term.key in self._ledger.cluster.label_keys for term in self._required):
            return np.zeros(len(rows), dtype=np.bool_)
        answer, somewhere = self._near_some(RequiredAffinityQuery(self._required), rows, own)
        if not self._own or somewhere.all():
            return answer
        return np.where(somewhere, answer, self._near_first(rows, own))

    def _near_first(self, rows: Rows, own: int) -> Flags:
        """Return which nodes suit the first pod of its kind: in domains, and near nominated pods of it, if any."""
        labelled = self._labelled(rows)
        if not self._ledger.pod_index.nominated:
            return labelled
        answer, somewhere = self._near_some(RequiredAffinityQuery(self._required, nominated=True), rows, own)
        return np.where(somewhere, answer, labelled)

    def _labelled(self, rows: Rows) -> Flags:
        """Return which nodes are in a domain of every topology key of the required affinity."""
        answer = np.ones(len(rows), dtype=np.bool_)
        for key in {term.key for term in self._required}:
            answer &= self._ledger.cluster.label(key).codes[rows] != ABSENT
        return answer

    def _near_some(self, query: RequiredAffinityQuery, rows: Rows, own: int) -> tuple[Flags, Flags]:
        """Return for each node whether every domain of it has a selected pod, and whether there is one anywhere."""
        answer, somewhere = np.ones(len(rows), dtype=np.bool_), np.zeros(len(rows), dtype=np.bool_)
        for key in {term.key for term in self._required}:
            itself = own * (self._ledger.cluster.label(key).codes[rows] != ABSENT)
            near, total = self._near(query, key, rows)
            answer &= near > itself
            somewhere |= total > itself
        return answer, somewhere

    def score(self, rows: Rows) -> Scores | None:
        """Prefer domains with more weight, scaled between the least and the most weight among the nodes."""
        if not self._preferred or not len(rows):
            return None
        total = np.zeros(len(rows), dtype=np.int64)
        for key, query in self._preferred.items():
            total += self._near(query, key, rows)[0]
        least, most = total.min(), total.max()
        if least == most:
            return None
        share: Scores = (100.0 * ((total - least) / (most - least))).astype(np.int64)
        return self._weight * share

    def _free_of(self, queries: Mapping[str, PodCountQuery], rows: Rows, without: PodClass | None = None) -> Flags:
        """Return which nodes have no counted pods in their domains, except for one pod of a class."""
        answer = np.ones(len(rows), dtype=np.bool_)
        for key, query in queries.items():
            own: Scores | int = 0
            if without is not None:
                has = self._ledger.cluster.label(key).codes[rows] != ABSENT
                own = query.weight(without, self._ledger.pod_index.namespaces) * has
            answer &= self._near(query, key, rows)[0] == own
        return answer

    def _near(self, query: PodCountQuery, key: str, rows: Rows) -> tuple[Scores, int]:
        """Return the sum of each row's domain, and that of all domains."""
        column, counts = self._ledger.cluster.label(key), self._ledger.pod_index.counts(query)
        there, size = np.flatnonzero(counts), len(column.values) + 1
        if not len(there):
            return np.zeros(len(rows), dtype=np.int64), 0
        sums = np.bincount(column.codes[there] % size, weights=counts[there], minlength=size).astype(np.int64)
        sums[ABSENT] = 0  # nodes without the label are in no domain; their sum comes last
        return sums[column.codes[rows]], int(sums.sum())
