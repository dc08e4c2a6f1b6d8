"""How close the domains of a label come to holding a group that none of them can hold, and what emptying one would do.

All of it goes by the bounds: room per class of pods, summed over a domain. What they promise may not come true.
"""

import numpy as np
from numpy.typing import NDArray

from cpg_engine.gangs.apart import thinned
from cpg_engine.gangs.domain_choice import DomainSurvey
from cpg_engine.gangs.feasibility import Needs, could_hold, fitting
from cpg_engine.snapshot import Snapshot
from cpg_engine.verdicts import StatusCounts

Room = dict[int, NDArray[np.int64]]
"""For each class of pods, the room in each domain."""


def shortage(needs: Needs, index: int, survey: DomainSurvey) -> NDArray[np.int64]:
    """Return for each domain how many more pods it would have to have room for, at the least."""
    node = needs.unit.nodes[index]
    if node.leaf:
        return np.maximum(needs.missing(node) - survey.fits, 0)
    total = np.zeros(len(survey.open), dtype=np.int64)
    for found, least in needs.least[index].items():
        total += np.maximum(least - survey.room[found], 0)
    return total


def closest(survey: DomainSurvey, short: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the open domains, the closest first."""
    order = np.lexsort((-survey.fits, short))
    return order[survey.open[order]]


def cut_off(
    snapshot: Snapshot, needs: Needs, index: int, survey: DomainSurvey, order: NDArray[np.intp]
) -> tuple[StatusCounts, int | None]:
    """Return the counts of a node in the first domain of an order that the bounds turned away, and which it is.

    What it has room for counts as scheduled, what it would have room for besides, if it were empty, as unschedulable.
    Where that is not enough, that one is taken instead that would have most room, should it have enough.
    """
    node = needs.unit.nodes[index]
    settled, total = (node.scheduled, len(node.pending)) if node.leaf else (0, len(node.children))
    places = order[~survey.able[order]]
    if not len(places):
        return StatusCounts(node.minimum, settled, unresolvable=total + len(node.invalid)), None
    chosen = int(places[0])
    empty = int(_empty(snapshot, needs, index, survey, chosen)[0])
    if settled + empty < node.minimum:
        every = _empty(snapshot, needs, index, survey)
        best = int(places[every[places].argmax()])
        if settled + every[best] >= node.minimum:
            chosen, empty = best, int(every[best])
    now = int((survey.fits if node.leaf else at_most(needs, index, survey.room, len(survey.open)))[chosen])
    more = max(empty - now, 0)
    lost = total - now - more + len(node.invalid)
    return StatusCounts(node.minimum, settled + now, unschedulable=more, unresolvable=lost), chosen


def at_most(needs: Needs, index: int, room: Room, domains: int) -> NDArray[np.int64]:
    """Return for each domain how many pods of a leaf, or children of a group, it has room for at the most.

    Of children those that need least of a class are counted first, so that the group's minimum is within this number
    if and only if the domain could hold it.
    """
    node = needs.unit.nodes[index]
    if node.leaf:
        return fitting(needs, index, room, domains)
    able = np.zeros(domains, dtype=np.int64)
    for child in node.children:
        able += could_hold(needs, child, room, domains)
    for found in needs.least[index]:
        cheapest = np.cumsum(sorted(needs.least[child][found] for child in node.children if needs.admissible[child]))
        able = np.minimum(able, np.searchsorted(cheapest, room[found], side="right"))
    return able


def _empty(
    snapshot: Snapshot, needs: Needs, index: int, survey: DomainSurvey, place: int | None = None
) -> NDArray[np.int64]:
    """Return how much of a node one domain, or each of them, would have room for if nothing ran there."""
    partition = survey.partition
    rows = partition.rows if place is None else partition.scopes[place].rows
    starts = partition.starts if place is None else partition.starts[:1] * 0
    slots = {
        found: thinned(
            snapshot.score_cache.of(needs.classes[found]).empty_slots(),
            rows,
            starts,
            survey.apart[found],
            snapshot.ledger,
        )
        for found in survey.room
    }
    if place is None:
        room = {found: partition.sums(number) for found, number in slots.items()}
        return at_most(needs, index, room, len(survey.open))
    return at_most(needs, index, {found: number[rows].sum(keepdims=True) for found, number in slots.items()}, 1)
