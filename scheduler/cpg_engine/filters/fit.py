"""Resources, as NodeResourcesFit has them."""

import numpy as np

from cpg_engine.snapshot.axes import Flags, Rows, Scores
from cpg_engine.snapshot.classes import PodClass
from cpg_engine.snapshot.ledger import Ledger

REASON = "Insufficient {resource}"


def passes(pod_class: PodClass, ledger: Ledger, rows: Rows, extra: int = 0) -> Flags:
    """Keep to nodes with room for one more pod; what the pod does not ask for is not looked at.

    With ``extra``, that many pods of the class are taken to be on each node already.
    """
    answer = np.ones(len(rows), dtype=np.bool_)
    needs = ledger.vector_of(pod_class)
    for column in np.flatnonzero(needs).tolist():
        answer &= ledger.used[rows, column] + (extra + 1) * needs[column] <= ledger.allocatable[rows, column]
    return answer


def could_ever(pod_class: PodClass, ledger: Ledger, rows: Rows) -> Flags:
    """Tell which nodes would have room if they were empty: elsewhere no eviction helps."""
    answer = np.ones(len(rows), dtype=np.bool_)
    needs = ledger.vector_of(pod_class)
    for column in np.flatnonzero(needs).tolist():
        answer &= needs[column] <= ledger.allocatable[rows, column]
    return answer


def slots(pod_class: PodClass, ledger: Ledger, rows: Rows) -> Scores:
    """Return how many more pods of the class each node has room for, by resources alone."""
    needs = ledger.vector_of(pod_class)
    answer: Scores | None = None
    for column in np.flatnonzero(needs).tolist():
        room = (ledger.allocatable[rows, column] - ledger.used[rows, column]) // needs[column]
        answer = room if answer is None else np.minimum(answer, room)
    # Every pod takes one of "pods", so there is always a column.
    return np.maximum(answer, 0) if answer is not None else np.zeros(len(rows), dtype=np.int64)


def short_of(pod_class: PodClass, ledger: Ledger, rows: Rows) -> dict[str, int]:
    """Return at how many of the nodes each resource is short; a node may be short of several."""
    needs = ledger.vector_of(pod_class)
    found = {}
    for column in np.flatnonzero(needs).tolist():
        short = ledger.used[rows, column] + needs[column] > ledger.allocatable[rows, column]
        if number := int(np.count_nonzero(short)):
            found[ledger.axis.names[column]] = number
    return found
