"""What each score counts for."""

from msgspec import Struct


class Weights(Struct, frozen=True):
    """What each score counts for; the defaults are kube-scheduler's."""

    taints: int = 3
    node_affinity: int = 2
    spread: int = 2
    pod_affinity: int = 2
    hard_pod_affinity: int = 1
    """What it counts for, within ``pod_affinity``, that a pod which runs already needs the newcomer."""
    least_allocated: int = 1
    balanced: int = 1
    images: int = 1
    placement_allocated: int = 1
    placement_pods: int = 1
