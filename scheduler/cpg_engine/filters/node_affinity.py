"""Node selectors and required node affinity, as NodeAffinity has them."""

from cpg_engine.cluster.axes import Flags, Rows
from cpg_engine.cluster.node_selection import meets_affinity
from cpg_engine.cluster.nodes import NodeColumns
from cpg_engine.cluster.pod_classes import PodClass

REASON = "node(s) didn't match Pod's node affinity/selector"


def passes(pod_class: PodClass, cluster: NodeColumns, rows: Rows) -> Flags:
    """Return which nodes the selector and one of the required terms select."""
    return meets_affinity(pod_class, cluster, rows)
