"""What there is to attempt at a root: a unit for the engine, or the reason why there is none.

This is where the API's objects become the engine's unit. It decides nothing about nodes; it only tells apart a tree
that can be tried, one that waits for something, and one that is wrong in itself.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PREEMPT_LOWER_PRIORITY
from cpg_api.scheduling.forest import Anchor, Group, GroupKey, Tree
from cpg_api.scheduling.membership import membership
from cpg_api.scheduling.names import REASON_INVALID, REASON_SCHEDULER_ERROR, REASON_UNSCHEDULABLE
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.templates import effective_tree, resolved_preemption_policy, resolved_priority
from cpg_api.scheduling.validation import (
    TreeProblem,
    ValidationContext,
    summarize,
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
GATED = "waiting for scheduling gates in its tree to be removed"


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


class Inadmissible(Struct, frozen=True):
    """A root that cannot be tried: for every pod and group of it, why.

    Its pods are told without counting them: each that is mended or let go would change what all others are told.
    ``cause`` stays the same meanwhile. Where there is nothing to count, both are the message.
    """

    reason: str
    message: str
    pods: tuple[Pod, ...] = ()
    groups: tuple[Group, ...] = ()
    told: str = ""
    cause: str = ""


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
    refusal = _wrong(state, root.flavour, tree) or _gated(pods)
    if refusal is not None:
        return replace(refusal, pods=pods, groups=groups)
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
        return Inadmissible(reason=REASON_UNSCHEDULABLE, message=f"{key} is gone", pods=(), groups=())
    group, problem = membership(pod).group, membership(pod).problem
    if problem is not None:
        return Inadmissible(reason=REASON_SCHEDULER_ERROR, message=str(problem), pods=(pod,), groups=())
    if group is not None:
        message = f"waiting for PodGroup {key.namespace}/{group}: the API server serves no PodGroups"
        return Inadmissible(reason=REASON_UNSCHEDULABLE, message=message, pods=(pod,), groups=())
    if pod.spec.scheduling_gates:
        message = "waiting for its scheduling gates to be removed"
        return Inadmissible(reason=REASON_UNSCHEDULABLE, message=message, pods=(pod,), groups=())
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


def _wrong(state: ClusterCache, flavour: str, tree: Tree) -> Inadmissible | None:
    """Say what is wrong with a tree, or what it waits for, if anything.

    Pods that have come to their end, or are on their way there, can do no more wrong.
    """
    if tree.anchor is Anchor.MISSING:
        return Inadmissible(REASON_UNSCHEDULABLE, f"waiting for {tree.anchor_key}, which does not exist")
    around = ValidationContext(workloads=state.workloads[flavour], classes=state.priority_classes)
    problems = validate(tree, around)
    if problems:
        return _invalid(problems)
    waiting = tree_wait_message(tree, around.workloads)
    if waiting:
        return Inadmissible(REASON_UNSCHEDULABLE, waiting)
    members = [(leaf, pod) for leaf in _leaves(tree) for pod in state.members(flavour, leaf)]
    living = [(leaf, pod) for leaf, pod in members if not pod.is_terminal and not pod.is_terminating]
    differing = _differing(state, [pod for _, pod in living])
    if differing is not None:
        return Inadmissible(REASON_SCHEDULER_ERROR, differing, cause=differing.partition(": ")[0])
    diverging = validate_members(tree, living, around)
    return _invalid(diverging) if diverging else None


def _invalid(problems: Sequence[TreeProblem]) -> Inadmissible:
    faults = sorted({problem.fault for problem in problems})
    message = summarize([problem.message for problem in problems])
    return Inadmissible(REASON_INVALID, message, told=problems[0].message, cause=", ".join(faults))


def _differing(state: ClusterCache, pods: Collection[Pod]) -> str | None:
    """Say in what the pods of a tree differ that they must have in common, and which is the first to differ."""
    foreign = [pod for pod in pods if pod.spec.scheduler_name != state.scheduler_name]
    if foreign:
        pod = min(foreign, key=_by_key)
        theirs, ours = pod.spec.scheduler_name, state.scheduler_name
        return f"all pods of a tree need one schedulerName: Pod {pod.metadata.key} has {theirs}, others have {ours}"
    policies = sorted({_policy(pod) for pod in pods})
    if len(policies) <= 1:
        return None
    firsts = [min((pod for pod in pods if _policy(pod) == policy), key=_by_key) for policy in policies]
    listed = ", ".join(f"Pod {pod.metadata.key} has {_policy(pod)}" for pod in firsts)
    return f"all pods of a tree need one preemptionPolicy: {listed}"


def _by_key(pod: Pod) -> str:
    return pod.metadata.key


def _policy(pod: Pod) -> str:
    return pod.spec.preemption_policy or PREEMPT_LOWER_PRIORITY


def _gated(pods: Iterable[Pod]) -> Inadmissible | None:
    gated = sorted(pod.metadata.key for pod in pods if pod.spec.scheduling_gates)
    if not gated:
        return None
    others = f" and {len(gated) - 1} more" if len(gated) > 1 else ""
    message = f"waiting for the scheduling gates of Pod {gated[0]}{others} to be removed"
    return Inadmissible(REASON_UNSCHEDULABLE, message, told=GATED, cause=GATED)
