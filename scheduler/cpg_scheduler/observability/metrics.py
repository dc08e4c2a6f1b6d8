"""The scheduler's metrics; what kube-scheduler has too has its name, so that dashboards and alerts carry over."""

import datetime as dt
import time
from collections.abc import Callable
from importlib.metadata import version
from platform import python_version

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from cpg_client.probe_server import ProbeResponse
from cpg_client.process import METRICS_CONTENT_TYPE
from cpg_engine.decisions import PlacementCounts
from cpg_engine.gangs.unit import POD
from cpg_engine.verdicts import Finding
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.observability.buckets import COUNTS, LONG_SECONDS, SECONDS
from cpg_scheduler.observability.device_metrics import DeviceMetrics
from cpg_scheduler.observability.preemption_metrics import PreemptionMetrics

BIND_RESULTS = ("success", "error", "gone")
NO_PLACEMENTS = PlacementCounts()


def age_of(created: str, now: float) -> float:
    """Return the age of an object in seconds, by its creation timestamp; 0 without one."""
    try:
        return max(now - dt.datetime.fromisoformat(created).timestamp(), 0.0)
    except ValueError:
        return 0.0


def _result_of(finding: Finding) -> str:
    """Return the result of an attempt; a contradiction of running members is the users', so it is no error."""
    return "scheduled" if finding is Finding.PLACED else "unschedulable"


class AttemptMetrics:
    """Metrics of attempts, each with its result."""

    def __init__(self, registry: CollectorRegistry, profile: str) -> None:
        """Count from zero."""
        self._profile = profile
        self._attempts = Counter(
            "scheduler_podgroup_schedule_attempts",
            "Attempts to schedule a unit, by result.",
            ("result", "profile"),
            registry=registry,
        )
        self._seconds = Histogram(
            "scheduler_podgroup_scheduling_algorithm_duration_seconds",
            "Time of the engine to decide about a unit.",
            ("result", "profile"),
            buckets=SECONDS,
            registry=registry,
        )
        self._whole_seconds = Histogram(
            "scheduler_podgroup_scheduling_attempt_duration_seconds",
            "Time of a whole attempt at a unit: decision, preemption and status, without binding.",
            ("result", "profile"),
            buckets=SECONDS,
            registry=registry,
        )
        self._pods = Counter(
            "scheduler_schedule_attempts",
            "Attempts to schedule a pod, by result; every attempt at a tree counts for each of its pods.",
            ("result", "profile"),
            registry=registry,
        )
        self._generated = Counter(
            "scheduler_generated_placements",
            "Candidate domains of groups with a topology constraint.",
            ("profile",),
            registry=registry,
        )
        self._evaluations = Counter(
            "scheduler_placement_evaluations",
            "Domains that were tried, by whether the group fits; those with obviously too little room are not tried.",
            ("result", "profile"),
            registry=registry,
        )
        self._findings = Counter(
            "cpg_scheduler_tree_findings", "Attempts by the finding of the search.", ("finding",), registry=registry
        )
        self._held = Counter(
            "cpg_scheduler_held", "Attempts at inadmissible units, by reason.", ("reason",), registry=registry
        )
        self._mistakes = Counter(
            "cpg_scheduler_mistakes",
            "Exceptions in the scheduler's own code; each is a defect, please report.",
            registry=registry,
        )

    def count(self, finding: Finding, seconds: float, *, waits: bool, placed: int, left: int) -> str:
        """Count an attempt; return its result."""
        result = "waiting_on_preemption" if waits else _result_of(finding)
        self._attempts.labels(result, self._profile).inc()
        self._seconds.labels(result, self._profile).observe(seconds)
        self._findings.labels(finding.value).inc()
        self._pods.labels("scheduled", self._profile).inc(placed)
        self._pods.labels("unschedulable", self._profile).inc(left)
        return result

    def tried(self, tries: PlacementCounts) -> None:
        """Count the domains that a search tried."""
        self._generated.labels(self._profile).inc(tries.offered)
        for result, number in (("feasible", tries.feasible), ("infeasible", tries.infeasible)):
            self._evaluations.labels(result, self._profile).inc(number)

    def ended(self, result: str, seconds: float) -> None:
        """Count the time of a whole attempt."""
        self._whole_seconds.labels(result, self._profile).observe(seconds)

    def held(self, reason: str) -> None:
        """Count an attempt at an inadmissible unit."""
        self._held.labels(reason).inc()

    def mistaken(self) -> None:
        """Count an attempt that failed in the scheduler's own code."""
        self._mistakes.inc()


