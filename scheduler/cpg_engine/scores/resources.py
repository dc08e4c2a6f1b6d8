"""Least allocated and balanced allocation, as NodeResourcesFit and NodeResourcesBalancedAllocation have them."""

import numpy as np

from cpg_engine.snapshot.axes import CPU, MEMORY, Rows, Scores
from cpg_engine.snapshot.classes import PodClass
from cpg_engine.snapshot.ledger import Ledger


def least_allocated(pod_class: PodClass, ledger: Ledger, rows: Rows, extra: int = 0) -> Scores:
    """Prefer the emptier node, on average over CPU and memory; what a node has none of does not count.

    A pod that asks for nothing counts as a little, so that such pods spread as well.
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
    """Prefer the node whose CPU and memory will be used to the same degree."""
    needs = ledger.vector_of(pod_class)
    shares = []
    for column in (CPU, MEMORY):
        capacity = ledger.allocatable[rows, column]
        taken = np.minimum(ledger.used[rows, column] + (extra + 1) * needs[column], capacity)
        shares.append((taken / np.maximum(capacity, 1), capacity > 0))
    (cpu, has_cpu), (memory, has_memory) = shares
    spread = np.where(has_cpu & has_memory, np.abs(cpu - memory) / 2, 0.0)
    return ((1.0 - spread) * 100.0).astype(np.int64)
