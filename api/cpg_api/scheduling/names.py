"""The names that users rely on."""

GROUP = "scheduling.cpg.dev"
VERSION = "v1alpha3"
API_VERSION = f"{GROUP}/{VERSION}"
NATIVE_GROUP = "scheduling.k8s.io"

POD_GROUP_LABEL = f"{GROUP}/pod-group"
"""Names a pod's group, as a label or, where the name is too long for one, as an annotation."""

FINALIZER = f"{GROUP}/group-protection"

INSTANTIATE = f"{GROUP}/instantiate"
"""The annotation by which a Workload asks, with ``true``, for the groups of all its templates."""

INSTANTIATED = f"{GROUP}/instantiated"
"""The annotation that says whether it has them, on Workloads of the built-in API, which have no status."""

SCHEDULER_NAME = "cpg-scheduler"

POD_GROUP_INITIALLY_SCHEDULED = "PodGroupInitiallyScheduled"
COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED = "CompositePodGroupInitiallyScheduled"
DISRUPTION_TARGET = "DisruptionTarget"

REASON_SCHEDULED = "Scheduled"
REASON_UNSCHEDULABLE = "Unschedulable"
REASON_SCHEDULER_ERROR = "SchedulerError"
REASON_INVALID = "Invalid"
REASON_PREEMPTION = "PreemptionByScheduler"
REASON_PENDING = "Pending"
"""Of a condition that nobody has written yet: the CRDs default to it, so that no group is ever silent."""

MAX_DEPTH = 4
"""Levels of a tree, the PodGroup's included."""

MAX_TEMPLATES = 8
"""Entries of any one list of templates."""

MAX_REPLICAS = 1000
"""Groups that are made of one template for each group above."""
