"""Taints that keep pods off, as TaintToleration has them."""

import numpy as np

from cpg_api.tolerations import first_untolerated
from cpg_engine.snapshot.axes import Flags, Rows
from cpg_engine.snapshot.classes import PodClass
from cpg_engine.snapshot.cluster import ClusterColumns

REASON = "node(s) had untolerated taint(s)"


def passes(pod_class: PodClass, cluster: ClusterColumns, rows: Rows) -> Flags:
    """Keep to nodes all of whose NoSchedule and NoExecute taints are tolerated; each set of taints is asked once."""
    codes = cluster.taint_codes[rows]
    verdicts = np.ones(len(cluster.taint_sets), dtype=np.bool_)
    for code in np.unique(codes).tolist():
        verdicts[code] = first_untolerated(cluster.taint_sets[code], pod_class.tolerations) is None
    answer: Flags = verdicts[codes]
    return answer
