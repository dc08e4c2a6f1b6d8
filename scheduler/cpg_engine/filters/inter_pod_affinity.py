"""Affinity and anti-affinity to other pods, required and preferred, as InterPodAffinity has them.

It works both ways: pods that run already may want the newcomer away, or like it. Every rule comes down to a number
per node: how many pods there are meant, or how much they are worth. Summed over the domains of the rule's label, it
says for each node what the pods of its domain amount to; nodes without the label are in no domain.

Pods that are only nominated to their nodes count for all of it but one thing: a pod that may never come is nobody whom
others need. The first of a group that needs itself goes near those of its kind that are nominated, if there are any, so
that it is right whether they come or not.
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
    """Counts who is meant by all of these terms at once: only such a pod satisfies any of them.

    Those that are only nominated are left out, or counted as well.
    """

    terms: tuple[AffinityTerm, ...]
    nominated: bool = False

    def relevant_classes(self, pod_index: PodIndex) -> Iterable[PodClass]:
        """Return the classes with a label that the first term asks for."""
        return pod_index.with_label(required_label(self.terms[0].labels))

    def weight(self, pod_class: PodClass, namespaces: Mapping[str, Labels]) -> int:
        """Return 1 for pods that are, and 0 for others."""
        counts = self.nominated or not pod_class.nominated
        return int(counts and all(selects(term, pod_class, namespaces) for term in self.terms))


class AntiAffinityQuery(Struct, frozen=True, cache_hash=True):
    """Counts who is meant by any of these terms."""

    terms: tuple[AffinityTerm, ...]

    def relevant_classes(self, pod_index: PodIndex) -> Iterable[PodClass]:
        """Return the classes with a label that one of the terms asks for."""
        return _asked_for(self.terms, pod_index)

    def weight(self, pod_class: PodClass, namespaces: Mapping[str, Labels]) -> int:
        """Return 1 for pods that are, and 0 for others."""
        return int(any(selects(term, pod_class, namespaces) for term in self.terms))


class ExistingAntiAffinityQuery(Struct, frozen=True):
    """Counts who must not be near the newcomer, by a term of this key."""

    newcomer: PodClass
    key: str

    def relevant_classes(self, pod_index: PodIndex) -> Iterable[PodClass]:
        """Return the classes whose terms may mean the newcomer."""
        return pod_index.possible_selectors_of(self.newcomer)

    def weight(self, pod_class: PodClass, namespaces: Mapping[str, Labels]) -> int:
        """Return 1 for pods that must not, and 0 for others."""
        terms = pod_class.relations.terms.required_anti_by_key.get(self.key, ())
        return int(any(selects(term, self.newcomer, namespaces) for term in terms))


class PreferredAffinityQuery(Struct, frozen=True):
    """Adds up how much the newcomer and others like each other, by terms of this key."""

    newcomer: PodClass
    key: str
    hard_weight: int

    def relevant_classes(self, pod_index: PodIndex) -> Iterable[PodClass]:
        """Return the classes whose terms may mean the newcomer, and those that its own may mean."""
        found = pod_index.possible_selectors_of(self.newcomer)
        likes = self.newcomer.relations.terms.preferred_by_key.get(self.key)
        if likes:
            found.update(dict.fromkeys(_asked_for([term for _, term in likes], pod_index)))
        return found

    def weight(self, pod_class: PodClass, namespaces: Mapping[str, Labels]) -> int:
        """Return the weights of both sides' preferences; to be needed by a pod is worth something, too."""
        mine, theirs = self.newcomer.relations.terms, pod_class.relations.terms
        return (
            _liking(mine.preferred_by_key.get(self.key, ()), pod_class, namespaces)
            + _liking(theirs.preferred_by_key.get(self.key, ()), self.newcomer, namespaces)
            + self.hard_weight
            * sum(selects(term, self.newcomer, namespaces) for term in theirs.required_by_key.get(self.key, ()))
        )


def selects(term: AffinityTerm, pod_class: PodClass, namespaces: Mapping[str, Labels]) -> bool:
    """Tell whether a term means the pods of a class."""
    return term.selects(pod_class.namespace, pod_class.labels, namespaces)


def _liking(likes: Iterable[tuple[int, AffinityTerm]], pod_class: PodClass, namespaces: Mapping[str, Labels]) -> int:
    """Return the weights of the preferences that mean a class."""
    return sum(weight for weight, term in likes if selects(term, pod_class, namespaces))


def _asked_for(terms: Collection[AffinityTerm], pod_index: PodIndex) -> Iterable[PodClass]:
    """Return the classes with a label that one of the terms asks for."""
    labels = {required_label(term.labels): None for term in terms}
    if len(labels) > 1:
        return {found: None for label in labels for found in pod_index.with_label(label)}
    return pod_index.with_label(*labels)


class TermKeys(Struct, frozen=True):
    """By which keys that nodes have another pod keeps a newcomer away, and makes places more or less welcome."""

    avoiding: frozenset[str]
    liking: frozenset[str]


