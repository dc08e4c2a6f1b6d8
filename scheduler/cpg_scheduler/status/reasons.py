"""The reasons of the scheduler's conditions; those that Kubernetes or the API fixes are in ``cpg_api``."""

from cpg_api.scheduling.names import (
    REASON_INVALID,
    REASON_PLACEMENT_NOT_FOUND,
    REASON_RESCHEDULED,
    REASON_SCHEDULED,
    REASON_SCHEDULER_ERROR,
    REASON_UNSCHEDULABLE,
    REASON_WAITING_FOR_GROUP,
)

REASON_WAITING_FOR_VOLUMES = "WaitingForVolumes"
"""A claim is missing, or waits for its volume, on the node that the pod has been given or wherever that may be. A new
node would not help."""
REASON_WAITING_FOR_DEVICES = "WaitingForDevices"
"""A ResourceClaim is missing or can never be allocated, or its devices are being made ready on the node that the pod
has been given. A new node would not help."""
REASON_BIND_IN_DOUBT = "BindInDoubt"
"""A pod has been given a node, and the API server has not said for long whether its bind has worked."""

PRE_BIND_REASONS = {"volumes": REASON_WAITING_FOR_VOLUMES, "devices": REASON_WAITING_FOR_DEVICES}
"""The reason of pods that wait for a PreBind plugin, by its name."""

__all__ = [
    "PRE_BIND_REASONS",
    "REASON_BIND_IN_DOUBT",
    "REASON_INVALID",
    "REASON_PLACEMENT_NOT_FOUND",
    "REASON_RESCHEDULED",
    "REASON_SCHEDULED",
    "REASON_SCHEDULER_ERROR",
    "REASON_UNSCHEDULABLE",
    "REASON_WAITING_FOR_DEVICES",
    "REASON_WAITING_FOR_GROUP",
    "REASON_WAITING_FOR_VOLUMES",
]
