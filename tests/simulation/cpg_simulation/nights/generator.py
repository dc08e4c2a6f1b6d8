"""Makes the plan of a night from a seed: small clusters that are nearly full, and faults that overlap."""

from collections.abc import Iterator
from random import Random
from typing import get_args

from msgspec.structs import replace

from cpg_simulation.nights.devices import with_devices
from cpg_simulation.nights.faults import faults, last_failures, replacements
from cpg_simulation.nights.handovers import with_handover
from cpg_simulation.nights.plan import (
    Action,
    ChangeMinimum,
    DeletePods,
    Finish,
    LiftGates,
    Meddle,
    Meddling,
    Night,
    NodePlan,
    RecreateGroup,
    Remove,
    Scale,
    Submit,
    TreePlan,
)
from cpg_simulation.nights.races import races
from cpg_simulation.nights.trees import cpu_of, related, tree

PRIORITIES = ("low", "middle", "high")
SECONDS = 50.0
"""Until when users act."""
CALM_SECONDS = 100.0
MAX_TREES = 7
SHARE_OF_TWINS = 0.25


def generate(seed: int) -> Night:
    """Return the night of a seed."""
    random = Random(f"night {seed}")  # noqa: S311 - a plan, not a secret
    nodes = tuple(_nodes(random))
    relations = Random(f"relations {seed}")  # noqa: S311 - a plan, not a secret
    trees = [related(relations, found) for found in _trees(random, nodes)]
    actions = sorted(_actions(random, trees), key=lambda action: action.at)
    competitor = random.random() < 0.25
    if competitor:
        actions += _foreign(random, [action.at for action in actions])
        actions.sort(key=lambda action: action.at)
    moments = tuple(action.at for action in actions)
    operators = random.choice((1, 1, 2))
    planned = sorted(faults(random, nodes, moments, operators), key=lambda fault: fault.at)
    created = tuple(action.at for action in actions if isinstance(action, Submit))
    planned += races(Random(f"races {seed}"), nodes, created)  # noqa: S311 - a plan, not a secret
    planned += replacements(seed, moments)
    actions += _twins(seed, trees, max(moments))
    planned += last_failures(seed, actions[-1].at)
    night = Night(
        seed=seed,
        flavour=random.choice(("crd", "crd", "native")),
        nodes=nodes,
        actions=tuple(actions),
        faults=tuple(planned),
        seconds=max([*(action.at for action in actions), *(fault.end for fault in planned)]),
        calm=CALM_SECONDS,
        operators=operators,
        competitor=competitor,
    )
    return with_devices(with_handover(night))


def _nodes(random: Random) -> Iterator[NodePlan]:
    zones, racks, each = random.choice(((1, 1, 2), (1, 2, 1), (1, 3, 1), (1, 2, 2), (2, 1, 2), (2, 2, 1), (2, 2, 2)))
    for zone in range(zones):
        for rack in range(racks):
            for number in range(each):
                yield NodePlan(
                    name=f"node-{zone}{rack}{number}",
                    cpu=random.choice((2000, 3000, 4000)),
                    pods=random.choice((3, 8, 20, 20)),
                    zone=f"zone-{zone}",
                    rack=f"rack-{zone}{rack}",
                    has_disk=random.random() < 0.6,
                    is_dedicated=random.random() < 0.1,
                )


def _trees(random: Random, nodes: tuple[NodePlan, ...]) -> Iterator[TreePlan]:
    """Yield trees: the first ones fill the cluster, and later ones have higher priorities, mostly."""
    room, taken = sum(node.cpu for node in nodes), 0
    wanted, is_ascending = random.uniform(0.8, 2.2) * room, random.random() < 0.8
    for number in range(MAX_TREES):
        if taken >= wanted and number > 2:
            break
        later = ("middle", "high", "high") if is_ascending else PRIORITIES
        priority = "low" if is_ascending and taken < 0.8 * room else random.choice(later)
        found = tree(random, f"tree-{number}", priority, max(2, room // 1000 // random.choice((1, 2, 2, 3))))
        taken += cpu_of(found)
        yield found


def _actions(random: Random, trees: list[TreePlan]) -> Iterator[Action]:
    """Yield submissions, close to one another or with pauses, and what users do to the trees later."""
    at = random.uniform(2, 6)
    for found in trees:
        yield Submit(at=at, tree=found, shuffled=random.random() < 0.3)
        if "gated" in found.traits:
            yield LiftGates(at=at + random.uniform(2, 15), tree=found.name)
        for _ in range(random.choice((0, 0, 1, 1, 2))):
            yield from _later(random, found, min(at + random.choice((0.3, 2.0, 10.0, 25.0)) * random.random(), SECONDS))
        at += random.choice((0.05, 0.5, 2.0, 6.0, 12.0)) * random.random()


def _later(random: Random, found: TreePlan, at: float) -> Iterator[Action]:
    leaves = [group for group in found.groups if group.pods is not None]
    gangs = [group for group in found.groups if group.gang is not None]
    match random.choice(("finish", "remove", "delete", "delete", "recreate", "minimum", "scale", "scale", "meddle")):
        case "finish":
            yield Finish(at=at, tree=found.name)
        case "remove":
            yield Remove(at=at, tree=found.name)
        case "delete":
            yield DeletePods(at=at, tree=found.name, count=random.randint(1, 3), force=random.random() < 0.3)
        case "recreate" if found.groups:
            yield RecreateGroup(at=at, tree=found.name, seconds=random.uniform(0, 5))
        case "minimum" if gangs and not found.is_instantiated:
            for step in range(random.choice((1, 1, 2))):
                group = random.choice(gangs)
                gang = random.randint(1, (group.pods or 2) + 1)
                yield ChangeMinimum(at=at + step * random.random(), tree=found.name, group=group.name, gang=gang)
        case "scale" if leaves:
            leaf = random.choice(leaves)
            pods = random.randint(0, (leaf.pods or 0) + 2)
            yield Scale(at=at, tree=found.name, group=leaf.name, pods=pods)
        case "meddle":
            yield Meddle(at=at, tree=found.name, kind=random.choice(get_args(Meddling)))


def _twins(seed: int, trees: list[TreePlan], last: float) -> Iterator[Submit]:
    """Yield, after all else, a tree that is like another one in all but its name and its higher priority."""
    random = Random(f"twins {seed}")  # noqa: S311 - a plan, not a secret
    found = random.choice(trees)
    higher = PRIORITIES[PRIORITIES.index(found.priority) + 1 :]
    if higher and random.random() < SHARE_OF_TWINS:
        twin = _renamed(replace(found, priority=random.choice(higher)), "twin")
        yield Submit(at=last + random.uniform(1, 5), tree=twin)


def _renamed(found: TreePlan, name: str) -> TreePlan:
    groups = tuple(
        replace(group, name=group.name.replace(found.name, name, 1), parent=group.parent.replace(found.name, name, 1))
        for group in found.groups
    )
    return replace(found, name=name, groups=groups)


def _foreign(random: Random, moments: list[float]) -> Iterator[Action]:
    """Yield pods for the other scheduler, some of them at the moment at which ours has work."""
    for number in range(random.randint(1, 6)):
        foreign = TreePlan(
            name=f"foreign-{number}", scheduler="default-scheduler", cpu=random.choice((500, 1000)), priority="middle"
        )
        yield Submit(at=random.choice(moments) + random.random(), tree=foreign)
        if random.random() < 0.5:
            yield Remove(at=random.uniform(20, SECONDS), tree=foreign.name)
