"""PreferNoSchedule taints, as TaintToleration scores them."""

from cpg_api.tolerations import untolerated_taints
from cpg_engine.cluster.axes import Rows, Scores
from cpg_engine.cluster.nodes import NodeColumns
from cpg_engine.cluster.pod_classes import PodClass

SOFT = frozenset({"PreferNoSchedule"})


def raw(pod_class: PodClass, cluster: NodeColumns, rows: Rows) -> Scores:
    """Return how many PreferNoSchedule taints of each node are not tolerated; fewer is better."""
    return cluster.by_taints(rows, lambda taints: len(untolerated_taints(taints, pod_class.tolerations, SOFT)))
