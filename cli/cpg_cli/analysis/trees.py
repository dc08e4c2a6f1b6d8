"""Trees as a user sees them: each group with its status, its pods counted, and the group that blocks its tree."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.conditions import find_condition
from cpg_api.core.pod import Pod
from cpg_api.scheduling.attempts import AttemptFinding
from cpg_api.scheduling.forest import Anchor, Group, GroupKey, Tree
from cpg_api.scheduling.health import HEALTHY
from cpg_api.scheduling.podgroup import PodGroup

Child: TypeAlias = "GroupView"
MISSING = "Missing"
SCHEDULED = "Scheduled"
UNKNOWN = "Unknown"


class PodView(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A pod of a PodGroup."""

    name: str
    phase: str
    node: str = ""
    created: str | None = None


class GroupView(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A group of a tree, with all below it; pods and nodes are counted for all of that.

    ``status`` is Scheduled, or the reason of the group's scheduling condition; Missing for a group that others name.
    ``health`` is the reason of its condition Healthy. A leaf counts its ``minimum`` in pods, others in groups.
    """

    kind: str
    namespace: str
    name: str
    flavour: str
    status: str
    health: str = ""
    minimum: int = 0
    placed: int = 0
    """Pods that have a node or have succeeded."""
    pods: int = 0
    """Pods that have not failed and are not being deleted."""
    nodes: int = 0
    domain: str = ""
    owner: str = ""
    """The controller of the group or of its Workload, as KIND/NAME."""
    blocking: bool = False
    """Whether this group keeps its tree from being placed."""
    message: str = ""
    created: str | None = None
    members: tuple[PodView, ...] = ()
    children: tuple[Child, ...] = ()


class NamespaceView(Struct, frozen=True, rename="camel", omit_defaults=True):
    """All trees, and the pods in no group: how many there are, and how many of them wait."""

    trees: tuple[GroupView, ...] = ()
    single_pods: int = 0
    waiting_single_pods: int = 0


class TreeViews:
    """Makes the views of trees."""

    def __init__(
        self,
        flavour: str,
        members: Mapping[GroupKey, Sequence[Pod]],
        owner_of: Callable[[Group], str],
        *,
        with_pods: bool,
    ) -> None:
        """Count these members."""
        self._flavour = flavour
        self._members = members
        self._owner_of = owner_of
        self._with_pods = with_pods

    def view(self, tree: Tree) -> GroupView:
        """Return a tree; of one with a missing root, that root with all that names it."""
        blocking = _blocking(tree)
        if tree.anchor is not Anchor.MISSING:
            return self._group(tree, 0, blocking)[0]
        key = tree.anchor_key
        view = GroupView(
            kind=key.kind, namespace=key.namespace, name=key.name, flavour=self._flavour, status=MISSING, blocking=True
        )
        tops = [place for place, node in enumerate(tree.nodes) if node.parent is None]
        return self._counted(view, tree, tops, None)[0]

    def _group(self, tree: Tree, place: int, blocking: GroupKey | None) -> tuple[GroupView, set[str]]:
        group, key = tree.nodes[place].group, tree.nodes[place].key
        condition = find_condition(group.status.conditions, f"{group.kind}InitiallyScheduled")
        health = find_condition(group.status.conditions, HEALTHY)
        view = GroupView(
            kind=key.kind,
            namespace=key.namespace,
            name=key.name,
            flavour=self._flavour,
            status=condition.reason if condition is not None else UNKNOWN,
            health=health.reason if health is not None else "",
            minimum=group.minimum,
            domain=group.status.domain.value if group.status.domain is not None else "",
            owner=self._owner_of(group),
            blocking=key == blocking,
            message=condition.message if condition is not None and condition.status == "False" else "",
            created=group.metadata.creation_timestamp,
        )
        return self._counted(view, tree, tree.nodes[place].children, blocking)

    def _counted(
        self, view: GroupView, tree: Tree, children: Iterable[int], blocking: GroupKey | None
    ) -> tuple[GroupView, set[str]]:
        """Return a view with what is below it, and the nodes of its pods."""
        key = GroupKey(view.kind, view.namespace, view.name)
        pods = [pod for pod in self._members.get(key, ()) if not (pod.status.phase == "Failed" or pod.is_terminating)]
        nodes = {pod.spec.node_name for pod in pods if pod.spec.node_name}
        below = [self._group(tree, child, blocking) for child in children]
        for _, others in below:
            nodes |= others
        placed = sum(bool(pod.spec.node_name) or pod.status.phase == "Succeeded" for pod in pods)
        counted = replace(
            view,
            placed=placed + sum(child.placed for child, _ in below),
            pods=len(pods) + sum(child.pods for child, _ in below),
            nodes=len(nodes),
            members=tuple(map(_pod, sorted(pods, key=lambda pod: pod.metadata.name))) if self._with_pods else (),
            children=tuple(child for child, _ in below),
        )
        return counted, nodes


def _pod(pod: Pod) -> PodView:
    return PodView(pod.metadata.name, pod.status.phase, pod.spec.node_name, pod.metadata.creation_timestamp)


def _blocking(tree: Tree) -> GroupKey | None:
    """Return the group that keeps a tree from being placed: as its last attempt says, else by the conditions."""
    if not tree.nodes or tree.anchor is Anchor.MISSING:
        return None
    attempt = tree.root.status.attempt
    if attempt is not None and attempt.blocked_at is not None and attempt.finding != AttemptFinding.PLACED:
        return GroupKey(attempt.blocked_at.kind, tree.root.metadata.namespace, attempt.blocked_at.name)
    place = 0 if _waits(tree.root) else None
    if place is None:
        return None
    while (
        child := next((one for one in tree.nodes[place].children if _fails_itself(tree.nodes[one].group)), None)
    ) is not None:
        place = child
    return tree.nodes[place].key


def _waits(group: Group) -> bool:
    found = find_condition(group.status.conditions, f"{group.kind}InitiallyScheduled")
    return found is not None and found.status == "False"


def _fails_itself(group: Group) -> bool:
    """Return whether a group waits for a reason of its own, and not because of another one."""
    found = find_condition(group.status.conditions, f"{group.kind}InitiallyScheduled")
    return found is not None and found.status == "False" and " cannot be placed: " not in found.message


def is_leaf(view: GroupView) -> bool:
    """Return whether a group is a PodGroup."""
    return view.kind == PodGroup.kind
