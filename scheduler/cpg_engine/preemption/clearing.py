"""What clearing a node would give, and what it would cost: estimates that decide what is tried first, never more.

Units go node by node, and the search is asked how many of them, from the first on, are enough. So victims are not
scattered over the cluster, and the dear nodes are left alone. Where groups below the root need a domain each, nodes
that share one stand together, the domain that is had for least first.

A unit that goes as a whole may stand on many nodes. Whether its cost belongs to the first of them or is shared among
all depends on how many will be needed, so both orders are tried.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from cpg_engine.cluster.axes import Amounts, Rows, Scores
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.nodes import ABSENT
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.gangs.feasibility import Needs
from cpg_engine.preemption.candidates import PotentialVictim, uids_of
from cpg_engine.preemption.case import Case
from cpg_engine.scores.registry import static_score

Numbers = NDArray[np.float64]


class Clearing:
    """The nodes, as if some candidates were gone from all of them."""

    def __init__(self, case: Case, some: Sequence[PotentialVictim]) -> None:
        """Look at all nodes at once."""
        snapshot, needs = case.trials.snapshot, case.needs
        ledger, score_cache = snapshot.ledger, snapshot.score_cache
        self._needs = needs
        self._ledger = ledger
        self._weights = case.trials.options.weights
        self._wanted = {needs.classes[found]: number for found, number in needs.most[0].items()}
        self._main = max(self._wanted, key=lambda found: self._wanted[found])
        self._feasible = {found: score_cache.of(found).feasible for found in self._wanted}
        self._before = {found: score_cache.of(found).slots().copy() for found in self._wanted}
        mark = ledger.mark()
        ledger.ignore(uids_of(some))
        self._after = {found: score_cache.of(found).slots().copy() for found in self._wanted}
        ledger.rollback(mark)
        self._units = some
        self._owner, self._rows, self._amounts = _entries(ledger, some)
        owner, spread = self._owner, np.bincount(self._owner, minlength=len(some))
        self._is_shared = bool((spread > 1).any())
        self._share = 1 / spread[owner]
        self._pods = np.array([len(found.unit.pods) for found in some])[owner]
        self._covered = np.array([found.is_covered for found in some])[owner]
        priorities = np.array([found.unit.priority for found in some])
        self._importance = (priorities - priorities.min() + 1)[owner]
        self._age = np.array([case.age(found) for found in some])[owner]

    def orders(self, rows: Rows) -> Iterator[Rows]:
        """Yield the orders in which to clear those of the rows that have somebody to clear away."""
        yield self._order(rows, np.ones(len(self._share)))
        if self._is_shared:
            yield self._order(rows, self._share)

    def fits(self, order: Sequence[int], base: Rows) -> Scores:
        """Return how many pods there would be room for, by the bounds, if none, one, two, ... of the candidates went.

        ``order`` has their places. Room counts among the ``base`` alone, also where nobody goes.
        """
        place = np.full(len(self._units), -1)
        place[order] = np.arange(len(order))
        inside = (place[self._owner] >= 0) & np.isin(self._rows, base)
        entries = np.flatnonzero(inside)[np.lexsort((place[self._owner][inside], self._rows[inside]))]
        total = np.zeros(len(order) + 1, dtype=np.int64)
        for found, number in self._wanted.items():
            more = np.zeros(len(order), dtype=np.int64)
            np.add.at(more, place[self._owner[entries]], self._gains(found, entries))
            room = int(self._before[found][base].sum()) + np.concatenate([[0], np.cumsum(more)])
            total += np.minimum(room, number)
        return total

    def _gains(self, found: PodClass, entries: Rows) -> Scores:
        """Return how many more pods of a class each of some entries, row by row, makes room for after those before."""
        rows, columns = self._rows[entries], np.flatnonzero(self._ledger.vector_of(found))
        is_first = np.concatenate([[True], rows[1:] != rows[:-1]])[: len(rows)]
        freed = np.cumsum(self._amounts[entries][:, columns], axis=0)
        start = np.flatnonzero(is_first)
        freed -= np.repeat(
            freed[start] - self._amounts[entries][start][:, columns], np.diff([*start, len(rows)]), axis=0
        )
        left = self._ledger.allocatable[rows][:, columns] - self._ledger.used[rows][:, columns] + freed
        slots = (left // self._ledger.vector_of(found)[columns]).min(axis=1, initial=2**62)
        slots = np.maximum(slots, 0) * self._feasible[found][rows]
        before = np.where(is_first, self._before[found][rows], np.roll(slots, 1))
        gains: Scores = slots - before
        return gains

    def most(self, rows: Rows) -> int:
        """Return how many pods there would be room for at some rows, by the bounds, if everybody went."""
        return sum(min(int(self._after[found][rows].sum()), number) for found, number in self._wanted.items())

    def liking(self, rows: Rows) -> int:
        """Return how much the pods of the largest class would like the best of the rows, whoever is there."""
        return int(static_score(self._main, self._ledger.cluster, rows, self._weights).max(initial=0))

    def _order(self, rows: Rows, share: Numbers) -> Rows:
        cluster = self._ledger.cluster
        gain = (self._after[self._main] - self._before[self._main])[rows].astype(np.float64)

        def at_nodes(weights: Numbers) -> Numbers:
            return _sums(self._rows, weights * share, cluster.size)[rows]

        units = at_nodes(np.ones(len(share)))
        oldest = np.full(cluster.size, np.iinfo(np.int64).max)
        np.minimum.at(oldest, self._rows, self._age)
        keys = [
            cluster.ranks[rows],
            -static_score(self._main, cluster, rows, self._weights),
            -oldest[rows],
            _divided(at_nodes(self._importance), gain),
            _divided(at_nodes(self._pods), gain),
            _divided(units, gain),
            _divided(at_nodes(self._covered), gain),
        ]
        for cost, domain in reversed(list(self._domains(rows, units, gain))):
            keys.extend((domain, cost))
        ordered = rows[np.lexsort(keys)]
        return ordered[np.isin(ordered, self._rows)]

    def _domains(self, rows: Rows, units: Numbers, gain: Numbers) -> Iterator[tuple[Numbers, Scores]]:
        """Yield for each label that groups below the root need what its domain costs, and which it is, by row."""
        cluster, free = self._ledger.cluster, self._before[self._main][rows]
        within = np.zeros(len(rows), dtype=np.int64)
        for key, least in _inner_keys(self._needs):
            codes = cluster.label(key).codes[rows]
            _, inverse = np.unique(np.stack([within, codes]), axis=1, return_inverse=True)
            within = inverse.reshape(-1)
            room, gains = _sums(within, free), _sums(within, gain)
            cost = np.maximum(least - room, 0) * _divided(_sums(within, units), gains)
            cost[room + gains < least] = np.inf
            first = np.full(len(room), cluster.size, dtype=np.int64)
            np.minimum.at(first, within, cluster.ranks[rows])
            yield np.where(codes == ABSENT, np.inf, cost[within]), first[within]


def _entries(ledger: Ledger, some: Sequence[PotentialVictim]) -> tuple[Rows, Rows, Amounts]:
    """Return for each candidate and each of its rows the place of the candidate, the row, and what it takes there."""
    sizes = [len(found.homes) for found in some]
    homes = [home for found in some for home in found.homes]
    indexes = np.array([kind.index for kind, _ in homes])
    kinds, kind_of = np.unique(indexes, return_inverse=True)
    at = np.repeat(np.arange(len(some)), sizes) * ledger.cluster.size + np.array([row for _, row in homes])
    places, place_of = np.unique(at, return_inverse=True)
    amounts = np.zeros((len(places), ledger.axis.size), dtype=np.int64)
    np.add.at(amounts, place_of.reshape(-1), ledger.vectors_of(kinds.tolist())[kind_of.reshape(-1)])
    owners, rows = np.divmod(places, ledger.cluster.size)
    return owners, rows, amounts


def _sums(places: Rows, numbers: Numbers | Scores, size: int = 0) -> Numbers:
    return np.bincount(places, numbers, size).astype(np.float64)


def _divided(cost: Numbers, gain: Numbers) -> Numbers:
    """Return the cost of one unit of gain; what gives nothing comes last, the cheaper first."""
    return np.where(gain > 0, cost / np.maximum(gain, 1), cost + 2**40)


def _inner_keys(needs: Needs) -> list[tuple[str, int]]:
    """Return the labels that groups below the root ask for, from above, and the fewest pods that such a group needs."""
    found: dict[str, int] = {}
    for index, node in enumerate(needs.unit.nodes):
        if index and node.required is not None and needs.admissible[index]:
            least = _least(needs, index)
            found[node.required] = min(found.get(node.required, least), least)
    return list(found.items())


def _least(needs: Needs, index: int) -> int:
    """Return how many pods a group needs at the least."""
    node = needs.unit.nodes[index]
    if node.leaf:
        return needs.missing(node)
    return sum(sorted(_least(needs, child) for child in node.children if needs.admissible[child])[: node.minimum])
