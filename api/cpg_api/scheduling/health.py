"""How a tree fares now: pods and groups counted, minimums held against what runs, rolled up from leaves to root.

Health looks at the present alone and goes both ways. It asks of every group the same question, whether its minimum is
met *now*: of a PodGroup by pods that run or have succeeded, of a CompositePodGroup by children that are healthy. A
pod that has failed, or that somebody has asked to delete, is no longer counted.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Group, GroupKey, Tree, TreeNode
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.statuses import GroupCounts, PodCounts, TopologyDomain
from cpg_api.scheduling.templates import awaited

Labels = Mapping[str, str]
HEALTHY = "Healthy"
"""The condition that says whether a group's minimum is met now."""


class Health(StrEnum):
    """The reason of the condition ``Healthy``; the first alone is its True."""

    MINIMUM_MET = "MinimumMet"
    """Enough pods run, or have succeeded."""
    STARTING = "Starting"
    """Enough pods have a node, but not enough of them run."""
    PARTIAL = "Partial"
    """Some pods hold a node, and too few: half a gang, which holds room and does no work."""
    PENDING = "Pending"
    """No pod holds a node, and too few have succeeded."""


class Standing(Struct, frozen=True):
    """How one group of a tree fares; ``groups`` of a CompositePodGroup alone."""

    health: Health
    message: str
    pods: PodCounts
    groups: GroupCounts | None = None
    domain: TopologyDomain | None = None


class _Fare(Struct, frozen=True):
    """What a parent has to know of a child."""

    standing: Standing
    enough_placed: bool
    is_holding: bool
    cause: str
    nodes: frozenset[str]


def is_counted(pod: Pod) -> bool:
    """Tell whether a pod still is, or has done, its part: it has not failed and nobody has asked to delete it."""
    return pod.status.phase != "Failed" and not pod.is_terminating


def is_placed(pod: Pod) -> bool:
    """Tell whether a pod that counts has a node, or needed one and has done its work."""
    return bool(pod.spec.node_name) or pod.status.phase == "Succeeded"


def holds_node(pod: Pod) -> bool:
    """Tell whether a pod that counts takes up room on a node: one that has succeeded no longer does."""
    return is_counted(pod) and bool(pod.spec.node_name) and not pod.is_terminal


def standings(
    tree: Tree, members: Callable[[GroupKey], Iterable[Pod]], labels: Mapping[str, Labels]
) -> tuple[Standing, ...]:
    """Return the standing of every node of a tree, in the order of its nodes; ``labels`` are those of each node."""
    fares: dict[int, _Fare] = {}
    for place in reversed(range(len(tree.nodes))):  # children stand behind their parents
        node = tree.nodes[place]
        if isinstance(node.group, PodGroup):
            fares[place] = _leaf(node, node.group, members(node.key), labels)
        else:
            fares[place] = _inner(node, [fares[child] for child in node.children], labels)
    return tuple(fares[place].standing for place in range(len(tree.nodes)))


def _leaf(node: TreeNode, group: PodGroup, pods: Iterable[Pod], labels: Mapping[str, Labels]) -> _Fare:
    counted = [pod for pod in pods if is_counted(pod)]
    placed = [pod for pod in counted if is_placed(pod)]
    counts = PodCounts(
        desired=len(counted),
        scheduled=len(placed),
        running=sum(pod.status.phase in {"Running", "Succeeded"} for pod in placed),
    )
    short = group.minimum - counts.running
    message = awaited(group) or f"{counts.running} of {counts.desired} pods running{_short(short)}"
    nodes = frozenset(pod.spec.node_name for pod in placed if pod.spec.node_name)
    enough, is_holding = counts.scheduled >= group.minimum, any(holds_node(pod) for pod in placed)
    standing = Standing(
        health=_health(met=short <= 0, enough_placed=enough, is_holding=is_holding),
        message=message,
        pods=counts,
        domain=_domain(group, nodes, labels),
    )
    cause = f"{_named(node.key)}: {message}"
    return _Fare(standing=standing, enough_placed=enough, is_holding=is_holding, cause=cause, nodes=nodes)


def _inner(node: TreeNode, children: list[_Fare], labels: Mapping[str, Labels]) -> _Fare:
    below = [child.standing for child in children]
    pods = PodCounts(
        desired=sum(one.pods.desired for one in below),
        scheduled=sum(one.pods.scheduled for one in below),
        running=sum(one.pods.running for one in below),
    )
    counts = GroupCounts(desired=len(below), ready=sum(one.health is Health.MINIMUM_MET for one in below))
    short = node.group.minimum - counts.ready
    message = awaited(node.group) or f"{counts.ready} of {counts.desired} groups ready{_short(short)}"
    failing = next((child.cause for child in children if child.standing.health is not Health.MINIMUM_MET), "")
    cause = failing or f"{_named(node.key)}: {message}"
    if failing and short > 0:
        message = f"{message}: {failing}"
    nodes = frozenset[str]().union(*(child.nodes for child in children))
    enough = sum(child.enough_placed for child in children) >= node.group.minimum
    is_holding = any(child.is_holding for child in children)
    standing = Standing(
        health=_health(met=short <= 0, enough_placed=enough, is_holding=is_holding),
        message=message,
        pods=pods,
        groups=counts,
        domain=_domain(node.group, nodes, labels),
    )
    return _Fare(standing=standing, enough_placed=enough, is_holding=is_holding, cause=cause, nodes=nodes)


def _health(*, met: bool, enough_placed: bool, is_holding: bool) -> Health:
    if met:
        return Health.MINIMUM_MET
    if enough_placed:
        return Health.STARTING
    return Health.PARTIAL if is_holding else Health.PENDING


def _short(missing: int) -> str:
    return f", {missing} short" if missing > 0 else ""


def _named(key: GroupKey) -> str:
    return f"{key.kind} {key.name}"


def _domain(group: Group, nodes: frozenset[str], labels: Mapping[str, Labels]) -> TopologyDomain | None:
    """Return the domain in which all pods below a group are, by the narrowest key that it asks for and that holds."""
    asked = group.spec.scheduling_constraints
    if asked is None:
        return None
    for constraint in (*(asked.preferred_topology or ()), *(asked.topology or ())):
        values = {labels.get(node, {}).get(constraint.key) for node in nodes}
        if len(values) == 1 and (value := values.pop()) is not None:
            return TopologyDomain(key=constraint.key, value=value)
    return None
