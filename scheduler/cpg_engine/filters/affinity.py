"""Node selectors and required node affinity, as NodeAffinity has them."""

import numpy as np

from cpg_engine.snapshot.axes import Flags, Rows
from cpg_engine.snapshot.classes import PodClass
from cpg_engine.snapshot.cluster import ClusterColumns
from cpg_engine.snapshot.selecting import selected, term_holds

REASON = "node(s) didn't match Pod's node affinity/selector"


def passes(pod_class: PodClass, cluster: ClusterColumns, rows: Rows) -> Flags:
    """Keep to nodes that the selector and one of the required terms select."""
    answer = selected(pod_class.node_selector, cluster, rows)
    if pod_class.node_affinity is not None:
        either = np.zeros(len(rows), dtype=np.bool_)
        for term in pod_class.node_affinity.terms:
            either |= term_holds(term, cluster, rows)
        answer &= either
    return answer
