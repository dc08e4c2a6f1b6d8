"""Lets the faults of a night begin and end."""

import json
from collections.abc import Callable
from random import Random
from typing import Protocol

from cpg_client.resources import NODES
from cpg_simulation.apiserver.server import ApiServer
from cpg_simulation.apiserver.storage import State
from cpg_simulation.apiserver.values import Answer, Request
from cpg_simulation.network import NORMAL, Network, Treatment
from cpg_simulation.nights import manifests
from cpg_simulation.nights.manifests import Manifest
from cpg_simulation.nights.plan import Fault, Night
from cpg_simulation.virtual.coordinator import Coordinator
from cpg_simulation.virtual.machine import Machine
from cpg_simulation.virtual.process import Process
from cpg_simulation.world import World, key

SECONDS_BETWEEN_SAVES = 1.0
REQUEST_FAULTS = ("lose-request", "lose-answer", "cut-answer", "refuse", "throttle", "fail", "delay")
FAILURES = {500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}


class Processes(Protocol):
    """The processes of a simulation, each with its machine."""

    def process(self, name: str) -> Process | None:
        """Return the process that runs under a name, if one does."""

    def machine(self, name: str) -> Machine:
        """Return the machine of a process."""

    def kill(self, name: str) -> None:
        """Kill the process that runs under a name, if one does."""

    def start_again(self, name: str) -> None:
        """Start a process again, if it has ended."""


def is_hit(request: Request, requests: str) -> bool:
    """Return whether a request is of a sort: binds, evictions, leases, status, watches, reads, writes, or any."""
    is_write, path = request.method != "GET", request.path
    return {
        "binds": path.endswith("/binding"),
        "evictions": "/pods/" in path and request.method == "DELETE",
        "leases": "/leases" in path,
        "status": is_write and path.endswith("/status"),
        "watches": request.query.get("watch") == "true",
        "reads": not is_write and request.query.get("watch") != "true",
        "writes": is_write,
        "any": True,
    }[requests]


