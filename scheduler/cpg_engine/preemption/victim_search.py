"""The search for few victims: node by node in the order of cost, as many as the placement search needs.

Estimates order the nodes and guess how many victims are enough; they decide only what is tried first. The placement
search decides what is enough. Evicting node by node keeps the victims together and leaves expensive nodes alone. Where
groups below the root need a domain each, the nodes of a domain are evicted together, the cheapest domain first.

A unit that is evicted as a whole may have pods on many nodes. Its cost counts either for each of them in full or in
equal shares. Which is better depends on how many of the nodes will be needed, so both orders are tried.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from cpg_engine.cluster.axes import Amounts, Rows, Scores
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.nodes import ABSENT
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.gangs.needs import Needs
from cpg_engine.gangs.search_budget import NODE_SCAN_COST
from cpg_engine.preemption.simulation import PreemptionCandidate, PreemptionProblem
from cpg_engine.preemption.victims import PotentialVictim, uids_of
from cpg_engine.scores.registry import static_score
from cpg_engine.topology.domains import Scope

T = TypeVar("T")
Numbers = NDArray[np.float64]

NO_GAIN_PENALTY = 2**40
"""Added to the cost of what makes no room, so that it sorts after everything that does."""


def fewest_victims(
    problem: PreemptionProblem, victims: Sequence[PotentialVictim], within: Scope | None = None
) -> PreemptionCandidate | None:
    """Return a candidate with few victims inside a scope, or None where evicting all of them is not enough."""
    scope = within or problem.simulation.snapshot.topology.whole()
    estimates = EvictionEstimates(problem, victims)
    problem.simulation.spend(3 * NODE_SCAN_COST * len(problem.needs.classes))
    found = []
    for rows in estimates.node_orders(scope.rows):
        problem.simulation.snapshot.pause()
        order = _victim_order(victims, rows)
        enough = np.flatnonzero(estimates.room_by_victims(order, scope.rows) >= problem.goal)
        guess = max(int(enough[0]), 1) if len(enough) else len(order)
        evict = _evict_first(problem, victims, order, within)
        candidate = smallest_success(evict, guess, len(order), stop=problem.simulation.out_of_effort)
        if candidate is not None:
            found.append(candidate)
    return min(found, key=lambda candidate: problem.cost(candidate.victims), default=None)


def _victim_order(victims: Sequence[PotentialVictim], rows: Rows) -> list[int]:
    """Return the positions of the victims with a pod on one of the rows, in the order of their eviction.

    Node by node, victims that no budget covers come first, then the least important.
    """
    rank = {row: number for number, row in enumerate(rows.tolist())}
    first = [min((rank[row] for row in found.rows if row in rank), default=None) for found in victims]
    order = [(node, victims[place].is_covered, -place) for place, node in enumerate(first) if node is not None]
    return [-place for *_, place in sorted(order)]


def _evict_first(
    problem: PreemptionProblem, victims: Sequence[PotentialVictim], order: Sequence[int], within: Scope | None
) -> Callable[[int], PreemptionCandidate | None]:
    """Return a function that evicts the first so many of an order and returns the candidate if they are enough."""

    def evict(number: int) -> PreemptionCandidate | None:
        chosen = [victims[place] for place in sorted(order[:number])]
        assignments = problem.simulation.assign(chosen, within)
        return PreemptionCandidate(chosen, assignments) if problem.is_solved_by(assignments) else None

    return evict


def smallest_success(
    attempt: Callable[[int], T | None], least: int, most: int, *, stop: Callable[[], bool] = bool
) -> T | None:
    """Return the first success of an attempt with a number from the least to the most.

    From the least on, steps double until an attempt succeeds; then the gap to the last failure is halved. An attempt
    that succeeds is taken to succeed with any larger number. Once ``stop`` returns True, the most is tried at once, and
    a success is not improved.
    """
    failed, step, number = least - 1, 1, least
    found = attempt(number) if least <= most else None
    while found is None:
        if number >= most:
            return None
        failed, number, step = number, most if stop() else min(number + step, most), 2 * step
        found = attempt(number)
    while number - failed > 1 and not stop():
        middle = (failed + number) // 2
        better = attempt(middle)
        if better is None:
            failed = middle
        else:
            found, number = better, middle
    return found


class EvictionEstimates:
    """What evicting victims from nodes gains and costs, by the bounds on room."""

    def __init__(self, problem: PreemptionProblem, victims: Sequence[PotentialVictim]) -> None:
        """Compare the room on all nodes with the victims and without them."""
        snapshot, needs = problem.simulation.snapshot, problem.needs
        ledger, score_cache = snapshot.ledger, snapshot.score_cache
        self._needs = needs
        self._ledger = ledger
        self._weights = problem.simulation.options.weights
        self._wanted = {needs.classes[found]: number for found, number in needs.most[0].items()}
        self._main = max(self._wanted, key=lambda found: self._wanted[found])
        self._feasible = {found: score_cache.of(found).feasible for found in self._wanted}
        self._before = {found: score_cache.of(found).slots().copy() for found in self._wanted}
        mark = ledger.mark()
        ledger.ignore(uids_of(victims))
        self._after = {found: score_cache.of(found).slots().copy() for found in self._wanted}
        ledger.rollback(mark)
        self._victims = victims
        self._owner, self._rows, self._amounts = _entries(ledger, victims)
        owner, spread = self._owner, np.bincount(self._owner, minlength=len(victims))
        self._is_shared = bool((spread > 1).any())
        self._share = 1 / spread[owner]
        self._pods = np.array([len(found.unit.pods) for found in victims])[owner]
        self._covered = np.array([found.is_covered for found in victims])[owner]
        priorities = np.array([found.unit.priority for found in victims])
        self._importance = (priorities - priorities.min() + 1)[owner]
        self._start_rank = np.array([problem.start_rank(found) for found in victims])[owner]

    @property
    def entries(self) -> tuple[Rows, Rows, Amounts]:
        """Return for each victim and each of its rows the victim's position, the row, and what it requests there."""
        return self._owner, self._rows, self._amounts

    def node_orders(self, rows: Rows) -> Iterator[Rows]:
        """Yield the orders in which to evict from those of the rows that have victims."""
        yield self._node_order(rows, np.ones(len(self._share)))
        if self._is_shared:
            yield self._node_order(rows, self._share)

    def room_by_victims(self, order: Sequence[int], base: Rows) -> Scores:
        """Return for how many pods there would be room if none, one, two, ... of the victims were evicted.

        ``order`` has the positions of the victims. Only room on the ``base`` rows counts.
        """
        place = np.full(len(self._victims), -1)
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
        """Return for how many more pods of a class each entry, row by row, makes room after those before it."""
        rows, columns = self._rows[entries], np.flatnonzero(self._ledger.classes.vector_of(found))
        is_first = np.concatenate([[True], rows[1:] != rows[:-1]])[: len(rows)]
        freed = np.cumsum(self._amounts[entries][:, columns], axis=0)
        start = np.flatnonzero(is_first)
        freed -= np.repeat(
            freed[start] - self._amounts[entries][start][:, columns], np.diff([*start, len(rows)]), axis=0
        )
        left = self._ledger.allocatable[rows][:, columns] - self._ledger.used[rows][:, columns] + freed
        slots = (left // self._ledger.classes.vector_of(found)[columns]).min(axis=1, initial=2**62)
        slots = np.maximum(slots, 0) * self._feasible[found][rows]
        before = np.where(is_first, self._before[found][rows], np.roll(slots, 1))
        gains: Scores = slots - before
        return gains

    def room_without_victims(self, rows: Rows) -> int:
        """Return for how many pods there would be room on the rows if all victims were evicted."""
        return sum(min(int(self._after[found][rows].sum()), number) for found, number in self._wanted.items())

    def best_score(self, rows: Rows) -> int:
        """Return the highest static score that a pod of the largest class has on the rows."""
        return int(static_score(self._main, self._ledger.cluster, rows, self._weights).max(initial=0))

    def _node_order(self, rows: Rows, share: Numbers) -> Rows:
        cluster = self._ledger.cluster
        gain = (self._after[self._main] - self._before[self._main])[rows].astype(np.float64)

        def at_nodes(weights: Numbers) -> Numbers:
            return _sums(self._rows, weights * share, cluster.size)[rows]

        units = at_nodes(np.ones(len(share)))
        oldest = np.full(cluster.size, np.iinfo(np.int64).max)
        np.minimum.at(oldest, self._rows, self._start_rank)
        keys = [
            cluster.ranks[rows],
            -static_score(self._main, cluster, rows, self._weights),
            -oldest[rows],
            _cost_per_gain(at_nodes(self._importance), gain),
            _cost_per_gain(at_nodes(self._pods), gain),
            _cost_per_gain(units, gain),
            _cost_per_gain(at_nodes(self._covered), gain),
        ]
        for cost, domain in reversed(list(self._domain_costs(rows, units, gain))):
            keys.extend((domain, cost))
        ordered = rows[np.lexsort(keys)]
        return ordered[np.isin(ordered, self._rows)]

    def _domain_costs(self, rows: Rows, units: Numbers, gain: Numbers) -> Iterator[tuple[Numbers, Scores]]:
        """Yield for each label that groups below the root require the cost and the identity of each row's domain."""
        cluster, free = self._ledger.cluster, self._before[self._main][rows]
        within = np.zeros(len(rows), dtype=np.int64)
        for key, least in _inner_keys(self._needs):
            codes = cluster.label(key).codes[rows]
            _, inverse = np.unique(np.stack([within, codes]), axis=1, return_inverse=True)
            within = inverse.reshape(-1)
            room, gains = _sums(within, free), _sums(within, gain)
            cost = np.maximum(least - room, 0) * _cost_per_gain(_sums(within, units), gains)
            cost[room + gains < least] = np.inf
            first = np.full(len(room), cluster.size, dtype=np.int64)
            np.minimum.at(first, within, cluster.ranks[rows])
            yield np.where(codes == ABSENT, np.inf, cost[within]), first[within]


def _entries(ledger: Ledger, victims: Sequence[PotentialVictim]) -> tuple[Rows, Rows, Amounts]:
    """Return for each victim and each of its rows the victim's position, the row, and what the victim holds there."""
    sizes = [len(found.locations) for found in victims]
    locations = [location for found in victims for location in found.locations]
    indexes = np.array([pod_class.index for pod_class, _ in locations])
    classes, class_of = np.unique(indexes, return_inverse=True)
    at = np.repeat(np.arange(len(victims)), sizes) * ledger.cluster.size + np.array([row for _, row in locations])
    places, place_of = np.unique(at, return_inverse=True)
    amounts = np.zeros((len(places), ledger.classes.axis.size), dtype=np.int64)
    np.add.at(amounts, place_of.reshape(-1), ledger.classes.vectors_of(classes.tolist())[class_of.reshape(-1)])
    owners, rows = np.divmod(places, ledger.cluster.size)
    return owners, rows, amounts


def _sums(places: Rows, numbers: Numbers | Scores, size: int = 0) -> Numbers:
    return np.bincount(places, numbers, size).astype(np.float64)


def _cost_per_gain(cost: Numbers, gain: Numbers) -> Numbers:
    """Return the cost of one unit of gain; what gains nothing comes last, the cheaper first."""
    return np.where(gain > 0, cost / np.maximum(gain, 1), cost + NO_GAIN_PENALTY)


def _inner_keys(needs: Needs) -> list[tuple[str, int]]:
    """Return the labels that groups below the root require, top down, each with the fewest pods such a group needs."""
    found: dict[str, int] = {}
    for index, node in enumerate(needs.unit.nodes):
        if index and node.required is not None and needs.admissible[index]:
            least = _least(needs, index)
            found[node.required] = min(found.get(node.required, least), least)
    return list(found.items())


def _least(needs: Needs, index: int) -> int:
    """Return how many pods a group needs at least."""
    node = needs.unit.nodes[index]
    if node.leaf:
        return needs.missing(node)
    return sum(sorted(_least(needs, child) for child in node.children if needs.admissible[child])[: node.minimum])
