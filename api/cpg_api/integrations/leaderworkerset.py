"""LeaderWorkerSet: a gang for each replica, whose leader and workers have one group index.

Where subgroups are exclusive, each is a PodGroup of its own below the replica. Workers that are created only once the
leader is bound or runs are not part of the minimum; they are expected, and room is reserved for them.
"""

import math
from collections.abc import Mapping

from cpg_api.core.pod import Pod
from cpg_api.integrations.naming import Parts, checked
from cpg_api.integrations.owners import MemberTemplate
from cpg_api.integrations.policy import MODES, OwnerPolicy
from cpg_api.integrations.trees import Child, Naming, OwnerKind, Shape, Template, composite, gang, leaf
from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_api.scheduling.expected import ExpectedPods
from cpg_api.scheduling.names import MAX_REPLICAS
from cpg_api.scheduling.policies import SchedulingConstraints, TopologyConstraint
from cpg_api.scheduling.workload import WorkloadSpec
from cpg_api.structs import ApiStruct

PREFIX = "lws"
REPLICA, SUBGROUP_NAME, LEADER = "replica", "subgroup", "leader"
_GROUP = "leaderworkerset.sigs.k8s.io"
NAME, INDEX, SUBGROUP = f"{_GROUP}/name", f"{_GROUP}/group-index", f"{_GROUP}/subgroup-index"
EXCLUSIVE_TOPOLOGY, SUBGROUP_TOPOLOGY = f"{_GROUP}/exclusive-topology", f"{_GROUP}/subgroup-exclusive-topology"
TOPOLOGIES = (EXCLUSIVE_TOPOLOGY, SUBGROUP_TOPOLOGY)
LEADER_READY, LEADER_EXCLUDED = "LeaderReady", "LeaderExcluded"
RECREATES_GROUP = frozenset({"", "Default", "RecreateGroupOnPodRestart", "RecreateGroupAfterStart"})


class SubGroupPolicy(ApiStruct, frozen=True):
    """How a replica is divided."""

    sub_group_policy_type: str = ""
    sub_group_size: int = 1


class LeaderWorkerTemplate(ApiStruct, frozen=True):
    """The pods of a replica."""

    leader_template: MemberTemplate | None = None
    worker_template: MemberTemplate = MemberTemplate()
    size: int = 1
    restart_policy: str = ""
    sub_group_policy: SubGroupPolicy | None = None

    @property
    def templates(self) -> list[MemberTemplate]:
        """Return the pod templates: without one of their own, leaders have that of workers."""
        leader = self.leader_template
        if leader is None:
            return [self.worker_template]
        return [leader, self.worker_template] if self.size > 1 else [leader]


class RollingUpdateConfiguration(ApiStruct, frozen=True):
    """How many replicas more there may be during an update."""

    max_surge: int | str = 0


class RolloutStrategy(ApiStruct, frozen=True):
    """How templates are rolled out."""

    rolling_update_configuration: RollingUpdateConfiguration | None = None


class LeaderWorkerSetSpec(ApiStruct, frozen=True):
    """The replicas."""

    replicas: int = 1
    leader_worker_template: LeaderWorkerTemplate = LeaderWorkerTemplate()
    rollout_strategy: RolloutStrategy = RolloutStrategy()
    startup_policy: str = ""

    @property
    def most_replicas(self) -> int:
        """Return how many replicas there may be, those of an update included."""
        rolling = self.rollout_strategy.rolling_update_configuration
        surge = rolling.max_surge if rolling is not None else 0
        if isinstance(surge, str):
            percent = surge.removesuffix("%")
            surge = math.ceil(self.replicas * int(percent[:4]) / 100) if percent.isascii() and percent.isdigit() else 0
        return self.replicas + min(surge, self.replicas)


class LeaderWorkerSet(ApiStruct, frozen=True):
    """The fields of a LeaderWorkerSet that decide about its tree."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()


def derive(pod: Pod, controller: OwnerReference) -> Parts | None:
    """Return the parts for a pod of a replica. The StatefulSet of leaders has the name of the owner."""
    labels = pod.metadata.labels
    whole = checked(PREFIX, labels.get(NAME), REPLICA, labels.get(INDEX))
    if whole is None or controller.name not in {whole[1], f"{whole[1]}-{whole[3]}"}:
        return None
    if SUBGROUP_TOPOLOGY not in pod.metadata.annotations:
        return whole
    if SUBGROUP not in labels:
        return checked(PREFIX, whole[1], LEADER, whole[3])
    return checked(PREFIX, whole[1], SUBGROUP_NAME, whole[3], labels[SUBGROUP])


def shape(owner: LeaderWorkerSet, policy: OwnerPolicy, schedulers: frozenset[str]) -> Shape:
    """Return the templates of a LeaderWorkerSet's tree: a basic root, because each replica serves by itself."""
    spec, template = owner.spec, owner.spec.leader_worker_template
    ours = [one.is_ours(schedulers) for one in template.templates]
    if not all(ours):
        return Shape(problems=("its leader and its workers have different schedulers",) if any(ours) else ())
    if len({one.spec.priority_class_name for one in template.templates}) > 1:
        return Shape(problems=("its leader and its workers have different priority classes",))
    if spec.most_replicas > MAX_REPLICAS:
        return Shape(problems=(f"it may have {spec.most_replicas} replicas, and a tree {MAX_REPLICAS}",))
    policy = _with_defaults(owner, policy)
    divided = template.sub_group_policy is not None and SUBGROUP_TOPOLOGY in owner.metadata.annotations
    replica = _divided(owner, policy) if divided else _whole(owner, policy)
    root = composite("root", policy.min_groups, [replica], constraints=policy.whole)
    expected = _expected_below(template) if divided else _expected(owner, template)
    return Shape(WorkloadSpec(composite_pod_group_templates=(root,)), expected=expected)


