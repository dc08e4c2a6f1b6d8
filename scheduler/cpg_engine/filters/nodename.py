"""Pods that name their node, as NodeName has them."""

import numpy as np

from cpg_engine.snapshot.axes import Flags, Rows
from cpg_engine.snapshot.classes import PodClass
from cpg_engine.snapshot.cluster import ClusterColumns

REASON = "node(s) didn't match the requested node name"


def passes(pod_class: PodClass, cluster: ClusterColumns, rows: Rows) -> Flags:
    """Leave the named node alone; without a name, all of them."""
    if not pod_class.node_name:
        return np.ones(len(rows), dtype=np.bool_)
    answer: Flags = rows == cluster.row_of.get(pod_class.node_name, -1)
    return answer
