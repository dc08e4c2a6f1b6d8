"""Who of a unit needs whom near, and in which order it is placed for that.

Pods of one unit may need each other by required affinity, as workers need their leader. Whoever is needed is placed
first; apart from that, everybody keeps the place that importance, age and name give. It is the same with the children
of a group, where the pods of one need those of another. Who is what it needs itself can be the first of its kind, and a
group may have among its own pods whom they need: neither has to wait. A circle of pods that need each other and whom
nobody else helps is never placed, as with kube-scheduler.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property

from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.cluster.pod_relations import PodTerm
from cpg_engine.filters.inter_pod_affinity import Needed, selects
from cpg_engine.gangs.feasibility import Needs
from cpg_engine.gangs.turns import Wants, in_turn, rounds
from cpg_engine.gangs.unit import PendingPod

Terms = tuple[PodTerm, ...]

SOMEBODY = -1
"""One who is there already, or who comes from elsewhere in the unit."""


class AffinityOrder:
    """The company that the pending pods of a unit are for each other; it costs nothing where nobody needs any."""

    def __init__(self, needs: Needs, ledger: Ledger) -> None:
        """Find out who of the unit is meant by whom."""
        self._needs = needs
        self._ledger = ledger
        self._needing: dict[Terms, list[int]] = {}
        for index, kind in needs.classes.items():
            if kind.relations.terms.needs:
                self._needing.setdefault(kind.relations.terms.needs, []).append(index)
        self._meant = {terms: frozenset(self._meant_by(terms)) for terms in self._needing}
        self._members: dict[int, tuple[PendingPod, ...]] = {}
        self._wants: dict[int, Wants] = {}

    def members(self, index: int) -> tuple[PendingPod, ...]:
        """Return the pending pods of a leaf in the order in which they are placed."""
        pending = self._needs.unit.nodes[index].pending
        if not self._needing:
            return pending
        found = self._members.get(index)
        if found is None:
            wants = self._wants_of({kind: (kind,) for kind in self._needs.most[index]})
            order = in_turn([member.pod_class.index for member in pending], wants)
            found = self._members[index] = tuple(pending[place] for place in order)
        return found

    def children(self, index: int, some: Sequence[int]) -> Sequence[int]:
        """Return some children of a group, given in another order, in the order in which they are placed."""
        wants = self._wants_below(index)
        return [some[place] for place in in_turn(some, wants)] if wants else some

    def waiting(self, index: int) -> AbstractSet[int]:
        """Return the children of a group whose pods need those of siblings: by themselves they prove nothing."""
        wants = self._wants_below(index).items()
        return {child for child, choices in wants if any(choice - {SOMEBODY} for choice in choices)}

    def of(self, pod_class: PodClass) -> Collection[PodClass]:
        """Return the other classes of the unit that are all that the pods of a class need near, and that may come.

        Room is not looked at: one that is named may not come in the end, one that is left out never can.
        """
        meant = self._meant.get(pod_class.relations.terms.needs, frozenset())
        return [self._needs.classes[found] for found in meant - self._stranded if found != pod_class.index]

    @cached_property
    def _stranded(self) -> AbstractSet[int]:
        """Return the classes that can never come, since each needs others that are not there and never come either."""
        wants = self._wants_of({kind: (kind,) for kind in self._needs.classes})
        return wants.keys() - rounds(wants).keys()

    def _meant_by(self, terms: Terms) -> Iterator[int]:
        namespaces = self._ledger.pod_index.namespaces
        for index, kind in self._needs.classes.items():
            if all(selects(term, kind, namespaces) for term in terms):
                yield index

    def _wants_below(self, index: int) -> Wants:
        """Return which children of a group need which others."""
        if not self._needing:
            return {}
        found = self._wants.get(index)
        if found is None:
            children = self._needs.unit.nodes[index].children
            found = self._wants[index] = self._wants_of({child: self._needs.most[child] for child in children})
        return found

    def _wants_of(self, parts: Mapping[int, Collection[int]]) -> Wants:
        """Return which parts need which others, given the classes that each is made of."""
        parts_of: dict[int, list[int]] = {}
        for part, kinds in parts.items():
            for kind in kinds:
                parts_of.setdefault(kind, []).append(part)
        found: dict[int, list[AbstractSet[int]]] = {}
        for terms, needing in self._needing.items():
            able = {part for kind in self._meant[terms] for part in parts_of.get(kind, ())}
            needy = {part for kind in needing for part in parts_of.get(kind, ())} - able
            choice = able | {SOMEBODY} if needy and self._has_others(terms, parts_of) else able
            for part in needy:
                found.setdefault(part, []).append(choice)
        return found

    def _has_others(self, terms: Terms, known: Collection[int]) -> bool:
        """Tell whether anybody is meant who is there already, or whose class is none of these."""
        others = any(kind not in known for kind in self._meant[terms])
        return others or bool(self._ledger.pod_index.counts(Needed(terms)).any())
