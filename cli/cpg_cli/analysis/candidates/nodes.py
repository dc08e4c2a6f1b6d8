"""Changes of nodes: those that are cordoned are not, or there are more of a shape that the cluster has."""

from collections import Counter
from collections.abc import Hashable, Iterator
from functools import partial

from msgspec.structs import replace

from cpg_api.core.node import Node, NodeSpec
from cpg_cli.analysis.assessment import named
from cpg_cli.analysis.candidates.case import Case, Counterfactual, smallest
from cpg_cli.analysis.changes import HOSTNAME, ObjectChange, node_like

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
    for node in _shapes(case):
        limit = min(len(found[0].changes) - 1 if found else 4 * lacking, MAX_NODES)
        number = smallest(range(1, limit + 1), partial(_suffices, case, node))
        if number is not None:
            where = f" in {closest.domain.value}" if closest else ""
            text = f"{number} more node{'s' * (number != 1)} like {_shape_name(node)}{where}"
            found = [Counterfactual("Nodes", text, _copies(node, number))]
    yield from found


def _suffices(case: Case, node: Node, number: int) -> bool:
    return case.fits(_copies(node, number))


def _shapes(case: Case) -> list[Node]:
    """Return one node of each of the most frequent shapes, of the closest domain where there are domains."""
    closest, nodes = case.closest, _nodes(case)
    if closest is not None:
        key, value = closest.domain.key, closest.domain.value
        nodes = [node for node in nodes if node.metadata.labels.get(key) == value]
    first: dict[Hashable, Node] = {}
    counts: Counter[Hashable] = Counter()
    spread = {one.topology_key for pod in case.pods for one in pod.spec.topology_spread_constraints or ()}
    for node in nodes:
        shape = _shape(node), tuple(node.metadata.labels.get(key) for key in sorted(spread - {HOSTNAME}))
        counts[shape] += 1
        first.setdefault(shape, node)
    return [first[shape] for shape, _ in counts.most_common(MAX_SHAPES)]


def _copies(node: Node, number: int) -> tuple[ObjectChange, ...]:
    name = node.metadata.name
    return tuple(ObjectChange(None, node_like(node, f"{name}-more-{count}")) for count in range(1, number + 1))


def _shape(node: Node) -> Hashable:
    allocatable = tuple(sorted((node.status.allocatable or {}).items()))
    return allocatable, node.spec.taints, node.metadata.labels.get(INSTANCE_TYPE)


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
