"""Which domains a group may be placed in, and in which order they are tried."""

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from cpg_engine.cluster.axes import Flags, Rows
from cpg_engine.cluster.nodes import ABSENT
from cpg_engine.errors import ContradictionError
from cpg_engine.gangs.bounds import DomainSurvey, anti_affinity_bound, could_hold, exclusive_keys, fitting
from cpg_engine.gangs.needs import Needs
from cpg_engine.snapshot import Snapshot
from cpg_engine.topology.domains import Scope
from cpg_engine.topology.placement import placement_scores
from cpg_engine.verdicts import Contradiction
from cpg_engine.weights import Weights


class DomainOffer(Struct, frozen=True, eq=False):
    """The scopes that a group may be placed in, the best first, and the survey that found them, if any."""

    scopes: Sequence[Scope]
    survey: DomainSurvey | None = None


class DomainChoice:
    """The domains for the groups of one unit."""

    def __init__(self, snapshot: Snapshot, needs: Needs, weights: Weights) -> None:
        """Start without any domain surveyed."""
        self._snapshot = snapshot
        self._needs = needs
        self._weights = weights
        self._pins: dict[int, str] = {}
        self._exclusive_keys: dict[int, tuple[str, ...]] = {}
        self._least_sums: dict[int, NDArray[np.int64]] = {}
        self.offered = 0
        """How many domains the search has been able to choose from so far."""

    def pin(self) -> None:
        """Restrict groups to the domains in which their members run; raise ``ContradictionError`` where those differ.

        A group that cannot be admitted is not placed, so it cannot contradict anything.
        """
        for index, node in enumerate(self._needs.unit.nodes):
            if node.required is None or not self._needs.admissible[index]:
                continue
            values = self._member_domains(index, node.required)
            if None in values:
                raise ContradictionError(Contradiction(node.key, node.required))
            domains = tuple(sorted(value for value in values if value is not None))
            if len(domains) > 1:
                raise ContradictionError(Contradiction(node.key, node.required, domains))
            self._pins.update((index, value) for value in domains)

    def required(self, index: int, scope: Scope) -> DomainOffer:
        """Return the required domains that could hold a group's minimum, or the scope where none is required."""
        node = self._needs.unit.nodes[index]
        if node.required is None:
            return DomainOffer(scopes=(scope,))
        survey = self._survey(index, scope, node.required, self._pins.get(index))
        self.offered += int(survey.open.sum())
        return DomainOffer(scopes=self._ranked(index, survey), survey=survey)

    def preferred(self, index: int, outer: Sequence[Scope]) -> Iterator[Scope]:
        """Yield the preferred domains inside the required ones, the best first.

        Once members run in several domains, or on a node without the label, no domain is preferred any more.
        """
        key = self._needs.unit.nodes[index].preferred
        values = set() if key is None else self._member_domains(index, key)
        if key is None or None in values or len(values) > 1:
            return
        for scope in outer:
            survey = self._survey(index, scope, key, next(iter(values), None))
            self.offered += int(survey.open.sum())
            yield from self._ranked(index, survey)

    def widest(self, index: int, scope: Scope, outer: Scope) -> Scope:
        """Return the whole domain inside an outer scope that a group may use, without its preference."""
        key = self._needs.unit.nodes[index].required
        if key is None:
            return outer
        value = next((domain.value for domain in reversed(scope.chain) if domain.key == key), None)
        found = self._snapshot.topology.partition(outer, key).scopes
        return next((one for one in found if one.chain[-1].value == value), scope)

    def possible(self, index: int, scope: Scope) -> bool:
        """Return whether the bounds leave a group any place in a scope, each child taken alone."""
        node = self._needs.unit.nodes[index]
        if self._needs.met[index]:
            return True
        if not self._needs.admissible[index]:
            return False
        if node.required is not None:
            survey = self._survey(index, scope, node.required, self._pins.get(index))
            able = survey.able & self._enough(index, survey.partition.rows, survey.partition.starts)
            domains = [survey.partition.scopes[place] for place in np.flatnonzero(able).tolist()]
        else:
            domains = [scope] if self._has_room(index, scope) else []
        if node.leaf:
            return bool(domains)
        return any(sum(self.possible(child, domain) for child in node.children) >= node.minimum for domain in domains)

    def _survey(self, index: int, scope: Scope, key: str, pinned: str | None) -> DomainSurvey:
        """Return the domains of a label; where members run in one of them already, no other is open."""
        partition = self._snapshot.topology.partition(scope, key)
        size = len(partition.scopes)
        slots = self._slots(index, partition.rows, partition.starts)
        room = {found: partition.sums(number) for found, number in slots}
        able = could_hold(self._needs, index, room, size)
        is_open = np.ones(size, dtype=np.bool_)
        if pinned is not None:
            is_open = np.array([found.chain[-1].value == pinned for found in partition.scopes], dtype=np.bool_)
        return DomainSurvey(
            key=key,
            within=scope,
            partition=partition,
            room=room,
            fits=fitting(self._needs, index, room, size),
            open=is_open,
            able=able & is_open,
            exclusive_keys=self._exclusive_keys,
        )

    def _ranked(self, index: int, survey: DomainSurvey) -> list[Scope]:
        """Return the domains that could hold a group's minimum, the best first; those with too little in sum last."""
        able = np.flatnonzero(survey.able).tolist()
        if len(able) > 1:
            scores = self._scores(index, survey)
            enough = self._enough(index, survey.partition.rows, survey.partition.starts)
            able.sort(key=lambda place: (not enough[place], -int(scores[place])))
        return [survey.partition.scopes[place] for place in able]

    def _has_room(self, index: int, scope: Scope) -> bool:
        """Return whether a whole scope could hold the minimum of a group, by room per class."""
        start = np.zeros(1, dtype=np.intp)
        room = {found: number[scope.rows].sum(keepdims=True) for found, number in self._slots(index, scope.rows, start)}
        return bool(could_hold(self._needs, index, room, 1)[0] and self._enough(index, scope.rows, start)[0])

    def _slots(self, index: int, rows: Rows, starts: Rows) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield the room by node for each class below a group, in the scopes that begin at some rows."""
        ledger, score_cache = self._snapshot.ledger, self._snapshot.score_cache
        for found in self._needs.most[index]:
            pod_class = self._needs.classes[found]
            keys = self._exclusive_keys.get(found)
            if keys is None:
                keys = self._exclusive_keys[found] = exclusive_keys(pod_class, ledger)
            yield found, anti_affinity_bound(score_cache.of(pod_class).slots(), rows, starts, keys, ledger)

    def _scores(self, index: int, survey: DomainSurvey) -> NDArray[np.int64]:
        wanted = [(self._needs.classes[found], number) for found, number in self._needs.most[index].items()]
        return placement_scores(
            self._snapshot.ledger, survey.partition, survey.fits, wanted=wanted, weights=self._weights
        )

    def _enough(self, index: int, rows: Rows, starts: Rows) -> Flags:
        """Return which scopes have enough of every resource in sum, where several classes share it.

        ``rows`` are those of one scope after the other, which begin at ``starts``.
        """
        if len(self._needs.most[index]) < 2 or not len(rows):
            return np.ones(len(starts), dtype=np.bool_)
        ledger, least = self._snapshot.ledger, self._least_sum(index)
        columns = np.flatnonzero(least)
        free = np.maximum(ledger.allocatable[rows][:, columns] - ledger.used[rows][:, columns], 0)
        left = np.add.reduceat(free, starts) - least[columns]
        answer: Flags = left.min(axis=1, initial=0) >= 0
        return answer

    def _least_sum(self, index: int) -> NDArray[np.int64]:
        """Return how much of every resource the minimum of a group takes at least."""
        found = self._least_sums.get(index)
        if found is None:
            node = self._needs.unit.nodes[index]
            ledger = self._snapshot.ledger
            if node.leaf:
                number = self._needs.missing(node)
                parts = ledger.classes.vectors_of([pod.pod_class.index for pod in node.pending])
            else:
                number = node.minimum
                parts = np.stack([self._least_sum(child) for child in node.children if self._needs.admissible[child]])
            found = self._least_sums[index] = np.sort(parts, axis=0)[:number].sum(axis=0)
        return found

    def _member_domains(self, index: int, key: str) -> set[str | None]:
        """Return the domains in which members below a group run; None stands for a node without the label."""
        cluster = self._snapshot.ledger.cluster
        column = cluster.label(key)
        values: set[str | None] = set()
        nodes = self._needs.unit.nodes
        for below in nodes[index : nodes[index].end]:
            for name in below.member_nodes:
                row = cluster.row_of.get(name)
                if row is not None:
                    code = int(column.codes[row])
                    values.add(None if code == ABSENT else column.values[code])
        return values
