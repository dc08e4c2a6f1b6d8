"""Preemption for a single pod, by the rules of kube-scheduler.

1. A node is a candidate if the pod could run there without all units of lower priority that have a pod on the node.
2. On each candidate, units are put back: those that a budget protects first, then the most important. A budget's
   allowance is used up by the units of the node in the order of importance.
3. Among the nodes that remain, one is chosen by: the fewest violations; the lowest of the highest priorities; the
   smallest sum of priorities, each raised above zero so that fewer victims of one priority win; the fewest pods; the
   latest start of the oldest victim of the highest priority; then by name.

Where only resources matter, all nodes are evaluated at once. Where the pod depends on other pods, nodes are simulated
one after the other in the order of what resources alone would cost, as many as the budget of the search allows.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from cpg_engine.cluster.axes import Amounts, Flags, Rows
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.filters import node_resources
from cpg_engine.gangs.placement import eviction_states
from cpg_engine.gangs.unit import PendingPod
from cpg_engine.preemption.budgets import BudgetAllowances
from cpg_engine.preemption.simulation import PreemptionCandidate
from cpg_engine.preemption.values import VictimUnit
from cpg_engine.preemption.victims import (
    KIND_RANK,
    UNKNOWN_START,
    PotentialVictim,
    potential_victims,
    uids_of,
    violators_first,
    without,
)
from cpg_engine.snapshot import Snapshot

Numbers = NDArray[np.int64]

PRIORITY_OFFSET = 2**31
"""Makes every priority positive."""


class SinglePodResult(Struct, frozen=True, eq=False):
    """The best of the nodes that were compared, if any; ``considered`` units of lower priority hold room.

    ``exhausted`` says that the budget ended the comparison and there were more nodes.
    """

    considered: int
    best: PreemptionCandidate | None = None
    compared: int = 0
    exhausted: bool = False


class VictimTable(Struct, frozen=True, eq=False):
    """Units of lower priority on all nodes: for each unit and row, what the unit holds there of some resources.

    A unit has at most one entry per row. ``owners`` are positions in ``units``.
    """

    units: Sequence[VictimUnit]
    rows: Rows
    owners: Rows
    amounts: Amounts
    priorities: Numbers

    def select(self, chosen: Flags | Rows) -> "VictimTable":
        """Return the chosen entries, in that order."""
        return VictimTable(
            self.units, self.rows[chosen], self.owners[chosen], self.amounts[chosen], self.priorities[chosen]
        )

    def units_at(self, row: int) -> list[VictimUnit]:
        """Return the units with an entry on a row."""
        return [self.units[owner] for owner in self.owners[self.rows == row].tolist()]

    def entry_units(self) -> list[VictimUnit]:
        """Return the unit of each entry."""
        return [self.units[owner] for owner in self.owners.tolist()]

    def sizes(self) -> Numbers:
        """Return for each entry how many pods its unit has."""
        return np.array([len(unit.pods) for unit in self.entry_units()], dtype=np.int64)

    def start_ranks(self) -> Numbers:
        """Return for each entry a number that is larger for a unit that started later."""
        times = [unit.since or UNKNOWN_START for unit in self.entry_units()]
        rank = {time: number for number, time in enumerate(sorted(set(times)))}
        return np.array([rank[time] for time in times], dtype=np.int64)

    def total(self, rows: int) -> Amounts:
        """Return what the entries hold, by row; exact, where a weighted ``bincount`` would use floating point."""
        columns = [np.zeros(rows, dtype=np.int64) for _ in range(self.amounts.shape[1])]
        for number, column in enumerate(columns):
            np.add.at(column, self.rows, np.ascontiguousarray(self.amounts[:, number]))
        return np.stack(columns, axis=1)


def preempt_for_pod(
    snapshot: Snapshot, member: PendingPod, units: Sequence[VictimUnit], *, budgets: BudgetAllowances, max_nodes: int
) -> SinglePodResult:
    """Return which of some units have to be evicted for a pod, on the node where that costs least."""
    pod_class, ledger = member.pod_class, snapshot.ledger
    columns = np.flatnonzero(ledger.classes.vector_of(pod_class))
    table = victim_table(snapshot, units, columns)
    considered = len(np.unique(table.owners))
    if not considered:
        return SinglePodResult(considered)
    room = ledger.allocatable[:, columns] - ledger.used[:, columns] - ledger.classes.vector_of(pod_class)[columns]
    able = snapshot.score_cache.of(pod_class).feasible
    is_dependent = any(True for _ in eviction_states(snapshot, pod_class))
    if budgets or is_dependent:
        room += table.total(len(room))
        table = table.select((able & (room >= 0).all(axis=1))[table.rows])
    else:
        table, room = lowest_level(table, room, able)
    table = by_importance(table)
    violates = violating(table, budgets)
    order = np.lexsort((~violates, table.rows))
    table, violates = table.select(order), violates[order]
    evicted = not_reprieved(table, room)
    rows = _ranked_rows(snapshot, table.select(evicted), violates[evicted], np.unique(table.rows))
    if is_dependent:
        best = _best_simulated(
            snapshot, member, {row: table.units_at(row) for row in rows[:max_nodes].tolist()}, budgets
        )
        return SinglePodResult(considered, best, len(rows[:max_nodes]), exhausted=len(rows) > max_nodes)
    if not len(rows):
        return SinglePodResult(considered)
    chosen = int(rows[0])
    victims = potential_victims(ledger, table.select(evicted).units_at(chosen))
    return SinglePodResult(considered, PreemptionCandidate(victims, ((member, chosen),)), len(rows))


def _ranked_rows(snapshot: Snapshot, victims: VictimTable, violates: Flags, rows: Rows) -> Rows:
    """Return the rows by the rules of the choice, the best first."""
    size = snapshot.ledger.cluster.size
    highest, total = np.full(size, -PRIORITY_OFFSET, dtype=np.int64), np.zeros(size, dtype=np.int64)
    sizes = victims.sizes()
    np.maximum.at(highest, victims.rows, victims.priorities)
    np.add.at(total, victims.rows, sizes * (victims.priorities + PRIORITY_OFFSET))
    pods, oldest = np.zeros(size, dtype=np.int64), np.full(size, np.iinfo(np.int64).max)
    np.add.at(pods, victims.rows, sizes)
    top = victims.priorities == highest[victims.rows]
    np.minimum.at(oldest, victims.rows[top], victims.start_ranks()[top])
    violations = np.bincount(victims.rows[violates], minlength=size)
    keys = (snapshot.ledger.cluster.ranks, -oldest, pods, total, highest, violations)
    return rows[np.lexsort([key[rows] for key in keys])]


# All nodes at once, for a pod that needs nothing but resources.


def victim_table(snapshot: Snapshot, units: Sequence[VictimUnit], columns: Rows) -> VictimTable:
    """Return the entries of units, with what they hold of the resources in these columns."""
    found = snapshot.ledger.locations_of(uid for unit in units for uid in unit.pods)
    rows, indexes = (np.array(numbers, dtype=np.int64) for numbers in found)
    sizes = np.array([len(unit.pods) for unit in units], dtype=np.int64)
    there = rows >= 0
    rows, indexes, owners = rows[there], indexes[there], np.repeat(np.arange(len(units)), sizes)[there]
    classes = np.flatnonzero(np.bincount(indexes))
    amounts = snapshot.ledger.classes.vectors_of(classes.tolist())[:, columns][np.searchsorted(classes, indexes)]
    if sizes.max(initial=0) > 1:
        size = snapshot.ledger.cluster.size
        places, place_of = np.unique(owners * size + rows, return_inverse=True)
        owners, rows = np.divmod(places, size)
        amounts = VictimTable(units, place_of, owners, amounts, owners).total(len(places))
    priorities = np.array([unit.priority for unit in units], dtype=np.int64)
    return VictimTable(units, rows, owners, amounts, priorities[owners])


def lowest_level(table: VictimTable, room: Amounts, able: Flags) -> tuple[VictimTable, Amounts]:
    """Return the entries up to the lowest priority that makes room on some row, and the room without them.

    At that level every unit of a higher priority is put back, and rows where the level is not enough are never chosen.
    Where no row is made free by evicting all entries, none is returned.
    """
    levels = np.unique(table.priorities)

    def evict(level: int) -> tuple[VictimTable, Amounts, Flags]:
        some = table.select(table.priorities <= levels[level])
        left = room + some.total(len(room))
        return some, left, able & (left >= 0).all(axis=1)

    chosen = bisect_left(range(len(levels) - 1), 1, key=lambda level: int(evict(level)[2].any()))
    some, left, enough = evict(chosen)
    return some.select(enough[some.rows]), left


def by_importance(table: VictimTable) -> VictimTable:
    """Return the entries by row, the most important first; names are compared only where everything else is equal."""
    units = table.entry_units()
    kinds = np.array([KIND_RANK.get(unit.key.kind, 0) for unit in units], dtype=np.int64)
    keys = (table.start_ranks(), -table.sizes(), -kinds, -table.priorities, table.rows)
    order = np.lexsort(keys)
    same = np.logical_and.reduce([key[order][1:] == key[order][:-1] for key in keys])
    if same.any():
        tied = order[np.concatenate([same, [False]]) | np.concatenate([[False], same])]
        named = sorted(tied.tolist(), key=lambda place: units[place].key[1:])
        ranks = np.zeros(len(units), dtype=np.int64)
        ranks[named] = np.arange(len(named))
        order = np.lexsort((ranks, *keys))
    return table.select(order)


def violating(table: VictimTable, budgets: BudgetAllowances) -> Flags:
    """Return which entries violate a budget where all units of their row are evicted.

    The entries have to be in the order of ``by_importance``.
    """
    if not budgets:
        return np.zeros(len(table.rows), dtype=np.bool_)
    entries = zip(table.rows.tolist(), table.entry_units(), strict=True)
    rows = groupby(entries, key=itemgetter(0))
    return np.array([found for _, some in rows for found in budgets.violations([unit for _, unit in some])], np.bool_)


def not_reprieved(table: VictimTable, room: Amounts) -> Flags:
    """Return which entries cannot be put back into the room without them, row by row in the order of the entries.

    The first entry of every row is tried at once, then the second of every row, and so on.
    """
    room = room.copy()
    answer = np.zeros(len(table.rows), dtype=np.bool_)
    _, starts, counts = np.unique(table.rows, return_index=True, return_counts=True)
    for turn in range(int(counts.max(initial=0))):
        tried = starts[counts > turn] + turn
        rows, amounts = table.rows[tried], table.amounts[tried]
        stays = (amounts <= room[rows]).all(axis=1)
        room[rows[stays]] -= amounts[stays]
        answer[tried[~stays]] = True
    return answer


# One node after the other, for a pod that depends on other pods.


class _SimulatedNode(Struct, frozen=True, eq=False):
    """A node that was simulated: its victims, and the keys that it is chosen by.

    ``rank`` has violations, the highest priority, the sum of priorities and the number of pods.
    """

    victims: list[PotentialVictim]
    row: int
    rank: tuple[int, int, int, int]
    start: str


def _best_simulated(
    snapshot: Snapshot, member: PendingPod, units_at: dict[int, list[VictimUnit]], budgets: BudgetAllowances
) -> PreemptionCandidate | None:
    """Return the candidate on the best of some rows, given the units on each."""
    simulated = [
        found
        for row, units in units_at.items()
        if (found := _simulated(snapshot, member.pod_class, row, potential_victims(snapshot.ledger, units), budgets))
    ]
    if not simulated:
        return None
    least = min(found.rank for found in simulated)
    tied = [found for found in simulated if found.rank == least]
    latest = max(found.start for found in tied)
    chosen = min(
        (found for found in tied if found.start == latest), key=lambda found: snapshot.ledger.cluster.name(found.row)
    )
    return PreemptionCandidate(chosen.victims, ((member, chosen.row),))


def _simulated(
    snapshot: Snapshot, pod_class: PodClass, row: int, some: Sequence[PotentialVictim], budgets: BudgetAllowances
) -> _SimulatedNode | None:
    """Return a row with its victims, or None where evicting all units there is not enough."""
    snapshot.pause()
    ledger = snapshot.ledger
    mark = ledger.mark()
    violates = budgets.violations([found.unit for found in some])
    victims = violators_first(some, violates)
    try:
        ledger.ignore(uids_of(some))
        if not _passes(snapshot, pod_class, row):
            return None
        while staying := [found for found in victims if _can_stay(snapshot, pod_class, row, found)]:
            victims = without(victims, staying)
    finally:
        ledger.rollback(mark)
    evicted = set(map(id, victims))
    violations = sum(violating for one, violating in zip(some, violates, strict=True) if id(one) in evicted)
    highest = max((found.unit.priority for found in victims), default=-PRIORITY_OFFSET)
    sizes = [len(found.unit.pods) for found in victims]
    total = sum(size * (found.unit.priority + PRIORITY_OFFSET) for size, found in zip(sizes, victims, strict=True))
    return _SimulatedNode(
        victims=[found for found in some if id(found) in evicted],
        row=row,
        rank=(violations, highest, total, sum(sizes)),
        start=min(
            (found.unit.since or UNKNOWN_START for found in victims if found.unit.priority == highest),
            default=UNKNOWN_START,
        ),
    )


def _can_stay(snapshot: Snapshot, pod_class: PodClass, row: int, victim: PotentialVictim) -> bool:
    """Put a unit back if the pod could still run on a row; return whether it could."""
    ledger = snapshot.ledger
    mark = ledger.mark()
    ledger.restore(victim.uids)
    if _passes(snapshot, pod_class, row):
        return True
    ledger.rollback(mark)
    return False


def _passes(snapshot: Snapshot, pod_class: PodClass, row: int) -> bool:
    at = np.array((row,), dtype=np.intp)
    if not node_resources.passes(pod_class, snapshot.ledger, at)[0]:
        return False
    return all(state.passes(at)[0] for state in eviction_states(snapshot, pod_class))
