"""Why pods wait, by the plugin of kube-scheduler that would be to blame: what its boards ask for."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cpg_engine.filters import (
    inter_pod_affinity,
    node_affinity,
    node_name,
    node_ports,
    node_resources,
    node_unschedulable,
    node_volume_limits,
    pod_topology_spread,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
)
from cpg_engine.gangs.unit import POD
from cpg_engine.verdicts import Explanation
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.queueing.scheduling_queue import QueuePosition, SchedulingQueue
from cpg_scheduler.units import pending_pods

FIT = "NodeResourcesFit"
PLACEMENT = "TopologyPlacementGenerator"
GANG, GATES = "GangScheduling", "SchedulingGates"
PLUGINS = {
    node_affinity.REASON: "NodeAffinity",
    node_name.REASON: "NodeName",
    inter_pod_affinity.NEEDS_REASON: "InterPodAffinity",
    inter_pod_affinity.AVOIDS_REASON: "InterPodAffinity",
    inter_pod_affinity.AVOIDED_REASON: "InterPodAffinity",
    node_ports.REASON: "NodePorts",
    pod_topology_spread.REASON: "PodTopologySpread",
    pod_topology_spread.UNLABELLED_REASON: "PodTopologySpread",
    taint_toleration.REASON: "TaintToleration",
    node_unschedulable.REASON: "NodeUnschedulable",
    volume_restrictions.REASON: "VolumeRestrictions",
    volume_binding.REASON: "VolumeBinding",
    node_volume_limits.REASON: "NodeVolumeLimits",
    volume_zone.AFFINITY: "VolumeBinding",
    volume_zone.ZONE: "VolumeZone",
    "Too many pods": FIT,
}
SHORT = node_resources.REASON.partition("{")[0]
"""How a reason begins that names the resource there is too little of."""


class PluginsCollector(Collector):
    """Counts pods by plugin when it is asked; one that several keep waiting counts for each."""

    def __init__(self, state: ClusterCache, pending: SchedulingQueue, profile: str) -> None:
        """Count in this state and queue."""
        self._state = state
        self._pending = pending
        self._profile = profile

    def collect(self) -> Iterator[Metric]:
        """Yield what is counted."""
        family = _family()
        pods, known = Counter[str](), dict[int, frozenset[str]]()
        for place in self._pending.places():
            if place.failure is None:
                continue
            explanation = place.failure.explanation
            if id(explanation) not in known:
                known[id(explanation)] = blamed(explanation)
            self._count(place, known[id(explanation)], pods)
        for plugin, number in (+pods).items():
            family.add_metric((plugin, self._profile), number)
        yield family

    def describe(self) -> Iterator[Metric]:
        """Yield what there is to count, without counting."""
        yield _family()

    def _count(self, place: QueuePosition, plugins: frozenset[str], pods: Counter[str]) -> None:
        root = place.order.key
        if root.key.kind == POD and plugins:
            pods.update(plugins)
            return
        waiting = pending_pods(self._state, root)
        gated = sum(bool(pod.spec.scheduling_gates) for pod in waiting)
        pods[GATES] += gated
        for plugin in plugins or ({GANG} if root.key.kind != POD else ()):
            pods[plugin] += len(waiting) - gated


def _family() -> GaugeMetricFamily:
    """Return what there is to count, still empty."""
    text = (
        "Pods that wait, by the plugin of kube-scheduler that would be to blame; a pod counts for each plugin that"
        " turned down any part of its tree."
    )
    return GaugeMetricFamily("scheduler_unschedulable_pods", text, labels=("plugin", "profile"))


def blamed(explanation: Explanation | None) -> frozenset[str]:
    """Return who is to blame for an attempt that failed: all that is told of its groups, and of the closest domains."""
    if explanation is None:
        return frozenset()
    closest = [report.candidates[0].reasons for report in explanation.reports if report.candidates]
    told = [
        reason.text for reasons in (*(report.reasons for report in explanation.reports), *closest) for reason in reasons
    ]
    return frozenset(map(plugin_of, told))


def plugin_of(reason: str) -> str:
    """Return the plugin that a reason is known by."""
    return FIT if reason.startswith(SHORT) else PLUGINS.get(reason, PLACEMENT)
