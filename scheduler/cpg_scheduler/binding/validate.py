"""Validation of a decision just before its first bind, against what has arrived since.

The engine checks the same rules, so a decision that is rejected here comes out differently the next time. A batch
during which nothing has happened is not validated: see ``ClusterCache.disturbances``.

Of pods that see each other, one may stand where it could not be added any more once all the others are there: pod
affinity and spreading are asked of newcomers alone. A rule that a pod breaks from the beginning is a *known violation*.
It is not held against the batch later: the next decision would be the same.

Groups may lose their minimum while a batch waits: it is raised, or other pods leave. The *complete groups*, which had
it with the batch as decided, have to have it still. A group that expects pods may be placed before these exist.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from cpg_api.scheduling.forest import GroupKey
from cpg_engine.cluster.axes import Rows
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.decisions import DeviceAllocation, ExtendedAllocation
from cpg_engine.filters.registry import catalog_checks, statically_feasible
from cpg_engine.snapshot import Snapshot
from cpg_scheduler.cache.cluster import SINGLE_POD, ClusterCache
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.units import effective_tree_of, groups_with_minimum, members_of

PodsByClass = Mapping[PodClass, Mapping[str, int]]
"""Pods by class, each by its UID with the row of its node."""
KnownViolations = frozenset[tuple[str, str]]
"""Pods, by UID, each with a filter that would not add it to its node any more."""


def known_violations(cache: ClusterCache, uids: Iterable[str]) -> KnownViolations:
    """Return which of these pods, just assumed, could not be added last; most see no others, and cost nothing."""
    pods, snapshot = _by_class(cache.snapshot.ledger, uids), cache.snapshot
    if not any(plugin.pre_filter(pod_class) for pod_class in pods for plugin in snapshot.dynamic_filters):
        return frozenset()
    with _without_reservations(cache):
        return frozenset(_violations(snapshot, pods))


def complete_groups(cache: ClusterCache, unit: UnitKey, uids: Iterable[str]) -> frozenset[GroupKey]:
    """Return the groups above these pods that have their minimum, with all assumed pods."""
    pods = (cache.pods[uid] for uid in uids if uid in cache.pods)
    above = {cache.group_of(pod) for pod in pods} if unit.flavour != SINGLE_POD else set()
    if not above:
        return frozenset()
    tree = effective_tree_of(cache, unit)
    for node in reversed(tree.nodes):
        if node.key in above and node.parent is not None:
            above.add(tree.nodes[node.parent].key)
    complete = groups_with_minimum(tree, lambda key: len(members_of(cache, unit.flavour, key).scheduled))
    return frozenset(complete.keys() & above)


def validate_binds(cache: ClusterCache, nodes: Mapping[str, str], known: KnownViolations = frozenset()) -> str:
    """Return why these pods, by UID, should not be bound to their nodes any more, or an empty string.

    They are in the ledger already, so a node with too little room for them is overdrawn. Reservations for nominated
    pods do not count.
    """
    ledger = cache.snapshot.ledger
    if not all(uid in cache.assumed for uid in nodes):
        return "one of its pods is gone or terminating"
    gone = next((node for node in nodes.values() if node not in ledger.cluster.row_of), None)
    if gone is not None:
        return f"node {gone} is gone"
    contested = ledger.device_allocator.claims.contested(_device_claims(cache, nodes))
    if contested is not None:
        return f"another claim has the devices of resourceclaim {contested}"
    pods = _by_class(ledger, nodes)
    with _without_reservations(cache):
        problems = (
            _problem(ledger, pod_class, np.array(list(rows.values()), dtype=np.intp))
            for pod_class, rows in pods.items()
        )
        found = next(filter(None, problems), "")
        if found:
            return found
        new = next((one for one in _violations(cache.snapshot, pods) if one not in known), None)
    return "" if new is None else f"pods that were bound or deleted rule out node {nodes[new[0]]} ({new[1]})"


def _device_claims(cache: ClusterCache, uids: Container[str]) -> list[str]:
    """Return the claims for devices of assumed pods."""
    made = cache.devices.catalog.extended_claims
    found = [one for bind in cache.assumed.values() if bind.uid in uids for one in bind.allocations]
    named = {one.claim for one in found if isinstance(one, DeviceAllocation)}
    return sorted(named | {made.get(one.owner, one.claim) for one in found if isinstance(one, ExtendedAllocation)})


@contextmanager
def _without_reservations(cache: ClusterCache) -> Iterator[None]:
    """Take the reservations for nominated pods out of the ledger for as long as the block runs."""
    ledger = cache.snapshot.ledger
    mark = ledger.mark()
    ledger.ignore(cache.reservations.reserved_uids())
    try:
        yield
    finally:
        ledger.rollback(mark)


def _by_class(ledger: Ledger, uids: Iterable[str]) -> PodsByClass:
    pods: dict[PodClass, dict[str, int]] = {}
    for uid in uids:
        found = ledger.location_of(uid)
        if found is not None:
            pods.setdefault(found[0], {})[uid] = found[1]
    return pods


def _problem(ledger: Ledger, pod_class: PodClass, rows: Rows) -> str:
    """Return what is wrong with the nodes that pods of a class have been given, or an empty string."""
    columns = np.flatnonzero(ledger.classes.vector_of(pod_class))
    cells = np.ix_(rows, columns)
    overdrawn = (ledger.used[cells] > ledger.allocatable[cells]).any(axis=1)
    if overdrawn.any():
        return f"node {ledger.cluster.name(int(rows[overdrawn.argmax()]))} has become too small or too full"
    infeasible = ~statically_feasible(pod_class, ledger.cluster, rows)
    if infeasible.any():
        return f"node {ledger.cluster.name(int(rows[infeasible.argmax()]))} takes no such pods any more"
    return next((reason for reason, passed in catalog_checks(pod_class, ledger, rows) if not passed.all()), "")


def _violations(snapshot: Snapshot, pods: PodsByClass) -> Iterator[tuple[str, str]]:
    """Yield the pods that could not be added last, each with the filter that rejects it."""
    for pod_class, rows_of in pods.items():
        rows = np.array(list(rows_of.values()), dtype=np.intp)
        for plugin in snapshot.dynamic_filters:
            view = plugin.pre_filter(pod_class)
            if view is not None:
                name, passes = type(plugin).__name__, view.still_passes(rows)
                yield from ((uid, name) for uid, passed in zip(rows_of, passes, strict=True) if not passed)
