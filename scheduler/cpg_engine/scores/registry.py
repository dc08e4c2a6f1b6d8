"""The scores together: weights, and how what is counted becomes 0 to 100.

What depends on the node alone is normalised over the nodes that the static filters leave, not over those that happen
to have room at the moment: so it is computed once per class, and a node that fills up does not change what the
others are worth.
"""

from cpg_engine.scores import affinity, images, resources, taints
from cpg_engine.snapshot.axes import Rows, Scores
from cpg_engine.snapshot.classes import PodClass
from cpg_engine.snapshot.cluster import ClusterColumns
from cpg_engine.snapshot.ledger import Ledger
from cpg_engine.weights import Weights


def static_score(pod_class: PodClass, cluster: ClusterColumns, rows: Rows, weights: Weights) -> Scores:
    """Return the weighted sum of the scores that depend on class and node alone; rows are the feasible ones."""
    total = weights.taints * (100 - _scaled(taints.raw(pod_class, cluster, rows)))
    if pod_class.preferences:
        total += weights.node_affinity * _scaled(affinity.raw(pod_class, cluster, rows))
    return total + weights.images * images.raw(pod_class, cluster, rows)


def dynamic_score(pod_class: PodClass, ledger: Ledger, rows: Rows, *, weights: Weights, extra: int = 0) -> Scores:
    """Return the weighted sum of the scores that depend on what is used; see ``fit.passes`` for ``extra``."""
    return weights.least_allocated * resources.least_allocated(
        pod_class, ledger, rows, extra
    ) + weights.balanced * resources.balanced(pod_class, ledger, rows, extra)


def _scaled(raw: Scores) -> Scores:
    """Scale so that the largest number becomes 100; none is negative."""
    largest = int(raw.max(initial=0))
    return raw * 100 // largest if largest else raw
