"""The operator's metrics."""

from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from itertools import product
from platform import python_version

from msgspec import Struct
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from cpg_operator.writes import Verb

BUCKETS = tuple(0.0001 * 4**power for power in range(10))
WRITE_RESULTS = ("success", "conflict", "gone", "failure")


class MetricsSnapshot(Struct, frozen=True, kw_only=True):
    """What the gauges show at the moment of a scrape; times are in seconds.

    ``states`` are flavour and state of every tree, ``watch_silences`` are by the path of the watch.
    """

    states: Iterable[tuple[str, str]]
    queued: int
    pending_writes: int
    watch_age: float
    watch_silences: Mapping[str, float] = {}
    partial: float = 0.0
    overdue: float = 0.0


class OperatorMetrics:
    """Counters that last as long as the process, and gauges that are set at each scrape."""

    def __init__(self) -> None:
        """Count from zero."""
        # Otherwise each counter gets a second series with the time of its creation.
        disable_created_metrics()  # type: ignore[no-untyped-call] # the library lacks the annotation
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        Gauge(
            "cpg_operator_build_info",
            "Always 1; the labels are the versions that run here.",
            ("version", "python"),
            registry=registry,
        ).labels(version("kube-cpg"), python_version()).set(1)
        self._writes = Counter(
            "cpg_operator_writes",
            "Writes, by verb and by result: success, conflict (tried again), gone, or failure.",
            ("verb", "result"),
            registry=registry,
        )
        # A series that starts with its first event hides that event from every rate().
        for verb, result in product(Verb, WRITE_RESULTS):
            self._writes.labels(verb.value, result)
        self._seconds = Histogram(
            "cpg_operator_reconcile_seconds", "Duration of reconciling one tree.", buckets=BUCKETS, registry=registry
        )
        self._mistakes = Counter(
            "cpg_operator_mistakes",
            "Reconciles, writes and events that failed in our own code; any is a defect: report it.",
            registry=registry,
        )
        self._refused = Counter(
            "cpg_operator_refused_objects", "Objects that do not fit their type.", ("kind",), registry=registry
        )
        self._trees = Gauge(
            "cpg_operator_trees",
            "Trees, by the health of their root, or Invalid.",
            ("flavour", "state"),
            registry=registry,
        )
        self._queued = Gauge("cpg_operator_queue_length", "Trees that wait to be reconciled.", registry=registry)
        self._pending_writes = Gauge("cpg_operator_writes_pending", "Writes that wait to be sent.", registry=registry)
        self._add_watch_metrics(registry)
        self._partial = Gauge(
            "cpg_operator_partial_seconds",
            "How long the longest partial tree has held nodes below its minimum; 0 where none does.",
            registry=registry,
        )
        self._overdue = Gauge(
            "cpg_operator_release_overdue_seconds",
            "By how much the requested release of a partial tree is overdue; 0 where none is.",
            registry=registry,
        )

    def _add_watch_metrics(self, registry: CollectorRegistry) -> None:
        self._age = Gauge(
            "cpg_operator_watch_age_seconds",
            "Seconds since the quietest watch last received anything.",
            registry=registry,
        )
        self._silence = Gauge(
            "cpg_operator_watch_silence_seconds",
            "Seconds since each watch last received anything, Kopf's watches included.",
            ("resource",),
            registry=registry,
        )
        self._behind = Counter(
            "cpg_operator_view_behind",
            "Objects for which a sweep found another state than the watches had reported.",
            registry=registry,
        )
        self._restarts = Counter(
            "cpg_operator_kopf_restarts",
            "How often Kopf, which watches groups and Workloads, has failed and was started again.",
            registry=registry,
        )

    def count_write(self, verb: str, result: str) -> None:
        """Count a write."""
        self._writes.labels(verb, result).inc()

    def observe_reconcile(self, seconds: float) -> None:
        """Record the duration of one reconcile."""
        self._seconds.observe(seconds)

    def count_mistake(self) -> None:
        """Count a failure in our own code."""
        self._mistakes.inc()

    def count_rejected(self, kind: str) -> None:
        """Count an object that does not fit its type."""
        self._refused.labels(kind).inc()

    def count_missed(self, objects: int) -> None:
        """Count objects that a sweep has corrected."""
        self._behind.inc(objects)

    def count_kopf_restart(self) -> None:
        """Count a failure of Kopf after which it is started again."""
        self._restarts.inc()

    def page(self, snapshot: MetricsSnapshot) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        self._trees.clear()
        for (flavour, state), number in Tally(snapshot.states).items():
            self._trees.labels(flavour, state).set(number)
        self._queued.set(snapshot.queued)
        self._pending_writes.set(snapshot.pending_writes)
        self._age.set(snapshot.watch_age)
        self._silence.clear()
        for resource, seconds in snapshot.watch_silences.items():
            self._silence.labels(resource).set(seconds)
        self._partial.set(snapshot.partial)
        self._overdue.set(snapshot.overdue)
        return generate_latest(self.registry)
