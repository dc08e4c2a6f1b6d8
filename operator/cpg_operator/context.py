"""Everything that a step reads about one tree."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Group, GroupKey, Tree
from cpg_api.scheduling.health import GroupHealth, tree_health
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.templates import effective_tree
from cpg_api.scheduling.validation import ValidationContext
from cpg_client.flavours import CRD
from cpg_client.resources import Resource
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.writes import StepResult, TreeKey


class ReconcileContext(Struct, frozen=True, kw_only=True):
    """A tree at one moment: with the fields that it takes from its templates (``tree``), and as ``stored``.

    ``now`` is in seconds of the epoch, ``timestamp`` the same as the API server writes it. They may jump. So a step
    asks ``seconds_since`` for how long a status lasts, with the time at which it began.
    """

    key: TreeKey
    tree: Tree
    stored: Tree
    kinds: Mapping[type, Resource]
    members: Callable[[GroupKey], Iterable[Pod]]
    health: tuple[GroupHealth, ...]
    surroundings: ValidationContext
    knows_classes: bool
    now: float
    timestamp: str
    seconds_since: Callable[[float], float]
    partial_after: float
    is_foreign: bool
    """Whether another scheduler places the tree: it gets no condition about scheduling from us."""

    @property
    def is_crd(self) -> bool:
        """Whether the groups are of our flavour, which has fields for counts and domain in its status."""
        return self.key.flavour == CRD

    def resource(self, group: Group) -> Resource:
        """Return the resource of a group."""
        return self.kinds[type(group)]

    def pods(self) -> Iterator[Pod]:
        """Yield the members of the tree."""
        return _members_of(self.tree, self.members)


Step: TypeAlias = Callable[[ReconcileContext], StepResult]


def build_context(
    view: ClusterView,
    key: TreeKey,
    *,
    now: float,
    timestamp: str,
    seconds_since: Callable[[float], float],
    partial_after: float,
    scheduler_names: frozenset[str],
) -> ReconcileContext:
    """Return the context of a tree as the view shows it now."""
    stored, workloads = view.tree(key), view.workloads(key.flavour)
    tree = effective_tree(stored, workloads)

    def members(group: GroupKey) -> Iterable[Pod]:
        return view.members(key.flavour, group)

    return ReconcileContext(
        key=key,
        tree=tree,
        stored=stored,
        kinds=view.kinds[key.flavour],
        members=members,
        health=tree_health(tree, members, view.labels),
        surroundings=ValidationContext(workloads=workloads, classes=view.classes),
        knows_classes=view.knows_classes,
        now=now,
        timestamp=timestamp,
        seconds_since=seconds_since,
        partial_after=partial_after,
        is_foreign=is_foreign(_members_of(tree, members), scheduler_names, is_crd=key.flavour == CRD),
    )


def is_foreign(pods: Iterable[Pod], scheduler_names: frozenset[str], *, is_crd: bool) -> bool:
    """Return whether no pod of a tree names a scheduler of ours.

    Pods that have ended or terminate count only if none lives. Without pods, a tree of our own API is ours, and a
    native one may be any scheduler's.
    """
    ended = set[str]()
    living = set[str]()
    for pod in pods:
        (ended if pod.is_terminal or pod.is_terminating else living).add(pod.spec.scheduler_name)
    names = living or ended
    return scheduler_names.isdisjoint(names) if names else not is_crd


def _members_of(tree: Tree, members: Callable[[GroupKey], Iterable[Pod]]) -> Iterator[Pod]:
    return (pod for node in tree.nodes if isinstance(node.group, PodGroup) for pod in members(node.key))
