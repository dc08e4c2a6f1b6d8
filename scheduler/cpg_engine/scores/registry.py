"""All scores together: their weights, and how raw numbers are scaled to 0 to 100.

Scores that depend on the node alone are normalized over the nodes that the static filters pass, not over those that
have room at the moment. So they are computed once per class, and a node that fills up does not change the others'.
"""

from cpg_engine.cluster.axes import Rows, Scores
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.nodes import NodeColumns
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.scores import image_locality, node_affinity, node_resources, taint_toleration
from cpg_engine.weights import Weights


def static_score(pod_class: PodClass, cluster: NodeColumns, rows: Rows, weights: Weights) -> Scores:
    """Return the weighted sum of the scores that depend on class and node alone; the rows are the feasible ones."""
    total = weights.taints * (100 - _scaled(taint_toleration.raw(pod_class, cluster, rows)))
    if pod_class.preferences:
        total += weights.node_affinity * _scaled(node_affinity.raw(pod_class, cluster, rows))
    return total + weights.images * image_locality.raw(pod_class, cluster, rows)


def dynamic_score(pod_class: PodClass, ledger: Ledger, rows: Rows, *, weights: Weights, extra: int = 0) -> Scores:
    """Return the weighted sum of the scores that depend on usage; for ``extra`` see ``node_resources.passes``."""
    return weights.least_allocated * node_resources.least_allocated(
        pod_class, ledger, rows, extra
    ) + weights.balanced * node_resources.balanced(pod_class, ledger, rows, extra)


def _scaled(raw: Scores) -> Scores:
    """Scale so that the largest number becomes 100; none is negative."""
    largest = int(raw.max(initial=0))
    return raw * 100 // largest if largest else raw
