"""Pods of one group onto nodes of one scope: the innermost step of the search."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np
from msgspec import Struct

from cpg_engine.boards import OUT, SCORE_SHIFT, fill
from cpg_engine.filters import fit
from cpg_engine.filters.registry import STATIC, View, storage_checks
from cpg_engine.gangs.unit import Member
from cpg_engine.gangs.world import World
from cpg_engine.snapshot.axes import Flags, Rows, Scores
from cpg_engine.snapshot.classes import PodClass
from cpg_engine.verdicts import Reason


class Placed(Struct, frozen=True):
    """Who was placed at which row, who found none, and how often the nodes were looked at for it."""

    seats: tuple[tuple[Member, int], ...]
    left: tuple[Member, ...]
    looks: int = 0


def place_members(world: World, rows: Rows, members: Sequence[Member], limit: int) -> Placed:
    """Place up to ``limit`` pods in order; pods that are alike go together, as if one came after the other."""
    seats: list[tuple[Member, int]] = []
    left: list[Member] = []
    full: set[int] = set()
    looks = 0
    for index, group in groupby(members, key=lambda member: member.pod_class.index):
        run = tuple(group)
        wanted = min(limit - len(seats), len(run))
        if wanted <= 0 or index in full:
            left.extend(run)
            continue
        chosen, looked = _place_run(world, run[0].pod_class, rows, wanted)
        looks += looked
        if len(chosen) < wanted:
            full.add(index)
        seats.extend(zip(run, chosen, strict=False))
        left.extend(run[len(chosen) :])
    return Placed(seats=tuple(seats), left=tuple(left), looks=looks)


def _place_run(world: World, pod_class: PodClass, rows: Rows, count: int) -> tuple[list[int], int]:
    """Place up to ``count`` pods of one class; return their rows, and how often the nodes were looked at."""
    found = tuple(views(world, pod_class))
    if found:
        alone = list(_one_by_one(world, pod_class, rows, count=count, seen=found))
        return alone, min(len(alone) + 1, count)
    chosen = fill(world.boards.of(pod_class), rows, count)
    if len(chosen):
        world.ledger.place(pod_class, chosen)
    return [int(row) for row in chosen], 1


def views(world: World, pod_class: PodClass) -> Iterator[View]:
    """Yield what a class sees of other pods, filter by filter; it holds until others than its own come or go."""
    for dynamic in world.dynamic:
        view = dynamic.view(pod_class)
        if view is not None:
            yield view


def _one_by_one(world: World, pod_class: PodClass, rows: Rows, *, count: int, seen: Sequence[View]) -> Iterator[int]:
    """Place pods that see each other: what one does to the cluster, the next has to look at."""
    for _ in range(count):
        best = _best(world.boards.of(pod_class).keys, rows, seen)
        if best is None:
            return
        world.ledger.place(pod_class, np.array((best,), dtype=np.intp))
        yield best


def _best(keys: Scores, rows: Rows, seen: Sequence[View]) -> int | None:
    """Return the best of the nodes that pass; what is scored relative to others is relative to these alone."""
    able = rows[keys[rows] != OUT]
    for view in seen:
        able = able[view.passes(able)]
    if not len(able):
        return None
    total = keys[able]
    for view in seen:
        score = view.score(able)
        if score is not None:
            total += score << SCORE_SHIFT
    return int(able[total.argmax()])


def sees_others(world: World, pod_class: PodClass) -> bool:
    """Tell whether it matters to pods of the class which other pods are where."""
    return any(True for _ in views(world, pod_class))


def hopeless(world: World, pod_class: PodClass, rows: Rows, company: Collection[PodClass] = ()) -> bool:
    """Tell whether no eviction could make room for a pod of the class on any of the nodes.

    The company are others that are to come as well, each of them all that the class needs near.
    """
    rest = rows[world.boards.of(pod_class).feasible[rows]]
    rest = rest[fit.could_ever(pod_class, world.ledger, rest)]
    for view in views(world, pod_class):
        rest = rest[view.could_pass(rest, company)]
    return not len(rest)


def reasons(world: World, pod_class: PodClass, rows: Rows) -> tuple[Reason, ...]:
    """Return why the nodes are out for a pod of the class, each node under the first filter that it fails."""
    found: list[Reason] = []
    rest = rows
    for static in STATIC:
        rest = _told(found, static.reason, rest, static.passes(pod_class, world.ledger.cluster, rest))
    rest = _told_in_turn(found, rest, storage_checks(pod_class, world.ledger, rest))
    for resource, nodes in fit.short_of(pod_class, world.ledger, rest).items():
        found.append(Reason(text=_shortage(resource), nodes=nodes))
    rest = rest[fit.passes(pod_class, world.ledger, rest)]
    for view in views(world, pod_class):
        rest = _told_in_turn(found, rest, view.checks(rest))
    return tuple(sorted(found, key=lambda reason: (-reason.nodes, reason.text)))


def _told_in_turn(found: list[Reason], rows: Rows, checks: Iterable[tuple[str, Flags]]) -> Rows:
    """Note how many nodes each check has taken out that were still in; return those that are left."""
    gone = np.zeros(len(rows), dtype=np.bool_)
    for reason, passed in checks:
        _told(found, reason, rows[~gone], passed[~gone])
        gone |= ~passed
    return rows[~gone]


def _told(found: list[Reason], text: str, rows: Rows, passed: Flags) -> Rows:
    """Note how many nodes a filter has taken out; return the others."""
    if out := int(np.count_nonzero(~passed)):
        found.append(Reason(text=text, nodes=out))
    return rows[passed]


def _shortage(resource: str) -> str:
    return "Too many pods" if resource == "pods" else fit.REASON.format(resource=resource)
