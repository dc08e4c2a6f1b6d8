"""Preemption for devices: pods whose claims have them are victims like others."""

from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.preemption.values import PlanOutcome, PreemptionPlan
from cpg_engine.testing.builders import node, pod, pod_group
from cpg_engine.testing.claim_builders import allocated, claiming, offer, own_claim, worker
from cpg_engine.testing.device_builders import device, device_claim, device_class, device_request, device_slice
from cpg_engine.testing.simulator import ClusterSimulator


class Cluster(ClusterSimulator):
    """Nodes of 64 CPU with GPUs, all of one simulator."""

    def __init__(self, **gpus: int) -> None:
        """Put the nodes, with two GPUs of each NUMA node."""
        super().__init__(SearchOptions())
        self.devices = self.snapshot.ledger.devices
        offer(self.devices, device_class())
        for name, number in gpus.items():
            self.put_node(node(name, cpu=64))
            offer(
                self.devices,
                device_slice(*(device(f"gpu-{one}", {"numa": one // 2}) for one in range(number)), node=name),
            )

    def run(self, name: str, at: str, *devices: str, priority: int = 1) -> Pod:
        """Have a pod run with these devices."""
        offer(self.devices, allocated(own_claim(name), at, *devices, users=(name,)))
        found = claiming(name, made={"gpu": f"{name}-gpu"}, cpu=1, node_name=at, priority=priority)
        found = replace(found, status=replace(found.status, phase="Running"))
        self.put_pod(found)
        return found

    def gang(self, number: int, *, gpus: int = 1, match: str | None = None) -> None:
        """Have a gang of priority 100 wait."""
        self.put_group(pod_group("high", gang=number, priority=100))
        asked = device_request(count=gpus)
        for index in range(number):
            name = f"high-{index}"
            self.put_pod(worker(self.devices, name, asked, match=match, cpu=1, group="high", priority=100))

    def plan_for(self, name: str) -> PreemptionPlan:
        """Plan for a root; the ledger stays what it was."""
        allocator = self.snapshot.ledger.device_allocator
        allocator.refresh()
        before = {pool: allocator.stock.state(pool) for pool in allocator.stock.pools}
        found = self.plan(next(root for root in self.roots() if root.name == name))
        assert {pool: allocator.stock.state(pool) for pool in allocator.stock.pools} == before
        return found


def victims(plan: PreemptionPlan) -> list[str]:
    """Return the names of the victims."""
    return sorted(eviction.unit.key.name for eviction in plan.evictions)


def test_a_gang_preempts_for_devices() -> None:
    """As many victims as it needs devices, and the least important of them."""
    cluster = Cluster(a=2, b=2)
    for name, at, gpu, priority in (("p", "a", 0, 1), ("q", "a", 1, 2), ("r", "b", 0, 3), ("s", "b", 1, 1)):
        cluster.run(name, at, f"gpu-{gpu}", priority=priority)
    cluster.gang(2)
    plan = cluster.plan_for("high")
    assert (plan.outcome, victims(plan)) == (PlanOutcome.PLANNED, ["p", "s"])
    assert sorted(one.node for one in plan.nominations) == ["a", "b"]


def test_nothing_of_the_same_priority_is_evicted() -> None:
    """Only units of lower priority are victims."""
    cluster = Cluster(a=1)
    cluster.run("p", "a", "gpu-0", priority=100)
    cluster.gang(1)
    assert cluster.plan_for("high").outcome is PlanOutcome.NO_VICTIMS


def test_victims_free_the_devices_that_belong_together() -> None:
    """Two devices of one NUMA node: the pods on that node go, and the pod on the other one stays."""
    cluster = Cluster(a=4)
    cluster.run("p", "a", "gpu-0", priority=2)
    cluster.run("q", "a", "gpu-1", priority=1)
    cluster.run("r", "a", "gpu-2", priority=1)
    cluster.gang(1, gpus=2, match="numa")
    plan = cluster.plan_for("high")
    assert (plan.outcome, victims(plan)) == (PlanOutcome.PLANNED, ["r"])


def test_a_gang_that_shares_a_claim_preempts_for_its_device() -> None:
    """The pods are nominated together, where the device becomes free."""
    cluster = Cluster(a=1, b=0)
    offer(cluster.devices, device_claim("shared"))
    cluster.put_group(pod_group("high", gang=2, priority=100))
    for name in ("high-0", "high-1"):
        cluster.put_pod(claiming(name, "shared", cpu=1, group="high", priority=100))
    cluster.run("p", "a", "gpu-0")
    plan = cluster.plan_for("high")
    assert (plan.outcome, victims(plan)) == (PlanOutcome.PLANNED, ["p"])
    assert [one.node for one in plan.nominations] == ["a", "a"]


def test_a_reprieve_lets_the_preemptor_take_other_devices() -> None:
    """The first device belongs to the more important pod, so the preemptor takes the second one."""
    cluster = Cluster(a=2)
    cluster.run("p", "a", "gpu-0", priority=50)
    cluster.run("q", "a", "gpu-1", priority=1)
    cluster.gang(1)
    assert victims(cluster.plan_for("high")) == ["q"]


def test_a_single_pod_preempts_for_devices() -> None:
    """By the rules for single pods: the node with the least important victim."""
    cluster = Cluster(a=1, b=1)
    cluster.run("p", "a", "gpu-0", priority=50)
    cluster.run("q", "b", "gpu-0", priority=1)
    cluster.put_pod(worker(cluster.devices, "single", cpu=1, priority=100))
    assert victims(cluster.plan_for("single")) == ["q"]


def test_devices_that_pods_share_need_all_of_them_gone() -> None:
    """A claim with another user that stays frees nothing."""
    cluster = Cluster(a=1)
    cluster.run("p", "a", "gpu-0")
    claim = cluster.devices.claims["default/p-gpu"]
    offer(cluster.devices, allocated(claim, "a", "gpu-0", users=("p", "q")))
    cluster.put_pod(pod("q", cpu=1, node_name="a", priority=200, resource_claims=None))
    cluster.gang(1)
    assert cluster.plan_for("high").outcome is PlanOutcome.NOT_ENOUGH


def test_devices_of_pods_that_are_gone_are_waited_for() -> None:
    """Until their deallocation shows, nothing is evicted for others, and the pods are nominated where they are."""
    cluster = Cluster(a=1, b=1)
    cluster.run("p", "a", "gpu-0")
    cluster.run("q", "b", "gpu-0")
    cluster.delete("q")
    cluster.gang(1)
    plan = cluster.plan_for("high")
    assert (plan.outcome, plan.evictions, [one.node for one in plan.nominations]) == (PlanOutcome.PLANNED, (), ["b"])


def test_a_preemptor_with_allocated_devices_keeps_them() -> None:
    """Its claim pins it to a node, where it needs room and no other devices."""
    cluster = Cluster(a=1, b=1)
    cluster.put_node(node("a", cpu=1))
    offer(cluster.devices, allocated(device_claim("mine"), "a", "gpu-0"))
    cluster.put_pod(pod("low", cpu=1, node_name="a", priority=1))
    cluster.put_group(pod_group("high", gang=1, priority=100))
    cluster.put_pod(claiming("high-0", "mine", cpu=1, group="high", priority=100))
    assert victims(cluster.plan_for("high")) == ["low"]


def test_a_nominated_pod_gets_the_first_device_that_becomes_free() -> None:
    """While its victim terminates and afterwards, pods of lower priority find none."""
    cluster = Cluster(a=1)
    ledger = cluster.snapshot.ledger
    waiting = worker(cluster.devices, "high", cpu=1)
    ledger.put_pod(replace(waiting, metadata=replace(waiting.metadata, uid="nominated/uid-default-high")), "a")
    cluster.put_pod(worker(cluster.devices, "low", cpu=1))
    cluster.settle(once=True)
    assert cluster.decisions["low"].binds == ()
    ledger.remove_pod("nominated/uid-default-high")
    cluster.settle(once=True)
    assert len(cluster.decisions["low"].binds) == 1
