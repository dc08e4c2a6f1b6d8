"""PreferNoSchedule taints, as TaintToleration scores them."""

import numpy as np

from cpg_api.tolerations import untolerated
from cpg_engine.snapshot.axes import Rows, Scores
from cpg_engine.snapshot.classes import PodClass
from cpg_engine.snapshot.cluster import ClusterColumns

SOFT = frozenset({"PreferNoSchedule"})


def raw(pod_class: PodClass, cluster: ClusterColumns, rows: Rows) -> Scores:
    """Return, negated, how many soft taints each node has that the class does not tolerate."""
    codes = cluster.taint_codes[rows]
    counts = np.zeros(len(cluster.taint_sets), dtype=np.int64)
    for code in np.unique(codes).tolist():
        counts[code] = -len(untolerated(cluster.taint_sets[code], pod_class.tolerations, SOFT))
    answer: Scores = counts[codes]
    return answer
