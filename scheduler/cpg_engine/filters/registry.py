"""The filters in order: a node that several filters reject is counted with the first."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple, Protocol

from cpg_api.core.node import Taint
from cpg_api.tolerations import BLOCKING_EFFECTS
from cpg_engine.cluster.axes import Flags, Rows, Scores
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.nodes import NodeColumns
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.filters import (
    dynamic_resources,
    node_affinity,
    node_name,
    node_unschedulable,
    taint_toleration,
    volume_zone,
)
from cpg_engine.filters.dynamic_resources import DynamicResources
from cpg_engine.filters.inter_pod_affinity import InterPodAffinity
from cpg_engine.filters.node_ports import NodePorts
from cpg_engine.filters.node_volume_limits import NodeVolumeLimits
from cpg_engine.filters.pod_topology_spread import PodTopologySpread
from cpg_engine.filters.volume_binding import VolumeBinding
from cpg_engine.filters.volume_restrictions import VolumeRestrictions
from cpg_engine.weights import Weights


class StaticFilter(NamedTuple):
    """A predicate on class and node."""

    reason: str
    passes: Callable[[PodClass, NodeColumns, Rows], Flags]


class PreFilterState(Protocol):
    """A dynamic filter, prepared for one class; every answer is about the ledger as it is at the call."""

    @property
    def terms(self) -> int:
        """Return how many constraints or terms are evaluated for each pod, each over all nodes."""

    def passes(self, rows: Rows) -> Flags:
        """Return which nodes may take one more pod of the class."""

    def checks(self, rows: Rows) -> Iterable[tuple[str, Flags]]:
        """Yield the reasons for rejection in their order, each with the nodes that pass.

        A node passes the filter if it passes every check.
        """

    def could_ever_pass(self, rows: Rows, companions: Collection[PodClass] = (), /) -> Flags:
        """Return which nodes might take a pod if other pods were evicted; on the others no eviction helps.

        ``companions`` are classes that are to be placed as well and that satisfy all required affinity of the class.
        """

    def still_passes(self, rows: Rows) -> Flags:
        """Return for nodes that each have a pod of the class whether they would pass if it came last."""

    def score(self, rows: Rows) -> Scores | None:
        """Return the weighted score of each node, or None where the filter has no preference."""


class DynamicFilter(Protocol):
    """A predicate that depends on the pods on the nodes."""

    def pre_filter(self, pod_class: PodClass) -> PreFilterState | None:
        """Return the state for a class, or None where the filter does not concern it at present."""


STATIC = (
    StaticFilter(node_unschedulable.REASON, node_unschedulable.passes),
    StaticFilter(node_name.REASON, node_name.passes),
    StaticFilter(taint_toleration.REASON, taint_toleration.passes),
    StaticFilter(node_affinity.REASON, node_affinity.passes),
)


def statically_feasible(pod_class: PodClass, cluster: NodeColumns, rows: Rows) -> Flags:
    """Return which of the rows have a node that every static filter passes for the class."""
    answer = cluster.alive[rows]
    for found in STATIC:
        answer &= found.passes(pod_class, cluster, rows)
    return answer


def selects_nodes(pod_class: PodClass, cluster: NodeColumns, rows: Rows) -> Flags:
    """Return which of the rows have a node that the class selects; tolerations do not matter for that."""
    answer = cluster.alive[rows]
    for passes in (node_name.passes, node_affinity.passes):
        answer &= passes(pod_class, cluster, rows)
    return answer


def blocking_taints(cluster: NodeColumns, row: int) -> tuple[Taint, ...]:
    """Return the taints of a node that keep pods from it, the one of a cordon included."""
    taints = tuple(taint for taint in cluster.taint_sets[cluster.taint_codes[row]] if taint.effect in BLOCKING_EFFECTS)
    return (*taints, node_unschedulable.CORDON) if cluster.unschedulable[row] else taints


def catalog_checks(pod_class: PodClass, ledger: Ledger, rows: Rows) -> Iterator[tuple[str, Flags]]:
    """Yield the checks that are static until a node or a catalog changes: reasons, with the nodes that pass."""
    yield from volume_zone.checks(pod_class, ledger, rows)
    yield from dynamic_resources.checks(pod_class, ledger, rows)


def columnar_filters(pod_class: PodClass, ledger: Ledger) -> Iterator[PreFilterState]:
    """Yield the states of filters for a class that the room of nodes stands for, as long as no pod is evicted."""
    state = dynamic_resources.columnar_state(pod_class, ledger)
    if state is not None:
        yield state


def dynamic_filters(ledger: Ledger, weights: Weights) -> tuple[DynamicFilter, ...]:
    """Return the filters that depend on the pods on the nodes, in kube-scheduler's order."""
    return (
        NodePorts(ledger),
        VolumeRestrictions(ledger),
        NodeVolumeLimits(ledger),
        VolumeBinding(ledger),
        DynamicResources(ledger, weights),
        PodTopologySpread(ledger, weights),
        InterPodAffinity(ledger, weights),
    )
