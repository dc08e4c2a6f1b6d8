"""The weight of each score."""

from msgspec import Struct


class Weights(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The weight of each score; the defaults are kube-scheduler's."""

    taints: int = 3
    """Few PreferNoSchedule taints that the pod does not tolerate."""
    node_affinity: int = 2
    """Preferred node affinity."""
    spread: int = 2
    """Topology spread constraints with ``ScheduleAnyway``."""
    pod_affinity: int = 2
    """Preferred affinity and anti-affinity to pods."""
    hard_pod_affinity: int = 1
    """Within ``pod_affinity``: required affinity of running pods that selects the incoming pod."""
    devices: int = 2
    """Early alternatives of device requests that name several."""
    least_allocated: int = 1
    """Much free CPU and memory on the node."""
    balanced: int = 1
    """CPU and memory used in equal shares of the node."""
    images: int = 1
    """Images that are on the node already."""
    placement_allocated: int = 1
    """For domains: how full the domain is, since filling it leaves others whole."""
    placement_pods: int = 1
    """For domains: how many of the tree's pods have room there."""
