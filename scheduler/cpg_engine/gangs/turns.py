"""The order in which things come of which some need others first; nothing here knows what they are.

Whoever needs others goes behind the last of all that would do; apart from that, all stay as they stand. Of several that
would do, one is enough. So a circle can be broken where one of it is helped from outside, and comes first. Of a circle
that nobody helps nobody can come, and there the order stays.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import inf

Wants = Mapping[int, Sequence[AbstractSet[int]]]
"""For each that needs others: sets of these, of each of which one has to come first. Who is left out needs nobody."""

Edges = Mapping[int, AbstractSet[int]]


def in_turn(items: Sequence[int], wants: Wants) -> list[int]:
    """Return the places of some items in the order in which they come; an item may stand at several places."""
    if not wants:
        return list(range(len(items)))
    before = _all_before(wants)
    last = {item: place for place, item in enumerate(items)}
    behind = {one: max((last.get(other, 0) for other in others), default=0) for one, others in before.items()}

    def turn(place: int) -> tuple[int, int, int]:
        # Whoever comes before somebody has fewer before it: that decides where both go behind the same.
        item = items[place]
        return max(place, behind.get(item, 0)), len(before.get(item, ())), place

    return sorted(range(len(items)), key=turn)


def rounds(wants: Wants) -> dict[int, int]:
    """Return in which round each that needs others can come, if all come who can; who never can is left out."""
    found: dict[int, int] = {}
    waiting, number = list(wants), 0

    def can_come(one: int) -> bool:
        return all(any(other not in wants or other in found for other in choice) for choice in wants[one])

    while new := [one for one in waiting if can_come(one)]:
        number += 1
        found.update(dict.fromkeys(new, number))
        waiting = [one for one in waiting if one not in found]
    return found


def _all_before(wants: Wants) -> Edges:
    """Return for each that needs others all who come before it, and before those, and so on; there are no circles."""
    edges = {one: frozenset[int]().union(*choices) for one, choices in wants.items()}
    beyond = {one: _reached(one, edges) for one in edges}
    if not any(one in others for one, others in beyond.items()):
        return beyond
    when = rounds(wants)

    def is_sooner(other: int, one: int) -> bool:
        return when.get(other, inf) < when.get(one, inf)

    sooner = {
        one: {other for other in others if one not in beyond.get(other, ()) or is_sooner(other, one)}
        for one, others in edges.items()
    }
    return {one: _reached(one, sooner) for one in sooner}


def _reached(start: int, edges: Edges) -> AbstractSet[int]:
    """Return all that can be reached from one, itself only in a circle."""
    found: set[int] = set()
    waiting = [start]
    while waiting:
        new = edges.get(waiting.pop(), frozenset()) - found
        found |= new
        waiting.extend(new)
    return found
