"""Inputs of the engine's benchmark: nodes and pods in memory, and a scheduler around the engine."""

from collections.abc import Iterator, Mapping, Sequence

from device_inputs import keep_allocations

from cpg_api.core.affinity import TopologySpreadConstraint
from cpg_api.core.node import Node, NodeStatus
from cpg_api.core.pod import Container, Pod, PodSpec
from cpg_api.core.resources import ResourceRequirements
from cpg_api.meta import LabelSelector, ObjectMeta
from cpg_api.scheduling.forest import Forest, Group, GroupKey, Tree
from cpg_engine.cycle import decide
from cpg_engine.decisions import Decision
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.gangs.unit import POD, GroupPods, Unit, pod_unit, tree_unit
from cpg_engine.preemption.values import VictimUnit
from cpg_engine.snapshot import Snapshot, new_snapshot
from cpg_engine.testing.builders import composite, pod_group
from cpg_engine.verdicts import Finding

RACK, SHELF = 100, 20
"""Nodes of a rack, so that 5,000 nodes stand in 50 racks; five racks are a block, five shelves a rack."""


def node(number: int) -> Node:
    """Return a node of 4 CPU, in its zone, block and rack."""
    labels = {
        "kubernetes.io/hostname": f"node-{number:05}",
        "zone": f"zone-{number % 3}",
        "block": f"block-{number // RACK // 5}",
        "rack": f"rack-{number // RACK}",
        "shelf": f"shelf-{number // SHELF}",
    }
    return Node(
        metadata=ObjectMeta(name=f"node-{number:05}", labels=labels),
        status=NodeStatus(allocatable={"cpu": "4", "memory": "16Gi", "ephemeral-storage": "100Gi", "pods": "110"}),
    )


def snapshot_of(nodes: int) -> Snapshot:
    """Return a snapshot of so many empty nodes."""
    snapshot = new_snapshot()
    for number in range(nodes):
        snapshot.ledger.put_node(node(number))
    return snapshot


def pods(name: str, count: int, *, cpu: str = "100m", image: str = "train", spread: bool = False) -> list[Pod]:
    """Return identical pods, as a Job makes them, with or without an even spread over the zones."""
    labels = {"job": name}
    constraint = TopologySpreadConstraint(
        topology_key="zone", when_unsatisfiable="DoNotSchedule", label_selector=LabelSelector(match_labels=labels)
    )
    requests = ResourceRequirements(requests={"cpu": cpu, "memory": "64Mi"})
    spec = PodSpec(
        containers=(Container(name="main", image=image, resources=requests),),
        topology_spread_constraints=(constraint,) if spread else None,
    )
    names = [f"{name}-{number}" for number in range(count)]
    return [Pod(ObjectMeta(name=one, namespace="default", uid=one, labels=labels), spec) for one in names]


class Scheduler:
    """What the scheduler does around the engine: make a unit, have it decided, assume the binds."""

    def __init__(self, nodes: int, options: SearchOptions | None = None) -> None:
        """Start with empty nodes."""
        self.snapshot = snapshot_of(nodes)
        self.options = options or SearchOptions()

    def gang(self, tree: Tree, members: Mapping[str, Sequence[Pod]], *, placed: bool = True) -> None:
        """Schedule a tree, given its members by the name of their group."""
        pending = {found.key: GroupPods(pending=members.get(found.key.name, ())) for found in tree.nodes}
        unit = tree_unit(tree, pending, self.snapshot.ledger)
        self._perform(unit, [pod for some in members.values() for pod in some], placed=placed)

    def single(self, pod: Pod) -> None:
        """Schedule a pod without a group."""
        self._perform(pod_unit(pod, self.snapshot.ledger), [pod], placed=True)

    def _perform(self, unit: Unit, members: Sequence[Pod], *, placed: bool) -> Decision:
        decision = decide(self.snapshot, unit, self.options)
        if (decision.explanation.finding is Finding.PLACED) is not placed:
            raise ValueError(f"the benchmark has another result than expected: {decision.explanation.finding}")
        by_uid = {pod.metadata.uid: pod for pod in members}
        for bind in decision.binds:
            self.snapshot.ledger.put_pod(by_uid[bind.uid], bind.node)
        keep_allocations(self.snapshot.ledger.devices, decision.binds)
        return decision


def trees_of(groups: Sequence[Group]) -> dict[str, Tree]:
    """Return the trees that the groups form, by the name of their root."""
    return {tree.nodes[0].key.name: tree for tree in Forest.of(groups).trees()}


def deep_tree(name: str) -> Iterator[Group]:
    """Yield one root in a block, over two groups of two PodGroups, each of those in a rack."""
    yield composite(name, gang=2, key="block")
    for side in ("left", "right"):
        yield composite(f"{name}-{side}", parent=name, gang=2)
        for leaf in ("a", "b"):
            yield pod_group(f"{name}-{side}-{leaf}", parent=f"{name}-{side}", gang=16, key="rack")


def full(nodes: int, each: int) -> tuple[Snapshot, list[VictimUnit]]:
    """Return a snapshot of nodes full of running pods, so many on each, and the units in which they are evicted."""
    snapshot = snapshot_of(nodes)
    running = pods("low", nodes * each, cpu=f"{4000 // each}m")
    for number, pod in enumerate(running):
        snapshot.ledger.put_pod(pod, f"node-{number % nodes:05}")
    units = [
        VictimUnit(
            key=GroupKey(POD, "default", pod.metadata.name),
            priority=number % 3,
            since=f"2026-01-01T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z",
            pods=(pod.metadata.uid,),
        )
        for number, pod in enumerate(running)
    ]
    return snapshot, units
