"""Bounds on what a domain can hold, by the room per class of pods, before anything is placed.

Every bound may let through what later fails, and never rejects what could have been placed. Room is counted per class
and summed over a domain. Pods that reject their own class in the domains of a label count once per such domain, since
room by resources does not say that.
"""

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from cpg_engine.cluster.axes import Flags, Rows
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.nodes import ABSENT
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.filters.inter_pod_affinity import selects
from cpg_engine.gangs.needs import Needs
from cpg_engine.snapshot import Snapshot
from cpg_engine.topology.domains import Partition, Scope
from cpg_engine.verdicts import StatusCounts

Numbers = NDArray[np.int64]
Room = Mapping[int, Numbers]
"""For each class of pods, by index, the room in each domain."""


class DomainSurvey(Struct, frozen=True, eq=False):
    """The domains of a label inside a scope, as they stand for one group.

    ``room`` is the room per class of pods; ``fits`` how many of the group's pods that is room for. ``open`` domains are
    those that running members leave it; ``able`` are the open domains that could hold its minimum, by the bounds.
    ``exclusive_keys`` are, per class, the labels that allow one pod of it per domain.
    """

    key: str
    within: Scope
    partition: Partition
    room: Room
    fits: Numbers
    open: Flags
    able: Flags
    exclusive_keys: Mapping[int, tuple[str, ...]]


# What a domain can hold.


def could_hold(needs: Needs, index: int, room: Room, domains: int) -> Flags:
    """Return for each domain whether the minimum of a group could be placed inside it, by room per class alone."""
    node = needs.unit.nodes[index]
    answer = np.full(domains, needs.admissible[index], dtype=np.bool_)
    for found, least in needs.least[index].items():
        answer &= room[found] >= least
    if node.leaf:
        return answer & (fitting(needs, index, room, domains) >= needs.missing(node))
    able = np.zeros(domains, dtype=np.int64)
    for child in node.children:
        able += could_hold(needs, child, room, domains)
    return answer & (able >= node.minimum)


def fitting(needs: Needs, index: int, room: Room, domains: int) -> Numbers:
    """Return for each domain how many of the pods below a group it has room for at most."""
    total = np.zeros(domains, dtype=np.int64)
    for found, number in needs.most[index].items():
        total += np.minimum(room[found], number)
    return total


def at_most(needs: Needs, index: int, room: Room, domains: int) -> Numbers:
    """Return for each domain how many pods of a leaf, or children of a group, it has room for at most.

    Children that need least of a class are counted first, so that the group's minimum is within this number if and
    only if the domain could hold it.
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


# Anti-affinity of a class to itself.


def exclusive_keys(pod_class: PodClass, ledger: Ledger) -> tuple[str, ...]:
    """Return the labels that allow one pod of a class per domain, because of anti-affinity to its own kind."""
    terms, namespaces = pod_class.relations.terms.required_anti, ledger.pod_index.namespaces
    return tuple(dict.fromkeys(term.key for term in terms if selects(term, pod_class, namespaces)))


def anti_affinity_bound(slots: Numbers, rows: Rows, starts: Rows, keys: tuple[str, ...], ledger: Ledger) -> Numbers:
    """Return the room by node for pods of which each domain of some labels takes one, scope by scope.

    ``rows`` are those of one scope after the other, which begin at ``starts``. Nodes without a label keep their room.
    """
    for key in keys:
        codes = ledger.cluster.label(key).codes[rows]
        bound = np.flatnonzero((codes != ABSENT) & (slots[rows] > 0))
        scope = np.searchsorted(starts, bound, side="right")
        _, first = np.unique(np.stack([scope, codes[bound]]), axis=1, return_index=True)
        kept = slots.copy()
        kept[rows[bound]] = 0
        kept[rows[bound[first]]] = 1
        slots = kept
    return slots


# How close a domain comes to holding a group that no domain can hold.


def shortage(needs: Needs, index: int, survey: DomainSurvey) -> Numbers:
    """Return for each domain for how many more pods it would have to have room, at least."""
    node = needs.unit.nodes[index]
    if node.leaf:
        return np.maximum(needs.missing(node) - survey.fits, 0)
    total = np.zeros(len(survey.open), dtype=np.int64)
    for found, least in needs.least[index].items():
        total += np.maximum(least - survey.room[found], 0)
    return total


def closest_first(survey: DomainSurvey, short: Numbers) -> Rows:
    """Return the open domains, the one with the least shortage first."""
    order = np.lexsort((-survey.fits, short))
    return order[survey.open[order]]


def rejected_counts(
    snapshot: Snapshot, needs: Needs, index: int, survey: DomainSurvey, order: Rows
) -> tuple[StatusCounts, int | None]:
    """Return the counts of a group in the first domain of an order that the bounds reject, and that domain.

    What the domain has room for counts as scheduled. What it would have room for besides if it were empty counts as
    unschedulable. If both together are less than the minimum, the domain is taken that would have most room if empty,
    provided that it would have enough.
    """
    node = needs.unit.nodes[index]
    scheduled, total = (node.scheduled, len(node.pending)) if node.leaf else (0, len(node.children))
    places = order[~survey.able[order]]
    if not len(places):
        return StatusCounts(node.minimum, scheduled, unresolvable=total + len(node.invalid)), None
    chosen = int(places[0])
    empty = int(_room_if_empty(snapshot, needs, index, survey, chosen)[0])
    if scheduled + empty < node.minimum:
        every = _room_if_empty(snapshot, needs, index, survey)
        best = int(places[every[places].argmax()])
        if scheduled + every[best] >= node.minimum:
            chosen, empty = best, int(every[best])
    now = int((survey.fits if node.leaf else at_most(needs, index, survey.room, len(survey.open)))[chosen])
    more = max(empty - now, 0)
    lost = total - now - more + len(node.invalid)
    return StatusCounts(node.minimum, scheduled + now, unschedulable=more, unresolvable=lost), chosen


def _room_if_empty(
    snapshot: Snapshot, needs: Needs, index: int, survey: DomainSurvey, place: int | None = None
) -> Numbers:
    """Return how much of a group one domain, or each domain, would have room for if nothing ran there."""
    partition = survey.partition
    rows = partition.rows if place is None else partition.scopes[place].rows
    starts = partition.starts if place is None else partition.starts[:1] * 0
    slots = {}
    for found in survey.room:
        empty = snapshot.score_cache.of(needs.classes[found]).empty_slots()
        slots[found] = anti_affinity_bound(empty, rows, starts, survey.exclusive_keys[found], snapshot.ledger)
    if place is None:
        room = {found: partition.sums(number) for found, number in slots.items()}
        return at_most(needs, index, room, len(survey.open))
    return at_most(needs, index, {found: number[rows].sum(keepdims=True) for found, number in slots.items()}, 1)
