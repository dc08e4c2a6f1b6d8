"""Taints that keep pods off, as TaintToleration has them."""

from cpg_engine.snapshot.axes import Flags, Rows
from cpg_engine.snapshot.classes import PodClass
from cpg_engine.snapshot.cluster import ClusterColumns
from cpg_engine.snapshot.selecting import tolerated

REASON = "node(s) had untolerated taint(s)"


def passes(pod_class: PodClass, cluster: ClusterColumns, rows: Rows) -> Flags:
    """Keep to nodes all of whose NoSchedule and NoExecute taints are tolerated."""
    return tolerated(pod_class, cluster, rows)
