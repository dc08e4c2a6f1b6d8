"""The health of a tree now: counts of pods and groups, compared with the minimums, from the leaves to the root.

Health describes the present and can change both ways. For every group it answers one question: is its minimum met
*now*? The minimum of a PodGroup counts pods that run or have succeeded. That of a CompositePodGroup counts healthy
children. Pods that have failed or are being deleted do not count.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Group, GroupKey, Tree, TreeNode
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.statuses import GroupCounts, PodCounts, TopologyDomain
from cpg_api.scheduling.templates import template_wait_message

Labels = Mapping[str, str]
HEALTHY = "Healthy"
"""The condition that says whether a group's minimum is met now."""


class HealthReason(StrEnum):
    """The reasons of the condition ``Healthy``. Its status is True for the first alone."""

    MINIMUM_MET = "MinimumMet"
    """Enough pods run or have succeeded."""
    STARTING = "Starting"
    """Enough pods have a node, but too few of them run."""
    PARTIAL = "Partial"
    """Some pods hold a node, but too few: half a gang, which takes room and does no work."""
    PENDING = "Pending"
    """No pod holds a node, and too few have succeeded."""


class GroupHealth(Struct, frozen=True):
    """The health of one group; a CompositePodGroup alone has ``groups``."""

    reason: HealthReason
    message: str
    pods: PodCounts
    groups: GroupCounts | None = None
    domain: TopologyDomain | None = None


class _SubtreeHealth(Struct, frozen=True):
    """What the health of a parent needs of a child."""

    standing: GroupHealth
    enough_placed: bool
    is_holding: bool
    cause: str
    nodes: frozenset[str]


def is_counted(pod: Pod) -> bool:
    """Return whether a pod counts: it has not failed and is not being deleted."""
    return pod.status.phase != "Failed" and not pod.is_terminating


def is_placed(pod: Pod) -> bool:
    """Return whether a pod that counts has a node, or has succeeded."""
    return bool(pod.spec.node_name) or pod.status.phase == "Succeeded"


def holds_node(pod: Pod) -> bool:
    """Return whether a pod that counts takes room on a node. A pod that has succeeded does not."""
    return is_counted(pod) and bool(pod.spec.node_name) and not pod.is_terminal


def tree_health(
    tree: Tree, members: Callable[[GroupKey], Iterable[Pod]], labels: Mapping[str, Labels]
) -> tuple[GroupHealth, ...]:
    """Return the health of every node of a tree, in the order of its nodes; ``labels`` are those of each node."""
    fares: dict[int, _SubtreeHealth] = {}
    for place in reversed(range(len(tree.nodes))):  # children come after their parents
        node = tree.nodes[place]
        if isinstance(node.group, PodGroup):
            fares[place] = _pod_group_health(node, node.group, members(node.key), labels)
        else:
            fares[place] = _composite_health(node, [fares[child] for child in node.children], labels)
    return tuple(fares[place].standing for place in range(len(tree.nodes)))


def _pod_group_health(
    node: TreeNode, group: PodGroup, pods: Iterable[Pod], labels: Mapping[str, Labels]
) -> _SubtreeHealth:
    counted = [pod for pod in pods if is_counted(pod)]
    placed = [pod for pod in counted if is_placed(pod)]
    counts = PodCounts(
        desired=len(counted),
        scheduled=len(placed),
        running=sum(pod.status.phase in {"Running", "Succeeded"} for pod in placed),
    )
    short = group.minimum - counts.running
    message = template_wait_message(group) or f"{counts.running} of {counts.desired} pods running{_shortage(short)}"
    nodes = frozenset(pod.spec.node_name for pod in placed if pod.spec.node_name)
    enough, is_holding = counts.scheduled >= group.minimum, any(holds_node(pod) for pod in placed)
    standing = GroupHealth(
        reason=_reason(met=short <= 0, enough_placed=enough, is_holding=is_holding),
        message=message,
        pods=counts,
        domain=_domain(group, nodes, labels),
    )
    cause = f"{_kind_and_name(node.key)}: {message}"
    return _SubtreeHealth(standing=standing, enough_placed=enough, is_holding=is_holding, cause=cause, nodes=nodes)


def _composite_health(node: TreeNode, children: list[_SubtreeHealth], labels: Mapping[str, Labels]) -> _SubtreeHealth:
    below = [child.standing for child in children]
    pods = PodCounts(
        desired=sum(one.pods.desired for one in below),
        scheduled=sum(one.pods.scheduled for one in below),
        running=sum(one.pods.running for one in below),
    )
    counts = GroupCounts(desired=len(below), ready=sum(one.reason is HealthReason.MINIMUM_MET for one in below))
    short = node.group.minimum - counts.ready
    message = template_wait_message(node.group) or f"{counts.ready} of {counts.desired} groups ready{_shortage(short)}"
    failing = next((child.cause for child in children if child.standing.reason is not HealthReason.MINIMUM_MET), "")
    cause = failing or f"{_kind_and_name(node.key)}: {message}"
    if failing and short > 0:
        message = f"{message}: {failing}"
    nodes = frozenset[str]().union(*(child.nodes for child in children))
    enough = sum(child.enough_placed for child in children) >= node.group.minimum
    is_holding = any(child.is_holding for child in children)
    standing = GroupHealth(
        reason=_reason(met=short <= 0, enough_placed=enough, is_holding=is_holding),
        message=message,
        pods=pods,
        groups=counts,
        domain=_domain(node.group, nodes, labels),
    )
    return _SubtreeHealth(standing=standing, enough_placed=enough, is_holding=is_holding, cause=cause, nodes=nodes)


def _reason(*, met: bool, enough_placed: bool, is_holding: bool) -> HealthReason:
    if met:
        return HealthReason.MINIMUM_MET
    if enough_placed:
        return HealthReason.STARTING
    return HealthReason.PARTIAL if is_holding else HealthReason.PENDING


def _shortage(missing: int) -> str:
    return f", {missing} short" if missing > 0 else ""


def _kind_and_name(key: GroupKey) -> str:
    return f"{key.kind} {key.name}"


def _domain(group: Group, nodes: frozenset[str], labels: Mapping[str, Labels]) -> TopologyDomain | None:
    """Return the domain of all pods below a group, by the narrowest of its keys for which they share a value."""
    constraints = group.spec.scheduling_constraints
    if constraints is None:
        return None
    for constraint in (*(constraints.preferred_topology or ()), *(constraints.topology or ())):
        values = {labels.get(node, {}).get(constraint.key) for node in nodes}
        if len(values) == 1 and (value := values.pop()) is not None:
            return TopologyDomain(key=constraint.key, value=value)
    return None
