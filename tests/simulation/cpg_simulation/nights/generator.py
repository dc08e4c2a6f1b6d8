"""Makes the plan of a night from a seed: small clusters that are nearly full, and faults that overlap."""

from collections.abc import Iterator
from random import Random
from typing import get_args

from msgspec.structs import replace

from cpg_simulation.nights.manifests import RACK, ZONE
from cpg_simulation.nights.plan import (
    Action,
    ChangeMinimum,
    DeletePods,
    Fault,
    Finish,
    GroupPlan,
    NetworkFault,
    Night,
    NodeFault,
    NodePlan,
    ProcessFault,
    RecreateGroup,
    Remove,
    RequestFault,
    Scale,
    ServerFault,
    Submit,
    TreePlan,
)

PRIORITIES = {"low": 10, "middle": 100, "high": 1000}
PROCESSES = ("scheduler-0", "scheduler-1", "operator-0")
SECONDS = 70.0
CALM_SECONDS = 120.0
_REQUESTS = ("binds", "evictions", "status", "leases", "reads", "watches", "writes", "any")


def generate(seed: int) -> Night:
    """Return the night of a seed."""
    random = Random(f"night {seed}")  # noqa: S311 - a plan, not a secret
    nodes = tuple(_nodes(random))
    trees = [_tree(random, number, nodes) for number in range(random.randint(2, 6))]
    competitor = random.random() < 0.25
    if competitor:
        foreign = [
            TreePlan(name=f"foreign-{number}", scheduler="default-scheduler", cpu=random.choice((500, 1000)))
            for number in range(random.randint(1, 5))
        ]
        trees += foreign
    actions = sorted(_actions(random, trees), key=lambda action: action.at)
    faults = sorted(_faults(random, nodes), key=lambda fault: fault.at)
    return Night(
        seed=seed,
        flavour=random.choice(("crd", "crd", "native")),
        nodes=nodes,
        actions=tuple(actions),
        faults=tuple(faults),
        seconds=max([SECONDS, *(action.at for action in actions), *(fault.end for fault in faults)]),
        calm=CALM_SECONDS,
        competitor=competitor,
    )


def _nodes(random: Random) -> Iterator[NodePlan]:
    zones, racks, each = random.randint(1, 2), random.randint(1, 3), random.randint(1, 3)
    for zone in range(zones):
        for rack in range(racks):
            for number in range(each):
                yield NodePlan(
                    name=f"node-{zone}{rack}{number}",
                    cpu=random.choice((2000, 3000, 4000)),
                    pods=random.choice((3, 8, 20)),
                    zone=f"zone-{zone}",
                    rack=f"rack-{zone}{rack}",
                )


def _tree(random: Random, number: int, nodes: tuple[NodePlan, ...]) -> TreePlan:
    name = f"tree-{number}"
    priority = random.choice(tuple(PRIORITIES))
    plain = TreePlan(
        name=name, priority=priority, grace=random.choice((0, 1, 2, 5)), never_preempts=random.random() < 0.1
    )
    shape, room = random.random(), sum(node.cpu for node in nodes) // 1000
    if shape < 0.2:
        return replace(plain, cpu=random.choice((500, 1000, 2000)))
    unit = random.random() < 0.4
    if shape < 0.55:
        return replace(plain, groups=(_leaf(random, name, "", room, unit=unit),))
    groups = tuple(_composite(random, name, room, unit=unit))
    return replace(plain, groups=groups, from_workload=random.random() < 0.3)


