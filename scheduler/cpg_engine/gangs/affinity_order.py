"""The order in which the pods of a unit are placed, given that some require others near them.

Pods of one unit may require each other by required affinity, as workers require their leader. The required pods are
placed first; otherwise pods keep the order of importance, age and name. The same holds for the children of a group if
pods of one require pods of another. A pod that satisfies its own affinity can be the first of its kind, and a group may
have the required pods among its own: neither has to wait.

A requirement is satisfied by any one of several classes. So a cycle of requirements is broken where one of its members
is satisfied from outside; that member is placed first. A cycle that nothing outside satisfies is never placed, as in
kube-scheduler, and keeps its order.

If asked for, the larger pods come before the smaller ones, as far as affinity allows. The size of a pod is its largest
share of what the largest node has of a resource.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from math import inf

from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.cluster.pod_relations import AffinityTerm
from cpg_engine.filters.inter_pod_affinity import RequiredAffinityQuery, selects
from cpg_engine.gangs.needs import Needs
from cpg_engine.gangs.unit import PendingPod

Terms = tuple[AffinityTerm, ...]

Requirements = Mapping[int, Sequence[AbstractSet[int]]]
"""For each item that requires others: sets of items, of each of which one has to come first."""

Edges = Mapping[int, AbstractSet[int]]

SATISFIED = -1
"""Stands for a required pod that runs already, or that comes from elsewhere in the unit."""


class AffinityOrder:
    """The order for the pending pods of one unit. Where no pod requires another, it costs nothing."""

    def __init__(self, needs: Needs, ledger: Ledger, *, larger_first: bool = False) -> None:
        """Find the classes of the unit that each required affinity selects."""
        self._sizes = class_sizes(needs.classes.values(), ledger) if larger_first else {}
        self._needs = needs
        self._ledger = ledger
        self._requiring: dict[Terms, list[int]] = {}
        for index, pod_class in needs.classes.items():
            if pod_class.relations.terms.required:
                self._requiring.setdefault(pod_class.relations.terms.required, []).append(index)
        self._selected = {terms: frozenset(self._selected_by(terms)) for terms in self._requiring}
        self._pods: dict[int, tuple[PendingPod, ...]] = {}
        self._child_requirements: dict[int, Requirements] = {}

    def pods(self, index: int) -> tuple[PendingPod, ...]:
        """Return the pending pods of a leaf in the order in which they are placed."""
        pending = self._needs.unit.nodes[index].pending
        if not (self._requiring or self._sizes):
            return pending
        found = self._pods.get(index)
        if found is None:
            if self._sizes:
                pending = tuple(sorted(pending, key=lambda pod: -self._sizes[pod.pod_class.index]))
            requirements = self._requirements({index: (index,) for index in self._needs.most[index]})
            order = placement_order([pod.pod_class.index for pod in pending], requirements)
            found = self._pods[index] = tuple(pending[place] for place in order)
        return found

    def by_size(self, children: Iterable[int]) -> list[int]:
        """Return children with the larger pods first, if asked for; else they keep the given order."""
        if not self._sizes:
            return list(children)
        return sorted(
            children, key=lambda child: -max(map(self._sizes.__getitem__, self._needs.most[child]), default=0)
        )

    def children(self, index: int, some: Sequence[int]) -> Sequence[int]:
        """Return some children of a group in the order in which they are placed; else they keep the given order."""
        requirements = self._requirements_of_children(index)
        return [some[place] for place in placement_order(some, requirements)] if requirements else some

    def dependent_children(self, index: int) -> AbstractSet[int]:
        """Return the children of a group with pods that require those of siblings: alone they prove nothing."""
        requirements = self._requirements_of_children(index).items()
        return {child for child, choices in requirements if any(choice - {SATISFIED} for choice in choices)}

    def companions(self, pod_class: PodClass) -> Collection[PodClass]:
        """Return the other classes of the unit that satisfy all required affinity of a class and may still be placed.

        Room is not considered: a class that is returned may find none, a class that is left out can never be placed.
        """
        selected = self._selected.get(pod_class.relations.terms.required, frozenset())
        return [self._needs.classes[found] for found in selected - self._unsatisfiable if found != pod_class.index]

    @cached_property
    def _unsatisfiable(self) -> AbstractSet[int]:
        """Return the classes that can never be placed, since all pods that they require are absent or among them."""
        requirements = self._requirements({index: (index,) for index in self._needs.classes})
        return requirements.keys() - satisfaction_rounds(requirements).keys()

    def _selected_by(self, terms: Terms) -> Iterator[int]:
        namespaces = self._ledger.pod_index.namespaces
        for index, pod_class in self._needs.classes.items():
            if all(selects(term, pod_class, namespaces) for term in terms):
                yield index

    def _requirements_of_children(self, index: int) -> Requirements:
        """Return which children of a group require which others."""
        if not self._requiring:
            return {}
        found = self._child_requirements.get(index)
        if found is None:
            children = self._needs.unit.nodes[index].children
            found = self._requirements({child: self._needs.most[child] for child in children})
            self._child_requirements[index] = found
        return found

    def _requirements(self, parts: Mapping[int, Collection[int]]) -> Requirements:
        """Return which parts require which others, given the classes that each part has."""
        parts_of: dict[int, list[int]] = {}
        for part, classes in parts.items():
            for index in classes:
                parts_of.setdefault(index, []).append(part)
        found: dict[int, list[AbstractSet[int]]] = {}
        for terms, requiring in self._requiring.items():
            able = {part for index in self._selected[terms] for part in parts_of.get(index, ())}
            dependent = {part for index in requiring for part in parts_of.get(index, ())} - able
            choice = able | {SATISFIED} if dependent and self._is_satisfied_elsewhere(terms, parts_of) else able
            for part in dependent:
                found.setdefault(part, []).append(choice)
        return found

    def _is_satisfied_elsewhere(self, terms: Terms, known: Collection[int]) -> bool:
        """Return whether the terms select a pod that runs already, or a class that is none of the known ones."""
        others = any(index not in known for index in self._selected[terms])
        return others or bool(self._ledger.pod_index.counts(RequiredAffinityQuery(terms)).any())


def class_sizes(classes: Iterable[PodClass], ledger: Ledger) -> dict[int, float]:
    """Return the size of each class, by index; a resource that no node has does not count."""
    largest = ledger.allocatable.max(axis=0, initial=0)
    shared = largest > 0
    return {
        found.index: float((ledger.classes.vector_of(found)[shared] / largest[shared]).max(initial=0))
        for found in classes
    }


# Ordering by requirements, whatever the items are.


def placement_order(items: Sequence[int], requirements: Requirements) -> list[int]:
    """Return the positions of the items in the order of placement; an item may occur at several positions.

    An item that requires others is placed behind the last of them; otherwise items keep their order.
    """
    if not requirements:
        return list(range(len(items)))
    before = _all_before(requirements)
    last = {item: place for place, item in enumerate(items)}
    behind = {one: max((last.get(other, 0) for other in others), default=0) for one, others in before.items()}

    def key(place: int) -> tuple[int, int, int]:
        # Where two items go behind the same third, the one that the other requires has fewer items before it.
        item = items[place]
        return max(place, behind.get(item, 0)), len(before.get(item, ())), place

    return sorted(range(len(items)), key=key)


def satisfaction_rounds(requirements: Requirements) -> dict[int, int]:
    """Return the round in which the requirements of each item are satisfied; items that never are, are left out."""
    found: dict[int, int] = {}
    waiting, number = list(requirements), 0

    def is_satisfied(one: int) -> bool:
        return all(any(other not in requirements or other in found for other in choice) for choice in requirements[one])

    while new := [one for one in waiting if is_satisfied(one)]:
        number += 1
        found.update(dict.fromkeys(new, number))
        waiting = [one for one in waiting if one not in found]
    return found


def _all_before(requirements: Requirements) -> Edges:
    """Return for each item that requires others all items before it, directly or not; there are no cycles in it."""
    edges = {one: frozenset[int]().union(*choices) for one, choices in requirements.items()}
    beyond = {one: _reachable(one, edges) for one in edges}
    if not any(one in others for one, others in beyond.items()):
        return beyond
    rounds = satisfaction_rounds(requirements)

    def is_sooner(other: int, one: int) -> bool:
        return rounds.get(other, inf) < rounds.get(one, inf)

    sooner = {
        one: {other for other in others if one not in beyond.get(other, ()) or is_sooner(other, one)}
        for one, others in edges.items()
    }
    return {one: _reachable(one, sooner) for one in sooner}


def _reachable(start: int, edges: Edges) -> AbstractSet[int]:
    """Return all items that can be reached from one; itself only in a cycle."""
    found: set[int] = set()
    waiting = [start]
    while waiting:
        new = edges.get(waiting.pop(), frozenset()) - found
        found |= new
        waiting.extend(new)
    return found
