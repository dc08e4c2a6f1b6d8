"""The distinct node selections of hints, as numbers: a node name, a node selector and node affinity."""

from collections.abc import Hashable, Iterable, Iterator

import numpy as np
from msgspec.structs import replace

from cpg_api.core.node import Node
from cpg_api.selectors import LabelMatcher, NodeTermMatcher
from cpg_engine.cluster.axes import Flags
from cpg_engine.cluster.pod_classes import PodClass
from cpg_scheduler.cache.selector_index import SelectorIndex

NAME = ""
"""Stands for the name of a node among its labels; no label has this key."""

NO_CONDITION = NodeTermMatcher()


class NodeSelectionIndex:
    """Numbers for node selections, each valid for as long as something uses it.

    A selection is met by a node that meets one of its terms, and all terms are in one index.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._number_of: dict[Hashable, int] = {}
        self._selections: list[Hashable] = []
        self._uses: list[int] = []
        self._unused: list[int] = []
        self._terms: list[list[int]] = []
        """The numbers of the terms of each selection."""
        self._index = SelectorIndex()
        self._owners: list[int] = []
        """The selection of each term."""
        self._matchers: list[LabelMatcher] = []
        self._unused_terms: list[int] = []

    def __len__(self) -> int:
        return len(self._number_of)

    def add(self, pod_class: PodClass) -> int:
        """Return the number of the selection of a class, which has one more use now."""
        selection = (pod_class.node_name, pod_class.node_selector, pod_class.node_affinity)
        number = self._number_of.get(selection)
        if number is None:
            if not self._unused:
                self._unused.append(len(self._selections))
                self._selections.append(None)
                self._uses.append(0)
                self._terms.append([])
            number = self._number_of[selection] = self._unused.pop()
            self._selections[number] = selection
            self._terms[number] = [self._add_term(number, matcher) for matcher in _terms(pod_class)]
        self._uses[number] += 1
        return number

    def release(self, number: int) -> None:
        """End one use of a number."""
        self._uses[number] -= 1
        if self._uses[number]:
            return
        del self._number_of[self._selections[number]]
        self._selections[number] = None
        self._unused.append(number)
        for term in self._terms[number]:
            self._index.remove(term, self._matchers[term])
        self._unused_terms += self._terms[number]
        self._terms[number] = []

    def selecting(self, nodes: Iterable[Node]) -> list[Flags]:
        """Return for each node and each number whether the selection selects the node."""
        answers: dict[int, Flags] = {}
        found = [self._index.selecting({**node.metadata.labels, NAME: node.metadata.name}) for node in nodes]
        for terms in set(found):
            answers[terms] = self._with_terms(terms)
        return [answers[terms] for terms in found]

    def _with_terms(self, terms: int) -> Flags:
        """Return for each number whether one of its terms is among these."""
        answer = np.zeros(len(self._selections), dtype=np.bool_)
        packed = np.frombuffer(terms.to_bytes(-(-len(self._owners) // 8), "little"), dtype=np.uint8)
        met = np.flatnonzero(np.unpackbits(packed, bitorder="little"))
        answer[[self._owners[term] for term in met.tolist()]] = True
        return answer

    def _add_term(self, selection: int, matcher: LabelMatcher) -> int:
        if not self._unused_terms:
            self._unused_terms.append(len(self._owners))
            self._owners.append(0)
            self._matchers.append(matcher)
        term = self._unused_terms.pop()
        self._owners[term], self._matchers[term] = selection, matcher
        self._index.add(term, matcher)
        return term


def _terms(pod_class: PodClass) -> Iterator[LabelMatcher]:
    """Yield for each term of the affinity all that a node must meet."""
    equal = pod_class.node_selector.equal
    if pod_class.node_name:
        equal = (*equal, (NAME, pod_class.node_name))
    for term in (NO_CONDITION,) if pod_class.node_affinity is None else pod_class.node_affinity.terms:
        fields = (replace(found, key=NAME) for found in term.fields)
        yield LabelMatcher(equal=equal, expressions=(*term.expressions, *fields))