def _leaf(random: Random, name: str, parent: str, room: int, *, unit: bool) -> GroupPlan:
    pods = random.randint(1, max(2, min(6, room // 2)))
    gang = None if not unit and random.random() < 0.2 else random.randint(1, pods)
    return GroupPlan(
        name=name,
        parent=parent,
        gang=gang,
        pods=pods,
        cpu=random.choice((500, 1000, 1000, 2000)),
        key=random.choice(("", "", ZONE, RACK)),
        is_unit=unit,
    )


def _composite(random: Random, name: str, room: int, *, unit: bool) -> Iterator[GroupPlan]:
    children = random.randint(1, 3)
    gang = None if not unit and random.random() < 0.2 else random.randint(1, children)
    yield GroupPlan(name=name, gang=gang, key=random.choice(("", "", ZONE)), is_unit=unit)
    parent = name
    if random.random() < 0.3:
        parent = f"{name}-mid"
        yield GroupPlan(name=parent, parent=name, gang=1)
    for number in range(children):
        below = parent if number else name
        yield _leaf(random, f"{name}-{number}", below, max(2, room // children), unit=random.random() < 0.2)


def _actions(random: Random, trees: list[TreePlan]) -> Iterator[Action]:
    for tree in trees:
        at = random.uniform(2, SECONDS * 0.6)
        yield Submit(at=at, tree=tree, shuffled=random.random() < 0.4)
        for _ in range(random.choice((0, 0, 1, 1, 2))):
            yield from _later(random, tree, random.uniform(at + 0.2, SECONDS))


def _later(random: Random, tree: TreePlan, at: float) -> Iterator[Action]:
    leaves = [group for group in tree.groups if group.pods is not None]
    gangs = [group for group in tree.groups if group.gang is not None]
    choice = random.randrange(7)
    if choice == 0:
        yield Finish(at=at, tree=tree.name)
    elif choice == 1:
        yield Remove(at=at, tree=tree.name)
    elif choice == 2:
        yield DeletePods(at=at, tree=tree.name, count=random.randint(1, 3), force=random.random() < 0.3)
    elif choice == 3 and tree.groups:
        yield RecreateGroup(at=at, tree=tree.name, seconds=random.uniform(0, 5))
    elif choice == 4 and gangs:
        group = random.choice(gangs)
        yield ChangeMinimum(at=at, tree=tree.name, group=group.name, gang=random.randint(1, (group.pods or 2) + 1))
    elif leaves:
        leaf = random.choice(leaves)
        yield Scale(at=at, tree=tree.name, group=leaf.name, pods=random.randint(0, (leaf.pods or 0) + 2))


def _faults(random: Random, nodes: tuple[NodePlan, ...]) -> Iterator[Fault]:
    for _ in range(random.choice((0, 1, 2, 3, 4, 6, 8))):
        at = random.uniform(0.5, SECONDS * 0.9)
        family = random.random()
        if family < 0.4:
            yield _request_fault(random, at)
        elif family < 0.65:
            yield _process_fault(random, at)
        elif family < 0.78:
            yield _network_fault(random, at)
        elif family < 0.88:
            yield _server_fault(random, at)
        else:
            yield _node_fault(random, at, nodes)


def _request_fault(random: Random, at: float) -> Fault:
    return Fault(
        kind=random.choice(get_args(RequestFault)),
        at=at,
        seconds=random.choice((1.0, 3.0, 10.0, 20.0)),
        target=random.choice(("", *PROCESSES)),
        requests=random.choice(_REQUESTS),
        share=random.choice((0.1, 0.5, 1.0)),
        amount=random.choice((0.5, 3.0, 20.0)),
    )


def _process_fault(random: Random, at: float) -> Fault:
    kind: ProcessFault = random.choice(("kill", "kill", "stop", *get_args(ProcessFault)))
    amount = {
        "slow": random.choice((10.0, 1000.0)),
        "skew-clock": random.uniform(-3600, 3600),
        "fast-clock": random.choice((0.97, 1.03)),
    }.get(kind, 0.0)
    return Fault(
        kind=kind,
        at=at,
        seconds=random.choice((0.5, 2.0, 8.0, 15.0, 30.0)),
        target=random.choice(PROCESSES),
        amount=amount,
    )


def _network_fault(random: Random, at: float) -> Fault:
    return Fault(
        kind=random.choice(get_args(NetworkFault)),
        at=at,
        seconds=random.choice((1.0, 5.0, 15.0, 30.0)),
        target=random.choice(PROCESSES),
        share=random.choice((0.3, 1.0)),
        amount=random.choice((0.2, 2.0, 8.0)),
    )


def _server_fault(random: Random, at: float) -> Fault:
    return Fault(
        kind=random.choice(get_args(ServerFault)),
        at=at,
        seconds=random.choice((0.5, 3.0, 10.0)),
        requests=random.choice(_REQUESTS[:3]),
        amount=random.uniform(1, 20),
    )


def _node_fault(random: Random, at: float, nodes: tuple[NodePlan, ...]) -> Fault:
    return Fault(
        kind=random.choice(get_args(NodeFault)),
        at=at,
        seconds=random.choice((3.0, 10.0, 25.0)),
        target=random.choice(nodes).name,
    )
