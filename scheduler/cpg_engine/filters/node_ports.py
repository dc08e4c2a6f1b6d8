"""Host ports, as NodePorts has them: no two pods of a node may use the same one.

The ports are those that the API server has recorded; for pods in the host's network it fills them in.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cached_property

import numpy as np
from msgspec import Struct

from cpg_api.selectors import Labels
from cpg_engine.cluster.axes import Flags, Rows
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.cluster.pod_index import PodIndex
from cpg_engine.cluster.pod_relations import HostPort, PortNumber, by_number, ports_conflict

REASON = "node(s) didn't have free ports for the requested pod ports"


class PortConflictQuery(Struct, frozen=True, dict=True):
    """Counts pods with a port that conflicts with one of these."""

    ports: frozenset[HostPort]

    @cached_property
    def addresses(self) -> Mapping[PortNumber, AbstractSet[str]]:
        """Return the addresses of each port."""
        return by_number(self.ports)

    def relevant_classes(self, pod_index: PodIndex) -> Iterable[PodClass]:
        """Return the classes that use one of the ports."""
        return pod_index.taking(self.addresses)

    def weight(self, pod_class: PodClass, _namespaces: Mapping[str, Labels]) -> int:
        """Return 1 for pods that count, and 0 for others."""
        mine, theirs = self.addresses, pod_class.relations.addresses
        return int(any(ports_conflict(mine[number], theirs[number]) for number in mine.keys() & theirs.keys()))


class NodePorts:
    """The filter."""

    def __init__(self, ledger: Ledger) -> None:
        """Use the pods of a ledger."""
        self._ledger = ledger

    def pre_filter(self, pod_class: PodClass) -> "NodePortsState | None":
        """Return the state of a class with host ports, else None."""
        ports = pod_class.relations.ports
        return NodePortsState(self._ledger, PortConflictQuery(ports)) if ports else None


class NodePortsState:
    """The host ports of one class."""

    def __init__(self, ledger: Ledger, clashes: PortConflictQuery) -> None:
        """Use the counts of this query."""
        self._ledger = ledger
        self._clashes = clashes
        self.terms = 1

    def passes(self, rows: Rows) -> Flags:
        """Return which nodes have no pod with a conflicting port."""
        answer: Flags = self._ledger.pod_index.counts(self._clashes)[rows] == 0
        return answer

    def checks(self, rows: Rows) -> Iterator[tuple[str, Flags]]:
        """Yield the only reason."""
        yield REASON, self.passes(rows)

    def could_ever_pass(self, rows: Rows, _companions: Collection[PodClass] = (), /) -> Flags:
        """Return True for all nodes: evictions can free the ports of any node."""
        return np.ones(len(rows), dtype=np.bool_)

    def still_passes(self, rows: Rows) -> Flags:
        """Return which nodes have no other pod with a conflicting port; the pod itself counts once."""
        answer: Flags = self._ledger.pod_index.counts(self._clashes)[rows] == 1
        return answer

    def score(self, _rows: Rows) -> None:
        """Return no score."""
        return
