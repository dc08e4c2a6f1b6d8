"""The fields that groups and templates share: policy, constraints, disruption, priority."""

from typing import Annotated, ClassVar

from cpg_api.schema import (
    FIELD_IS_IMMUTABLE,
    HIGHEST_USER_PRIORITY,
    LABEL_KEY,
    MAX_LABEL_KEY,
    Rule,
    describe,
    dns_label,
    dns_subdomain,
)
from cpg_api.structs import ApiStruct

LOWEST_PRIORITY = -(2**31)


def exactly_one(first: str, second: str, present: str = "has(self.{})") -> tuple[Rule, ...]:
    """Return the rules of a union of two members; ``present`` is CEL for "the member is set"."""
    members = f"`{first}`, `{second}`"
    one, other = present.format(first), present.format(second)
    return (
        Rule(expression=f"{one} || {other}", message=f"must specify one of: {members}"),
        Rule(expression=f"!({one} && {other})", message=f"must specify exactly one of: {members}"),
    )


FIXED_POLICY = (
    Rule(
        expression="has(self.basic) == has(oldSelf.basic)",
        message=FIELD_IS_IMMUTABLE,
        path=".basic",
    ),
    Rule(
        expression="has(self.gang) || !has(oldSelf.gang)",
        message="field cannot be cleared once set",
        path=".gang",
    ),
    Rule(
        expression="!has(self.gang) || has(oldSelf.gang)",
        message="field cannot be set once created",
        path=".gang",
    ),
)
"""The kind of policy is immutable; the minimum of a gang may change."""


UNIT_NEEDS_GANG = "may be `all` only with `schedulingPolicy.gang`, or below a parent"
"""What is preempted as a unit must not be larger than what is scheduled as a unit (KEP-5710)."""


def is_basic_unit(item: str) -> str:
    """Return CEL for "this group or template is basic and disrupted as one"."""
    return (
        f"has({item}.schedulingPolicy) && has({item}.schedulingPolicy.basic) && "
        f"has({item}.disruptionMode) && has({item}.disruptionMode.all)"
    )


UNIT_RULE = Rule(
    expression=f"has(self.parentCompositePodGroupName) || !({is_basic_unit('self')})",
    message=UNIT_NEEDS_GANG,
    path=".disruptionMode",
)
"""For a PodGroup without a parent; below a parent, a mode of ``all`` can be required (KEP-6012)."""


class BasicSchedulingPolicy(ApiStruct, frozen=True):
    """Members are scheduled one by one."""


class GangSchedulingPolicy(ApiStruct, frozen=True):
    """Members are scheduled together or not at all."""

    min_count: Annotated[
        int,
        describe(
            "The least number of pods that must be schedulable or scheduled at the same time for the group to be "
            "admitted. May be changed; pods that run already are not affected.",
            minimum=1,
            maximum=2**31 - 1,
            format="int32",
        ),
    ]


class PodGroupSchedulingPolicy(ApiStruct, frozen=True):
    """How the pods of a group are scheduled: exactly one member is set."""

    RULES: ClassVar = (*exactly_one("basic", "gang"), *FIXED_POLICY)

    basic: Annotated[
        BasicSchedulingPolicy | None,
        describe("Pods are scheduled as they come; one placed pod is a success."),
    ] = None
    gang: Annotated[
        GangSchedulingPolicy | None,
        describe("Pods are scheduled together, at least minCount of them, or not at all."),
    ] = None


class CompositeGangSchedulingPolicy(ApiStruct, frozen=True):
    """Child groups are scheduled together or not at all."""

    min_group_count: Annotated[
        int,
        describe(
            "The least number of child groups that must be schedulable or scheduled at the same time for the whole "
            "group to be admitted. May be changed; groups that run already are not affected.",
            minimum=1,
            maximum=2**31 - 1,
            format="int32",
        ),
    ]


