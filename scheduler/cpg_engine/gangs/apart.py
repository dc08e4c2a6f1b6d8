"""Pods that keep apart: of those that avoid their own kind in the domains of a label, each domain takes one.

Room by resources says nothing of that. It is a bound like any other: others may keep them away from more.
"""

import numpy as np
from numpy.typing import NDArray

from cpg_engine.cluster.axes import Rows
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.nodes import ABSENT
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.filters.inter_pod_affinity import selects

Room = NDArray[np.int64]


def keeps_apart(pod_class: PodClass, ledger: Ledger) -> tuple[str, ...]:
    """Return the labels in whose domains no two pods of a class may be."""
    terms, namespaces = pod_class.relations.terms.avoids, ledger.pod_index.namespaces
    return tuple(dict.fromkeys(term.key for term in terms if selects(term, pod_class, namespaces)))


def thinned(slots: Room, rows: Rows, starts: Rows, keys: tuple[str, ...], ledger: Ledger) -> Room:
    """Return the room by node, as it is for pods of which each domain of some labels takes one, scope by scope.

    The rows are those of one scope after the other. Nodes without a label keep the room they have.
    """
    for key in keys:
        codes = ledger.cluster.label(key).codes[rows]
        bound = np.flatnonzero((codes != ABSENT) & (slots[rows] > 0))
        scope = np.searchsorted(starts, bound, side="right")
        _, first = np.unique(np.stack([scope, codes[bound]]), axis=1, return_index=True)
        kept = slots.copy()
        kept[rows[bound]] = 0
        kept[rows[bound[first]]] = 1
        slots = kept
    return slots
