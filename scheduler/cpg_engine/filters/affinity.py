"""Node selectors and required node affinity, as NodeAffinity has them."""

from cpg_engine.snapshot.axes import Flags, Rows
from cpg_engine.snapshot.classes import PodClass
from cpg_engine.snapshot.cluster import ClusterColumns
from cpg_engine.snapshot.selecting import meets_affinity

REASON = "node(s) didn't match Pod's node affinity/selector"


def passes(pod_class: PodClass, cluster: ClusterColumns, rows: Rows) -> Flags:
    """Keep to nodes that the selector and one of the required terms select."""
    return meets_affinity(pod_class, cluster, rows)