class BindMetrics:
    """Metrics of binds, by pod and by unit."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Count from zero."""
        self._binds = Counter(
            "cpg_scheduler_binds",
            "Binds by result: success, error, or gone if the pod was deleted meanwhile.",
            ("result",),
            registry=registry,
        )
        # A counter that starts with its first increment hides that increment from rate().
        for result in BIND_RESULTS:
            self._binds.labels(result)
        self._placing = Histogram(
            "cpg_scheduler_tree_placement_duration_seconds",
            "Time from the creation of a unit to the last bind of the attempt that placed it.",
            ("type",),
            buckets=LONG_SECONDS,
            registry=registry,
        )
        self._binding = Histogram(
            "cpg_scheduler_tree_bind_duration_seconds",
            "Time from a decision until the API server has confirmed all its binds.",
            ("type",),
            buckets=SECONDS,
            registry=registry,
        )
        self._sizes = Histogram(
            "cpg_scheduler_tree_binds",
            "Pods bound by one decision.",
            ("type",),
            buckets=COUNTS,
            registry=registry,
        )

    def sent(self, result: str) -> None:
        """Count a bind."""
        self._binds.labels(result).inc()

    def placed(self, kind: str, pods: int, *, seconds: float, age: float) -> None:
        """Count a unit that is bound as a whole, by the time that took and its age."""
        self._binding.labels(kind).observe(seconds)
        self._placing.labels(kind).observe(age)
        self._sizes.labels(kind).observe(pods)


class SchedulerMetrics:
    """All metrics of the scheduler."""

    def __init__(
        self,
        profile: str,
        watch_age: Callable[[], float],
        *,
        loop_lag: Callable[[], float] = lambda: 0.0,
        overcommitted_nodes: Callable[[], int] = lambda: 0,
        wall: Callable[[], float] = time.time,
        pending_pods_of: Callable[[UnitKey], int] = lambda _: 1,
    ) -> None:
        """Count from zero; ages, lags and the number of over-committed nodes are read when Prometheus asks."""
        # Otherwise each counter has a second series with its creation time.
        disable_created_metrics()  # type: ignore[no-untyped-call] # the library has no annotation
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.preemption = PreemptionMetrics(registry)
        self.devices = DeviceMetrics(registry, profile)
        self._attempts = AttemptMetrics(registry, profile)
        self._binds = BindMetrics(registry)
        self.wall = wall
        self._pending_pods_of = pending_pods_of
        self._incoming_pods = Counter(
            "scheduler_queue_incoming_pods",
            "Pending pods of the units that entered a queue, by queue and event.",
            ("queue", "event"),
            registry=registry,
        )
        self._incoming = Counter(
            "scheduler_queue_incoming_entities",
            "Units that entered a queue, by queue, event and type; gated and incomplete units enter unschedulable.",
            ("queue", "event", "type"),
            registry=registry,
        )
        Gauge(
            "cpg_scheduler_build_info",
            "Always 1; the labels are the versions.",
            ("version", "python"),
            registry=registry,
        ).labels(version("kube-cpg"), python_version()).set(1)
        Gauge(
            "cpg_scheduler_overcommitted_nodes",
            "Nodes with pods of this scheduler on which all pods together request more than the node has.",
            registry=registry,
        ).set_function(overcommitted_nodes)
        Gauge(
            "cpg_scheduler_watch_age_seconds",
            "Seconds since the last sign of life of the most silent watch.",
            registry=registry,
        ).set_function(watch_age)
        Gauge(
            "cpg_scheduler_longest_stall_seconds",
            "Longest time in the last one to two minutes for which one piece of work blocked the event loop.",
            registry=registry,
        ).set_function(loop_lag)

    def count_incoming(self, queue: str, event: str, root: UnitKey) -> None:
        """Count a unit that enters a queue."""
        self._incoming.labels(queue, event, "pod" if root.key.kind == POD else "podgroup").inc()
        self._incoming_pods.labels(queue, event).inc(self._pending_pods_of(root))

    def attempted(
        self,
        finding: Finding,
        seconds: float,
        *,
        waits: bool = False,
        placed: int = 0,
        left: int = 0,
        tries: PlacementCounts = NO_PLACEMENTS,
    ) -> str:
        """Count an attempt that placed some pods and left others; ``waits`` says that these wait for victims.

        Return the result, to be passed to ``ended``.
        """
        self._attempts.tried(tries)
        return self._attempts.count(finding, seconds, waits=waits, placed=placed, left=left)

    def ended(self, result: str, seconds: float) -> None:
        """Count the time of a whole attempt."""
        self._attempts.ended(result, seconds)

    def placed(self, kind: str, pods: int, *, seconds: float, created: str | None) -> None:
        """Count a unit that is bound as a whole, and the seconds since the decision."""
        self._binds.placed(kind, pods, seconds=seconds, age=age_of(created or "", self.wall()))

    def held(self, reason: str) -> None:
        """Count an attempt at an inadmissible unit."""
        self._attempts.held(reason)

    def mistaken(self) -> None:
        """Count an attempt that failed in the scheduler's own code."""
        self._attempts.mistaken()

    def bound(self, result: str) -> None:
        """Count a bind by its result."""
        self._binds.sent(result)

    def page(self, _: str) -> ProbeResponse:
        """Return all metrics in Prometheus's format."""
        return ProbeResponse(generate_latest(self.registry), content_type=METRICS_CONTENT_TYPE)
