"""Reprieve: which victims may stay after all, with the preemptor's pods in their places.

Victims that a budget protects are asked first, then the most important. A unit stays as a whole, or not at all, if
every pod of the preemptor still passes every filter on its node, as if the pod came last. Units are put back in
batches, which are halved where they do not fit. Where only resources matter, one round is the same as one unit after
the other, since room only shrinks. Where pods depend on other pods, rounds are repeated until none is put back. So in
the end putting back any single unit would break the placement.

Reprieve and search alternate: the search is run again without the victims that remain, and its assignments are the next
to reprieve against. In the end no victim can be reprieved, and the assignments are those that an ordinary cycle finds
once the victims have gone.

Where pods of several shapes compete, the search may miss in the fuller cluster what it found in the emptier one. Then
it is run for every batch, as long as the budget lasts. Once the effort of the plan is used up, the last candidate
stands: it may evict more than needed, but it reaches the goal.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from cpg_engine.cluster.axes import Flags, Rows
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.gangs.placement import eviction_states
from cpg_engine.preemption.simulation import Assignments, PreemptionCandidate, PreemptionProblem, preempted
from cpg_engine.preemption.victims import PotentialVictim, uids_of, without
from cpg_engine.snapshot import Snapshot


def reprieve_until_stable(problem: PreemptionProblem, candidate: PreemptionCandidate) -> PreemptionCandidate:
    """Return a candidate without victims that could stay."""
    while True:
        smaller = reprieve(problem, candidate)
        if smaller is candidate:
            return candidate
        assignments = problem.simulation.assign(smaller.victims)
        if not problem.is_solved_by(assignments):
            return _reprieve_by_search(problem, candidate)
        candidate = PreemptionCandidate(smaller.victims, assignments)
        if problem.simulation.out_of_effort():
            return candidate


def reprieve(problem: PreemptionProblem, candidate: PreemptionCandidate) -> PreemptionCandidate:
    """Return the candidate without the victims that may stay beside its assignments; itself where there are none."""
    order = problem.reprieve_order(candidate.victims)
    staying = reprieved(problem.simulation.snapshot, candidate.assignments, order)
    if not staying:
        return candidate
    return PreemptionCandidate(without(candidate.victims, staying), candidate.assignments)


def _reprieve_by_search(problem: PreemptionProblem, candidate: PreemptionCandidate) -> PreemptionCandidate:
    """Return the candidate without the victims that may stay, asking the search for each batch."""
    best, budget = candidate, problem.simulation.options.budget

    def fit(victims: Sequence[PotentialVictim]) -> bool:
        nonlocal best, budget
        budget -= 1
        rest = without(best.victims, victims)
        assignments = problem.simulation.assign(rest) if budget >= 0 and not problem.simulation.out_of_effort() else ()
        if problem.is_solved_by(assignments):
            best = PreemptionCandidate(rest, assignments)
            return True
        return False

    restore_in_batches(problem.reprieve_order(candidate.victims), fit)
    return best


def restore_in_batches(
    victims: Sequence[PotentialVictim], fit: Callable[[Sequence[PotentialVictim]], bool]
) -> list[PotentialVictim]:
    """Return the victims that may stay, asked in order; ``fit`` restores a batch for good if all of it may stay."""
    if not victims or fit(victims):
        return list(victims)
    if len(victims) == 1:
        return []
    middle = len(victims) // 2
    return [*restore_in_batches(victims[:middle], fit), *restore_in_batches(victims[middle:], fit)]


def reprieved(
    snapshot: Snapshot, assignments: Assignments, victims: Sequence[PotentialVictim]
) -> list[PotentialVictim]:
    """Return the victims, asked in order, that may stay beside the assignments; the ledger is unchanged afterwards."""
    dependent = {
        member.pod_class for member, _ in assignments if any(True for _ in eviction_states(snapshot, member.pod_class))
    }
    with preempted(snapshot, assignments, victims):
        return _Reprieve(snapshot, assignments, dependent).run(victims)


class _Reprieve:
    """The room that the assignments leave, and the filters of the assigned pods that depend on other pods."""

    def __init__(self, snapshot: Snapshot, assignments: Assignments, dependent: Iterable[PodClass]) -> None:
        self._snapshot = snapshot
        self._room = AssignedRoom(snapshot, assignments)
        rows_of: dict[PodClass, dict[int, None]] = {found: {} for found in dependent}
        for member, row in assignments:
            if member.pod_class in rows_of:
                rows_of[member.pod_class][row] = None
        self._dependent = {found: np.array(list(rows), dtype=np.intp) for found, rows in rows_of.items()}
        # Pods that fail a filter already are left out: a reprieve cannot be what breaks them.
        self._passing = {found: self._still_passes(found, rows) for found, rows in self._dependent.items()}

    def run(self, victims: Sequence[PotentialVictim]) -> list[PotentialVictim]:
        """Restore the victims that may stay, in rounds."""
        found: list[PotentialVictim] = []
        while new := restore_in_batches(victims, self._fit):
            found.extend(new)
            victims = without(victims, new)
            if not self._dependent:
                break
        return found

    def _fit(self, victims: Sequence[PotentialVictim]) -> bool:
        """Restore a batch if all of it may stay."""
        self._snapshot.pause()
        if not self._room.take(victims):
            return False
        if not self._dependent:
            return True
        ledger = self._snapshot.ledger
        mark = ledger.mark()
        ledger.restore(uids_of(victims))
        if all(
            not (self._passing[found] & ~self._still_passes(found, rows)).any()
            for found, rows in self._dependent.items()
        ):
            return True
        ledger.rollback(mark)
        self._room.give_back(victims)
        return False

    def _still_passes(self, pod_class: PodClass, rows: Rows) -> Flags:
        answer = np.ones(len(rows), dtype=np.bool_)
        for state in eviction_states(self._snapshot, pod_class):
            answer &= state.still_passes(rows)
        return answer


class AssignedRoom:
    """What is left on the assigned rows, of the resources that the pods assigned there request."""

    def __init__(self, snapshot: Snapshot, assignments: Assignments) -> None:
        """Read the room from the ledger as it is."""
        ledger = snapshot.ledger
        self._ledger = ledger
        classes: dict[int, dict[PodClass, None]] = {}
        for member, row in assignments:
            classes.setdefault(row, {})[member.pod_class] = None
        columns = {
            found: np.flatnonzero(ledger.classes.vector_of(found)).tolist()
            for some in classes.values()
            for found in some
        }
        self._requested = {
            row: sorted({column for found in some for column in columns[found]}) for row, some in classes.items()
        }
        self._left = {
            row: (ledger.allocatable[row, requested] - ledger.used[row, requested]).tolist()
            for row, requested in self._requested.items()
        }
        self._vectors: dict[PodClass, list[int]] = {}

    def take(self, victims: Iterable[PotentialVictim]) -> bool:
        """Take the room of all victims if there is enough; return whether there was."""
        needs = self._needs(victims)
        if any(
            need > left for row, amounts in needs.items() for need, left in zip(amounts, self._left[row], strict=True)
        ):
            return False
        self._add(needs, -1)
        return True

    def give_back(self, victims: Iterable[PotentialVictim]) -> None:
        """Give back the room of victims."""
        self._add(self._needs(victims), 1)

    def shortage(self, victim: PotentialVictim) -> tuple[int, str, int] | None:
        """Return a row, a resource that is short there for the victim, and how much of it the victim holds; or None.

        It is the first such row by name, and the first such resource.
        """
        needs = self._needs((victim,))
        for row, amounts in sorted(needs.items(), key=lambda pair: self._ledger.cluster.name(pair[0])):
            for column, need, left in zip(self._requested[row], amounts, self._left[row], strict=True):
                if need > left:
                    return row, self._ledger.classes.axis.names[column], need
        return None

    def _add(self, needs: dict[int, list[int]], sign: int) -> None:
        for row, amounts in needs.items():
            self._left[row] = [left + sign * need for left, need in zip(self._left[row], amounts, strict=True)]

    def _needs(self, victims: Iterable[PotentialVictim]) -> dict[int, list[int]]:
        """Return what victims hold on the assigned rows, of the resources that are requested there."""
        found: dict[int, list[int]] = {}
        for victim in victims:
            for pod_class, row in victim.locations:
                requested = self._requested.get(row)
                if requested is not None:
                    vector = self._vector(pod_class)
                    before = found.get(row)
                    held = [vector[column] for column in requested]
                    found[row] = held if before is None else [a + b for a, b in zip(before, held, strict=True)]
        return found

    def _vector(self, pod_class: PodClass) -> list[int]:
        found = self._vectors.get(pod_class)
        if found is None:
            found = self._vectors[pod_class] = self._ledger.classes.vector_of(pod_class).tolist()
        return found