NO_TERM_KEYS = TermKeys(avoiding=frozenset(), liking=frozenset())
MAX_CACHED_CLASSES = 256
"""Classes whose bonds are remembered."""


class InterPodAffinity:
    """The filter and score.

    Whether a class is concerned depends on the classes that are somewhere at present and have terms that may mean
    it. How each of these stands to the class is found out once and remembered.
    """

    def __init__(self, ledger: Ledger, weights: Weights) -> None:
        """Look at the pods of a ledger."""
        self._ledger = ledger
        self._weights = weights
        self._bonds: OrderedDict[PodClass, dict[PodClass, TermKeys]] = OrderedDict()
        self._version = -1
        self._keys: frozenset[str] = frozenset()

    def pre_filter(self, pod_class: PodClass) -> "InterPodAffinityState | None":
        """Return the view of a class that has terms, or is meant by those of pods that are somewhere.

        It holds for as long as nobody but pods of the class is placed. Labels that no node has make no domains: in
        them nobody is avoided or liked.
        """
        terms, keys = pod_class.relations.terms, self._ledger.cluster.label_keys
        avoids = {key: AntiAffinityQuery(alike) for key, alike in terms.required_anti_by_key.items() if key in keys}
        avoiding: set[str] = set()
        liking = {key for key in terms.preferred_by_key if key in keys}
        for bond in self._bonds_of(pod_class):
            avoiding |= bond.avoiding
            liking |= bond.liking
        if not (terms.required or avoids or avoiding or liking):
            return None
        return InterPodAffinityState(
            self._ledger,
            pod_class,
            needs=terms.required,
            avoids=avoids,
            avoiding={key: ExistingAntiAffinityQuery(pod_class, key) for key in sorted(avoiding)},
            liking={
                key: PreferredAffinityQuery(pod_class, key, self._weights.hard_pod_affinity) for key in sorted(liking)
            },
            own=all(selects(term, pod_class, self._ledger.pod_index.namespaces) for term in terms.required),
            weight=self._weights.pod_affinity,
        )

    def _bonds_of(self, pod_class: PodClass) -> Iterator[TermKeys]:
        """Yield how the classes that have terms stand to this one, which is itself one of them if it has any."""
        pod_index = self._ledger.pod_index
        self._refresh()
        bonds = self._bonds.setdefault(pod_class, {})
        self._bonds.move_to_end(pod_class)
        if len(self._bonds) > MAX_CACHED_CLASSES:
            self._bonds.popitem(last=False)
        if len(bonds) > 2 * len(pod_index.classes_with_terms) + MAX_CACHED_CLASSES:
            bonds.clear()
        for other in (pod_class, *pod_index.possible_selectors_of(pod_class)):
            bond = bonds.get(other)
            if bond is None:
                bond = bonds[other] = self._bond(pod_class, other)
            if bond is not NO_TERM_KEYS:
                yield bond

    def _refresh(self) -> None:
        """Forget the bonds once a namespace has other labels, or nodes have labels with other keys."""
        version, keys = self._ledger.pod_index.namespaces_version, self._ledger.cluster.label_keys.keys()
        if self._version != version or self._keys != keys:
            self._version, self._keys = version, frozenset(keys)
            self._bonds.clear()

    def _bond(self, newcomer: PodClass, other: PodClass) -> TermKeys:
        namespaces, terms = self._ledger.pod_index.namespaces, other.relations.terms

        def meant(found: Iterable[AffinityTerm]) -> bool:
            return any(selects(term, newcomer, namespaces) for term in found)

        avoiding = frozenset(key for key in self._keys if meant(terms.required_anti_by_key.get(key, ())))
        liking = frozenset(
            key
            for key in self._keys
            if meant(term for _, term in terms.preferred_by_key.get(key, ()))
            or (self._weights.hard_pod_affinity and meant(terms.required_by_key.get(key, ())))
        )
        return TermKeys(avoiding, liking) if avoiding or liking else NO_TERM_KEYS


