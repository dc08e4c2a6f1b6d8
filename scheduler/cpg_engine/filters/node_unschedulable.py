"""Cordoned nodes, as NodeUnschedulable has them."""

import numpy as np

from cpg_api.core.node import Taint
from cpg_api.tolerations import tolerates
from cpg_engine.cluster.axes import Flags, Rows
from cpg_engine.cluster.nodes import NodeColumns
from cpg_engine.cluster.pod_classes import PodClass

REASON = "node(s) were unschedulable"
CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def passes(pod_class: PodClass, cluster: NodeColumns, rows: Rows) -> Flags:
    """Return which nodes are not cordoned, or all nodes if the pod tolerates the taint of a cordon."""
    if any(tolerates(toleration, CORDON) for toleration in pod_class.tolerations):
        return np.ones(len(rows), dtype=np.bool_)
    return ~cluster.unschedulable[rows]
