"""A root unit as the search sees it: a tree of groups in one row, or a single pod."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Group, GroupKey, Tree
from cpg_api.scheduling.podgroup import PodGroup
from cpg_engine.snapshot.classes import PodClass
from cpg_engine.snapshot.ledger import Ledger
from cpg_engine.snapshot.requests import RequestError
from cpg_engine.verdicts import Refused

POD = "Pod"


class Member(Struct, frozen=True):
    """A pod that waits for a node."""

    uid: str
    pod_class: PodClass


class UnitNode(Struct, frozen=True, kw_only=True):
    """A group; ``end`` is the position after the last of its descendants, since parents stand before children.

    ``settled`` counts members that have a node already or have succeeded, ``homes`` are those nodes; ``refused``
    pods are members in name only.
    """

    key: GroupKey
    minimum: int
    end: int
    children: tuple[int, ...] = ()
    required: str | None = None
    preferred: str | None = None
    pending: tuple[Member, ...] = ()
    refused: tuple[Refused, ...] = ()
    settled: int = 0
    homes: tuple[str, ...] = ()
    leaf: bool = True


class Unit(Struct, frozen=True):
    """A whole tree; the root is the first node."""

    nodes: tuple[UnitNode, ...]


class Members(Struct, frozen=True):
    """The pods of a PodGroup: those that wait, and those that have their place."""

    pending: Sequence[Pod] = ()
    settled: Sequence[Pod] = ()


def pod_unit(pod: Pod, ledger: Ledger) -> Unit:
    """Return the unit of a pod that belongs to no group."""
    key = GroupKey(POD, pod.metadata.namespace, pod.metadata.name)
    pending, refused = _members((pod,), ledger)
    return Unit(nodes=(UnitNode(key=key, minimum=1, end=1, pending=pending, refused=refused),))


def tree_unit(tree: Tree, members: Mapping[GroupKey, Members], ledger: Ledger) -> Unit:
    """Return the unit of a tree that is rooted and valid."""
    asked = ledger.asked_labels
    unit = _tree_unit(tree, members, ledger)
    # A pod further down may select by a label that the pods before it were not known by.
    return unit if ledger.asked_labels is asked else _tree_unit(tree, members, ledger)


def _tree_unit(tree: Tree, members: Mapping[GroupKey, Members], ledger: Ledger) -> Unit:
    ends = list(range(1, len(tree.nodes) + 1))
    for place in range(len(tree.nodes) - 1, -1, -1):
        parent = tree.nodes[place].parent
        if parent is not None:
            ends[parent] = max(ends[parent], ends[place])
    return Unit(
        nodes=tuple(
            _node(node.group, node.key, node.children, end, members.get(node.key, Members()), ledger)
            for node, end in zip(tree.nodes, ends, strict=True)
        )
    )


def _node(
    group: Group, key: GroupKey, children: tuple[int, ...], end: int, members: Members, ledger: Ledger
) -> UnitNode:
    constraints = group.spec.scheduling_constraints
    required = constraints.topology if constraints else None
    preferred = constraints.preferred_topology if constraints else None
    pending, refused = _members(members.pending, ledger)
    return UnitNode(
        key=key,
        minimum=max(group.minimum, 1),
        end=end,
        children=children,
        required=required[0].key if required else None,
        preferred=preferred[0].key if preferred else None,
        pending=pending,
        refused=refused,
        settled=len(members.settled),
        homes=tuple(pod.spec.node_name for pod in members.settled if not pod.is_terminal),
        leaf=isinstance(group, PodGroup),
    )


def _members(pods: Iterable[Pod], ledger: Ledger) -> tuple[tuple[Member, ...], tuple[Refused, ...]]:
    """Return the pods in scheduling order, the more important, then the older, then by name; and the impossible."""
    pending: list[Member] = []
    refused: list[Refused] = []
    for pod in sorted(pods, key=_scheduling_order):
        try:
            pod_class = ledger.class_of(pod)
        except RequestError as error:
            refused.append(Refused(uid=pod.metadata.uid, problems=(error.problem,)))
            continue
        if pod_class.problems:
            refused.append(Refused(uid=pod.metadata.uid, problems=pod_class.problems))
        else:
            pending.append(Member(uid=pod.metadata.uid, pod_class=pod_class))
    return tuple(pending), tuple(refused)


def _scheduling_order(pod: Pod) -> tuple[int, str, str, str]:
    return (
        -(pod.spec.priority or 0),
        pod.metadata.creation_timestamp or "",
        pod.metadata.namespace,
        pod.metadata.name,
    )
