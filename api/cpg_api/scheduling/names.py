"""The names that users rely on."""

GROUP = "scheduling.cpg.dev"
VERSION = "v1alpha3"
API_VERSION = f"{GROUP}/{VERSION}"
NATIVE_GROUP = "scheduling.k8s.io"

POD_GROUP_LABEL = f"{GROUP}/pod-group"
"""Names a pod's group, as a label or, where the name is too long for one, as an annotation."""

FINALIZER = f"{GROUP}/group-protection"
"""Keeps a deleted group until nothing below it needs it any more; the operator puts it on and takes it off."""

INSTANTIATE = f"{GROUP}/instantiate"
"""The annotation by which a Workload asks, with ``true``, for the groups of all its templates."""

INSTANTIATED = f"{GROUP}/instantiated"
"""The annotation that says whether it has them, on Workloads of the built-in API, which have no status."""

SCHEDULER_NAME = "cpg-scheduler"

POD_SCHEDULED = "PodScheduled"
"""Whether a pod has a node, as with kube-scheduler; all pods of a gang that waits say no, also those that would fit."""

POD_GROUP_INITIALLY_SCHEDULED = "PodGroupInitiallyScheduled"
"""Whether the minimum of a PodGroup was ever placed; once True, for ever."""

COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED = "CompositePodGroupInitiallyScheduled"
"""Whether the minimum of a CompositePodGroup was ever placed; once True, for ever."""

DISRUPTION_TARGET = "DisruptionTarget"
"""True on a pod that is about to be evicted, and on a group that goes as a whole, until it is placed again; the message
names for whom."""

REASON_SCHEDULED = "Scheduled"
"""Its minimum was placed, all of it at once."""

REASON_UNSCHEDULABLE = "Unschedulable"
"""There is no place now, or something is waited for. The message says what, and what would help."""

REASON_SCHEDULER_ERROR = "SchedulerError"
"""The tree cannot be tried as it is: its pods differ in schedulerName or preemptionPolicy, members that run stand in
domains that contradict each other, a bind is refused for good, or the scheduler made a mistake and says so."""

REASON_INVALID = "Invalid"
"""The tree breaks a rule between objects; the message names the edge. It is taken back when the tree is repaired."""

REASON_PREEMPTION = "PreemptionByScheduler"
"""A tree or pod of higher priority takes the room."""

REASON_RESCHEDULED = "Rescheduled"
"""A group that went as a whole has its minimum again, and none of its pods is leaving any more."""

REASON_PENDING = "Pending"
"""Of a condition that nobody has written yet: the CRDs default to it, so that no group is ever silent."""

EVENT_SCHEDULED = "Scheduled"
"""On a group: its minimum has been placed. On a pod: it has been bound, and to which node."""

EVENT_FAILED_SCHEDULING = "FailedScheduling"
"""On a group or a pod: why it waits, in the words of its condition. The same cause again counts it up."""

EVENT_PREEMPTED = "Preempted"
"""On a pod: it was evicted, for whom, and why just this one."""

EVENT_OVER_COMMITTED = "OverCommitted"
"""On a node: pods of ours and of others hold more of it than there is, which two schedulers at once can bring about."""

EVENT_VALID = "Valid"
"""On a group: its tree is no longer invalid."""

EVENT_RELEASED = "Released"
"""On the root of a tree: half a gang held nodes for as long as its annotation allows, and its pods were deleted. On a
Workload: its annotation has been taken away, and its groups are left as they are."""

MAX_DEPTH = 4
"""Levels of a tree, the PodGroup's included."""

MAX_TEMPLATES = 8
"""Entries of any one list of templates."""

MAX_REPLICAS = 1000
"""Groups that are made of one template for each group above."""
