"""The filters in order: a node that fails several is counted with the first."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple, Protocol

from cpg_engine.filters import affinity, nodename, taints, unschedulable, volumes
from cpg_engine.filters.podaffinity import PodAffinity
from cpg_engine.filters.ports import Ports
from cpg_engine.filters.spread import Spread
from cpg_engine.filters.volumeaccess import VolumeAccess
from cpg_engine.filters.volumebinding import VolumeBinding
from cpg_engine.filters.volumelimits import VolumeLimits
from cpg_engine.snapshot.axes import Flags, Rows, Scores
from cpg_engine.snapshot.classes import PodClass
from cpg_engine.snapshot.cluster import ClusterColumns
from cpg_engine.snapshot.ledger import Ledger
from cpg_engine.weights import Weights


class StaticFilter(NamedTuple):
    """A predicate on class and node."""

    reason: str
    passes: Callable[[PodClass, ClusterColumns, Rows], Flags]


class View(Protocol):
    """A dynamic filter as one class sees it; every answer is about the ledger as it is when it is asked."""

    def passes(self, rows: Rows) -> Flags:
        """Tell which nodes may take one more pod of the class."""

    def checks(self, rows: Rows) -> Iterable[tuple[str, Flags]]:
        """Yield the reasons there are to be out, each with the nodes that pass, in the order they are named in.

        A node passes the filter if it passes every check.
        """

    def could_pass(self, rows: Rows, company: Collection[PodClass] = (), /) -> Flags:
        """Tell which nodes might take one if other pods were evicted; elsewhere no eviction helps.

        The company are others that are to come as well, each of them all that the class needs near.
        """

    def stays(self, rows: Rows) -> Flags:
        """Tell for nodes that each have a pod of the class whether they would pass if it came now, after the others."""

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


def storage_checks(pod_class: PodClass, ledger: Ledger, rows: Rows) -> Iterator[tuple[str, Flags]]:
    """Yield what is static until a node or the catalogue of storage changes: reasons, each with the nodes that pass."""
    yield from volumes.checks(pod_class, ledger, rows)


def dynamic_filters(ledger: Ledger, weights: Weights) -> tuple[DynamicFilter, ...]:
    """Return the filters that look at the pods on the nodes, in kube-scheduler's order."""
    return (
        Ports(ledger),
        VolumeAccess(ledger),
        VolumeLimits(ledger),
        VolumeBinding(ledger),
        Spread(ledger, weights),
        PodAffinity(ledger, weights),
    )
