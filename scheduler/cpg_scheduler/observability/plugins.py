"""Unschedulable pods by the kube-scheduler plugin that rejects them, as its dashboards show them."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cpg_engine.filters import (
    dynamic_resources,
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
DEVICES = "DynamicResources"
GANG, GATES = "GangScheduling", "SchedulingGates"
PLUGINS = {
    node_affinity.REASON: "NodeAffinity",
    node_name.REASON: "NodeName",
    inter_pod_affinity.AFFINITY_REASON: "InterPodAffinity",
    inter_pod_affinity.ANTI_AFFINITY_REASON: "InterPodAffinity",
    inter_pod_affinity.EXISTING_ANTI_AFFINITY_REASON: "InterPodAffinity",
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
    dynamic_resources.REASON: DEVICES,
    dynamic_resources.NOT_HERE: DEVICES,
    dynamic_resources.TOO_MANY: DEVICES,
    "Too many pods": FIT,
}
SHORT = node_resources.REASON.partition("{")[0]
"""Begins the reason that names an insufficient resource."""
CLAIMS = ("resourceclaim ", "ResourceClaim ", "waiting for the ResourceClaim ", "device class ")
"""Begin the reasons that name a claim, or what is wrong with it."""


class PluginsCollector(Collector):
    """Counts pods by plugin; a pod that several plugins reject counts for each of them."""

    def __init__(self, cache: ClusterCache, queue: SchedulingQueue, profile: str) -> None:
        """Count in this cache and queue."""
        self._cache = cache
        self._queue = queue
        self._profile = profile

    def collect(self) -> Iterator[Metric]:
        """Yield the number of pods of each plugin."""
        family = _family()
        pods, known = Counter[str](), dict[int, frozenset[str]]()
        for position in self._queue.positions():
            if position.failure is None:
                continue
            explanation = position.failure.explanation
            if id(explanation) not in known:
                known[id(explanation)] = rejecting_plugins(explanation)
            self._count(position, known[id(explanation)], pods)
        for plugin, number in (+pods).items():
            family.add_metric((plugin, self._profile), number)
        yield family

    def describe(self) -> Iterator[Metric]:
        """Yield the family, without counting."""
        yield _family()

    def _count(self, position: QueuePosition, plugins: frozenset[str], pods: Counter[str]) -> None:
        unit = position.queue_key.unit
        if unit.key.kind == POD and plugins:
            pods.update(plugins)
            return
        waiting = pending_pods(self._cache, unit)
        gated = sum(bool(pod.spec.scheduling_gates) for pod in waiting)
        pods[GATES] += gated
        for plugin in plugins or ({GANG} if unit.key.kind != POD else ()):
            pods[plugin] += len(waiting) - gated


def _family() -> GaugeMetricFamily:
    """Return the gauge, still empty."""
    text = (
        "Unschedulable pods by the kube-scheduler plugin that rejects them; a pod counts for each plugin that rejects"
        " any part of its tree."
    )
    return GaugeMetricFamily("scheduler_unschedulable_pods", text, labels=("plugin", "profile"))


def rejecting_plugins(explanation: Explanation | None) -> frozenset[str]:
    """Return the plugins behind a failed attempt: behind the reasons of its groups and of the closest domains."""
    if explanation is None:
        return frozenset()
    closest = [report.candidates[0].reasons for report in explanation.reports if report.candidates]
    texts = [
        reason.text for reasons in (*(report.reasons for report in explanation.reports), *closest) for reason in reasons
    ]
    return frozenset(map(plugin_of, texts))


def plugin_of(reason: str) -> str:
    """Return the plugin that a reason comes from."""
    if reason.startswith(CLAIMS):
        return DEVICES
    return FIT if reason.startswith(SHORT) else PLUGINS.get(reason, PLACEMENT)
