"""Gives devices to the nodes of some nights, and claims for them to some trees, beside all else that happens."""

from collections.abc import Iterator
from random import Random
from typing import TypeAlias, get_args

from msgspec.structs import replace

from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_simulation.nights.plan import (
    LEADER,
    Action,
    ChangeMinimum,
    DeviceUse,
    Fault,
    FaultKind,
    GroupPlan,
    Night,
    NodeFault,
    NodePlan,
    Submit,
    TreePlan,
)

SHARE_OF_NIGHTS, SHARE_OF_TREES = 0.2, 0.7
MAX_CPU_OF_SHARED = 4000
"""All pods that share a device are on its node."""
DELAYS = (0.0, 0.0, 0.001, 0.02, 0.3, 2.0)
REQUEST_FAULTS: tuple[FaultKind, ...] = (
    "refuse",
    "refuse",
    "lose-answer",
    "lose-answer",
    "lose-request",
    "cut-answer",
    "fail",
    "delay",
    "throttle",
)
Step: TypeAlias = tuple[FaultKind, str]
"""A fault of a combination: its kind, and the requests that it hits."""
COMBINATIONS: tuple[tuple[Step, ...], ...] = (
    (("kill", ""),),
    (("cut-off", ""),),
    (("refuse", "claims"),),
    (("refuse", "binds"),),
    (("lose-answer", "claims"), ("kill", "")),
    (("delay", "claims"), ("stop", "")),
    (("delay", "claims"), ("cordon", "")),
    (("delay", "claims"), ("vanish", "")),
    (("delay", "binds"), ("vanish", "")),
    (("fail", "claims"), ("terminate", "")),
)
"""Faults that come together with the writes of claims."""


def with_devices(night: Night) -> Night:
    """Return a night with devices, or as it is."""
    random = Random(f"devices {night.seed}")  # noqa: S311 - a plan, not a secret
    if random.random() >= SHARE_OF_NIGHTS:
        return night
    nodes = tuple(replace(node, devices=random.choice((1, 2, 2, 3, 4))) for node in night.nodes)
    actions = tuple(_action(random, action) for action in night.actions)
    moments = [action.at for action in actions]
    faults = (*night.faults, *sorted(_faults(random, nodes, moments), key=lambda fault: fault.at))
    actions = tuple(sorted((*actions, *_changes(random, actions)), key=lambda action: action.at))
    seconds = max([night.seconds, *(action.at for action in actions), *(fault.end for fault in faults)])
    return replace(night, nodes=nodes, actions=actions, faults=faults, seconds=seconds, has_devices=True)


def _action(random: Random, action: Action) -> Action:
    if not isinstance(action, Submit) or action.tree.scheduler != SCHEDULER_NAME:
        return action
    return replace(action, tree=_tree(random, action.tree)) if random.random() < SHARE_OF_TREES else action


def _tree(random: Random, tree: TreePlan) -> TreePlan:
    if not tree.groups:
        return replace(tree, device="own")
    return replace(tree, groups=tuple(replace(group, device=_use(random, group)) for group in tree.groups))


def _use(random: Random, group: GroupPlan) -> DeviceUse:
    if group.pods is None or random.random() < 0.15:
        return ""
    return "shared" if random.random() < 0.3 and group.pods * group.cpu <= MAX_CPU_OF_SHARED else "own"


def _faults(random: Random, nodes: tuple[NodePlan, ...], moments: list[float]) -> Iterator[Fault]:
    """Yield faults that hit the writes of claims and the binds after them, or come with them."""
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        at = max(0.5, random.choice(moments) + random.choice((-0.5, 0.0, 0.2, 1.0)))
        share, delay = random.choice((0.3, 0.5, 1.0)), random.choice(DELAYS)
        steps = random.choice(
            (((random.choice(REQUEST_FAULTS), random.choice(("claims", "claims", "binds"))),), *COMBINATIONS)
        )
        for number, (kind, requests) in enumerate(steps):
            yield Fault(
                kind=kind,
                at=at,
                seconds=random.choice((0.5, 2.0, 5.0, 15.0)),
                target=random.choice(nodes).name if kind in get_args(NodeFault) else LEADER,
                requests=requests,
                share=share,
                amount=random.choice((0.5, 3.0, 20.0)) if kind == "delay" else 0.0,
                trigger="claims",
                delay=delay if number == len(steps) - 1 and not requests else 0.0,
            )


def _changes(random: Random, actions: tuple[Action, ...]) -> Iterator[Action]:
    """Yield that users raise the minimum of gangs so that they wait, soon after they were created."""
    for action in actions:
        groups = [group for group in action.tree.groups if group.device] if isinstance(action, Submit) else []
        if isinstance(action, Submit) and groups and not action.tree.is_instantiated and random.random() < 0.15:
            group = random.choice(groups)
            at = action.at + random.uniform(0.5, 5.0)
            yield ChangeMinimum(at=at, tree=action.tree.name, group=group.name, gang=(group.pods or 0) + 1)
