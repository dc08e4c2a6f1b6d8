"""Which domains a group may be placed in, and in which order they are tried."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cpg_engine.errors import ContradictionError
from cpg_engine.gangs.feasibility import Needs, could_hold, fitting
from cpg_engine.gangs.notes import Notes
from cpg_engine.gangs.world import World
from cpg_engine.snapshot.cluster import ABSENT
from cpg_engine.topology.domains import Partition, Scope
from cpg_engine.topology.placement import placement_scores
from cpg_engine.weights import Weights


class Choices:
    """The domains of one unit's groups."""

    def __init__(self, world: World, needs: Needs, notes: Notes, weights: Weights) -> None:
        """Look at nothing yet."""
        self._world = world
        self._needs = needs
        self._notes = notes
        self._weights = weights

    def scopes(self, index: int, scope: Scope, *, prefer: bool) -> Iterator[Scope]:
        """Yield the scopes to try for a node, best first: preferred domains, then required ones, or just the scope."""
        node = self._needs.unit.nodes[index]
        required = [scope] if node.required is None else self.required(index, scope)
        if node.preferred is not None and prefer:
            for outer in required:
                yield from self._preferred(index, outer, node.preferred)
        yield from required

    def required(self, index: int, scope: Scope) -> list[Scope]:
        """Return the required domains that could hold the node's minimum, the best first.

        Members that run already pin their domain; where they contradict each other, nothing can be placed.
        """
        node = self._needs.unit.nodes[index]
        assert node.required is not None  # noqa: S101 - the callers ask for nodes that have one
        values = self._homes(index, node.required)
        if None in values:
            raise ContradictionError(node.key, f"a member runs on a node that has no label {node.required}")
        if len(values) > 1:
            listed = ", ".join(sorted(value for value in values if value))
            raise ContradictionError(node.key, f"its members run in more than one domain of {node.required}: {listed}")
        return self._ranked(index, scope, node.required, next(iter(values), None))

    def widest(self, index: int, scope: Scope, outer: Scope) -> Scope:
        """Return the domain inside an outer scope that a node may use at all: preferences left aside."""
        key = self._needs.unit.nodes[index].required
        if key is None:
            return outer
        value = next((domain.value for domain in reversed(scope.chain) if domain.key == key), None)
        found = self._world.topology.partition(outer, key).scopes
        return next((one for one in found if one.chain[-1].value == value), scope)

    def possible(self, index: int, scope: Scope) -> bool:
        """Tell whether the bounds leave a node any place in a scope, all children taken for themselves."""
        node = self._needs.unit.nodes[index]
        if not self._needs.admissible[index]:
            return False
        if node.required is not None:
            domains = self.required(index, scope)
        else:
            domains = [scope] if self._has_room(index, scope) else []
        if node.leaf:
            return bool(domains)
        return any(sum(self.possible(child, domain) for child in node.children) >= node.minimum for domain in domains)

    def _preferred(self, index: int, scope: Scope, key: str) -> list[Scope]:
        """Return the preferred domains: of members that run in several, or in none, nothing is preferred any more."""
        values = self._homes(index, key)
        if None in values or len(values) > 1:
            return []
        return self._ranked(index, scope, key, next(iter(values), None))

    def _ranked(self, index: int, scope: Scope, key: str, pinned: str | None) -> list[Scope]:
        """Return the domains of a label that could hold the node's minimum, the best first."""
        partition = self._world.topology.partition(scope, key)
        size = len(partition.scopes)
        room = self._room(index, partition)
        able = could_hold(self._needs, index, room, size)
        fits = fitting(self._needs, index, room, size)
        if pinned is not None:
            able &= np.array([found.chain[-1].value == pinned for found in partition.scopes], dtype=np.bool_)
        if not able.any():
            self._notes.domains(index, partition, fits)
            return []
        scores = self._scores(index, partition, fits)
        order = sorted(np.flatnonzero(able).tolist(), key=lambda place: (-int(scores[place]), place))
        return [partition.scopes[place] for place in order]

    def _room(self, index: int, partition: Partition) -> dict[int, NDArray[np.int64]]:
        """Return for each class of pods below a node the room in each domain."""
        boards, classes = self._world.boards, self._needs.classes
        return {found: partition.sums(boards.of(classes[found]).slots()) for found in self._needs.most[index]}

    def _has_room(self, index: int, scope: Scope) -> bool:
        """Tell whether a scope as a whole could hold the minimum of a node, by room per class."""
        boards, classes = self._world.boards, self._needs.classes
        room = {
            found: boards.of(classes[found]).slots()[scope.rows].sum(keepdims=True) for found in self._needs.most[index]
        }
        return bool(could_hold(self._needs, index, room, 1).any())

    def _scores(self, index: int, partition: Partition, fits: NDArray[np.int64]) -> NDArray[np.int64]:
        wanted = [
            (self._world.ledger.vector_of(self._needs.classes[found]), self._needs.classes[found], number)
            for found, number in self._needs.most[index].items()
        ]
        return placement_scores(self._world.ledger, partition, fits, wanted=wanted, weights=self._weights)

    def _homes(self, index: int, key: str) -> set[str | None]:
        """Return the domains in which members below a node run already; None stands for a node without the label."""
        cluster = self._world.ledger.cluster
        column = cluster.label(key)
        values: set[str | None] = set()
        nodes = self._needs.unit.nodes
        for below in nodes[index : nodes[index].end]:
            for home in below.homes:
                row = cluster.row_of.get(home)
                if row is not None:
                    code = int(column.codes[row])
                    values.add(None if code == ABSENT else column.values[code])
        return values
