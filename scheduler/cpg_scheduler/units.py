"""Units to schedule: from the groups and pods of the cache to the engine's unit, or to the problem why there is none.

Nothing here decides about nodes.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PREEMPT_LOWER_PRIORITY
from cpg_api.integrations.registry import owner_of_group
from cpg_api.scheduling.forest import Anchor, Group, GroupKey, Tree
from cpg_api.scheduling.membership import membership
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.protection import names_group
from cpg_api.scheduling.templates import effective_tree, resolved_preemption_policy, resolved_priority
from cpg_api.scheduling.validation import ValidationContext, tree_wait_message, validate, validate_members
from cpg_api.scheduling.workload import Workload
from cpg_engine.gangs.unit import GroupPods, Unit, pod_unit, tree_unit
from cpg_scheduler.cache.cluster import SINGLE_POD, ClusterCache
from cpg_scheduler.cache.expected import NOTHING_EXPECTED, ExpectedGroup, ExpectedMembers
from cpg_scheduler.cache.pods import unread_api
from cpg_scheduler.inadmissible import (
    GroupKindsNotServed,
    GroupMissing,
    Inadmissible,
    InconsistentMembership,
    InvalidTree,
    PodDeleted,
    PodGated,
    PreemptionPoliciesDiffer,
    PrioritiesDiffer,
    SchedulerNamesDiffer,
    TemplateMissing,
    TreeGated,
    UnitProblem,
)
from cpg_scheduler.keys import QueueKey, UnitKey

NEVER = "Never"


class SchedulableUnit(Struct, frozen=True):
    """A unit that can be attempted; ``pods`` are its pending pods, by UID."""

    unit: Unit
    pods: Mapping[str, Pod]
    groups: tuple[Group, ...]
    priority: int = 0
    preempts: bool = True
    """Whether pods may be evicted for it."""
    expected: ExpectedMembers = NOTHING_EXPECTED


def queue_key_of(cache: ClusterCache, key: UnitKey) -> QueueKey | None:
    """Return the queue key of a unit, or None if it has no pending pods."""
    if key.flavour == SINGLE_POD:
        pod = cache.single_pod(key.key)
        if pod is None or not cache.is_pending(pod):
            return None
        return QueueKey(-(pod.spec.priority or 0), pod.metadata.creation_timestamp or "", key)
    tree = cache.stores[key.flavour].forest.tree_of(key.key)
    if not _pending(cache, key.flavour, tree):
        return None
    if not tree.nodes:
        return QueueKey(0, "", key)
    root = tree.root
    return QueueKey(-_priority_of(cache, key.flavour, tree), root.metadata.creation_timestamp or "", key)


def owner_of(cache: ClusterCache, key: UnitKey) -> str:
    """Return what a tree is made for, such as ``JobSet/train``; empty if users have written its groups."""
    tree = cache.stores[key.flavour].forest.tree_of(key.key) if key.flavour != SINGLE_POD else None
    if tree is None or not tree.nodes:
        return ""
    meta, reference = tree.root.metadata, tree.root.spec.workload_ref
    name = reference.workload_name if reference is not None else ""
    workload = cache.workloads[key.flavour].get((meta.namespace, name))
    owners = (*meta.owner_references, *(workload.metadata.owner_references if workload is not None else ()))
    made_for = (one for one in owners if one.controller and one.kind != Workload.kind)
    return next((f"{one.kind}/{one.name}" for one in made_for), "")


def build_unit(cache: ClusterCache, key: UnitKey) -> SchedulableUnit | Inadmissible:
    """Return the unit to attempt, or why it cannot be attempted."""
    if key.flavour == SINGLE_POD:
        return _single(cache, key.key)
    workloads, tree = cache.workloads[key.flavour], effective_tree_of(cache, key)
    pods = tuple(_pending(cache, key.flavour, tree))
    groups = tuple(node.group for node in tree.nodes)
    problem = _problem(cache, key.flavour, tree) or _gates(pods)
    if problem is not None:
        return Inadmissible(problem, pods, groups)
    members = {node.key: members_of(cache, key.flavour, node.key) for node in tree.nodes}
    expected = cache.expected.add_to(key.flavour, tree, members) if cache.expected else NOTHING_EXPECTED
    policies = {resolved_preemption_policy(tree.root, workloads, cache.priority_classes), *map(_policy, pods)}
    return SchedulableUnit(
        unit=tree_unit(tree, members, cache.snapshot.ledger),
        pods={pod.metadata.uid: pod for pod in pods},
        groups=groups,
        priority=_priority_of(cache, key.flavour, tree),
        preempts=NEVER not in policies,
        expected=expected,
    )


def groups_expecting(cache: ClusterCache, key: UnitKey) -> Mapping[GroupKey, ExpectedGroup]:
    """Return the groups of a unit that expect pods."""
    tree = cache.stores[key.flavour].forest.tree_of(key.key)
    members = {node.key: members_of(cache, key.flavour, node.key) for node in tree.nodes}
    return cache.expected.open_groups(key.flavour, tree, members)


def pending_pods(cache: ClusterCache, key: UnitKey) -> list[Pod]:
    """Return the pending pods of a unit."""
    if key.flavour == SINGLE_POD:
        pod = cache.single_pod(key.key)
        return [pod] if pod is not None and cache.is_pending(pod) else []
    return _pending(cache, key.flavour, cache.stores[key.flavour].forest.tree_of(key.key))


def groups_of(cache: ClusterCache, key: UnitKey) -> list[Group]:
    """Return the groups of a unit."""
    if key.flavour == SINGLE_POD:
        return []
    return [node.group for node in cache.stores[key.flavour].forest.tree_of(key.key).nodes]


def is_incomplete(cache: ClusterCache, key: UnitKey) -> bool:
    """Return whether a unit lacks an object: the group that its pods name, an ancestor, or a template."""
    if key.flavour == SINGLE_POD:
        pod = cache.single_pod(key.key)
        return pod is not None and membership(pod).group is not None
    store = cache.stores[key.flavour]
    if store.anchor(key.key) not in store:
        return True
    return bool(tree_wait_message(store.forest.tree_of(key.key), cache.workloads[key.flavour]))


def has_scheduling_gates(pods: Iterable[Pod]) -> bool:
    """Return whether a pod has scheduling gates; one such pod holds its whole tree."""
    return any(pod.spec.scheduling_gates for pod in pods)


def members_of(cache: ClusterCache, flavour: str, key: GroupKey) -> GroupPods:
    """Return the pods of a group: those that are pending, and those that have a node or have succeeded."""
    pending, settled = [], []
    for pod in cache.members(flavour, key):
        if cache.is_pending(pod):
            pending.append(pod)
        elif pod.status.phase == "Succeeded" or (pod.spec.node_name and not pod.is_terminal and not pod.is_terminating):
            settled.append(pod)
    return GroupPods(pending=pending, scheduled=settled)


def effective_tree_of(cache: ClusterCache, key: UnitKey) -> Tree:
    """Return the tree of a unit, which is no single pod, with the fields from its templates."""
    return effective_tree(cache.stores[key.flavour].forest.tree_of(key.key), cache.workloads[key.flavour])


def groups_with_minimum(tree: Tree, count: Callable[[GroupKey], int]) -> dict[GroupKey, Group]:
    """Return the groups that have their minimum: a PodGroup of counted pods, a group above of such children."""
    found: dict[GroupKey, Group] = {}
    for node in reversed(tree.nodes):
        is_leaf = isinstance(node.group, PodGroup)
        have = count(node.key) if is_leaf else sum(tree.nodes[child].key in found for child in node.children)
        if node.group.spec.scheduling_policy is not None and have >= max(node.group.minimum, 1):
            found[node.key] = node.group
    return dict(reversed(found.items()))


def _single(cache: ClusterCache, key: GroupKey) -> SchedulableUnit | Inadmissible:
    pod = cache.single_pod(key)
    if pod is None:
        return Inadmissible(PodDeleted(key))
    found = membership(pod)
    if found.problem is not None:
        return Inadmissible(InconsistentMembership(found.problem), (pod,))
    if found.group is not None:
        return Inadmissible(GroupKindsNotServed(GroupKey(PodGroup.kind, key.namespace, found.group)), (pod,))
    if pod.spec.scheduling_gates:
        return Inadmissible(PodGated(), (pod,))
    return SchedulableUnit(
        unit=pod_unit(pod, cache.snapshot.ledger),
        pods={pod.metadata.uid: pod},
        groups=(),
        priority=pod.spec.priority or 0,
        preempts=_policy(pod) != NEVER,
    )


def _priority_of(cache: ClusterCache, flavour: str, tree: Tree) -> int:
    """Return the priority of a tree: that of its root."""
    return resolved_priority(tree.root, cache.workloads[flavour], cache.priority_classes) or 0


def _leaves(tree: Tree) -> Iterable[GroupKey]:
    """Return the PodGroups of a tree; without any group, the one that its pods name."""
    if not tree.nodes and tree.anchor_key.kind == PodGroup.kind:
        yield tree.anchor_key
    for node in tree.nodes:
        if isinstance(node.group, PodGroup):
            yield node.key


def _pending(cache: ClusterCache, flavour: str, tree: Tree) -> list[Pod]:
    return [pod for leaf in _leaves(tree) for pod in cache.members(flavour, leaf) if cache.is_pending(pod)]


def _problem(cache: ClusterCache, flavour: str, tree: Tree) -> UnitProblem | None:
    """Return why a tree cannot be attempted, if it cannot; pods that terminate or have ended break no rules."""
    if tree.anchor is Anchor.MISSING:
        return _missing(cache, flavour, tree)
    replaced = _replaced(cache, flavour, tree)
    if replaced is not None:
        return replaced
    context = ValidationContext(workloads=cache.workloads[flavour], classes=cache.priority_classes)
    problems = validate(tree, context)
    if problems:
        return InvalidTree(tuple(problems))
    awaited = tree_wait_message(tree, context.workloads)
    if awaited:
        return TemplateMissing(awaited)
    members = [(leaf, pod) for leaf in _leaves(tree) for pod in cache.members(flavour, leaf)]
    living = [(leaf, pod) for leaf, pod in members if not pod.is_terminal and not pod.is_terminating]
    difference = _difference(cache, [pod for _, pod in living])
    if difference is not None:
        return difference
    diverging = validate_members(tree, living, context)
    return PrioritiesDiffer(tuple(diverging)) if diverging else None


def _missing(cache: ClusterCache, flavour: str, tree: Tree) -> GroupMissing | GroupKindsNotServed:
    """Return that the anchor of a tree does not exist; if its pods name a kind that is not read, it may be of that."""
    pods = _pending(cache, flavour, tree)
    apis = (unread_api(pod, cache.stores) for pod in pods)
    api = next(filter(None, apis), "") if not tree.nodes else ""
    if api:
        return GroupKindsNotServed(tree.anchor_key, api)
    derived = (pod.derived_group for pod in pods if pod.derived_group and membership(pod).group == pod.derived_group)
    return GroupMissing(tree.anchor_key, next(map(owner_of_group, derived), ""))


def _replaced(cache: ClusterCache, flavour: str, tree: Tree) -> TemplateMissing | None:
    """Return that a tree was made for an earlier owner than that of pending pods that derive their group.

    Both owners have the same name, so the groups of the later one will replace these. A pod that names its group gets
    the group of that name, whatever it was made for.
    """
    for node in tree.nodes:
        members = cache.members(flavour, node.key) if isinstance(node.group, PodGroup) else ()
        derived = (pod for pod in members if pod.derived_group and cache.is_pending(pod) and not names_group(pod))
        for owner in sorted({pod.derived_owner for pod in derived}):
            if not _is_made_for(cache, flavour, node.group, owner):
                kind = owner.partition("/")[0] or "owner"
                return TemplateMissing(f"waiting for the groups of its {kind}: {node.key} is of an earlier one")
    return None


def _is_made_for(cache: ClusterCache, flavour: str, group: Group, owner: str) -> bool:
    """Return whether a group may belong to an owner: it stays, and its Workload has no other controller."""
    if group.metadata.deletion_timestamp is not None:
        return False
    reference = group.spec.workload_ref
    if reference is None:
        return True
    workload = cache.workloads[flavour].get((group.metadata.namespace, reference.workload_name))
    if workload is None or not _may_control(f"{Workload.kind}/{workload.metadata.uid}", group):
        return False
    return not owner or _may_control(owner, workload)


def _may_control(owner: str, found: Group | Workload) -> bool:
    """Return whether an object has no other controller of the kind of this owner."""
    kind, _, _ = owner.partition("/")
    controllers = {f"{one.kind}/{one.uid}" for one in found.metadata.owner_references if one.kind == kind}
    return not controllers or owner in controllers


def _difference(cache: ClusterCache, pods: Collection[Pod]) -> SchedulerNamesDiffer | PreemptionPoliciesDiffer | None:
    """Return in what the pods of a tree differ that they must have in common."""
    foreign = [pod for pod in pods if pod.spec.scheduler_name != cache.scheduler_name]
    if foreign:
        pod = min(foreign, key=_by_key)
        return SchedulerNamesDiffer(pod.metadata.key, pod.spec.scheduler_name, cache.scheduler_name)
    policies = sorted({_policy(pod) for pod in pods})
    if len(policies) <= 1:
        return None
    return PreemptionPoliciesDiffer(
        {policy: min(pod.metadata.key for pod in pods if _policy(pod) == policy) for policy in policies}
    )


def _by_key(pod: Pod) -> str:
    return pod.metadata.key


def _policy(pod: Pod) -> str:
    return pod.spec.preemption_policy or PREEMPT_LOWER_PRIORITY


def _gates(pods: Iterable[Pod]) -> TreeGated | None:
    gated = sorted(pod.metadata.key for pod in pods if pod.spec.scheduling_gates)
    return TreeGated(tuple(gated)) if gated else None
