"""Resources, as NodeResourcesFit has them."""

import numpy as np

from cpg_engine.cluster.axes import PODS, Flags, Rows, Scores
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass

REASON = "Insufficient {resource}"


def passes(pod_class: PodClass, ledger: Ledger, rows: Rows, extra: int = 0) -> Flags:
    """Return which nodes have room for one more pod; resources that it does not request are ignored.

    With ``extra``, each node is taken to have that many more pods of the class already.
    """
    answer = np.ones(len(rows), dtype=np.bool_)
    needs = ledger.classes.vector_of(pod_class)
    for column in np.flatnonzero(needs).tolist():
        answer &= ledger.used[rows, column] + (extra + 1) * needs[column] <= ledger.allocatable[rows, column]
    return answer


def could_fit_if_empty(pod_class: PodClass, ledger: Ledger, rows: Rows) -> Flags:
    """Return which nodes would have room if they were empty; on the others no eviction helps."""
    answer = np.ones(len(rows), dtype=np.bool_)
    needs = ledger.classes.vector_of(pod_class)
    for column in np.flatnonzero(needs).tolist():
        answer &= needs[column] <= ledger.allocatable[rows, column]
    return answer


def slots(pod_class: PodClass, ledger: Ledger, rows: Rows) -> Scores:
    """Return for how many more pods of the class each node has room, by resources alone."""
    needs = ledger.classes.vector_of(pod_class)
    answer: Scores = ledger.allocatable[rows, PODS] - ledger.used[rows, PODS]
    for column in np.flatnonzero(needs).tolist():
        if column != PODS:
            room = (ledger.allocatable[rows, column] - ledger.used[rows, column]) // needs[column]
            np.minimum(answer, room, out=answer)
    return np.maximum(answer, 0)


def empty_slots(pod_class: PodClass, ledger: Ledger, rows: Rows) -> Scores:
    """Return for how many pods of the class each node would have room if it were empty."""
    needs = ledger.classes.vector_of(pod_class)
    columns = np.flatnonzero(needs)
    room: Scores = (ledger.allocatable[np.ix_(rows, columns)] // needs[columns]).min(axis=1)
    return room


def shortages(pod_class: PodClass, ledger: Ledger, rows: Rows) -> dict[str, int]:
    """Return on how many of the nodes each resource is short; a node may be short of several."""
    needs = ledger.classes.vector_of(pod_class)
    found = {}
    for column in np.flatnonzero(needs).tolist():
        short = ledger.used[rows, column] + needs[column] > ledger.allocatable[rows, column]
        if number := int(np.count_nonzero(short)):
            found.update(dict.fromkeys(ledger.classes.resources_at(column, pod_class), number))
    return found