class InterPodAffinityState:
    """The nodes as a class sees them that has terms or is meant by some."""

    def __init__(
        self,
        ledger: Ledger,
        pod_class: PodClass,
        *,
        needs: tuple[AffinityTerm, ...],
        avoids: Mapping[str, PodCountQuery],
        avoiding: Mapping[str, PodCountQuery],
        liking: Mapping[str, PodCountQuery],
        own: bool,
        weight: int,
    ) -> None:
        """Ask these questions, each about the domains of its key; ``own`` if the class is what it needs itself."""
        self._ledger = ledger
        self._pod_class = pod_class
        self._needs = needs
        self._avoids = avoids
        self._avoiding = avoiding
        self._liking = liking
        self._own = own
        self._weight = weight

    def passes(self, rows: Rows) -> Flags:
        """Keep to nodes near all that is needed, and away from whom one side or the other avoids."""
        answer = np.ones(len(rows), dtype=np.bool_)
        for _, passed in self.checks(rows):
            answer &= passed
        return answer

    def checks(self, rows: Rows) -> Iterator[tuple[str, Flags]]:
        """Yield the three rules in kube-scheduler's order."""
        if self._needs:
            yield AFFINITY_REASON, self._near_all(rows, 0)
        if self._avoids:
            yield ANTI_AFFINITY_REASON, self._free_of(self._avoids, rows)
        if self._avoiding:
            yield EXISTING_ANTI_AFFINITY_REASON, self._free_of(self._avoiding, rows)

    def could_ever_pass(self, rows: Rows, company: Collection[PodClass] = (), /) -> Flags:
        """Keep to nodes near all that is needed: evicting pods makes no others come, but it lets rivals go.

        Company that is to come may come anywhere. Then, and for the first pod of a group that needs itself, it is
        enough that the node is in a domain.
        """
        return self._labelled(rows) if company else self._near_all(rows, 0)

    def still_passes(self, rows: Rows) -> Flags:
        """Keep to nodes that pass all three rules for the pod that is there, which is no company for itself."""
        answer = self._near_all(rows, int(self._own))
        for questions in (self._avoids, self._avoiding):
            answer &= self._free_of(questions, rows, without=self._pod_class)
        return answer

    def _near_all(self, rows: Rows, own: int) -> Flags:
        """Keep to nodes near all that is needed; ``own`` is 1 if one of whom it finds in each domain is itself."""
        if not self._needs:
            return np.ones(len(rows), dtype=np.bool_)
        if not all(term.key in self._ledger.cluster.label_keys for term in self._needs):
            return np.zeros(len(rows), dtype=np.bool_)
        answer, somewhere = self._near_some(RequiredAffinityQuery(self._needs), rows, own)
        if not self._own or somewhere.all():
            return answer
        return np.where(somewhere, answer, self._near_first(rows, own))

    def _near_first(self, rows: Rows, own: int) -> Flags:
        """Keep to nodes for the first of its kind: in domains, and near others of it that are nominated, if any."""
        labelled = self._labelled(rows)
        if not self._ledger.pod_index.nominated:
            return labelled
        answer, somewhere = self._near_some(RequiredAffinityQuery(self._needs, nominated=True), rows, own)
        return np.where(somewhere, answer, labelled)

    def _labelled(self, rows: Rows) -> Flags:
        """Tell which nodes are in a domain of every label by which somebody is needed."""
        answer = np.ones(len(rows), dtype=np.bool_)
        for key in {term.key for term in self._needs}:
            answer &= self._ledger.cluster.label(key).codes[rows] != ABSENT
        return answer

    def _near_some(self, question: RequiredAffinityQuery, rows: Rows, own: int) -> tuple[Flags, Flags]:
        """Tell for each node whether some of them are near in every domain of it, and whether there is any at all."""
        answer, somewhere = np.ones(len(rows), dtype=np.bool_), np.zeros(len(rows), dtype=np.bool_)
        for key in {term.key for term in self._needs}:
            itself = own * (self._ledger.cluster.label(key).codes[rows] != ABSENT)
            near, total = self._near(question, key, rows)
            answer &= near > itself
            somewhere |= total > itself
        return answer, somewhere

    def score(self, rows: Rows) -> Scores | None:
        """Prefer domains with the more weight, between the least and the most there is among the nodes."""
        if not self._liking or not len(rows):
            return None
        total = np.zeros(len(rows), dtype=np.int64)
        for key, question in self._liking.items():
            total += self._near(question, key, rows)[0]
        least, most = total.min(), total.max()
        if least == most:
            return None
        share: Scores = (100.0 * ((total - least) / (most - least))).astype(np.int64)
        return self._weight * share

    def _free_of(self, questions: Mapping[str, PodCountQuery], rows: Rows, without: PodClass | None = None) -> Flags:
        """Tell which nodes have nobody in their domains that a question is about, but for one pod of a class."""
        answer = np.ones(len(rows), dtype=np.bool_)
        for key, question in questions.items():
            own: Scores | int = 0
            if without is not None:
                has = self._ledger.cluster.label(key).codes[rows] != ABSENT
                own = question.weight(without, self._ledger.pod_index.namespaces) * has
            answer &= self._near(question, key, rows)[0] == own
        return answer

    def _near(self, question: PodCountQuery, key: str, rows: Rows) -> tuple[Scores, int]:
        """Return what the pods of each row's domain amount to, and those of all domains."""
        column, counts = self._ledger.cluster.label(key), self._ledger.pod_index.counts(question)
        there, size = np.flatnonzero(counts), len(column.values) + 1
        if not len(there):
            return np.zeros(len(rows), dtype=np.int64), 0
        sums = np.bincount(column.codes[there] % size, weights=counts[there], minlength=size).astype(np.int64)
        sums[ABSENT] = 0  # what has no label is no domain; its place is the last
        return sums[column.codes[rows]], int(sums.sum())
