"""Least allocated and balanced allocation, as NodeResourcesFit and NodeResourcesBalancedAllocation have them."""

from collections.abc import Sequence

import numpy as np

from cpg_engine.cluster.axes import CPU, MEMORY, Amounts, Rows, Scores
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass


def least_allocated(pod_class: PodClass, ledger: Ledger, rows: Rows, extra: int = 0) -> Scores:
    """Prefer emptier nodes, on average over CPU and memory; a resource that a node does not have is left out.

    A pod without requests counts with defaults, so that such pods spread, too.
    """
    total = np.zeros(len(rows), dtype=np.int64)
    counted = np.zeros(len(rows), dtype=np.int64)
    for column, more in ((CPU, pod_class.scored_cpu), (MEMORY, pod_class.scored_memory)):
        capacity = ledger.allocatable[rows, column]
        left = np.maximum(capacity - ledger.scored[rows, column] - (extra + 1) * more, 0)
        total += left * 100 // np.maximum(capacity, 1)
        counted += capacity > 0
    return total // np.maximum(counted, 1)


def balanced(pod_class: PodClass, ledger: Ledger, rows: Rows, extra: int = 0) -> Scores:
    """Prefer nodes where the pod brings the usage of CPU and memory closer together; 75 where it does neither.

    A pod that requests neither is scored alike everywhere, or else all such pods would go to one node.
    """
    needs = ledger.classes.vector_of(pod_class)
    if not (needs[CPU] or needs[MEMORY]):
        return np.zeros(len(rows), dtype=np.int64)
    columns = [
        (ledger.used[rows, column], ledger.allocatable[rows, column], int(needs[column])) for column in (CPU, MEMORY)
    ]
    before, after = _evenness(columns, extra), _evenness(columns, extra + 1)
    return 50 + (50 + after - before) // 2


def _evenness(columns: Sequence[tuple[Amounts, Amounts, int]], pods: int) -> Scores:
    """Return how evenly the resources of a node would be used with so many more pods; fully if it has only one of them.

    A column is what is used, what there is, and what a pod requests.
    """
    (cpu, memory) = (
        np.minimum(used + pods * need, capacity) / np.maximum(capacity, 1) for used, capacity, need in columns
    )
    (_, some_cpu, _), (_, some_memory, _) = columns
    uneven = np.abs(cpu - memory) * ((some_cpu > 0) & (some_memory > 0)) / 2
    return ((1.0 - uneven) * 100.0).astype(np.int64)
