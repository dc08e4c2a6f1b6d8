"""Chooses trees: single pods, groups, and trees of two to four levels."""

from collections.abc import Iterator
from random import Random

from msgspec.structs import replace

from cpg_simulation.nights.manifests import RACK, ZONE
from cpg_simulation.nights.plan import GroupPlan, Trait, TreePlan

TRAITS: tuple[Trait, ...] = ("select-disk", "apart", "prefer-zone", "host-port", "tolerates", "gated")
RELATIONS: tuple[Trait, ...] = ("alone", "together", "follow", "spread-nodes", "spread-zones")
"""What pods require of other pods, beside what ``TRAITS`` have of it."""
RELATED = 0.12
"""The share of trees that have one of them."""
GRACES = (0, 1, 2, 2, 5, 30)


def tree(random: Random, name: str, priority: str, room: int) -> TreePlan:
    """Return a tree that needs about a number of CPUs at most."""
    traits = tuple(trait for trait in TRAITS if random.random() < 0.08)
    plain = TreePlan(
        name=name,
        priority=priority,
        grace=random.choice(GRACES),
        never_preempts=random.random() < 0.08,
        has_stable_names=random.random() < 0.3,
        traits=traits,
        budget=random.randint(0, 3) if random.random() < 0.15 else None,
    )
    shape = random.random()
    if shape < 0.15:
        return replace(plain, cpu=random.choice((500, 1000, 2000)))
    unit = random.random() < 0.4
    if shape < 0.5:
        return replace(plain, groups=(_leaf(random, name, "", room, unit=unit),))
    source = random.random()
    top = f"{name}-top" if source < 0.2 else name
    groups = tuple(_composite(random, top, "", room, random.choice((2, 2, 2, 3, 3, 4)), unit=unit))
    return replace(plain, groups=groups, is_instantiated=source < 0.2, from_workload=source < 0.45)


def related(random: Random, found: TreePlan) -> TreePlan:
    """Return a tree, now and then with pods that require something of other pods."""
    relation = random.choice(RELATIONS)
    return replace(found, traits=(*found.traits, relation)) if random.random() < RELATED else found


def _leaf(random: Random, name: str, parent: str, room: int, *, unit: bool) -> GroupPlan:
    cpu = random.choice((500, 1000, 1000, 2000))
    pods = random.randint(1, max(2, min(8, room * 1000 // cpu)))
    gang = None if not unit and random.random() < 0.2 else random.randint((pods + 1) // 2, pods)
    return GroupPlan(
        name=name, parent=parent, gang=gang, pods=pods, cpu=cpu, key=random.choice(("", "", ZONE, RACK)), is_unit=unit
    )


def _composite(random: Random, name: str, parent: str, room: int, levels: int, *, unit: bool) -> Iterator[GroupPlan]:
    """Yield a group of some levels and all below it; the first child has all of its levels."""
    children = random.choice((1, 2, 2, 3) if levels < 3 else (1, 1, 2))
    gang = None if not unit and random.random() < 0.2 else random.randint(1, children)
    yield GroupPlan(name=name, parent=parent, gang=gang, key=random.choice(("", "", ZONE)), is_unit=unit)
    share = max(1, room // children)
    for number in range(children):
        child = f"{name}-{number}"
        below = levels - 1 if not number else random.randint(1, levels - 1)
        is_unit = random.random() < 0.15 or (unit and random.random() < 0.95)  # anything else is invalid below a unit
        if below > 1:
            yield from _composite(random, child, name, share, below, unit=is_unit)
        else:
            yield _leaf(random, child, name, share, unit=is_unit)


def cpu_of(found: TreePlan) -> int:
    """Return the CPU that all pods of a tree request, in thousandths."""
    return sum((group.pods or 0) * group.cpu for group in found.groups) if found.groups else found.cpu
