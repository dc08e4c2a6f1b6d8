"""Lets the faults of a night begin and end."""

from collections.abc import Callable
from typing import Protocol, get_args

from cpg_simulation.apiserver.server import ApiServer
from cpg_simulation.faults.api_server import ServerFaults
from cpg_simulation.faults.nodes import NodeFaults
from cpg_simulation.faults.processes import Processes, ProcessFaults
from cpg_simulation.faults.requests import RequestFaults
from cpg_simulation.network import Network
from cpg_simulation.nights.plan import Fault, Night, NodeFault, ProcessFault, ServerFault
from cpg_simulation.virtual.coordinator import Coordinator
from cpg_simulation.world.world import World


class FaultFamily(Protocol):
    """Faults of one sort of subject."""

    def begin(self, fault: Fault) -> None:
        """Let a fault begin."""

    def end(self, fault: Fault) -> None:
        """Let a fault end."""


class NetworkFaults:
    """Breaks connections. How late watches are, and what does not pass, is decided for each."""

    def __init__(self, network: Network) -> None:
        """Act on this network."""
        self._network = network

    def begin(self, fault: Fault) -> None:
        """Let a fault begin."""
        if fault.kind == "cut-watches":
            self._network.cut_watches(fault.target, fault.share)
        elif fault.kind == "reset":
            self._network.reset_all(fault.target)

    def end(self, fault: Fault) -> None:
        """Break what has waited for the other side."""
        if fault.kind == "cut-off":
            self._network.reset_all(fault.target)


class NightFaults:
    """The faults of a night: those that are active decide about each request, the others act when they begin."""

    def __init__(self, night: Night) -> None:
        """Let nothing fail yet."""
        self.active: dict[int, Fault] = {}
        self.on_fault: Callable[[Fault, str], None] = lambda *_: None
        """Called with each fault that has an effect on the requests or events of a process, and with that process."""
        self.on_restored: Callable[[], None] = lambda: None
        """Called when etcd has been restored."""
        self.requests = RequestFaults(night.seed, self.active, self._report)
        self._night = night
        self._families: dict[str, FaultFamily] = {}

    def connect(
        self, coordinator: Coordinator, network: Network, server: ApiServer, world: World, processes: Processes
    ) -> None:
        """Act on these at the times of the plan."""
        servers = ServerFaults(coordinator, server, network, world.client, self._report_restored)
        self._families = {
            **dict.fromkeys(get_args(ProcessFault), ProcessFaults(processes)),
            **dict.fromkeys(("cut-off", "cut-watches", "reset"), NetworkFaults(network)),
            **dict.fromkeys(get_args(ServerFault), servers),
            **dict.fromkeys(get_args(NodeFault), NodeFaults(self._night.nodes, world.client, world.kubelets)),
        }
        if any(fault.kind == "restore" for fault in self._night.faults):
            servers.save()
        for number, fault in enumerate(self._night.faults):
            coordinator.at(fault.at, self._begin, number, fault)
            coordinator.at(fault.end, self._end, number, fault)

    def _begin(self, number: int, fault: Fault) -> None:
        self.active[number] = fault
        if fault.kind in self._families:
            self.on_fault(fault, fault.target)
            self._families[fault.kind].begin(fault)

    def _end(self, number: int, fault: Fault) -> None:
        del self.active[number]
        if fault.kind in self._families:
            self._families[fault.kind].end(fault)

    def _report(self, fault: Fault, process: str) -> None:
        self.on_fault(fault, process)

    def _report_restored(self) -> None:
        self.on_restored()
