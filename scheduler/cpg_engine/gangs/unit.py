"""A unit as the search sees it: a tree of groups as one sequence, or a single pod."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import GroupKey, Tree, TreeNode
from cpg_api.scheduling.podgroup import PodGroup
from cpg_engine.cluster.device_needs import claim_keys
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.cluster.requests import RequestError
from cpg_engine.verdicts import InvalidPod

POD = "Pod"


class PendingPod(Struct, frozen=True):
    """A pod that waits for a node; one that is expected does not exist yet, and needs room all the same.

    ``claims`` are the keys of its device claims, in the order of the needs of its class.
    """

    uid: str
    pod_class: PodClass
    is_expected: bool = False
    claims: tuple[str, ...] = ()


class UnitNode(Struct, frozen=True, kw_only=True):
    """A group, or a single pod; parents stand before children, and ``end`` is the position after the last descendant.

    ``scheduled`` counts the members that have a node already or have succeeded; ``member_nodes`` are those nodes.
    ``invalid`` pods can never be scheduled.
    """

    key: GroupKey
    minimum: int
    end: int
    children: tuple[int, ...] = ()
    required: str | None = None
    preferred: str | None = None
    pending: tuple[PendingPod, ...] = ()
    invalid: tuple[InvalidPod, ...] = ()
    scheduled: int = 0
    member_nodes: tuple[str, ...] = ()
    leaf: bool = True


class Unit(Struct, frozen=True):
    """A whole tree; the root is the first node."""

    nodes: tuple[UnitNode, ...]


class GroupPods(Struct, frozen=True):
    """The pods of a PodGroup: those that wait, and those that have a node or have succeeded.

    ``expected`` pods do not exist yet. No pod of the group is placed without room for ``needed`` pods, them included.
    """

    pending: Sequence[Pod] = ()
    scheduled: Sequence[Pod] = ()
    expected: Sequence[Pod] = ()
    needed: int = 0

    @property
    def is_unborn(self) -> bool:
        """Return whether room is needed for pods none of which exists."""
        return self.needed > 0 and not self.pending and not self.scheduled


NO_PODS = GroupPods()


def pod_unit(pod: Pod, ledger: Ledger) -> Unit:
    """Return the unit of a pod that belongs to no group."""
    key = GroupKey(POD, pod.metadata.namespace, pod.metadata.name)
    pending, refused = _members((pod,), ledger)
    return Unit(nodes=(UnitNode(key=key, minimum=1, end=1, pending=pending, invalid=refused),))


def tree_unit(tree: Tree, members: Mapping[GroupKey, GroupPods], ledger: Ledger) -> Unit:
    """Return the unit of a tree that is rooted and valid."""
    asked = ledger.asked_labels
    unit = _tree_unit(tree, members, ledger)
    # A later pod may select by a label that the classes of the pods before it do not have.
    return unit if ledger.asked_labels is asked else _tree_unit(tree, members, ledger)


def _tree_unit(tree: Tree, members: Mapping[GroupKey, GroupPods], ledger: Ledger) -> Unit:
    ends = list(range(1, len(tree.nodes) + 1))
    for place in range(len(tree.nodes) - 1, -1, -1):
        parent = tree.nodes[place].parent
        if parent is not None:
            ends[parent] = max(ends[parent], ends[place])
    keys = {key for key, group in members.items() if group.needed and group.is_unborn}
    unborn = Counter(node.parent for node in tree.nodes if node.key in keys) if keys else {}
    return Unit(
        nodes=tuple(
            _node(node, end, members, ledger, unborn=unborn.get(place, 0))
            for place, (node, end) in enumerate(zip(tree.nodes, ends, strict=True))
        )
    )


def _node(
    node: TreeNode, end: int, members_of: Mapping[GroupKey, GroupPods], ledger: Ledger, *, unborn: int
) -> UnitNode:
    group, key = node.group, node.key
    members = members_of.get(key, NO_PODS)
    constraints = group.spec.scheduling_constraints
    required = constraints.topology if constraints else None
    preferred = constraints.preferred_topology if constraints else None
    pending, refused = _members(members.pending, ledger)
    minimum = max(group.minimum, 1)
    if unborn:
        minimum = min(minimum + unborn, len(node.children))
    if members.expected:
        expected, _ = _members(map(_without_claims, members.expected), ledger)
        pending += tuple(replace(pod, is_expected=True) for pod in expected)
    if members.needed:
        minimum = max(minimum, min(members.needed, len(members.scheduled) + len(pending)))
    return UnitNode(
        key=key,
        minimum=minimum,
        end=end,
        children=node.children,
        required=required[0].key if required else None,
        preferred=preferred[0].key if preferred else None,
        pending=pending,
        invalid=refused,
        scheduled=len(members.scheduled),
        member_nodes=tuple(pod.spec.node_name for pod in members.scheduled if not pod.is_terminal),
        leaf=isinstance(group, PodGroup),
    )


def _without_claims(pod: Pod) -> Pod:
    """Return an expected pod without its claims for devices, which do not exist either: room is kept by resources."""
    return replace(pod, spec=replace(pod.spec, resource_claims=None)) if pod.spec.resource_claims else pod


def _members(pods: Iterable[Pod], ledger: Ledger) -> tuple[tuple[PendingPod, ...], tuple[InvalidPod, ...]]:
    """Return the pods in scheduling order, the more important, then the older, then by name; and the impossible."""
    pending: list[PendingPod] = []
    refused: list[InvalidPod] = []
    for pod in sorted(pods, key=_scheduling_order):
        try:
            pod_class = ledger.class_of(pod)
        except RequestError as error:
            refused.append(InvalidPod(uid=pod.metadata.uid, problems=(error.problem,)))
            continue
        if pod_class.problems:
            refused.append(InvalidPod(uid=pod.metadata.uid, problems=pod_class.problems))
        else:
            keys = claim_keys(pod) if pod.spec.resource_claims else ()
            pending.append(PendingPod(uid=pod.metadata.uid, pod_class=pod_class, claims=keys))
    return tuple(pending), tuple(refused)


def _scheduling_order(pod: Pod) -> tuple[int, str, str, str]:
    return (
        -(pod.spec.priority or 0),
        pod.metadata.creation_timestamp or "",
        pod.metadata.namespace,
        pod.metadata.name,
    )
