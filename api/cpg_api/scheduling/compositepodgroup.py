"""CompositePodGroups: the inner nodes of a tree."""

from typing import Annotated, ClassVar

from cpg_api.meta import Condition, ObjectMeta
from cpg_api.scheduling.attempts import LastAttempt
from cpg_api.scheduling.podgroup import DISRUPTION_RULE, POLICY_RULE, PRIORITY_CLASS_RULE
from cpg_api.scheduling.policies import (
    CompositePodGroupSchedulingPolicy,
    DisruptionMode,
    PreemptionPolicy,
    Priority,
    PriorityClassName,
    SchedulingConstraints,
    WorkloadReference,
)
from cpg_api.scheduling.statuses import GroupCounts, PodCounts, TopologyDomain, pending_status
from cpg_api.schema import describe, dns_subdomain
from cpg_api.structs import ApiStruct


class CompositePodGroupSpec(ApiStruct, frozen=True, kw_only=True):
    """The desired state of a group of groups."""

    RULES: ClassVar = (POLICY_RULE, DISRUPTION_RULE, PRIORITY_CLASS_RULE)

    parent_composite_pod_group_name: Annotated[
        str | None,
        dns_subdomain(
            "The parent, a CompositePodGroup of the same namespace; without one the group is the root of its tree.",
            immutable=True,
        ),
    ] = None
    workload_ref: Annotated[
        WorkloadReference | None,
        describe("The template the group was made from.", required=True, immutable=True),
    ] = None
    scheduling_policy: Annotated[
        CompositePodGroupSchedulingPolicy | None,
        describe(
            "How the child groups are scheduled. kube-cpg extension: without it the group takes this and all else "
            "that it leaves empty from its template, and waits for that."
        ),
    ] = None
    scheduling_constraints: Annotated[
        SchedulingConstraints | None, describe("Where all pods below the group may run.", from_template=True)
    ] = None
    disruption_mode: Annotated[
        DisruptionMode | None, describe("How the child groups may be disrupted; empty means single. Immutable.")
    ] = None
    priority_class_name: PriorityClassName = ""
    priority: Priority = None
    preemption_policy: PreemptionPolicy = None


class CompositePodGroupStatus(ApiStruct, frozen=True):
    """The observed state of the group."""

    conditions: Annotated[
        tuple[Condition, ...] | None,
        describe(
            "CompositePodGroupInitiallyScheduled: whether the minimum of the subtree was placed; final once True. "
            "Healthy (kube-cpg extension): whether it is met now. "
            "DisruptionTarget: the subtree is about to be evicted. "
            "MatchesTemplate (kube-cpg extension): whether it is as its template says; absent if it always was.",
            max_items=16,
            map_keys=("type",),
        ),
    ] = None
    groups: Annotated[GroupCounts | None, describe("kube-cpg extension: the child groups, counted.")] = None
    pods: Annotated[PodCounts | None, describe("kube-cpg extension: all pods below the group, counted.")] = None
    domain: Annotated[
        TopologyDomain | None,
        describe("kube-cpg extension: the topology domain that was chosen for the group."),
    ] = None
    attempt: Annotated[
        LastAttempt | None,
        describe(
            "kube-cpg extension: the last attempt to place the tree, and what blocks the group. The scheduler writes "
            "it together with the condition, and from time to time while nothing else changes."
        ),
    ] = None


class CompositePodGroup(ApiStruct, frozen=True, kw_only=True):
    """A group of groups that one policy schedules and disrupts."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[CompositePodGroupSpec, describe("The desired state of the group.")]
    status: Annotated[
        CompositePodGroupStatus,
        describe("The observed state of the group.", default=pending_status("CompositePodGroupInitiallyScheduled")),
    ] = CompositePodGroupStatus()

    kind: ClassVar = "CompositePodGroup"

    @property
    def minimum(self) -> int:
        """Return how many child groups must be placed: one for a basic group, and for a group without a policy yet."""
        policy = self.spec.scheduling_policy
        return policy.gang.min_group_count if policy and policy.gang else 1