def _expected(owner: LeaderWorkerSet, template: LeaderWorkerTemplate) -> Mapping[str, tuple[ExpectedPods, ...]]:
    """Return the pods of a replica, if workers are created after their leader is bound, or runs."""
    if not _comes_later(owner):
        return {}
    if template.leader_template is None:
        return {REPLICA: (ExpectedPods(template.size),)}
    return {REPLICA: (ExpectedPods(1), ExpectedPods(max(template.size - 1, 0), template.worker_template.spec.needs))}


def _expected_below(template: LeaderWorkerTemplate) -> Mapping[str, tuple[ExpectedPods, ...]]:
    """Return the pods of the subgroups. The first may have the leader beside as many workers as the others."""
    division = template.sub_group_policy or SubGroupPolicy()
    size = max(division.sub_group_size, 1)
    workers = template.worker_template.spec.needs
    found: dict[str, tuple[ExpectedPods, ...]] = {SUBGROUP_NAME: (ExpectedPods(size, workers),)}
    if division.sub_group_policy_type != LEADER_EXCLUDED:
        others = size if (template.size - 1) % size == 0 else size - 1
        found[f"{SUBGROUP_NAME}.0"] = (ExpectedPods(1, template.templates[0].spec.needs), ExpectedPods(others, workers))
    return found


def _with_defaults(owner: LeaderWorkerSet, policy: OwnerPolicy) -> OwnerPolicy:
    """Return the policy with what the owner says by its own fields: restarts of a whole replica, exclusive domains."""
    if policy.mode is None and owner.spec.leader_worker_template.restart_policy in RECREATES_GROUP:
        policy = policy._replace(mode=MODES["all"])
    return policy._replace(replica=policy.replica or _exclusive(owner, EXCLUSIVE_TOPOLOGY))


def _exclusive(owner: LeaderWorkerSet, annotation: str) -> SchedulingConstraints | None:
    key = owner.metadata.annotations.get(annotation)
    return SchedulingConstraints(topology=(TopologyConstraint(key),)) if key else None


def _minimum(owner: LeaderWorkerSet, size: int) -> int:
    """Return how many pods of a group exist before the first of them is bound, or runs."""
    return 1 if _comes_later(owner) or SUBGROUP_TOPOLOGY in owner.metadata.annotations else max(size, 1)


def _comes_later(owner: LeaderWorkerSet) -> bool:
    """Return whether workers are created once their leader is bound, or runs."""
    return owner.spec.startup_policy == LEADER_READY or EXCLUSIVE_TOPOLOGY in owner.metadata.annotations


def _whole(owner: LeaderWorkerSet, policy: OwnerPolicy) -> Template:
    """Return the template of replicas that are not divided."""
    template = owner.spec.leader_worker_template
    return leaf(
        REPLICA,
        policy.min_count or _minimum(owner, template.size),
        replicas=owner.spec.most_replicas,
        constraints=policy.replica,
        mode=policy.mode,
        priority_class=template.templates[0].spec.priority_class_name,
    )


def _divided(owner: LeaderWorkerSet, policy: OwnerPolicy) -> Template:
    """Return the template of replicas with subgroups; the leader is in the first, or in a group of its own."""
    template = owner.spec.leader_worker_template
    division = template.sub_group_policy or SubGroupPolicy()
    excluded = division.sub_group_policy_type == LEADER_EXCLUDED
    workers = template.size - excluded
    priority_class = template.templates[0].spec.priority_class_name
    subgroups = leaf(
        SUBGROUP_NAME,
        _minimum(owner, division.sub_group_size),
        replicas=max(workers // max(division.sub_group_size, 1), 1),
        constraints=_exclusive(owner, SUBGROUP_TOPOLOGY),
        mode=policy.mode,
        priority_class=priority_class,
    )
    leader = leaf(LEADER, 1, mode=policy.mode, priority_class=priority_class)
    children = [Child(leader, 1), Child(subgroups, 0)] if excluded else [Child(subgroups, 1)]
    return gang(
        REPLICA,
        children,
        Naming([]),
        replicas=owner.spec.most_replicas,
        constraints=policy.replica,
        mode=policy.mode,
    )


KIND = OwnerKind(
    PREFIX,
    "leaderworkerset.x-k8s.io",
    ("v1",),
    "leaderworkersets",
    "LeaderWorkerSet",
    LeaderWorkerSet,
    shape,
)
