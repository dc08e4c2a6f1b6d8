"""NoSchedule and NoExecute taints, as TaintToleration has them."""

from cpg_engine.cluster.axes import Flags, Rows
from cpg_engine.cluster.node_selection import tolerated
from cpg_engine.cluster.nodes import NodeColumns
from cpg_engine.cluster.pod_classes import PodClass

REASON = "node(s) had untolerated taint(s)"


def passes(pod_class: PodClass, cluster: NodeColumns, rows: Rows) -> Flags:
    """Return which nodes have only NoSchedule and NoExecute taints that are tolerated."""
    return tolerated(pod_class, cluster, rows)
