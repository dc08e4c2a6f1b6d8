"""Pods of one group onto nodes of one scope: the innermost step of the search."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np
from msgspec import Struct

from cpg_engine.cluster.axes import Flags, Rows, Scores
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.filters import node_resources
from cpg_engine.filters.registry import STATIC, PreFilterState, storage_checks
from cpg_engine.gangs.unit import PendingPod
from cpg_engine.score_cache import OUT, SCORE_SHIFT, choose_nodes
from cpg_engine.snapshot import Snapshot
from cpg_engine.verdicts import FilterReason


class PlacedGroup(Struct, frozen=True):
    """Who was placed at which row, who found none, and how often the nodes were looked at for it."""

    seats: tuple[tuple[PendingPod, int], ...]
    left: tuple[PendingPod, ...]
    looks: int = 0


def place_pods(snapshot: Snapshot, rows: Rows, members: Sequence[PendingPod], limit: int) -> PlacedGroup:
    """Place up to ``limit`` pods in order; pods that are alike go together, as if one came after the other."""
    seats: list[tuple[PendingPod, int]] = []
    left: list[PendingPod] = []
    full: set[int] = set()
    looks = 0
    for index, group in groupby(members, key=lambda member: member.pod_class.index):
        run = tuple(group)
        wanted = min(limit - len(seats), len(run))
        if wanted <= 0 or index in full:
            left.extend(run)
            continue
        chosen, looked = _place_run(snapshot, run[0].pod_class, rows, wanted)
        looks += looked
        if len(chosen) < wanted:
            full.add(index)
        seats.extend(zip(run, chosen, strict=False))
        left.extend(run[len(chosen) :])
    return PlacedGroup(seats=tuple(seats), left=tuple(left), looks=looks)


def _place_run(snapshot: Snapshot, pod_class: PodClass, rows: Rows, count: int) -> tuple[list[int], int]:
    """Place up to ``count`` pods of one class; return their rows, and how often the nodes were looked at."""
    found = tuple(pre_filter_states(snapshot, pod_class))
    if found:
        alone = list(_one_by_one(snapshot, pod_class, rows, count=count, seen=found))
        return alone, min(len(alone) + 1, count)
    chosen = choose_nodes(snapshot.score_cache.of(pod_class), rows, count)
    if len(chosen):
        snapshot.ledger.place(pod_class, chosen)
    return [int(row) for row in chosen], 1


def pre_filter_states(snapshot: Snapshot, pod_class: PodClass) -> Iterator[PreFilterState]:
    """Yield what a class sees of other pods, filter by filter; it holds until others than its own come or go."""
    for dynamic in snapshot.dynamic_filters:
        view = dynamic.pre_filter(pod_class)
        if view is not None:
            yield view


def _one_by_one(
    snapshot: Snapshot, pod_class: PodClass, rows: Rows, *, count: int, seen: Sequence[PreFilterState]
) -> Iterator[int]:
    """Place pods that see each other: what one does to the cluster, the next has to look at."""
    for _ in range(count):
        best = _best(snapshot.score_cache.of(pod_class).keys, rows, seen)
        if best is None:
            return
        snapshot.ledger.place(pod_class, np.array((best,), dtype=np.intp))
        yield best


def _best(keys: Scores, rows: Rows, seen: Sequence[PreFilterState]) -> int | None:
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


def depends_on_other_pods(snapshot: Snapshot, pod_class: PodClass) -> bool:
    """Tell whether it matters to pods of the class which other pods are where."""
    return any(True for _ in pre_filter_states(snapshot, pod_class))


def is_unresolvable(snapshot: Snapshot, pod_class: PodClass, rows: Rows, company: Collection[PodClass] = ()) -> bool:
    """Tell whether no eviction could make room for a pod of the class on any of the nodes.

    The company are others that are to come as well, each of them all that the class needs near.
    """
    rest = rows[snapshot.score_cache.of(pod_class).feasible[rows]]
    rest = rest[node_resources.could_ever(pod_class, snapshot.ledger, rest)]
    for view in pre_filter_states(snapshot, pod_class):
        rest = rest[view.could_ever_pass(rest, company)]
    return not len(rest)


def filter_reasons(snapshot: Snapshot, pod_class: PodClass, rows: Rows) -> tuple[FilterReason, ...]:
    """Return why the nodes are out for a pod of the class, each node under the first filter that it fails."""
    found: list[FilterReason] = []
    rest = rows
    for static in STATIC:
        rest = _told(found, static.reason, rest, static.passes(pod_class, snapshot.ledger.cluster, rest))
    rest = _told_in_turn(found, rest, storage_checks(pod_class, snapshot.ledger, rest))
    for resource, nodes in node_resources.short_of(pod_class, snapshot.ledger, rest).items():
        found.append(FilterReason(text=_shortage(resource), nodes=nodes))
    rest = rest[node_resources.passes(pod_class, snapshot.ledger, rest)]
    for view in pre_filter_states(snapshot, pod_class):
        rest = _told_in_turn(found, rest, view.checks(rest))
    return tuple(sorted(found, key=lambda reason: (-reason.nodes, reason.text)))


def _told_in_turn(found: list[FilterReason], rows: Rows, checks: Iterable[tuple[str, Flags]]) -> Rows:
    """Note how many nodes each check has taken out that were still in; return those that are left."""
    gone = np.zeros(len(rows), dtype=np.bool_)
    for reason, passed in checks:
        _told(found, reason, rows[~gone], passed[~gone])
        gone |= ~passed
    return rows[~gone]


def _told(found: list[FilterReason], text: str, rows: Rows, passed: Flags) -> Rows:
    """Note how many nodes a filter has taken out; return the others."""
    if out := int(np.count_nonzero(~passed)):
        found.append(FilterReason(text=text, nodes=out))
    return rows[passed]


def _shortage(resource: str) -> str:
    return "Too many pods" if resource == "pods" else node_resources.REASON.format(resource=resource)
