"""Pods that name their node, as NodeName has them."""

import numpy as np

from cpg_engine.cluster.axes import Flags, Rows
from cpg_engine.cluster.nodes import NodeColumns
from cpg_engine.cluster.pod_classes import PodClass

REASON = "node(s) didn't match the requested node name"


def passes(pod_class: PodClass, cluster: NodeColumns, rows: Rows) -> Flags:
    """Return whether each node is the one that the pod names; without a name, all pass."""
    if not pod_class.node_name:
        return np.ones(len(rows), dtype=np.bool_)
    answer: Flags = rows == cluster.row_of.get(pod_class.node_name, -1)
    return answer
