"""``status.attempt``: what the last attempt at a tree has found, as each of its groups shows it.

The lists and texts are short, and the scheduler cuts the whole to ``MAX_ATTEMPT_BYTES``: it is stored with every group.
Counts have no default, because the encoder would omit a zero.
"""

from enum import StrEnum
from typing import Annotated

from cpg_api.scheduling.statuses import describe_count
from cpg_api.schema import MAX_LABEL, MAX_LABEL_KEY, MAX_SUBDOMAIN, describe
from cpg_api.structs import ApiStruct

MAX_ATTEMPT_BYTES = 2048
"""Bytes of an attempt as JSON."""
MAX_CLOSEST_DOMAINS = 3
MAX_DOMAIN_REASONS = 3
MAX_REASONS = 5
MAX_REASON = 100
"""Characters of a reason."""
MAX_SENTENCE = 240
"""Characters of what preemption comes to, and of the next step."""


class AttemptFinding(StrEnum):
    """What an attempt has found."""

    PLACED = "Placed"
    """The minimum of the group is placed."""
    INADMISSIBLE = "Inadmissible"
    """The tree has too few members; no search was made."""
    IMPOSSIBLE = "Impossible"
    """No placement exists; this is proven."""
    NOT_FOUND = "NotFound"
    """No placement was found, and there may be one: the search is not exhaustive for such pods."""
    OUT_OF_BUDGET = "OutOfBudget"
    """The search used up its budget; a placement may exist."""
    CONTRADICTION = "Contradiction"
    """Running members contradict the required topology."""
    GROUP_MISSING = "GroupMissing"
    """A group that the tree names does not exist."""
    GROUP_KINDS_NOT_SERVED = "GroupKindsNotServed"
    """The scheduler does not read the API of a group that a pod names."""
    TEMPLATE_MISSING = "TemplateMissing"
    """The template that completes a group does not exist."""
    TREE_GATED = "TreeGated"
    """A pod of the tree has scheduling gates."""
    INVALID_TREE = "InvalidTree"
    """The tree breaks rules between its objects."""
    PRIORITIES_DIFFER = "PrioritiesDiffer"
    """A pod has another priority than its group."""
    PREEMPTION_POLICIES_DIFFER = "PreemptionPoliciesDiffer"
    """Pods of the tree have different preemption policies."""
    SCHEDULER_NAMES_DIFFER = "SchedulerNamesDiffer"
    """Pods of the tree name different schedulers."""
    PRE_BIND_PENDING = "PreBindPending"
    """The pods have nodes; their volumes or devices are not ready yet."""
    PRE_BIND_FAILED = "PreBindFailed"
    """The pods had nodes; their volumes or devices could not be made ready."""
    BIND_REFUSED = "BindRefused"
    """The API server refuses to bind a pod to its node."""
    BIND_IN_DOUBT = "BindInDoubt"
    """The API server has not said for long whether a bind has worked."""
    SCHEDULER_ERROR = "SchedulerError"
    """The attempt failed in the scheduler's own code."""


class NodeRejection(ApiStruct, frozen=True):
    """Why some nodes are rejected for a pod."""

    text: Annotated[str, describe("Why, as in the messages of pods.", max_length=MAX_REASON)]
    nodes: Annotated[int, describe_count("How many nodes are rejected for it.")]


class ClosestDomain(ApiStruct, frozen=True):
    """A domain that was considered."""

    domain: Annotated[str, describe("The value of the node label.", max_length=MAX_LABEL)]
    nodes: Annotated[int, describe_count("Its nodes.")]
    fits: Annotated[int, describe_count("For how many pods below the group it has room.")]
    wanted: Annotated[int, describe_count("How many pods there are below the group.")]
    shortage: Annotated[int, describe_count("For how many more pods it needs room, at least, to hold the minimum.")]
    reasons: Annotated[
        tuple[NodeRejection, ...] | None,
        describe(
            "Why its nodes are rejected, the most frequent first. At most 3.", max_items=MAX_DOMAIN_REASONS, atomic=True
        ),
    ] = None


class ConsideredDomains(ApiStruct, frozen=True):
    """The domains of a label that were considered."""

    key: Annotated[str, describe("The node label.", max_length=MAX_LABEL_KEY)]
    considered: Annotated[int, describe_count("How many domains were considered; none had enough room.")]
    closest: Annotated[
        tuple[ClosestDomain, ...] | None,
        describe("Those that come closest, the closest first. At most 3.", max_items=MAX_CLOSEST_DOMAINS, atomic=True),
    ] = None


