"""The filters in order: a node that fails several is counted with the first."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from cpg_engine.filters import affinity, nodename, taints, unschedulable
from cpg_engine.snapshot.axes import Flags, Rows, Scores
from cpg_engine.snapshot.classes import PodClass
from cpg_engine.snapshot.cluster import ClusterColumns


class StaticFilter(NamedTuple):
    """A predicate on class and node."""

    reason: str
    passes: Callable[[PodClass, ClusterColumns, Rows], Flags]


class View(Protocol):
    """A dynamic filter as one class sees it; every answer is about the ledger as it is when it is asked."""

    reason: str

    def passes(self, rows: Rows) -> Flags:
        """Tell which nodes may take one more pod of the class."""

    def could_pass(self, rows: Rows) -> Flags:
        """Tell which nodes might take one if other pods were evicted; elsewhere no eviction helps."""

    def score(self, rows: Rows) -> Scores | None:
        """Return the weighted score of each node, or None where there is none to give."""


class DynamicFilter(Protocol):
    """A predicate on the pods that are on the nodes."""

    def view(self, pod_class: PodClass) -> View | None:
        """Return the class's view, or None where the filter has nothing to say about the class at present."""


STATIC = (
    StaticFilter(unschedulable.REASON, unschedulable.passes),
    StaticFilter(nodename.REASON, nodename.passes),
    StaticFilter(taints.REASON, taints.passes),
    StaticFilter(affinity.REASON, affinity.passes),
)


def statically_feasible(pod_class: PodClass, cluster: ClusterColumns, rows: Rows) -> Flags:
    """Tell which of the rows have a node that every static filter lets the class run on."""
    answer = cluster.alive[rows]
    for found in STATIC:
        answer &= found.passes(pod_class, cluster, rows)
    return answer
