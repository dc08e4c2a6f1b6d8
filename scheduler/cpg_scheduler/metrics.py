"""Metrics, by the names of kube-scheduler wherever it has the same thing, so that boards and alerts carry over."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from cpg_engine.verdicts import Finding
from cpg_scheduler.pending import Pending
from cpg_scheduler.probing import Answer

BUCKETS = tuple(0.001 * 2**power for power in range(15))
RESULTS = {
    Finding.PLACED: "scheduled",
    Finding.CONTRADICTION: "error",
}


class Metrics:
    """Everything that is counted."""

    def __init__(self, profile: str, pending: Pending, unheard: Callable[[], float]) -> None:
        """Count from zero; queue lengths and the age of the news are asked for when somebody looks."""
        registry = self._registry = CollectorRegistry()
        self._profile = profile
        self._pending = pending
        self._unheard = unheard
        self._attempts = Counter(
            "scheduler_podgroup_schedule_attempts",
            "Attempts to place a root unit, by result.",
            ("result", "profile"),
            registry=registry,
        )
        self._attempt_seconds = Histogram(
            "scheduler_podgroup_scheduling_algorithm_duration_seconds",
            "Time to decide about a root unit.",
            ("result", "profile"),
            buckets=BUCKETS,
            registry=registry,
        )
        self._findings = Counter(
            "cpg_scheduler_tree_findings", "Attempts by how the search ended.", ("finding",), registry=registry
        )
        self._binds = Counter("cpg_scheduler_binds", "Binds sent, by result.", ("result",), registry=registry)
        self._held = Counter(
            "cpg_scheduler_held", "Roots that could not be tried, by reason.", ("reason",), registry=registry
        )
        self._queued = Gauge(
            "scheduler_queued_entities", "Root units that wait, by queue.", ("queue",), registry=registry
        )
        self._age = Gauge(
            "cpg_scheduler_watch_age_seconds", "Seconds since the quietest watch was heard of.", registry=registry
        )

    def attempted(self, finding: Finding, seconds: float) -> None:
        """Count an attempt."""
        result = RESULTS.get(finding, "unschedulable")
        self._attempts.labels(result, self._profile).inc()
        self._attempt_seconds.labels(result, self._profile).observe(seconds)
        self._findings.labels(finding.value).inc()

    def held(self, reason: str) -> None:
        """Count a root that could not be tried."""
        self._held.labels(reason).inc()

    def bound(self, *, worked: bool) -> None:
        """Count a bind."""
        self._binds.labels("success" if worked else "error").inc()

    def page(self, _: str) -> Answer:
        """Return all metrics as Prometheus reads them."""
        for queue, number in self._pending.counts().items():
            self._queued.labels(queue).set(number)
        self._age.set(self._unheard())
        return Answer(generate_latest(self._registry), content_type="text/plain; version=0.0.4; charset=utf-8")