class NightFaults:
    """The faults of a night: those that are active decide about each request, the others act when they begin."""

    def __init__(self, night: Night, coordinator: Coordinator, server: ApiServer, processes: Processes) -> None:
        """Let nothing fail yet."""
        self.active: dict[int, Fault] = {}
        self.on_fault: Callable[[Fault, str], None] = lambda *_: None
        """Called with each fault that has an effect on the requests or events of a process, and with that process."""
        self.on_restored: Callable[[], None] = lambda: None
        """Called when etcd has been restored."""
        self._coordinator = coordinator
        self._server = server
        self._processes = processes
        self._randoms = {number: Random(f"{night.seed} fault {number}") for number in range(len(night.faults))}  # noqa: S311
        self._nodes: dict[int, Manifest] = {}
        self._saved: list[tuple[float, State]] = []
        if any(fault.kind == "restore" for fault in night.faults):
            self._save()
        for number, fault in enumerate(night.faults):
            coordinator.at(fault.at, self._begin, number, fault)
            coordinator.at(fault.end, self._end, number, fault)

    def connect(self, network: Network, world: World) -> None:
        """Act on these."""
        self._network = network
        self._world = world

    # What the network asks.

    def treat(self, process: str, request: Request) -> Treatment:
        """Return what is to happen to a request: the first fault that hits it decides."""
        for number, fault in self.active.items():
            if (
                fault.kind in REQUEST_FAULTS
                and fault.target in {"", process}
                and is_hit(request, fault.requests)
                and self._randoms[number].random() < fault.share
            ):
                self.on_fault(fault, process)
                return self._treatment(fault, self._randoms[number])
        return NORMAL

    def watch_lag(self, process: str, watch_number: int, path: str) -> float:
        """Return the seconds by which the next events of a watch are late; other watches are on time."""
        for number, fault in self.active.items():
            if fault.kind == "lag-watches" and fault.target == process:
                random = Random(f"{number} {watch_number} {path}")  # noqa: S311
                if random.random() < max(fault.share, 0.5):
                    self.on_fault(fault, process)
                    return fault.amount * random.random()
        return 0.0

    def is_cut_off(self, process: str) -> bool:
        """Return whether nothing passes between a process and the API server."""
        return any(fault.kind == "cut-off" and fault.target == process for fault in self.active.values())

    @staticmethod
    def _treatment(fault: Fault, random: Random) -> Treatment:
        if fault.kind == "delay":
            seconds = fault.amount * random.random()
            return Treatment(seconds_there=seconds) if random.random() < 0.5 else Treatment(seconds_back=seconds)
        if fault.kind == "fail":
            status = random.choice(tuple(FAILURES))
            return Treatment(answer=refusal(status, FAILURES[status], "failed"))
        return TREATMENTS[fault.kind]

    # Beginnings and ends.

    def _begin(self, number: int, fault: Fault) -> None:
        self.active[number] = fault
        if begin := self._beginnings().get(fault.kind):
            self.on_fault(fault, fault.target)
            begin(number, fault)

    def _end(self, number: int, fault: Fault) -> None:
        del self.active[number]
        if end := self._ends().get(fault.kind):
            end(number, fault)

    def _beginnings(self) -> dict[str, Callable[[int, Fault], None]]:
        return {
            "kill": lambda _, fault: self._processes.kill(fault.target),
            "terminate": lambda _, fault: self._on_process(fault, lambda process: process.signal(15)),
            "stop": lambda _, fault: self._on_process(fault, Process.stop),
            "suspend": lambda _, fault: self._on_process(fault, Process.stop),
            "slow": lambda _, fault: self._slow(fault, fault.amount),
            "skew-clock": self._skew,
            "fast-clock": lambda _, fault: self._processes.machine(fault.target).change_rate(fault.amount),
            "cut-watches": lambda _, fault: self._network.cut_watches(fault.target, fault.share),
            "reset": lambda _, fault: self._network.reset_all(fault.target),
            "restart": lambda *_: self._take_down(),
            "compact": lambda *_: self._server.compact(self._server.revision),
            "restore": self._restore,
            "refuse-admission": self._refuse,
            "vanish": self._vanish,
            "relabel": self._relabel,
            "cordon": lambda number, fault: self._change_node(number, fault, {"spec": {"unschedulable": True}}),
            "taint": lambda number, fault: self._change_node(
                number, fault, {"spec": {"taints": [{"key": "example.com/bad", "effect": "NoSchedule"}]}}
            ),
            "shrink": lambda number, fault: self._change_node(
                number, fault, {"status": {"allocatable": {"cpu": "500m"}}}, subresource="status"
            ),
            "reject-pods": lambda _, fault: self._world.rejecting.add(fault.target),
        }

    def _ends(self) -> dict[str, Callable[[int, Fault], None]]:
        return {
            "kill": lambda _, fault: self._processes.start_again(fault.target),
            "stop": lambda _, fault: self._on_process(fault, Process.resume),
            "suspend": self._wake,
            "slow": lambda _, fault: self._slow(fault, 1.0),
            "skew-clock": lambda _, fault: self._set_skew(fault.target, 0.0),
            "fast-clock": lambda _, fault: self._processes.machine(fault.target).change_rate(1.0),
            "cut-off": lambda _, fault: self._network.reset_all(fault.target),
            "restart": lambda *_: self._bring_up(),
            "restore": lambda *_: self._bring_up(),
            "refuse-admission": self._accept,
            "vanish": self._bring_back,
            "relabel": self._restore_node,
            "cordon": self._restore_node,
            "taint": self._restore_node,
            "shrink": self._restore_node,
            "reject-pods": lambda _, fault: self._world.rejecting.discard(fault.target),
        }

    def _on_process(self, fault: Fault, act: Callable[[Process], None]) -> None:
        process = self._processes.process(fault.target)
        if process is not None:
            act(process)

    def _slow(self, fault: Fault, factor: float) -> None:
        self._processes.machine(fault.target).seconds_per_reading = 2e-6 * factor

    def _skew(self, number: int, fault: Fault) -> None:
        del number
        self._set_skew(fault.target, fault.amount)

    def _set_skew(self, process: str, seconds: float) -> None:
        self._processes.machine(process).skew = seconds

    def _wake(self, number: int, fault: Fault) -> None:
        del number
        self._processes.machine(fault.target).count_suspension(fault.seconds)
        self._on_process(fault, Process.resume)

    # The API server.

    def _take_down(self) -> None:
        self._network.is_down = self._world.is_down = True
        self._server.restart()
        self._network.reset_all()

    def _bring_up(self) -> None:
        is_down = any(fault.kind in {"restart", "restore"} for fault in self.active.values())
        self._network.is_down = self._world.is_down = is_down

    def _save(self) -> None:
        self._saved.append((self._coordinator.now, self._server.save()))
        self._coordinator.after(SECONDS_BETWEEN_SAVES, self._save)

    def _restore(self, number: int, fault: Fault) -> None:
        del number
        self._take_down()
        before = self._coordinator.now - fault.amount
        candidates = [state for at, state in self._saved if at <= before] or [self._saved[0][1]]
        self._server.restore(candidates[-1])
        self.on_restored()

    def _refuse(self, number: int, fault: Fault) -> None:
        def refuse(request: Request, *_: object) -> Answer | None:
            is_ours = request.user.startswith(("scheduler", "operator"))
            return (
                refusal(403, "Forbidden", "a webhook denied it")
                if is_ours and is_hit(request, fault.requests)
                else None
            )

        del number
        self._server.refuse = refuse

    def _accept(self, number: int, fault: Fault) -> None:
        del number
        if not any(other.kind == fault.kind for other in self.active.values()):
            self._server.refuse = None

    # Nodes.

    def _node(self, name: str) -> Manifest | None:
        found: Manifest | None = self._server.get(key(NODES), "", name)
        return found

    def _plan_manifest(self, fault: Fault) -> Manifest:
        return next(manifests.node(plan) for plan in self._world.night.nodes if plan.name == fault.target)

    def _vanish(self, number: int, fault: Fault) -> None:
        del number
        self._world.delete(NODES, fault.target, "node-controller")

    def _bring_back(self, number: int, fault: Fault) -> None:
        """Create the node again, with the labels of another rack."""
        found = self._plan_manifest(fault)
        if self._randoms[number].random() < 0.5:
            found["metadata"]["labels"]["example.com/rack"] = "rack-new"
        self._world.create(NODES, found, "kubelet")

    def _relabel(self, number: int, fault: Fault) -> None:
        self._change_node(number, fault, {"metadata": {"labels": {"example.com/rack": "rack-other"}}})

    def _change_node(self, number: int, fault: Fault, body: Manifest, subresource: str = "") -> None:
        del number
        if self._node(fault.target) is not None:
            self._world.merge(NODES, fault.target, body, "node-controller", subresource)

    def _restore_node(self, number: int, fault: Fault) -> None:
        """Let a node be as it was planned."""
        planned = self._plan_manifest(fault)
        body = {"metadata": {"labels": planned["metadata"]["labels"]}, "spec": {"unschedulable": None, "taints": None}}
        self._change_node(number, fault, body)
        self._change_node(
            number, fault, {"status": {"allocatable": planned["status"]["allocatable"]}}, subresource="status"
        )


def refusal(status: int, reason: str, message: str) -> Answer:
    """Return the answer of an API server that refuses."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": reason}
    return Answer(status, json.dumps({**body, "message": message}).encode())


TREATMENTS = {
    "lose-request": Treatment(is_lost_before=True),
    "lose-answer": Treatment(is_lost_after=True),
    "cut-answer": Treatment(is_cut=True),
    "refuse": Treatment(answer=refusal(403, "Forbidden", "not now")),
    "throttle": Treatment(answer=refusal(429, "TooManyRequests", "too many"), retry_after=1),
}
"""What the faults do that do the same to each request."""
