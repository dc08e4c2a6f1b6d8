"""The names that users rely on: labels, annotations, conditions, reasons, limits."""

GROUP = "scheduling.cpg.dev"
VERSION = "v1alpha3"
API_VERSION = f"{GROUP}/{VERSION}"
NATIVE_GROUP = "scheduling.k8s.io"

POD_GROUP_LABEL = f"{GROUP}/pod-group"
"""Names the group of a pod, as a label or, where the name is too long for one, as an annotation."""

FINALIZER = f"{GROUP}/group-protection"
"""Keeps a deleted group until nothing below it needs it. The operator adds and removes it."""

INSTANTIATE = f"{GROUP}/instantiate"
"""The annotation by which a Workload asks, with ``true``, for the groups of all its templates."""

DERIVED_FROM = f"{GROUP}/derived-from"
"""On a Workload that the operator makes for an owner, and on its groups: the owner as kubectl takes it, such as
``jobset/train``. Dots join the names of the groups, as pods derive them."""

INSTANTIATED = f"{GROUP}/instantiated"
"""The annotation that reports whether it has them, on Workloads of the built-in API, which have no status."""

REPLICAS = f"{GROUP}/replicas"
"""The annotation with the replicas of templates, such as ``workers=2,driver=1``, on Workloads of the built-in API: its
templates have no such field."""

TEMPLATE_HASH = f"{GROUP}/template-hash"
"""On a Workload that the operator makes for an owner: a hash of its templates without their sizes. Where that changes,
the tree is made anew."""
EXPECTED_PODS = f"{GROUP}/expected-pods"
"""On a PodGroup: all pods that it will have, as JSON, in the order of their creation. Room is reserved for those
that do not exist yet. On a Workload: such lists by template."""

ADOPT = f"{GROUP}/adopt"
"""On a pod template, as a label or an annotation: ``false`` keeps pods out of the groups of their owner."""

GANG = f"{GROUP}/gang"
"""On the pod template of a Job that is not Indexed, as a label or an annotation: ``true`` makes its pods a gang."""

SCHEDULER_NAME = "cpg-scheduler"

POD_SCHEDULED = "PodScheduled"
"""Whether a pod has a node, as with kube-scheduler. While a gang waits it is False for all its pods, also for those
that would fit."""

POD_GROUP_INITIALLY_SCHEDULED = "PodGroupInitiallyScheduled"
"""Whether the minimum of a PodGroup was ever placed. True is final."""

COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED = "CompositePodGroupInitiallyScheduled"
"""Whether the minimum of a CompositePodGroup was ever placed. True is final."""

DISRUPTION_TARGET = "DisruptionTarget"
"""True on a pod that is about to be evicted, and on a group that is evicted as a whole until it is placed again. The
message names the preemptor."""

REASON_SCHEDULED = "Scheduled"
"""The minimum was placed, all of it at once."""

REASON_UNSCHEDULABLE = "Unschedulable"
"""There is no room now; more or larger nodes could help. The message says what is missing, and where."""

REASON_WAITING_FOR_GROUP = "WaitingForGroup"
"""The tree is not complete, and no node would help: a group, Workload or template is missing, a group has fewer members
than its minimum, or another pod of the tree has a scheduling gate. The message says what it waits for."""

REASON_PLACEMENT_NOT_FOUND = "PlacementNotFound"
"""The search found no placement, and there may be one: it is not exhaustive for pods of several shapes or pods that
depend on each other, and it ends when its budget is used up. It is repeated after a backoff."""

REASON_SCHEDULER_ERROR = "SchedulerError"
"""The tree cannot be attempted: its pods differ in schedulerName or preemptionPolicy, or have another priority than
their group, its running members are in contradicting domains, a bind was refused for good, or the scheduler made a
mistake, which the message reports."""

REASON_INVALID = "Invalid"
"""The tree breaks a rule between its groups; the message names both ends. The reason is removed when the tree is
repaired. On a pod also: the spec of the pod can never be met."""

REASON_PREEMPTION = "PreemptionByScheduler"
"""A tree or pod of higher priority needs the room."""

REASON_RESCHEDULED = "Rescheduled"
"""A group that was evicted as a whole has its minimum again, and none of its pods is terminating."""

REASON_PENDING = "Pending"
"""The default of the CRDs, before the first attempt."""

EVENT_SCHEDULED = "Scheduled"
"""On a group: its minimum has been placed. On a pod: it has been bound, and to which node. On an owner such as a
JobSet: its tree is placed, with counts."""

EVENT_FAILED_SCHEDULING = "FailedScheduling"
"""On a group or a pod: why it waits, with the message of its condition. The same cause again increases its count."""

EVENT_PREEMPTED = "Preempted"
"""On a pod: it was evicted, for which preemptor, and why this pod. On an owner: a group of its tree was evicted as a
whole."""

EVENT_OVER_COMMITTED = "OverCommitted"
"""On a node: its pods request more than it has, which can happen where two schedulers bind at once."""

EVENT_VALID = "Valid"
"""On a group: its tree is no longer invalid."""

EVENT_INCOMPLETE = "Incomplete"
"""On an owner: its tree was placed before, and a minimum is not met now. The pods that wait say why."""

EVENT_NOT_ADOPTED = "TreeNotMade"
"""On an owner such as a JobSet: what prevents its tree, or keeps the tree from being as the owner says."""

EVENT_TREE_REPLACED = "TreeReplaced"
"""On an owner such as a JobSet: its tree has changed in more than its sizes, and its groups are made anew. Running pods
stay on their nodes, and others wait meanwhile."""

EVENT_TREE_REMOVED = "TreeRemoved"
"""On an owner such as a JobSet: none of its pod templates names our scheduler any more, and its tree is removed."""

EVENT_RELEASED = "Released"
"""On the root of a tree: a partial gang held nodes for as long as its annotation allows, and its pods were deleted. On
a Workload: its annotation was removed, and its groups stay."""

MAX_DEPTH = 4
"""Levels of a tree, including the PodGroup level."""

MAX_TEMPLATES = 8
"""Entries of one list of templates."""

MAX_REPLICAS = 1000
"""Groups of one template, for each group above it."""
