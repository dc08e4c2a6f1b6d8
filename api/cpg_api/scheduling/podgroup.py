"""PodGroups: the leaves of a tree, or flat gangs."""

from typing import Annotated, ClassVar

from cpg_api.meta import Condition, ObjectMeta
from cpg_api.scheduling.attempts import LastAttempt
from cpg_api.scheduling.policies import (
    UNIT_RULE,
    DisruptionMode,
    PodGroupResourceClaim,
    PodGroupSchedulingPolicy,
    PreemptionPolicy,
    Priority,
    PriorityClassName,
    SchedulingConstraints,
    WorkloadReference,
)
from cpg_api.scheduling.statuses import PodCounts, TopologyDomain, pending_status
from cpg_api.schema import FIELD_IS_IMMUTABLE, Rule, describe, dns_label, dns_subdomain
from cpg_api.structs import ApiStruct

PRIORITY_CLASS_RULE = Rule(
    expression=(
        "has(self.priorityClassName) == has(oldSelf.priorityClassName) ? "
        "(!has(self.priorityClassName) || self.priorityClassName == oldSelf.priorityClassName) : "
        "(has(self.priorityClassName) && !has(oldSelf.priority) && has(self.priority))"
    ),
    message=FIELD_IS_IMMUTABLE,
    path=".priorityClassName",
)
"""The name of the global default may be set only by the write that resolves the priority."""

POLICY_RULE = Rule(
    expression="has(self.schedulingPolicy) || !has(oldSelf.schedulingPolicy)",
    message="field cannot be cleared once set",
    path=".schedulingPolicy",
)
"""The policy may be set once, from the template."""

DISRUPTION_RULE = Rule(
    expression=(
        "has(oldSelf.schedulingPolicy) ? "
        "(has(self.disruptionMode) && has(self.disruptionMode.all)) == "
        "(has(oldSelf.disruptionMode) && has(oldSelf.disruptionMode.all)) : "
        "has(self.disruptionMode) == has(oldSelf.disruptionMode) ? "
        "!has(self.disruptionMode) || self.disruptionMode == oldSelf.disruptionMode : "
        "has(self.disruptionMode) && has(self.schedulingPolicy)"
    ),
    message=FIELD_IS_IMMUTABLE,
    path=".disruptionMode",
)
"""Without a disruptionMode, a group with a policy is single, and one without a policy has the mode of its template."""


class PodGroupSpec(ApiStruct, frozen=True, kw_only=True):
    """The desired state of a group of pods."""

    RULES: ClassVar = (
        Rule(
            expression="!has(self.parentCompositePodGroupName) || has(self.workloadRef)",
            message="must be set when parentCompositePodGroupName is set",
            reason="FieldValueRequired",
            path=".workloadRef",
        ),
        Rule(
            expression="has(self.schedulingPolicy) || has(self.workloadRef)",
            message="must be set, unless workloadRef names a template to take it from",
            reason="FieldValueRequired",
            path=".schedulingPolicy",
        ),
        POLICY_RULE,
        DISRUPTION_RULE,
        PRIORITY_CLASS_RULE,
        UNIT_RULE,
    )

    parent_composite_pod_group_name: Annotated[
        str | None,
        dns_subdomain(
            "The parent, a CompositePodGroup of the same namespace; without one the group is the root of its own tree.",
            immutable=True,
        ),
    ] = None
    workload_ref: Annotated[
        WorkloadReference | None,
        describe("The template the group was made from. Required below a parent.", immutable=True),
    ] = None
    scheduling_policy: Annotated[
        PodGroupSchedulingPolicy | None,
        describe(
            "How the pods of the group are scheduled. kube-cpg extension: without it the group takes this and all "
            "else that it leaves empty from its template, and waits for that."
        ),
    ] = None
    scheduling_constraints: Annotated[
        SchedulingConstraints | None, describe("Where the pods of the group may run.", from_template=True)
    ] = None
    resource_claims: Annotated[
        tuple[PodGroupResourceClaim, ...] | None,
        describe(
            "The device claims that the pods share, as in the native API. Kubernetes makes them for native groups "
            "alone: pods of this group share a claim by resourceClaimName in their own spec. At most 4.",
            max_items=4,
            map_keys=("name",),
            from_template=True,
        ),
    ] = None
    disruption_mode: Annotated[
        DisruptionMode | None, describe("How pods of the group may be disrupted; empty means single. Immutable.")
    ] = None
    priority_class_name: PriorityClassName = ""
    priority: Priority = None
    preemption_policy: PreemptionPolicy = None


class PodGroupResourceClaimStatus(ApiStruct, frozen=True):
    """The claim that was created for an entry of ``spec.resourceClaims``."""

    name: Annotated[str, dns_label("The entry of spec.resourceClaims.")]
    resource_claim_name: Annotated[
        str | None, dns_subdomain("The ResourceClaim that was made; empty when none was needed.")
    ] = None


class PodGroupStatus(ApiStruct, frozen=True):
    """The observed state of the group."""

    conditions: Annotated[
        tuple[Condition, ...] | None,
        describe(
            "PodGroupInitiallyScheduled: whether the group's minimum was placed; final once True. Healthy "
            "(kube-cpg extension): whether it is met now. DisruptionTarget: the group is about to be evicted. "
            "MatchesTemplate (kube-cpg extension): whether it is as its template says; absent if it always was.",
            max_items=16,
            map_keys=("type",),
        ),
    ] = None
    resource_claim_statuses: Annotated[
        tuple[PodGroupResourceClaimStatus, ...] | None,
        describe("The claims made for spec.resourceClaims, of native groups.", max_items=4, map_keys=("name",)),
    ] = None
    pods: Annotated[PodCounts | None, describe("kube-cpg extension: the pods of the group, counted.")] = None
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


class PodGroup(ApiStruct, frozen=True, kw_only=True):
    """A group of pods that one policy schedules and disrupts."""

    RULES: ClassVar = (
        Rule(
            expression=(
                "!has(self.status) || !has(self.status.resourceClaimStatuses) || "
                "self.status.resourceClaimStatuses.all(s, has(self.spec.resourceClaims) && "
                "self.spec.resourceClaims.exists(c, c.name == s.name))"
            ),
            message="must match the name of an entry in `spec.resourceClaims`",
            path=".status.resourceClaimStatuses",
        ),
    )

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[PodGroupSpec, describe("The desired state of the group.")]
    status: Annotated[
        PodGroupStatus,
        describe("The observed state of the group.", default=pending_status("PodGroupInitiallyScheduled")),
    ] = PodGroupStatus()

    kind: ClassVar = "PodGroup"

    @property
    def minimum(self) -> int:
        """Return how many pods must be placed: one for a basic group, and for a group without a policy yet."""
        policy = self.spec.scheduling_policy
        return policy.gang.min_count if policy and policy.gang else 1
