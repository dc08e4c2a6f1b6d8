"""What a search has placed so far: the scope of each group, and the row of each pod."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from cpg_engine.gangs.unit import PendingPod, Unit
from cpg_engine.topology.domains import Scope


class GroupPlacement(Struct, frozen=True):
    """Where a group was placed, and, at a leaf, how many of its pods."""

    scope: Scope
    pods: int = 0


class PlacedTree:
    """The placed groups and pods of one unit, by position of the group."""

    def __init__(self, unit: Unit) -> None:
        """Start with nothing placed."""
        self._unit = unit
        self.scopes: dict[int, Scope] = {}
        self.assigned: dict[int, tuple[tuple[PendingPod, int], ...]] = {}

    def __contains__(self, index: int) -> bool:
        """Return whether a group is placed."""
        return index in self.scopes

    def assignments(self) -> Iterator[tuple[PendingPod, int]]:
        """Yield the row of each placed pod, in the order of the tree."""
        for index in sorted(self.assigned):
            yield from self.assigned[index]

    def group_placements(self, positions: Iterable[int]) -> dict[int, GroupPlacement]:
        """Return where the groups at some positions are placed, as far as they are."""
        return {
            place: GroupPlacement(self.scopes[place], len(self.assigned.get(place, ())))
            for place in positions
            if place in self.scopes
        }

    def is_inside(self, index: int, scope: Scope) -> bool:
        """Return whether all that was placed below a group is inside a scope."""
        rows = set(scope.rows.tolist())
        below = range(index, self._unit.nodes[index].end)
        return all(row in rows for place in below for _, row in self.assigned.get(place, ()))

    def forget(self, index: int) -> None:
        """Forget the places of a group and of all below it."""
        for below in range(index, self._unit.nodes[index].end):
            self.scopes.pop(below, None)
            self.assigned.pop(below, None)