class CompositePodGroupSchedulingPolicy(ApiStruct, frozen=True):
    """How the child groups of a composite group are scheduled: exactly one member is set."""

    RULES: ClassVar = (*exactly_one("basic", "gang"), *FIXED_POLICY)

    basic: Annotated[
        BasicSchedulingPolicy | None,
        describe("Child groups are scheduled as they come; one placed group is a success."),
    ] = None
    gang: Annotated[
        CompositeGangSchedulingPolicy | None,
        describe("Child groups are scheduled together, at least minGroupCount of them, or not at all."),
    ] = None


class TopologyConstraint(ApiStruct, frozen=True):
    """All pods below the group run on nodes that share one value of a label."""

    key: Annotated[
        str,
        describe(
            "The node label that has the domains as its values, such as topology.kubernetes.io/zone.",
            pattern=LABEL_KEY,
            min_length=1,
            max_length=MAX_LABEL_KEY,
            rules=(
                Rule(
                    expression="!self.contains('/') || self.indexOf('/') <= 253",
                    message="prefix part must be no more than 253 characters",
                ),
            ),
        ),
    ]


class SchedulingConstraints(ApiStruct, frozen=True):
    """Constraints on the nodes of the pods below a group."""

    topology: Annotated[
        tuple[TopologyConstraint, ...] | None,
        describe("The domain that all pods below the group must share. At most one.", max_items=1, atomic=True),
    ] = None
    preferred_topology: Annotated[
        tuple[TopologyConstraint, ...] | None,
        describe(
            "kube-cpg extension, not in scheduling.k8s.io. The narrower domain that all pods below the group share "
            "where that is possible; it never keeps them from being placed. At most one.",
            max_items=1,
            atomic=True,
        ),
    ] = None


class SingleDisruptionMode(ApiStruct, frozen=True):
    """Children are disrupted one by one."""


class AllDisruptionMode(ApiStruct, frozen=True):
    """Children are disrupted together or not at all."""


class DisruptionMode(ApiStruct, frozen=True):
    """How the members below a group may be disrupted: exactly one member is set."""

    RULES: ClassVar = exactly_one("single", "all")

    single: Annotated[
        SingleDisruptionMode | None, describe("Children may be disrupted independently of each other.")
    ] = None
    all: Annotated[AllDisruptionMode | None, describe("Children may be disrupted only all together.")] = None


class PodGroupResourceClaim(ApiStruct, frozen=True):
    """A device claim that the pods of a group share."""

    RULES: ClassVar = exactly_one("resourceClaimName", "resourceClaimTemplateName")

    name: Annotated[str, dns_label("Identifies the claim inside the group.")]
    resource_claim_name: Annotated[str | None, dns_subdomain("A ResourceClaim of the same namespace.")] = None
    resource_claim_template_name: Annotated[
        str | None,
        dns_subdomain("A ResourceClaimTemplate of the same namespace, from which one claim is made."),
    ] = None


class WorkloadReference(ApiStruct, frozen=True):
    """The Workload and the template from which a group is made."""

    workload_name: Annotated[str, dns_subdomain("The Workload, in the same namespace.")]
    template_name: Annotated[str, dns_label("The template inside the Workload.")]


PriorityClassName = Annotated[
    str,
    dns_subdomain(
        "The PriorityClass of the whole tree: all its groups and pods share it. Without one the cluster's global "
        "default applies, else priority 0."
    ),
]
Priority = Annotated[
    int | None,
    describe(
        "The number behind priorityClassName; the higher, the more important. Filled in once when it is empty, "
        "immutable from then on.",
        minimum=LOWEST_PRIORITY,
        maximum=HIGHEST_USER_PRIORITY,
        format="int32",
        set_once=True,
    ),
]
PREEMPTION_POLICIES = ("Never", "PreemptLowerPriority")
PreemptionPolicy = Annotated[
    str | None,
    describe(
        "Whether pods of lower priority may be evicted for the tree; that of its priority class. Filled in once when "
        "it is empty, immutable from then on.",
        enum=PREEMPTION_POLICIES,
        set_once=True,
    ),
]
