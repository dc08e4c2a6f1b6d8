"""Spreading pods evenly over domains, as PodTopologySpread has it.

A hard constraint compares the domain of a node with the emptiest one; a soft one prefers emptier domains. The domains
are those of the whole cluster, even where a gang is confined to some of its nodes, as in kube-scheduler. So a gang that
is confined to one zone and must spread over zones with a skew of 1 gets one pod in.

Terminating pods do not count. Nominated pods make their domain fuller for an incoming pod, and never make the emptiest
domain less empty, so a node that passes is right whether they come or not. Default constraints for pods without any
(``List`` and ``System`` defaulting) are not supported.
"""

from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from cpg_api.selectors import LabelMatcher, Labels
from cpg_engine.cluster.axes import Flags, Rows, Scores
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.node_selection import meets_affinity, tolerated
from cpg_engine.cluster.nodes import ABSENT
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.cluster.pod_index import PodIndex
from cpg_engine.cluster.pod_relations import SpreadConstraint, required_label
from cpg_engine.weights import Weights

REASON = "node(s) didn't match pod topology spread constraints"
UNLABELLED_REASON = "node(s) didn't match pod topology spread constraints (missing required label)"
HOSTNAME = "kubernetes.io/hostname"
MAX_CACHED_CONSTRAINTS = 256
"""Constraints that have their counted nodes cached: a few kilobytes each for a thousand nodes."""


class SpreadQuery(Struct, frozen=True):
    """Counts pods of a namespace that a selector selects: no terminating ones, and nominated ones if requested."""

    namespace: str
    labels: LabelMatcher
    nominated: bool = True

    def relevant_classes(self, pod_index: PodIndex) -> Iterable[PodClass]:
        """Return the classes with a label that the selector asks for."""
        return pod_index.with_label(required_label(self.labels))

    def weight(self, pod_class: PodClass, _namespaces: Mapping[str, Labels]) -> int:
        """Return 1 for pods that count, and 0 for others."""
        return int(
            not pod_class.terminating
            and (self.nominated or not pod_class.nominated)
            and pod_class.namespace == self.namespace
            and self.labels.matches(pod_class.labels)
        )


class CountedNodes:
    """The nodes that count for a constraint, and their domains, by the code of the label plus one."""

    def __init__(self, rows: Rows, codes: NDArray[np.int32]) -> None:
        """Find the domains of these rows."""
        self.rows = rows
        self.places = codes[rows] + 1
        self.present = np.unique(self.places)
        self.size = int(codes.max(initial=ABSENT)) + 2


class SpreadDomains:
    """The domains of one constraint, and how many pods are in them."""

    def __init__(self, ledger: Ledger, pod_class: PodClass, constraint: SpreadConstraint, nodes: CountedNodes) -> None:
        """Count the pods on these nodes."""
        self.constraint = constraint
        self.codes = ledger.cluster.label(constraint.key).codes
        self._ledger = ledger
        self._query = SpreadQuery(pod_class.namespace, constraint.counted)
        self._query_without_nominated = SpreadQuery(pod_class.namespace, constraint.counted, nominated=False)
        self._weight = self._query.weight(pod_class, {})
        self._rows, self._places = nodes.rows, nodes.places
        self._present, self._size = nodes.present, nodes.size

    def on_nodes(self, rows: Rows) -> Scores:
        """Return how many pods are on each node itself."""
        return self._ledger.pod_index.counts(self._query)[rows].astype(np.int64)

    def sums(self) -> Scores:
        """Return how many pods are in each domain, by code plus one; the first is for nodes without the label."""
        return self._sums(self._query)

    def even(self, rows: Rows) -> Flags:
        """Return on which nodes one more pod leaves their domain within the skew of the emptiest one."""
        sums = self.sums()
        least = self._least(self._without_nominated(sums))
        answer: Flags = sums[self.codes[rows] + 1] + self.constraint.own - least <= self.constraint.max_skew
        return answer

    def stay_even(self, rows: Rows) -> Flags:
        """Return for nodes with a pod whether they would be even for it if it came now."""
        sums, places = self.sums(), self.codes[rows] + 1
        without = self._without_nominated(sums)
        # Without the pod, its own domain may be the emptiest. It counts only on nodes that do.
        counted = self._counts(rows) * self._weight
        before = sums[places] - counted
        least = np.minimum(self._least(without), without[places] - counted) if self._has_enough_domains else 0
        answer: Flags = before + self.constraint.own - least <= self.constraint.max_skew
        return answer

    def _sums(self, query: SpreadQuery) -> Scores:
        counts = self._ledger.pod_index.counts(query)[self._rows]
        return np.bincount(self._places, weights=counts, minlength=self._size).astype(np.int64)

    def _without_nominated(self, sums: Scores) -> Scores:
        """Return the sums without nominated pods; usually there are none, and the sums are the same."""
        return self._sums(self._query_without_nominated) if self._ledger.pod_index.nominated else sums

    @property
    def _has_enough_domains(self) -> bool:
        return len(self._present) >= max(self.constraint.min_domains, 1)

    def _least(self, sums: Scores) -> int:
        return int(sums[self._present].min()) if self._has_enough_domains else 0

    def _counts(self, rows: Rows) -> Scores:
        """Return 1 for the rows that count in their domains, and 0 for others."""
        return np.isin(rows, self._rows).astype(np.int64)


