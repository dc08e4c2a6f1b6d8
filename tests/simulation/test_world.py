"""Users, owners, kubelets and other controllers do their parts, and faults come when they are due."""

from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Any

from cpg_api.core.devices import DELETE_PROTECTION
from cpg_client.resources import CPG_POD_GROUPS, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from cpg_simulation.apiserver.server import ApiServer
from cpg_simulation.apiserver.values import Request
from cpg_simulation.faults.night_faults import NightFaults
from cpg_simulation.network import Network
from cpg_simulation.nights.manifests import NAMESPACE
from cpg_simulation.nights.plan import (
    Action,
    DeletePods,
    Fault,
    Finish,
    GroupPlan,
    LiftGates,
    Meddle,
    Night,
    NodePlan,
    Remove,
    Scale,
    Submit,
    TreePlan,
)
from cpg_simulation.virtual.coordinator import Coordinator
from cpg_simulation.virtual.machine import Machine
from cpg_simulation.virtual.process import Process
from cpg_simulation.world.world import World

NODE = NodePlan(name="node-0", cpu=4000, pods=10, zone="z", rack="r", devices=2)
GANG = TreePlan(name="gang", priority="low", groups=(GroupPlan(name="gang", gang=1, pods=2),))


class NoProcesses:
    """Processes of which none runs."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.killed: list[str] = []
        self.asked: list[str] = []
        self._machine = Machine(coordinator)

    def process(self, name: str) -> Process | None:
        """Return none."""
        self.asked.append(name)
        return None

    def machine(self, name: str) -> Machine:
        """Return one machine for all."""
        del name
        return self._machine

    def kill(self, name: str) -> None:
        """Note it."""
        self.killed.append(name)

    def start_again(self, name: str) -> None:
        """Note it."""
        self.killed.append(f"{name} again")


class Stage:
    """A world with its API server and faults."""

    def __init__(
        self, *actions: Action, faults: tuple[Fault, ...] = (), competitor: bool = False, has_devices: bool = False
    ) -> None:
        night = Night(
            seed=1,
            flavour="crd",
            nodes=(NODE,),
            actions=actions,
            faults=faults,
            seconds=10,
            calm=10,
            competitor=competitor,
            has_devices=has_devices,
        )
        self.coordinator = Coordinator()
        uids = count()
        machine = Machine(self.coordinator)
        self.server = ApiServer(now=machine.wall, new_uid=lambda: f"uid-{next(uids)}")
        self.faults = NightFaults(night)
        random = Random(1)  # noqa: S311 - the same each time
        network = Network(self.coordinator, self.server, machine, faults=self.faults.requests, random=random)
        self.world = World(night, self.coordinator, self.server, random)
        self.processes = NoProcesses(self.coordinator)
        self.faults.connect(self.coordinator, network, self.server, self.world, self.processes)

    def pods(self) -> list[dict[str, Any]]:
        """Return the pods."""
        return list(self.world.client.pods())

    def claims(self) -> list[dict[str, Any]]:
        """Return the claims for devices."""
        return self.world.client.objects(RESOURCE_CLAIMS)

    def allocate(self, claim: str, *pods: dict[str, Any]) -> None:
        """Give a device to a claim, and reserve it for pods, as a scheduler does."""
        result = {"request": "one", "driver": "gpu.example.com", "pool": "node-0", "device": "gpu-0"}
        users = [{"resource": "pods", **{name: pod["metadata"][name] for name in ("name", "uid")}} for pod in pods]
        protected = {"metadata": {"finalizers": [DELETE_PROTECTION]}}
        status = {"status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": users}}
        assert self.world.client.merge(RESOURCE_CLAIMS, claim, protected)
        assert self.world.client.merge(RESOURCE_CLAIMS, claim, status, subresource="status")

    def phases(self) -> Iterator[str]:
        """Yield the phases of the pods."""
        return (pod["status"]["phase"] for pod in self.pods())


def bind(name: str) -> Request:
    """Return the request that binds a pod."""
    path = f"{PODS.path(NAMESPACE)}/{name}/binding"
    return Request(method="POST", path=path, query={}, body=b'{"target": {"name": "node-0"}}', user="scheduler-0")


def test_an_owner_keeps_the_number_of_pods() -> None:
    """It creates missing pods, replaces deleted ones, and deletes those that are too many."""
    stage = Stage(
        Submit(at=1, tree=GANG),
        DeletePods(at=3, tree="gang", count=1),
        Scale(at=6, tree="gang", group="gang", pods=1),
    )
    stage.coordinator.run(2.5)
    first = {pod["metadata"]["name"] for pod in stage.pods()}
    assert len(first) == 2
    stage.coordinator.run(5)
    assert len(stage.pods()) == 2
    assert {pod["metadata"]["name"] for pod in stage.pods()} != first
    stage.coordinator.run(8)
    assert len(stage.pods()) == 1


def test_kubelets_start_and_end_pods() -> None:
    """A bound pod runs soon; a deleted one is gone after its grace period."""
    stage = Stage(Submit(at=1, tree=GANG), Remove(at=5, tree="gang"))
    stage.coordinator.run(2.5)
    for pod in stage.pods():
        stage.world.client.bind(pod["metadata"]["name"], "node-0", "scheduler-0")
    stage.coordinator.run(4.5)
    assert list(stage.phases()) == ["Running", "Running"]
    stage.coordinator.run(11)
    assert stage.pods() == []
    assert stage.world.client.objects(CPG_POD_GROUPS) == []


def test_the_pods_of_a_tree_that_ends_succeed() -> None:
    """Bound pods succeed, and the others are deleted and not replaced."""
    stage = Stage(Submit(at=1, tree=GANG), Finish(at=5, tree="gang"))
    stage.coordinator.run(2.5)
    stage.world.client.bind(stage.pods()[0]["metadata"]["name"], "node-0", "scheduler-0")
    stage.coordinator.run(10)
    assert list(stage.phases()) == ["Succeeded"]


def test_gates_are_lifted() -> None:
    """Pods have gates until they are lifted."""
    stage = Stage(Submit(at=1, tree=TreePlan(name="t", traits=("gated",))), LiftGates(at=5, tree="t"))
    stage.coordinator.run(4)
    assert stage.pods()[0]["spec"]["schedulingGates"]
    stage.coordinator.run(6)
    assert not stage.pods()[0]["spec"].get("schedulingGates")


def test_users_meddle() -> None:
    """A user takes a pod out of its group, whose controller replaces it."""
    stage = Stage(Submit(at=1, tree=GANG), Meddle(at=3, tree="gang", kind="unlabel"))
    stage.coordinator.run(6)
    assert sorted(len(pod["metadata"]["labels"]) for pod in stage.pods()) == [1, 2, 2]


def test_the_other_scheduler_takes_room() -> None:
    """It binds pods of its own, soon after others were bound."""
    foreign = TreePlan(name="f", scheduler="default-scheduler", cpu=500)
    stage = Stage(Submit(at=1, tree=foreign), competitor=True)
    stage.coordinator.run(4)
    assert stage.pods()[0]["spec"]["nodeName"] == "node-0"


def test_pods_of_a_node_that_is_gone_are_deleted() -> None:
    """The garbage collector deletes them after a while; the node comes back later."""
    fault = Fault(kind="vanish", at=4, seconds=8, target="node-0")
    stage = Stage(Submit(at=1, tree=TreePlan(name="t")), faults=(fault,))
    stage.coordinator.run(3)
    (pod,) = stage.pods()
    stage.world.client.bind(pod["metadata"]["name"], "node-0", "scheduler-0")
    stage.coordinator.run(11)
    assert stage.world.client.objects(NODES) == []
    assert pod["metadata"]["uid"] not in {found["metadata"]["uid"] for found in stage.pods()}
    stage.coordinator.run(13)
    assert len(stage.world.client.objects(NODES)) == 1


def test_claims_are_made_from_a_template_and_go_with_their_pods() -> None:
    """The status of each pod names its claim, and its kubelet waits until that is reserved for it."""
    tree = TreePlan(name="gang", groups=(GroupPlan(name="gang", gang=1, pods=2, device="own"),))
    stage = Stage(Submit(at=1, tree=tree), Remove(at=8, tree="gang"), has_devices=True)
    stage.coordinator.run(3)
    named = {pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"] for pod in stage.pods()}
    assert {claim["metadata"]["name"] for claim in stage.claims()} == named
    assert len(named) == 2
    pod = stage.pods()[0]
    stage.world.client.bind(pod["metadata"]["name"], "node-0", "scheduler-0")
    stage.coordinator.run(5)
    assert list(stage.phases()) == ["Pending", "Pending"]
    stage.allocate(pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"], pod)
    stage.coordinator.run(8)
    assert sorted(stage.phases()) == ["Pending", "Running"]
    stage.coordinator.run(15)
    assert (stage.pods(), stage.claims()) == ([], [])


def test_a_claim_of_several_pods_is_freed_with_the_last_one() -> None:
    """It stays, without devices and without its finalizer."""
    tree = TreePlan(name="gang", groups=(GroupPlan(name="gang", gang=1, pods=2, device="shared"),))
    stage = Stage(Submit(at=1, tree=tree), Finish(at=4, tree="gang"), has_devices=True)
    stage.coordinator.run(3)
    first, second = stage.pods()
    stage.allocate("gang-device", first, second)
    stage.world.client.bind(first["metadata"]["name"], "node-0", "scheduler-0")
    stage.coordinator.run(4)
    stage.coordinator.run(10)
    (claim,) = stage.claims()
    assert (claim["status"], claim["metadata"].get("finalizers")) == ({}, None)


def test_the_devices_of_a_node_go_and_come_with_it() -> None:
    """The driver publishes them again once the node is back."""
    fault = Fault(kind="vanish", at=2, seconds=4, target="node-0")
    stage, found = Stage(faults=(fault,), has_devices=True), []
    for second in (1, 5, 9):
        stage.coordinator.run(second)
        found.append([len(one["spec"]["devices"]) for one in stage.world.client.objects(RESOURCE_SLICES)])
    assert found == [[2], [], [2]]


def test_a_fault_waits_for_its_request() -> None:
    """It begins with the first request of its sort, hits that already, and ends after its seconds."""
    fault = Fault(kind="lose-answer", at=2, seconds=3, requests="binds", trigger="binds")
    stage = Stage(faults=(fault,))
    stage.coordinator.run(1)
    assert not stage.faults.requests.treat("scheduler-0", bind("p")).is_lost_after
    stage.coordinator.run(4)
    assert stage.faults.active == {}
    assert stage.faults.requests.treat("scheduler-0", bind("p")).is_lost_after
    stage.coordinator.run(8)
    assert stage.faults.active == {}


def test_a_fault_of_a_node_hits_that_of_the_request() -> None:
    """The node of the pod that is bound is cordoned, and usable again afterwards."""
    fault = Fault(kind="cordon", at=2, seconds=3, target="node-9", trigger="binds")
    stage = Stage(faults=(fault,))
    stage.coordinator.run(3)
    stage.faults.requests.treat("scheduler-0", bind("p"))
    stage.coordinator.run(4)
    assert stage.world.client.objects(NODES)[0]["spec"]["unschedulable"] is True
    stage.coordinator.run(7)
    assert "unschedulable" not in stage.world.client.objects(NODES)[0]["spec"]


def test_a_controller_touches_pods_that_wait() -> None:
    """Pods without a node are changed every second while the fault lasts, and others are not."""
    fault = Fault(kind="touch-pods", at=4, seconds=2.5)
    stage = Stage(Submit(at=1, tree=GANG), faults=(fault,))
    stage.coordinator.run(3)
    bound, waiting = (pod["metadata"]["name"] for pod in stage.pods())
    stage.world.client.bind(bound, "node-0", "scheduler-0")
    stage.coordinator.run(10)
    touched = [
        (write.name, write.time) for write in stage.server.journal if write.new and "annotations" in str(write.new)
    ]
    assert {name for name, _ in touched} == {waiting}
    assert len(touched) == 3


def test_an_object_is_replaced_while_a_request_about_it_is_under_way() -> None:
    """The new object has the name and the spec of the old one, but another UID, no node and no finalizer."""
    pod_fault = Fault(kind="replace", at=3, seconds=1, trigger="binds")
    group_fault = Fault(kind="replace", at=3, seconds=1, trigger="placements")
    stage = Stage(Submit(at=1, tree=GANG), faults=(pod_fault, group_fault))
    client = stage.world.client
    stage.coordinator.run(4)
    pod, group = stage.pods()[0], client.objects(CPG_POD_GROUPS)[0]
    name, group_name = pod["metadata"]["name"], group["metadata"]["name"]
    client.bind(name, "node-0", "user")
    client.merge(CPG_POD_GROUPS, group_name, {"metadata": {"finalizers": ["example.com/held"]}})
    stage.faults.requests.treat("scheduler-0", bind(name))
    body = b'{"status":{"conditions":[{"type":"PodGroupInitiallyScheduled","status":"True"}]}}'
    path = f"{CPG_POD_GROUPS.path(NAMESPACE, group_name)}/status"
    stage.faults.requests.treat("scheduler-0", Request(method="PATCH", path=path, body=body, user="scheduler-0"))
    stage.coordinator.run(5)
    new, new_group = client.get(PODS, name), client.get(CPG_POD_GROUPS, group_name)
    assert new is not None
    assert new_group is not None
    assert "nodeName" not in new["spec"]
    assert "finalizers" not in new_group["metadata"]
    for before, after in ((pod, new), (group, new_group)):
        assert before["metadata"]["uid"] != after["metadata"]["uid"]
        assert before["metadata"]["labels"] == after["metadata"]["labels"]
        assert before["spec"] == after["spec"]


def test_a_fault_waits_no_longer_than_its_patience() -> None:
    """Without a request it begins later, and hits the leader: the holder of the lease, or the first replica."""
    fault = Fault(kind="kill", at=2, seconds=1, target="leader", trigger="evictions")
    stage = Stage(faults=(fault,))
    stage.coordinator.run(11.9)
    assert stage.processes.killed == []
    stage.coordinator.run(14)
    assert stage.processes.killed == ["scheduler-0", "scheduler-0 again"]


def test_requests_fail_while_the_server_is_down() -> None:
    """No controller acts, and all goes on afterwards."""
    stage = Stage(Submit(at=3, tree=GANG), faults=(Fault(kind="restart", at=2, seconds=3),))
    stage.coordinator.run(4.9)
    assert stage.world.client.objects(PODS) == []
    stage.coordinator.run(8)
    assert len(stage.world.client.objects(PODS)) == 2
