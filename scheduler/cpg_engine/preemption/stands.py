"""Units of lower priority where they stand: all nodes at once, as arrays with one entry per unit and node."""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from cpg_engine.cluster.axes import Amounts, Flags, Rows
from cpg_engine.preemption.allowances import Allowances
from cpg_engine.preemption.candidates import KINDS, NOW
from cpg_engine.preemption.values import VictimUnit
from cpg_engine.snapshot import Snapshot

Numbers = NDArray[np.int64]


class Stands(Struct, frozen=True, eq=False):
    """Some units at rows, with their priorities and what they take there of some resources; each is once at a row."""

    units: Sequence[VictimUnit]
    rows: Rows
    owners: Rows
    amounts: Amounts
    priorities: Numbers

    def only(self, chosen: Flags | Rows) -> "Stands":
        """Return some of them, in that order."""
        return Stands(self.units, self.rows[chosen], self.owners[chosen], self.amounts[chosen], self.priorities[chosen])

    def at(self, row: int) -> list[VictimUnit]:
        """Return the units at a row."""
        return [self.units[owner] for owner in self.owners[self.rows == row].tolist()]

    def owned(self) -> list[VictimUnit]:
        """Return the unit of each."""
        return [self.units[owner] for owner in self.owners.tolist()]

    def sizes(self) -> Numbers:
        """Return of how many pods the unit of each is."""
        return np.array([len(unit.pods) for unit in self.owned()], dtype=np.int64)

    def ages(self) -> Numbers:
        """Return for each a number that is the larger, the later its unit started."""
        times = [unit.since or NOW for unit in self.owned()]
        place = {time: number for number, time in enumerate(sorted(set(times)))}
        return np.array([place[time] for time in times], dtype=np.int64)

    def total(self, rows: int) -> Amounts:
        """Return what they take, by row; exact, where a weighted count would go through floating point."""
        columns = [np.zeros(rows, dtype=np.int64) for _ in range(self.amounts.shape[1])]
        for number, column in enumerate(columns):
            np.add.at(column, self.rows, np.ascontiguousarray(self.amounts[:, number]))
        return np.stack(columns, axis=1)


def stands_of(snapshot: Snapshot, units: Sequence[VictimUnit], columns: Rows) -> Stands:
    """Find out where units are, and what they take there of the resources in these columns."""
    found = snapshot.ledger.locations_of(uid for unit in units for uid in unit.pods)
    rows, indexes = (np.array(numbers, dtype=np.int64) for numbers in found)
    sizes = np.array([len(unit.pods) for unit in units], dtype=np.int64)
    there = rows >= 0
    rows, indexes, owners = rows[there], indexes[there], np.repeat(np.arange(len(units)), sizes)[there]
    kinds = np.flatnonzero(np.bincount(indexes))
    amounts = snapshot.ledger.vectors_of(kinds.tolist())[:, columns][np.searchsorted(kinds, indexes)]
    if sizes.max(initial=0) > 1:
        size = snapshot.ledger.cluster.size
        places, place_of = np.unique(owners * size + rows, return_inverse=True)
        owners, rows = np.divmod(places, size)
        amounts = Stands(units, place_of, owners, amounts, owners).total(len(places))
    priorities = np.array([unit.priority for unit in units], dtype=np.int64)
    return Stands(units, rows, owners, amounts, priorities[owners])


def lowest(stands: Stands, room: Amounts, able: Flags) -> tuple[Stands, Amounts]:
    """Return the stands up to the lowest priority that is enough at some row, at such rows, and the room without them.

    Where it is enough, everybody above it is put back, and rows where it is not are never chosen. Without any such row
    all stands are of use nowhere.
    """
    levels = np.unique(stands.priorities)

    def cleared(level: int) -> tuple[Stands, Amounts, Flags]:
        some = stands.only(stands.priorities <= levels[level])
        left = room + some.total(len(room))
        return some, left, able & (left >= 0).all(axis=1)

    chosen = bisect_left(range(len(levels) - 1), 1, key=lambda level: int(cleared(level)[2].any()))
    some, left, good = cleared(chosen)
    return some.only(good[some.rows]), left


def by_importance(stands: Stands) -> Stands:
    """Return the stands by row, the most important first; names are only compared where nothing else differs."""
    units = stands.owned()
    kinds = np.array([KINDS.get(unit.key.kind, 0) for unit in units], dtype=np.int64)
    keys = (stands.ages(), -stands.sizes(), -kinds, -stands.priorities, stands.rows)
    order = np.lexsort(keys)
    same = np.logical_and.reduce([key[order][1:] == key[order][:-1] for key in keys])
    if same.any():
        tied = order[np.concatenate([same, [False]]) | np.concatenate([[False], same])]
        named = sorted(tied.tolist(), key=lambda place: units[place].key[1:])
        ranks = np.zeros(len(units), dtype=np.int64)
        ranks[named] = np.arange(len(named))
        order = np.lexsort((ranks, *keys))
    return stands.only(order)


def violating(stands: Stands, allowances: Allowances) -> Flags:
    """Tell who violates a budget where all units of a row go; the stands lie by row, the most important first."""
    answer = np.zeros(len(stands.rows), dtype=np.bool_)
    if allowances:
        owners = stands.owners.tolist()
        covered = [place for place, owner in enumerate(owners) if allowances.cover(stands.units[owner])]
        for row in np.unique(stands.rows[covered]).tolist():
            there = np.flatnonzero(stands.rows == row)
            names = allowances.violated([stands.units[owners[place]] for place in there.tolist()])
            answer[there] = [bool(found) for found in names]
    return answer


def victims(stands: Stands, room: Amounts) -> Flags:
    """Tell who cannot be put back, row by row in the order in which they lie, into the room that there is without them.

    The first of every row is asked at once, then the second of every row, and so on.
    """
    room = room.copy()
    answer = np.zeros(len(stands.rows), dtype=np.bool_)
    _, starts, counts = np.unique(stands.rows, return_index=True, return_counts=True)
    for turn in range(int(counts.max(initial=0))):
        asked = starts[counts > turn] + turn
        rows, amounts = stands.rows[asked], stands.amounts[asked]
        stays = (amounts <= room[rows]).all(axis=1)
        room[rows[stays]] -= amounts[stays]
        answer[asked[~stays]] = True
    return answer
