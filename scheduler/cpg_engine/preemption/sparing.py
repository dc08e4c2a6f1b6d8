"""Reprieve: who may stay after all, with the preemptor's pods in their places.

Those whose eviction would violate a budget are asked first, then the most important. A unit stays where it is, as a
whole or not at all, if every pod of the preemptor would still pass every filter on its node, had it come last. Once a
round has put nobody back, putting back any single unit would break the placement: nobody goes in vain.

Units are put back in batches that are halved where they do not fit. Where room alone matters, that is the same as one
by one, since room only gets less; where pods see each other, the rounds are repeated until nothing changes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

import numpy as np

from cpg_engine.cluster.axes import Flags, Rows
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.gangs.placement import pre_filter_states
from cpg_engine.preemption.candidates import PotentialVictim, uids_of, without
from cpg_engine.preemption.trying import Seats
from cpg_engine.snapshot import Snapshot


def put_back(
    some: Sequence[PotentialVictim], fit: Callable[[Sequence[PotentialVictim]], bool]
) -> list[PotentialVictim]:
    """Return those who may stay, asked in order; ``fit`` puts a batch back for good where all of it may."""
    if not some or fit(some):
        return list(some)
    if len(some) == 1:
        return []
    middle = len(some) // 2
    return [*put_back(some[:middle], fit), *put_back(some[middle:], fit)]


def spared(snapshot: Snapshot, seats: Seats, gone: Sequence[PotentialVictim]) -> list[PotentialVictim]:
    """Return who of those that would go may stay where the preemptor's pods have these seats; asked in order.

    The ledger is afterwards what it was before.
    """
    seen = {member.pod_class for member, _ in seats if any(True for _ in pre_filter_states(snapshot, member.pod_class))}
    with seated(snapshot, seats, gone):
        return _Reprieve(snapshot, seats, seen).run(gone)


@contextmanager
def seated(snapshot: Snapshot, seats: Seats, gone: Iterable[PotentialVictim]) -> Iterator[None]:
    """Have the ledger hold the preemptor's pods in their seats, and those who go not, for as long as it lasts."""
    ledger = snapshot.ledger
    mark = ledger.mark()
    try:
        ledger.ignore(uids_of(gone))
        for pod_class, alike in groupby(seats, key=lambda seat: seat[0].pod_class):
            ledger.place(pod_class, np.array([row for _, row in alike], dtype=np.intp))
        yield
    finally:
        ledger.rollback(mark)


class _Reprieve:
    """The room beside the seats, and what the pods on them see."""

    def __init__(self, snapshot: Snapshot, seats: Seats, seen: Iterable[PodClass]) -> None:
        self._snapshot = snapshot
        self._room = Room(snapshot, seats)
        rows_of: dict[PodClass, dict[int, None]] = {found: {} for found in seen}
        for member, row in seats:
            if member.pod_class in rows_of:
                rows_of[member.pod_class][row] = None
        self._seen = {found: np.array(list(rows), dtype=np.intp) for found, rows in rows_of.items()}
        # Who is not happy now cannot be made less so by those that stay.
        self._content = {found: self._stays(found, rows) for found, rows in self._seen.items()}

    def run(self, gone: Sequence[PotentialVictim]) -> list[PotentialVictim]:
        """Put back whoever may stay, in rounds."""
        found: list[PotentialVictim] = []
        while new := put_back(gone, self._fit):
            found.extend(new)
            gone = without(gone, new)
            if not self._seen:
                break
        return found

    def _fit(self, some: Sequence[PotentialVictim]) -> bool:
        """Put some back if all of them may stay."""
        if not self._room.take(some):
            return False
        if not self._seen:
            return True
        ledger = self._snapshot.ledger
        mark = ledger.mark()
        ledger.restore(uids_of(some))
        if all(not (self._content[found] & ~self._stays(found, rows)).any() for found, rows in self._seen.items()):
            return True
        ledger.rollback(mark)
        self._room.give_back(some)
        return False

    def _stays(self, pod_class: PodClass, rows: Rows) -> Flags:
        answer = np.ones(len(rows), dtype=np.bool_)
        for view in pre_filter_states(self._snapshot, pod_class):
            answer &= view.still_passes(rows)
        return answer


class Room:
    """What is left at the rows of some seats, of the resources that the pods on them ask for."""

    def __init__(self, snapshot: Snapshot, seats: Seats) -> None:
        """Look at the ledger as it is."""
        ledger = snapshot.ledger
        self._ledger = ledger
        classes: dict[int, dict[PodClass, None]] = {}
        for member, row in seats:
            classes.setdefault(row, {})[member.pod_class] = None
        columns = {
            found: np.flatnonzero(ledger.vector_of(found)).tolist() for some in classes.values() for found in some
        }
        self._asked = {
            row: sorted({column for found in some for column in columns[found]}) for row, some in classes.items()
        }
        self._left = {
            row: (ledger.allocatable[row, asked] - ledger.used[row, asked]).tolist()
            for row, asked in self._asked.items()
        }
        self._vectors: dict[PodClass, list[int]] = {}

    def take(self, some: Iterable[PotentialVictim]) -> bool:
        """Take the room of some candidates if there is enough for all of them; return whether there was."""
        needs = self._needs(some)
        if any(need > left for row, asked in needs.items() for need, left in zip(asked, self._left[row], strict=True)):
            return False
        self._add(needs, -1)
        return True

    def give_back(self, some: Iterable[PotentialVictim]) -> None:
        """Give back the room of some candidates."""
        self._add(self._needs(some), 1)

    def short(self, candidate: PotentialVictim) -> tuple[int, str, int] | None:
        """Return a row, a resource there is too little of for a candidate, and how much it has of it; or None.

        It is the first such row by name, and the first such resource.
        """
        needs = self._needs((candidate,))
        for row, asked in sorted(needs.items(), key=lambda pair: self._ledger.cluster.name(pair[0])):
            for column, need, left in zip(self._asked[row], asked, self._left[row], strict=True):
                if need > left:
                    return row, self._ledger.axis.names[column], need
        return None

    def _add(self, needs: dict[int, list[int]], sign: int) -> None:
        for row, asked in needs.items():
            self._left[row] = [left + sign * need for left, need in zip(self._left[row], asked, strict=True)]

    def _needs(self, some: Iterable[PotentialVictim]) -> dict[int, list[int]]:
        """Return what candidates take at the rows where there are seats, of what is asked for there."""
        found: dict[int, list[int]] = {}
        for candidate in some:
            for pod_class, row in candidate.homes:
                asked = self._asked.get(row)
                if asked is not None:
                    vector = self._vector(pod_class)
                    before = found.get(row)
                    taken = [vector[column] for column in asked]
                    found[row] = taken if before is None else [a + b for a, b in zip(before, taken, strict=True)]
        return found

    def _vector(self, pod_class: PodClass) -> list[int]:
        found = self._vectors.get(pod_class)
        if found is None:
            found = self._vectors[pod_class] = self._ledger.vector_of(pod_class).tolist()
        return found
