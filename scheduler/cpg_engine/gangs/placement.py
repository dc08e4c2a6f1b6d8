"""Placing the pods of one group on the nodes of one scope: the innermost step of the search."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from math import inf

import numpy as np
from msgspec import Struct

from cpg_engine.cluster.axes import Flags, Rows, Scores
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.filters import node_resources
from cpg_engine.filters.registry import STATIC, PreFilterState, catalog_checks, columnar_filters
from cpg_engine.gangs.search_budget import NODE_SCAN_COST
from cpg_engine.gangs.unit import PendingPod
from cpg_engine.score_cache import INFEASIBLE, SCORE_SHIFT, choose_nodes
from cpg_engine.snapshot import Snapshot
from cpg_engine.verdicts import FilterReason

NODES_PER_EFFORT = 2000
"""For so many nodes, evaluating a constraint or term takes as long as one unit of effort: twenty microseconds."""
NODES_OF_OVERHEAD = 500
"""Even without nodes, it takes as long as for so many."""


class PlacedGroup(Struct, frozen=True):
    """The rows of the pods that were placed, the pods that found none, and the effort.

    ``is_cut`` says that the effort was used up before all pods were tried.
    """

    assigned: tuple[tuple[PendingPod, int], ...]
    unplaced: tuple[PendingPod, ...]
    effort: int = 0
    is_cut: bool = False


def place_pods(
    snapshot: Snapshot, rows: Rows, pods: Sequence[PendingPod], limit: int, *, max_effort: float = inf
) -> PlacedGroup:
    """Place up to ``limit`` pods in order; a run of identical pods is placed at once, with the same result."""
    assigned: list[tuple[PendingPod, int]] = []
    unplaced: list[PendingPod] = []
    full: set[int] = set()
    effort = 0
    for index, group in groupby(pods, key=lambda pod: pod.pod_class.index):
        run = tuple(group)
        wanted = min(limit - len(assigned), len(run)) if effort <= max_effort else 0
        if wanted <= 0 or index in full:
            unplaced.extend(run)
            continue
        chosen, used = _place_run(snapshot, run[0].pod_class, rows, wanted, max_effort=max_effort - effort)
        effort += used
        if len(chosen) < wanted:
            full.add(index)
        assigned.extend(zip(run, chosen, strict=False))
        unplaced.extend(run[len(chosen) :])
    is_cut = effort > max_effort and len(assigned) < limit
    return PlacedGroup(assigned=tuple(assigned), unplaced=tuple(unplaced), effort=effort, is_cut=is_cut)


def _place_run(
    snapshot: Snapshot, pod_class: PodClass, rows: Rows, count: int, *, max_effort: float
) -> tuple[list[int], int]:
    """Place up to ``count`` pods of one class; return their rows, and the effort."""
    snapshot.pause()
    states = tuple(pre_filter_states(snapshot, pod_class))
    if states:
        each = NODE_SCAN_COST + 1 + term_cost(states, snapshot.ledger.cluster.size)
        most = count if max_effort == inf else min(count, int(max_effort // each) + 1)
        chosen_rows = list(_one_by_one(snapshot, pod_class, rows, count=most, states=states))
        return chosen_rows, each * (min(len(chosen_rows) + 1, count) + 1)
    chosen = choose_nodes(snapshot.score_cache.of(pod_class), rows, count)
    if len(chosen):
        snapshot.ledger.place(pod_class, chosen)
    return [int(row) for row in chosen], NODE_SCAN_COST + len(chosen)


def term_cost(states: Iterable[PreFilterState], nodes: int) -> int:
    """Return the effort of evaluating all constraints and terms of a class once, over all nodes."""
    return sum(state.terms for state in states) * (NODES_OF_OVERHEAD + nodes) // NODES_PER_EFFORT


def pre_filter_states(snapshot: Snapshot, pod_class: PodClass) -> Iterator[PreFilterState]:
    """Yield the states of the filters that concern a class; they hold until pods of other classes come or go."""
    for found in snapshot.dynamic_filters:
        state = found.pre_filter(pod_class)
        if state is not None:
            yield state


def eviction_states(snapshot: Snapshot, pod_class: PodClass) -> Iterator[PreFilterState]:
    """Yield the states of the filters whose answers evictions may change, resources aside."""
    yield from columnar_filters(pod_class, snapshot.ledger)
    yield from pre_filter_states(snapshot, pod_class)


def _one_by_one(
    snapshot: Snapshot, pod_class: PodClass, rows: Rows, *, count: int, states: Sequence[PreFilterState]
) -> Iterator[int]:
    """Place pods that depend on other pods one after the other, since each changes what the next one sees."""
    for _ in range(count):
        snapshot.pause()
        best = _best(snapshot.score_cache.of(pod_class).keys, rows, states)
        if best is None:
            return
        snapshot.ledger.place(pod_class, np.array((best,), dtype=np.intp))
        yield best


def _best(keys: Scores, rows: Rows, states: Sequence[PreFilterState]) -> int | None:
    """Return the best of the nodes that pass; scores that are relative to other nodes are relative to these alone."""
    able = rows[keys[rows] != INFEASIBLE]
    for state in states:
        able = able[state.passes(able)]
    if not len(able):
        return None
    total = keys[able]
    for state in states:
        score = state.score(able)
        if score is not None:
            total += score << SCORE_SHIFT
    return int(able[total.argmax()])


def depends_on_other_pods(snapshot: Snapshot, pod_class: PodClass) -> bool:
    """Return whether it matters to pods of the class where other pods are."""
    return any(True for _ in pre_filter_states(snapshot, pod_class))


def is_unresolvable(snapshot: Snapshot, pod_class: PodClass, rows: Rows, companions: Collection[PodClass] = ()) -> bool:
    """Return whether no eviction could make room for a pod of the class on any of the nodes.

    ``companions`` are classes that are to be placed as well and that satisfy all required affinity of the class.
    """
    snapshot.pause()
    rest = rows[snapshot.score_cache.of(pod_class).feasible[rows]]
    rest = rest[node_resources.could_fit_if_empty(pod_class, snapshot.ledger, rest)]
    for state in eviction_states(snapshot, pod_class):
        rest = rest[state.could_ever_pass(rest, companions)]
    return not len(rest)


def filter_reasons(snapshot: Snapshot, pod_class: PodClass, rows: Rows) -> tuple[FilterReason, ...]:
    """Return why the nodes are rejected for a pod of the class, each node under the first filter that rejects it."""
    snapshot.pause()
    found: list[FilterReason] = []
    rest = rows
    for static in STATIC:
        rest = _count_rejected(found, static.reason, rest, static.passes(pod_class, snapshot.ledger.cluster, rest))
    rest = _count_in_order(found, rest, catalog_checks(pod_class, snapshot.ledger, rest))
    for resource, nodes in node_resources.shortages(pod_class, snapshot.ledger, rest).items():
        found.append(FilterReason(text=_shortage_reason(resource), nodes=nodes))
    rest = rest[node_resources.passes(pod_class, snapshot.ledger, rest)]
    for state in eviction_states(snapshot, pod_class):
        rest = _count_in_order(found, rest, state.checks(rest))
    return tuple(sorted(found, key=lambda reason: (-reason.nodes, reason.text)))


def _count_in_order(found: list[FilterReason], rows: Rows, checks: Iterable[tuple[str, Flags]]) -> Rows:
    """Add for each check how many nodes it rejects that passed those before it; return the nodes that pass all."""
    rejected = np.zeros(len(rows), dtype=np.bool_)
    for reason, passed in checks:
        _count_rejected(found, reason, rows[~rejected], passed[~rejected])
        rejected |= ~passed
    return rows[~rejected]


def _count_rejected(found: list[FilterReason], text: str, rows: Rows, passed: Flags) -> Rows:
    """Add how many nodes a filter rejects; return the others."""
    if number := int(np.count_nonzero(~passed)):
        found.append(FilterReason(text=text, nodes=number))
    return rows[passed]


def _shortage_reason(resource: str) -> str:
    return "Too many pods" if resource == "pods" else node_resources.REASON.format(resource=resource)
