"""What each score counts for."""

from msgspec import Struct


class Weights(Struct, frozen=True):
    """What each score counts for; the defaults are kube-scheduler's."""

    taints: int = 3
    node_affinity: int = 2
    spread: int = 2
    pod_affinity: int = 2
    least_allocated: int = 1
    balanced: int = 1
    images: int = 1
    placement_allocated: int = 1
    placement_pods: int = 1
