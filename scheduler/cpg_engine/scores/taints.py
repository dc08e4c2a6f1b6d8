"""PreferNoSchedule taints, as TaintToleration scores them."""

from cpg_api.tolerations import untolerated
from cpg_engine.snapshot.axes import Rows, Scores
from cpg_engine.snapshot.classes import PodClass
from cpg_engine.snapshot.cluster import ClusterColumns

SOFT = frozenset({"PreferNoSchedule"})


def raw(pod_class: PodClass, cluster: ClusterColumns, rows: Rows) -> Scores:
    """Return how many soft taints each node has that the class does not tolerate: the fewer the better."""
    return cluster.by_taints(rows, lambda taints: len(untolerated(taints, pod_class.tolerations, SOFT)))
