"""Lets the faults of a night begin and end."""

import json
from collections.abc import Callable
from typing import Protocol, get_args

from msgspec.structs import replace

from cpg_client.resources import LEASES, PODS
from cpg_simulation.apiserver.server import ApiServer
from cpg_simulation.apiserver.values import Request
from cpg_simulation.faults.api_server import ServerFaults
from cpg_simulation.faults.nodes import NodeFaults
from cpg_simulation.faults.objects import ObjectFaults, object_of
from cpg_simulation.faults.pods import PodFaults
from cpg_simulation.faults.processes import Processes, ProcessFaults
from cpg_simulation.faults.requests import RequestFaults, is_hit
from cpg_simulation.network import Network
from cpg_simulation.nights.plan import (
    LEADER,
    PATIENCE_SECONDS,
    Fault,
    Night,
    NodeFault,
    ObjectFault,
    PodFault,
    ProcessFault,
    ServerFault,
    WorldFault,
)
from cpg_simulation.virtual.coordinator import Coordinator
from cpg_simulation.world.cluster_client import ClusterClient
from cpg_simulation.world.owners import Owners
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


class WorldFaults:
    """Stops the controllers that create the pods."""

    def __init__(self, owners: Owners) -> None:
        """Act on these."""
        self._owners = owners

    def begin(self, _: Fault) -> None:
        """Stop them."""
        self._owners.is_stopped = True

    def end(self, _: Fault) -> None:
        """Let them go on."""
        self._owners.is_stopped = False


class NightFaults:
    """The faults of a night: those that are active decide about each request, the others act when they begin."""

    def __init__(self, night: Night) -> None:
        """Let nothing fail yet."""
        self.active: dict[int, Fault] = {}
        self.on_fault: Callable[[Fault, str, Request | None], None] = lambda *_: None
        """Called with each fault that has an effect on the requests or events of a process, with that process, and with
        the request if it is one."""
        self.on_restored: Callable[[], None] = lambda: None
        """Called when etcd has been restored."""
        self.on_resumed: Callable[[str, float], None] = lambda *_: None
        """Called with each process that was stopped, and the seconds, when it goes on."""
        self.requests = RequestFaults(night.seed, self.active, on_request=self._watch_for, on_fault=self._report)
        self._night = night
        self._waiting: dict[int, Fault] = {}
        """The faults that wait for a request."""
        self._families: dict[str, FaultFamily] = {}

    def connect(
        self, coordinator: Coordinator, network: Network, server: ApiServer, world: World, processes: Processes
    ) -> None:
        """Act on these at the times of the plan."""
        self._coordinator = coordinator
        self._client = world.client
        servers = ServerFaults(coordinator, server, network, world.client, self._report_restored)
        self._families = {
            **dict.fromkeys(get_args(ProcessFault), ProcessFaults(processes, self._report_resumed)),
            **dict.fromkeys(("cut-off", "cut-watches", "reset"), NetworkFaults(network)),
            **dict.fromkeys(get_args(ServerFault), servers),
            **dict.fromkeys(get_args(NodeFault), NodeFaults(self._night.nodes, world.client, world.kubelets)),
            **dict.fromkeys(get_args(PodFault), PodFaults(coordinator, world.client)),
            **dict.fromkeys(get_args(WorldFault), WorldFaults(world.owners)),
            **dict.fromkeys(get_args(ObjectFault), ObjectFaults(world.client, self._night.flavour)),
        }
        if any(fault.kind == "restore" for fault in self._night.faults):
            servers.save()
        for number, fault in enumerate(self._night.faults):
            coordinator.at(fault.at, self._wait if fault.trigger else self._begin, number, fault)

    def _wait(self, number: int, fault: Fault) -> None:
        self._waiting[number] = fault
        self._coordinator.after(PATIENCE_SECONDS, self._wait_no_more, number)

    def _watch_for(self, request: Request) -> None:
        """Let the faults begin that wait for such a request; those of requests hit it already."""
        found = [number for number, fault in self._waiting.items() if is_hit(request, fault.trigger)]
        for number in found:
            fault = self._waiting.pop(number)
            if fault.kind in get_args(NodeFault):
                fault = replace(fault, target=self._node_of(request) or fault.target)
            elif fault.kind in get_args(ObjectFault):
                fault = replace(fault, target=object_of(request))
            if fault.delay or fault.kind in self._families:
                self._coordinator.after(fault.delay, self._begin, number, fault)
            else:
                self._begin(number, fault)

    def _wait_no_more(self, number: int) -> None:
        fault = self._waiting.pop(number, None)
        if fault is not None:
            self._begin(number, fault)

    def _node_of(self, request: Request) -> str:
        """Return the node that a pod is bound to by a request, or is on."""
        if is_hit(request, "binds"):
            node: str = json.loads(request.body)["target"]["name"]
            return node
        if is_hit(request, "claims"):
            return _node_of_claim(request)
        pod = self._client.get(PODS, object_of(request).partition("/")[2])
        return pod["spec"].get("nodeName", "") if pod is not None else ""

    def _begin(self, number: int, fault: Fault) -> None:
        target = (leader(self._client) or "scheduler-0") if fault.target == LEADER else fault.target
        fault = self.active[number] = replace(fault, at=self._coordinator.now, trigger="", target=target)
        self._coordinator.after(fault.seconds, self._end, number, fault)
        if fault.kind in self._families:
            self._report(fault, fault.target, None)
            self._families[fault.kind].begin(fault)

    def _end(self, number: int, fault: Fault) -> None:
        del self.active[number]
        if fault.kind in self._families:
            self._families[fault.kind].end(fault)

    def _report(self, fault: Fault, process: str, request: Request | None) -> None:
        self.on_fault(fault, process, request)

    def _report_resumed(self, process: str, seconds: float) -> None:
        self.on_resumed(process, seconds)

    def _report_restored(self) -> None:
        self.on_restored()


def _node_of_claim(request: Request) -> str:
    """Return the node of the device that a claim is given, whose pool is called like it."""
    status = json.loads(request.body or b"{}").get("status") or {}
    results = (status.get("allocation") or {}).get("devices", {}).get("results") or [{"pool": ""}]
    return str(results[0]["pool"])


def leader(client: ClusterClient) -> str:
    """Return the replica of the scheduler that has the lease, if one has it."""
    for lease in client.objects(LEASES):
        holder: str = lease["spec"].get("holderIdentity") or ""
        if holder.startswith("scheduler-"):
            return holder[: len("scheduler-0")]
    return ""
