"""Changes of nodes: those that are cordoned are not, or there are more of a shape that the cluster has."""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from cpg_api.core.devices import ResourceSlice
from cpg_api.core.node import Node, NodeSpec
from cpg_cli.analysis.assessment import named
from cpg_cli.analysis.candidates.case import Case, Counterfactual, smallest
from cpg_cli.analysis.changes import HOSTNAME, ObjectChange, node_like
from cpg_cli.analysis.device_changes import Slices, device_counts, slices_by_node, slices_like

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
MAX_SHAPES = 4
MAX_NODES = 128
"""Nodes that are added at most."""


def uncordoned_nodes(case: Case) -> Iterator[Counterfactual]:
    """Uncordon one node, or all."""
    if case.unit is None:
        return
    cordoned = [node for node in _nodes(case) if node.spec.unschedulable]
    for nodes in [cordoned[:1], cordoned] if len(cordoned) > 1 else [cordoned]:
        changes = tuple(ObjectChange(node, replace(node, spec=_open(node))) for node in nodes)
        if case.fits(changes):
            yield Counterfactual("Uncordon", f"{named([node.metadata.name for node in nodes])} uncordoned", changes)
            return


def more_nodes(case: Case) -> Iterator[Counterfactual]:
    """Add the fewest nodes of one shape that are enough, in the closest domain."""
    if case.unit is None or not case.path:
        return
    closest, failed = case.closest, case.path[-1]
    lacking = max(failed.counts.minimum - failed.counts.scheduled, closest.shortage if closest else 0, 1)
    found: list[Counterfactual] = []
    best = 0
    slices = slices_by_node(case.cache.devices.catalog.slices.values())
    for node in _shapes(case, slices):
        limit = min(best - 1 if best else 4 * lacking, MAX_NODES)
        own = slices.get(node.metadata.name, ())
        number = smallest(range(1, limit + 1), partial(_suffices, case, node, own))
        if number is not None:
            where = f" in {closest.domain.value}" if closest else ""
            text = f"{number} more node{'s' * (number != 1)} like {_shape_name(node)}{where}"
            found, best = [Counterfactual("Nodes", text, _copies(node, own, number))], number
    yield from found


def _suffices(case: Case, node: Node, slices: Sequence[ResourceSlice], number: int) -> bool:
    return case.fits(_copies(node, slices, number))


def _shapes(case: Case, slices: Slices) -> list[Node]:
    """Return one node of each of the most frequent shapes, of the closest domain where there are domains."""
    closest, nodes = case.closest, _nodes(case)
    if closest is not None:
        key, value = closest.domain.key, closest.domain.value
        nodes = [node for node in nodes if node.metadata.labels.get(key) == value]
    first: dict[Hashable, Node] = {}
    counts: Counter[Hashable] = Counter()
    spread = {one.topology_key for pod in case.pods for one in pod.spec.topology_spread_constraints or ()}
    for node in nodes:
        own = slices.get(node.metadata.name, ())
        shape = _shape(node, own), tuple(node.metadata.labels.get(key) for key in sorted(spread - {HOSTNAME}))
        counts[shape] += 1
        first.setdefault(shape, node)
    return [first[shape] for shape, _ in counts.most_common(MAX_SHAPES)]


def _copies(node: Node, slices: Sequence[ResourceSlice], number: int) -> tuple[ObjectChange, ...]:
    """Return the creation of further nodes with their devices."""
    names = [f"{node.metadata.name}-more-{count}" for count in range(1, number + 1)]
    nodes = (ObjectChange(None, node_like(node, name)) for name in names)
    return (*nodes, *(ObjectChange(None, one) for name in names for one in slices_like(slices, name)))


def _shape(node: Node, slices: Sequence[ResourceSlice]) -> Hashable:
    allocatable = tuple(sorted((node.status.allocatable or {}).items()))
    return allocatable, device_counts(slices), node.spec.taints, node.metadata.labels.get(INSTANCE_TYPE)


def _shape_name(node: Node) -> str:
    return node.metadata.labels.get(INSTANCE_TYPE) or node.metadata.name


def _open(node: Node) -> NodeSpec:
    kept = tuple(taint for taint in node.spec.taints or () if taint.key != "node.kubernetes.io/unschedulable")
    return replace(node.spec, unschedulable=False, taints=kept or None)


def _nodes(case: Case) -> list[Node]:
    return sorted(
        (node for node in case.cache.snapshot.ledger.cluster.nodes if node is not None),
        key=lambda node: node.metadata.name,
    )
