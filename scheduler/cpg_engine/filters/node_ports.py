"""Host ports, as NodePorts has them: no two pods of a node may want the same one.

The ports are those the API server has written down; for pods in the host's network it fills them in.
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
    """Counts who has a port that clashes with one of these."""

    ports: frozenset[HostPort]

    @cached_property
    def addresses(self) -> Mapping[PortNumber, AbstractSet[str]]:
        """Return at which addresses each port is wanted."""
        return by_number(self.ports)

    def relevant_classes(self, pod_index: PodIndex) -> Iterable[PodClass]:
        """Return the classes that take a port of one of the numbers."""
        return pod_index.taking(self.addresses)

    def weight(self, pod_class: PodClass, _namespaces: Mapping[str, Labels]) -> int:
        """Return 1 for pods that do, and 0 for others; whoever has fewer numbers looks them up."""
        mine, theirs = self.addresses, pod_class.relations.addresses
        return int(any(ports_conflict(mine[number], theirs[number]) for number in mine.keys() & theirs.keys()))


class NodePorts:
    """The filter."""

    def __init__(self, ledger: Ledger) -> None:
        """Look at the pods of a ledger."""
        self._ledger = ledger

    def pre_filter(self, pod_class: PodClass) -> "NodePortsState | None":
        """Return the view of a class that has host ports."""
        ports = pod_class.relations.ports
        return NodePortsState(self._ledger, PortConflictQuery(ports)) if ports else None


class NodePortsState:
    """The nodes as a class with host ports sees them."""

    def __init__(self, ledger: Ledger, clashes: PortConflictQuery) -> None:
        """Ask about these ports."""
        self._ledger = ledger
        self._clashes = clashes

    def passes(self, rows: Rows) -> Flags:
        """Keep to nodes where nobody has one of the ports."""
        answer: Flags = self._ledger.pod_index.counts(self._clashes)[rows] == 0
        return answer

    def checks(self, rows: Rows) -> Iterator[tuple[str, Flags]]:
        """Yield the one reason."""
        yield REASON, self.passes(rows)

    def could_ever_pass(self, rows: Rows, _company: Collection[PodClass] = (), /) -> Flags:
        """Tell that every node's ports may become free."""
        return np.ones(len(rows), dtype=np.bool_)

    def still_passes(self, rows: Rows) -> Flags:
        """Keep to nodes where nobody else has one of the ports; the pod itself does."""
        answer: Flags = self._ledger.pod_index.counts(self._clashes)[rows] == 1
        return answer

    def score(self, _rows: Rows) -> None:
        """Prefer no node."""
        return
