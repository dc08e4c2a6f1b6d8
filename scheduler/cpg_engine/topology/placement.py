"""How good a domain is for a whole group: the fuller the better, so that large gaps stay whole for large groups."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cpg_engine.cluster.axes import CPU, MEMORY
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.topology.domains import Partition
from cpg_engine.weights import Weights


def placement_scores(
    ledger: Ledger,
    partition: Partition,
    fits: NDArray[np.int64],
    *,
    wanted: Sequence[tuple[PodClass, int]],
    weights: Weights,
) -> NDArray[np.int64]:
    """Score each domain as it would be with the group in it, by kube-scheduler's two placement scores.

    They are how much of the domain's CPU and memory would be used, and how many of the group's pods would be placed,
    relative to the domain that takes most. They are exact where all pods are alike, an estimate otherwise, and decide
    only the order in which domains are tried.
    """
    total = max(sum(number for _, number in wanted), 1)
    share = fits / total
    allocated = np.zeros(len(fits), dtype=np.float64)
    counted = np.zeros(len(fits), dtype=np.int64)
    for column, scored in ((CPU, 0), (MEMORY, 1)):
        capacity = partition.sums(ledger.allocatable[:, column])
        more = sum((found.scored_cpu, found.scored_memory)[scored] * number for found, number in wanted)
        taken = np.minimum(partition.sums(ledger.scored[:, scored]) + more * share, capacity)
        allocated += np.floor(100 * taken / np.maximum(capacity, 1))
        counted += capacity > 0
    placed = fits * 100 // max(int(fits.max(initial=0)), 1)
    return (
        weights.placement_allocated * np.floor(allocated / np.maximum(counted, 1)).astype(np.int64)
        + weights.placement_pods * placed
    )