class MissingDevices(ApiStruct, frozen=True):
    """What is missing of devices, in the closest domain or on all nodes that were considered."""

    device_class: Annotated[
        str,
        describe("The class of the request that comes least close to being satisfied.", max_length=MAX_SUBDOMAIN),
    ] = ""
    free: Annotated[int | None, describe_count("How many devices of the class are free for the request.")] = None
    total: Annotated[int | None, describe_count("How many devices of the class there are.")] = None
    text: Annotated[
        str,
        describe("The same as a sentence, or where the devices of a claim are.", max_length=MAX_SENTENCE),
    ] = ""


class BlockingGroup(ApiStruct, frozen=True):
    """The group of the tree that an attempt failed at."""

    kind: Annotated[str, describe("PodGroup or CompositePodGroup.", max_length=MAX_LABEL)]
    name: Annotated[str, describe("Its name.", max_length=MAX_SUBDOMAIN)]
    minimum: Annotated[
        int | None, describe_count("How many of its pods, or of its child groups, have to be placed together.")
    ] = None
    scheduled: Annotated[int | None, describe_count("For how many of them there was room.")] = None


class AttemptPreemption(ApiStruct, frozen=True):
    """What preemption came to."""

    outcome: Annotated[
        str,
        describe(
            "Ongoing, Forbidden (by the preemptionPolicy), NoVictims (no pods of lower priority), NotEnough (all of "
            "them together) or NoHelp.",
            max_length=MAX_LABEL,
        ),
    ]
    victims: Annotated[int | None, describe_count("How many pods are evicted, until the first of them has ended.")] = (
        None
    )
    text: Annotated[str, describe("The same as a sentence.", max_length=MAX_SENTENCE)] = ""


class SuggestedStep(ApiStruct, frozen=True):
    """What would help."""

    remedy: Annotated[
        str,
        describe(
            "What to do, in one word: AddMembers, MakeRoom, ChangeDemands (or add nodes), ProvideVolumes, "
            "ProvideDevices, MendPods, MoveMembers, RaiseBudget; or before an attempt, CreateGroup, CreateTemplate, "
            "ServeGroups, RemoveGates, MendTree.",
            max_length=MAX_LABEL,
        ),
    ]
    kind: Annotated[str, describe("The kind of object to change.", max_length=MAX_LABEL)] = ""
    name: Annotated[str, describe("Its name.", max_length=MAX_SUBDOMAIN)] = ""
    count: Annotated[int | None, describe_count("For how many pods, or child groups.")] = None
    domain: Annotated[str, describe("In which domain.", max_length=MAX_LABEL)] = ""
    text: Annotated[str, describe("The same as a sentence.", max_length=MAX_SENTENCE)] = ""


class LastAttempt(ApiStruct, frozen=True):
    """The last attempt to place the tree, as far as it concerns the group."""

    finding: Annotated[
        str,
        describe(
            "How it ended, in one word: Placed, Inadmissible, Impossible, NotFound, OutOfBudget, Contradiction, or why "
            "the tree could not be attempted or bound.",
            max_length=MAX_LABEL,
        ),
    ]
    time: Annotated[
        str | None,
        describe(
            "When it was. While nothing else changes, time and number are brought up to date after a minute, then ever "
            "more rarely.",
            format="date-time",
        ),
    ] = None
    number: Annotated[
        int | None,
        describe_count("How many attempts there have been since the tree was complete, or the scheduler started."),
    ] = None
    blocked_at: Annotated[
        BlockingGroup | None, describe("The group of the tree that has to be helped for this one to be placed.")
    ] = None
    nodes: Annotated[int | None, describe_count("How many nodes were considered for a pod of that group.")] = None
    reasons: Annotated[
        tuple[NodeRejection, ...] | None,
        describe("Why they are rejected, the most frequent first. At most 5.", max_items=MAX_REASONS, atomic=True),
    ] = None
    domains: Annotated[
        ConsideredDomains | None, describe("The domains that were considered, for it or for a group above it.")
    ] = None
    devices: Annotated[
        MissingDevices | None, describe("What is missing of devices; absent if nothing is, or it is not known.")
    ] = None
    preemption: Annotated[
        AttemptPreemption | None, describe("What preemption came to; absent if it could have no part.")
    ] = None
    next_step: Annotated[SuggestedStep | None, describe("What would help.")] = None