class PodTopologySpread:
    """The filter and score."""

    def __init__(self, ledger: Ledger, weights: Weights) -> None:
        """Use the pods of a ledger."""
        self._ledger = ledger
        self._weights = weights
        self._counted: OrderedDict[Hashable, CountedNodes] = OrderedDict()
        """The nodes that count, since a node last changed; pods of many classes have the same constraints."""
        self._version = -1

    def pre_filter(self, pod_class: PodClass) -> "PodTopologySpreadState | None":
        """Return the state of a class with constraints, else None; it is valid until a node changes."""
        constraints = pod_class.relations.spread
        if not constraints:
            return None
        return PodTopologySpreadState(
            hard=self._domains(pod_class, [found for found in constraints if found.hard]),
            soft=self._domains(pod_class, [found for found in constraints if not found.hard]),
            weight=self._weights.spread,
        )

    def _domains(self, pod_class: PodClass, constraints: Sequence[SpreadConstraint]) -> tuple[SpreadDomains, ...]:
        keys = tuple(sorted({constraint.key for constraint in constraints}))
        return tuple(
            SpreadDomains(self._ledger, pod_class, constraint, self._counted_nodes(pod_class, constraint, keys))
            for constraint in constraints
        )

    def _counted_nodes(self, pod_class: PodClass, constraint: SpreadConstraint, keys: tuple[str, ...]) -> CountedNodes:
        """Return the nodes that have all the labels, and that the pod's affinity and tolerations allow."""
        if self._version != self._ledger.node_version:
            self._version = self._ledger.node_version
            self._counted.clear()
        affinity = (pod_class.node_selector, pod_class.node_affinity) if constraint.honors_affinity else None
        key = (constraint.key, keys, affinity, pod_class.tolerations if constraint.honors_taints else None)
        found = self._counted.get(key)
        if found is None:
            found = self._counted[key] = self._count_nodes(pod_class, constraint, keys)
            if len(self._counted) > MAX_CACHED_CONSTRAINTS:
                self._counted.popitem(last=False)
        return found

    def _count_nodes(self, pod_class: PodClass, constraint: SpreadConstraint, keys: tuple[str, ...]) -> CountedNodes:
        cluster = self._ledger.cluster
        labelled = cluster.alive.copy()
        for key in keys:
            labelled &= cluster.label(key).codes != ABSENT
        rows = np.flatnonzero(labelled)
        if constraint.honors_affinity:
            rows = rows[meets_affinity(pod_class, cluster, rows)]
        if constraint.honors_taints:
            rows = rows[tolerated(pod_class, cluster, rows)]
        return CountedNodes(rows, cluster.label(constraint.key).codes)


class PodTopologySpreadState:
    """The constraints of one class, with their domains."""

    def __init__(self, *, hard: Sequence[SpreadDomains], soft: Sequence[SpreadDomains], weight: int) -> None:
        """Use the domains of these constraints."""
        self._hard = hard
        self._soft = soft
        self._weight = weight
        self.terms = len(hard) + len(soft)

    def passes(self, rows: Rows) -> Flags:
        """Return which nodes satisfy every hard constraint."""
        answer = np.ones(len(rows), dtype=np.bool_)
        for _, passed in self.checks(rows):
            answer &= passed
        return answer

    def checks(self, rows: Rows) -> Iterator[tuple[str, Flags]]:
        """Yield for each hard constraint which nodes have the label, and which have a domain within the skew."""
        for domains in self._hard:
            yield UNLABELLED_REASON, domains.codes[rows] != ABSENT
            yield REASON, domains.even(rows)

    def could_ever_pass(self, rows: Rows, _companions: Collection[PodClass] = (), /) -> Flags:
        """Return which nodes have the labels; evictions can make any domain empty enough."""
        answer = np.ones(len(rows), dtype=np.bool_)
        for domains in self._hard:
            answer &= domains.codes[rows] != ABSENT
        return answer

    def still_passes(self, rows: Rows) -> Flags:
        """Return which nodes would pass for their pod if it came now."""
        answer = self.could_ever_pass(rows)
        for domains in self._hard:
            answer &= domains.stay_even(rows)
        return answer

    def score(self, rows: Rows) -> Scores | None:
        """Prefer domains with fewer pods; a node that lacks the label of a soft constraint scores zero.

        A label with few values must not be outweighed by one with many, so each counts by the logarithm of their
        number.
        """
        if not self._soft:
            return None
        answer = np.zeros(len(rows), dtype=np.int64)
        labelled = np.ones(len(rows), dtype=np.bool_)
        for domains in self._soft:
            labelled &= domains.codes[rows] != ABSENT
        scored = rows[labelled]
        if len(scored):
            raw = sum(_fullness(domains, scored) for domains in self._soft)
            fullness = np.floor(raw + 0.5).astype(np.int64)
            least, most = int(fullness.min()), int(fullness.max())
            answer[labelled] = 100 * (most + least - fullness) // most if most else 100
        return self._weight * answer


def _fullness(domains: SpreadDomains, rows: Rows) -> NDArray[np.float64]:
    """Return how full the domain of each node is; a larger allowed skew makes differences count less."""
    codes = domains.codes[rows]
    if domains.constraint.key == HOSTNAME:
        counts, size = domains.on_nodes(rows), len(rows)
    else:
        counts, size = domains.sums()[codes + 1], int(np.count_nonzero(np.bincount(codes)))
    answer: NDArray[np.float64] = counts * np.log(size + 2) + (domains.constraint.max_skew - 1)
    return answer
