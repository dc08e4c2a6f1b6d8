"""What there is to attempt at a root: a unit for the engine, or the reason why there is none.

This is where the API's objects become the engine's unit. It decides nothing about nodes; it only tells apart a tree
that can be tried, one that waits for something, and one that is wrong in itself.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import TypeAlias

from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PREEMPT_LOWER_PRIORITY
from cpg_api.problems import Problem
from cpg_api.scheduling.forest import Anchor, Group, GroupKey, Tree
from cpg_api.scheduling.membership import membership
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.templates import effective_tree, resolved_preemption_policy, resolved_priority
from cpg_api.scheduling.validation import (
    TreeProblem,
    ValidationContext,
    tree_wait_message,
    validate,
    validate_members,
)
from cpg_engine.decisions import Decision
from cpg_engine.gangs.unit import GroupPods, Unit, pod_unit, tree_unit
from cpg_engine.snapshot import Snapshot
from cpg_engine.verdicts import Finding
from cpg_scheduler.cache.cluster import SINGLE_POD, ClusterCache
from cpg_scheduler.keys import QueueKey, UnitKey
from cpg_scheduler.queueing.hints import FailedAttempt, hint_for, signature_of

NEVER = "Never"


class SchedulableUnit(Struct, frozen=True):
    """A unit that can be tried; ``pods`` are those that wait in it, by UID."""

    unit: Unit
    pods: Mapping[str, Pod]
    groups: tuple[Group, ...]
    priority: int = 0
    preempts: bool = True
    """Whether others may be evicted for it."""

    @property
    def signature(self) -> Hashable | None:
        """Return what the unit has in common with all those that fare as it does."""
        signature = signature_of(self.unit, self.pods.values())
        return None if signature is None else (signature, self.preempts)

    def failure(self, snapshot: Snapshot, decision: Decision, left: Collection[str]) -> FailedAttempt:
        """Return what is to be remembered of a decision that leaves these pods, by UID, without a node."""
        finding = decision.explanation.finding
        return FailedAttempt(
            hope=hint_for(snapshot, self.unit, finding, left),
            signature=None if finding is Finding.PLACED else self.signature,
            unit=self.unit,
            explanation=decision.explanation,
        )


class PodDeleted(Struct, frozen=True):
    """The pod of the unit does not exist any more."""

    pod: GroupKey


class PodGated(Struct, frozen=True):
    """The pod of the unit has scheduling gates."""


class InconsistentMembership(Struct, frozen=True):
    """A pod names its group in several ways, which differ."""

    problem: Problem


class GroupKindsNotServed(Struct, frozen=True):
    """A pod names a group, and the API server serves no groups."""

    group: GroupKey


class GroupMissing(Struct, frozen=True):
    """The tree names a group that does not exist."""

    group: GroupKey


class TemplateMissing(Struct, frozen=True):
    """The tree waits for the template that completes one of its groups."""

    message: str


class InvalidTree(Struct, frozen=True):
    """The tree breaks rules."""

    problems: tuple[TreeProblem, ...]


class SchedulerNamesDiffer(Struct, frozen=True):
    """Pods of the tree name different schedulers; ``pod`` is the first that does not name ours."""

    pod: str
    theirs: str
    ours: str


class PreemptionPoliciesDiffer(Struct, frozen=True):
    """Pods of the tree have different preemption policies: the first pod of each."""

    pod_of: Mapping[str, str]


class TreeGated(Struct, frozen=True):
    """Pods of the tree have scheduling gates."""

    pods: tuple[str, ...]


UnitProblem: TypeAlias = (
    PodDeleted
    | PodGated
    | InconsistentMembership
    | GroupKindsNotServed
    | GroupMissing
    | TemplateMissing
    | InvalidTree
    | SchedulerNamesDiffer
    | PreemptionPoliciesDiffer
    | TreeGated
)


class Inadmissible(Struct, frozen=True):
    """A unit that cannot be attempted, with its pending pods and its groups."""

    problem: UnitProblem
    pods: tuple[Pod, ...] = ()
    groups: tuple[Group, ...] = ()


def queue_key_of(state: ClusterCache, root: UnitKey) -> QueueKey | None:
    """Return where a root stands in the queue, or None where no pod of ours waits in it."""
    if root.flavour == SINGLE_POD:
        pod = state.single_pod(root.key)
        if pod is None or not state.is_pending(pod):
            return None
        return QueueKey(-(pod.spec.priority or 0), pod.metadata.creation_timestamp or "", root)
    tree = state.stores[root.flavour].forest.tree_of(root.key)
    if not _waiting(state, root.flavour, tree):
        return None
    if not tree.nodes:
        return QueueKey(0, "", root)
    top = tree.root
    return QueueKey(-_priority_of(state, root.flavour, tree), top.metadata.creation_timestamp or "", root)


def build_unit(state: ClusterCache, root: UnitKey) -> SchedulableUnit | Inadmissible:
    """Return what there is to attempt at a root that has pods waiting."""
    if root.flavour == SINGLE_POD:
        return _single(state, root.key)
    workloads = state.workloads[root.flavour]
    tree = effective_tree(state.stores[root.flavour].forest.tree_of(root.key), workloads)
    pods = tuple(_waiting(state, root.flavour, tree))
    groups = tuple(node.group for node in tree.nodes)
    problem = _problem(state, root.flavour, tree) or _gates(pods)
    if problem is not None:
        return Inadmissible(problem, pods, groups)
    members = {node.key: members_of(state, root.flavour, node.key) for node in tree.nodes}
    return SchedulableUnit(
        unit=tree_unit(tree, members, state.snapshot.ledger),
        pods={pod.metadata.uid: pod for pod in pods},
        groups=groups,
        priority=_priority_of(state, root.flavour, tree),
        preempts=NEVER
        not in {resolved_preemption_policy(tree.root, workloads, state.priority_classes), *map(_policy, pods)},
    )


def pending_pods(state: ClusterCache, root: UnitKey) -> list[Pod]:
    """Return the pods of ours that wait at a root."""
    if root.flavour == SINGLE_POD:
        pod = state.single_pod(root.key)
        return [pod] if pod is not None and state.is_pending(pod) else []
    return _waiting(state, root.flavour, state.stores[root.flavour].forest.tree_of(root.key))


def is_incomplete(state: ClusterCache, root: UnitKey) -> bool:
    """Tell whether a root waits for an object: the group that its pods name, or one above."""
    if root.flavour == SINGLE_POD:
        pod = state.single_pod(root.key)
        return pod is not None and membership(pod).group is not None
    return state.stores[root.flavour].anchor(root.key) not in state.stores[root.flavour]


def members_of(state: ClusterCache, flavour: str, key: GroupKey) -> GroupPods:
    """Return the pods of a group: those that wait, and those that have a node or have succeeded."""
    pending, settled = [], []
    for pod in state.members(flavour, key):
        if state.is_pending(pod):
            pending.append(pod)
        elif pod.status.phase == "Succeeded" or (pod.spec.node_name and not pod.is_terminal and not pod.is_terminating):
            settled.append(pod)
    return GroupPods(pending=pending, scheduled=settled)


def _single(state: ClusterCache, key: GroupKey) -> SchedulableUnit | Inadmissible:
    pod = state.single_pod(key)
    if pod is None:
        return Inadmissible(PodDeleted(key))
    group, problem = membership(pod).group, membership(pod).problem
    if problem is not None:
        return Inadmissible(InconsistentMembership(problem), pods=(pod,))
    if group is not None:
        return Inadmissible(GroupKindsNotServed(GroupKey(PodGroup.kind, key.namespace, group)), pods=(pod,))
    if pod.spec.scheduling_gates:
        return Inadmissible(PodGated(), pods=(pod,))
    return SchedulableUnit(
        unit=pod_unit(pod, state.snapshot.ledger),
        pods={pod.metadata.uid: pod},
        groups=(),
        priority=pod.spec.priority or 0,
        preempts=_policy(pod) != NEVER,
    )


def _priority_of(state: ClusterCache, flavour: str, tree: Tree) -> int:
    """Return the priority of a tree: that of its root."""
    return resolved_priority(tree.root, state.workloads[flavour], state.priority_classes) or 0


def _leaves(tree: Tree) -> Iterable[GroupKey]:
    """Return the PodGroups of a tree; of a PodGroup that is not there, the one that its pods name."""
    if not tree.nodes and tree.anchor_key.kind == PodGroup.kind:
        yield tree.anchor_key
    for node in tree.nodes:
        if isinstance(node.group, PodGroup):
            yield node.key


def _waiting(state: ClusterCache, flavour: str, tree: Tree) -> list[Pod]:
    return [pod for leaf in _leaves(tree) for pod in state.members(flavour, leaf) if state.is_pending(pod)]


def _problem(state: ClusterCache, flavour: str, tree: Tree) -> UnitProblem | None:
    """Return what is wrong with a tree, or what it waits for; terminating and ended pods do not matter."""
    if tree.anchor is Anchor.MISSING:
        return GroupMissing(tree.anchor_key)
    context = ValidationContext(workloads=state.workloads[flavour], classes=state.priority_classes)
    problems = validate(tree, context)
    if problems:
        return InvalidTree(tuple(problems))
    waiting = tree_wait_message(tree, context.workloads)
    if waiting:
        return TemplateMissing(waiting)
    members = [(leaf, pod) for leaf in _leaves(tree) for pod in state.members(flavour, leaf)]
    living = [(leaf, pod) for leaf, pod in members if not pod.is_terminal and not pod.is_terminating]
    difference = _difference(state, [pod for _, pod in living])
    if difference is not None:
        return difference
    problems = validate_members(tree, living, context)
    return InvalidTree(tuple(problems)) if problems else None


def _difference(state: ClusterCache, pods: Collection[Pod]) -> SchedulerNamesDiffer | PreemptionPoliciesDiffer | None:
    """Return in what the pods of a tree differ that they must have in common."""
    foreign = [pod for pod in pods if pod.spec.scheduler_name != state.scheduler_name]
    if foreign:
        pod = min(foreign, key=_by_key)
        return SchedulerNamesDiffer(pod.metadata.key, pod.spec.scheduler_name, state.scheduler_name)
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
