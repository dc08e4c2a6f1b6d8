"""What each score counts for."""

from msgspec import Struct


class Weights(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What each score counts for; the defaults are kube-scheduler's."""

    taints: int = 3
    """Few taints that the pod would rather avoid."""
    node_affinity: int = 2
    """Preferred node affinity."""
    spread: int = 2
    """Topology spread that may be skewed but had better not be."""
    pod_affinity: int = 2
    """Preferred affinity and anti-affinity to pods."""
    hard_pod_affinity: int = 1
    """What it counts for, within ``pod_affinity``, that a pod which runs already needs the newcomer."""
    least_allocated: int = 1
    """Much free CPU and memory on the node."""
    balanced: int = 1
    """CPU and memory used in equal shares."""
    images: int = 1
    """Images that are on the node already."""
    placement_allocated: int = 1
    """Of domains: how full one is, since a fuller one leaves others whole."""
    placement_pods: int = 1
    """Of domains: how many of the tree's pods it holds."""
