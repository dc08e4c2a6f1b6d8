"""Preferred node affinity, as NodeAffinity scores it."""

import numpy as np

from cpg_engine.cluster.axes import Rows, Scores
from cpg_engine.cluster.node_selection import term_holds
from cpg_engine.cluster.nodes import NodeColumns
from cpg_engine.cluster.pod_classes import PodClass

MAX_WEIGHT = 100
"""The API server allows weights from 1 to 100. Others are reduced to the range from 0 to 100."""


def raw(pod_class: PodClass, cluster: NodeColumns, rows: Rows) -> Scores:
    """Return the sum of the weights of the preferences that each node meets."""
    total = np.zeros(len(rows), dtype=np.int64)
    for weight, term in pod_class.preferences:
        total += min(max(weight, 0), MAX_WEIGHT) * term_holds(term, cluster, rows)
    return total
