"""What is counted about the operator."""

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

PAGE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = tuple(0.0001 * 4**power for power in range(10))
RESULTS = ("success", "conflict", "gone", "failure")
"""What becomes of a write."""


class Facts(Struct, frozen=True, kw_only=True):
    """What is so at the moment somebody looks; ``states`` are flavour and state of every tree, times are in seconds.

    ``silences`` are by what is watched.
    """

    states: Iterable[tuple[str, str]]
    queued: int
    unwritten: int
    age: float
    silences: Mapping[str, float] = {}
    partial: float = 0.0
    overdue: float = 0.0


class Metrics:
    """Counts what is done, and shows what is so."""

    def __init__(self) -> None:
        """Count from zero."""
        # Else each counter has a second series, which nobody asks for.
        disable_created_metrics()  # type: ignore[no-untyped-call] # the library has forgotten it
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        Gauge(
            "cpg_operator_build_info",
            "Always 1; the labels tell what runs here.",
            ("version", "python"),
            registry=registry,
        ).labels(version("kube-cpg"), python_version()).set(1)
        self._writes = Counter(
            "cpg_operator_writes",
            "Writes, by kind, and by result: success, conflict (tried again), gone, or failure.",
            ("verb", "result"),
            registry=registry,
        )
        # A series that begins with its first event hides that event from every rate.
        for verb, result in product(Verb, RESULTS):
            self._writes.labels(verb.value, result)
        self._seconds = Histogram(
            "cpg_operator_reconcile_seconds", "Time to look at one tree.", buckets=BUCKETS, registry=registry
        )
        self._mistakes = Counter(
            "cpg_operator_mistakes",
            "Looks, writes and news that failed in our own code; any is a defect: report it.",
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
        self._queued = Gauge("cpg_operator_queue_length", "Trees that wait to be looked at.", registry=registry)
        self._unwritten = Gauge("cpg_operator_writes_pending", "Writes that wait to be sent.", registry=registry)
        self._heard(registry)
        self._partial = Gauge(
            "cpg_operator_partial_seconds",
            "For how long half a gang has held nodes, of the tree that has done so the longest; 0 where none does.",
            registry=registry,
        )
        self._overdue = Gauge(
            "cpg_operator_release_overdue_seconds",
            "By how much the release of half a gang, which its user asked for, is overdue; 0 where none is.",
            registry=registry,
        )

    def _heard(self, registry: CollectorRegistry) -> None:
        """Make the metrics of how well news come in."""
        self._age = Gauge(
            "cpg_operator_watch_age_seconds", "Seconds since the quietest watch was heard of.", registry=registry
        )
        self._silence = Gauge(
            "cpg_operator_watch_silence_seconds",
            "Seconds since each watch was last heard of, Kopf's included.",
            ("resource",),
            registry=registry,
        )
        self._behind = Counter(
            "cpg_operator_view_behind",
            "Objects that a sweep found otherwise than the watches had told.",
            registry=registry,
        )
        self._restarts = Counter(
            "cpg_operator_kopf_restarts",
            "How often Kopf, which watches groups and Workloads, has ended and was started again.",
            registry=registry,
        )

    def wrote(self, verb: str, result: str) -> None:
        """Count a write."""
        self._writes.labels(verb, result).inc()

    def looked(self, seconds: float) -> None:
        """Count a look at a tree."""
        self._seconds.observe(seconds)

    def mistaken(self) -> None:
        """Count what ended in a mistake of ours."""
        self._mistakes.inc()

    def refused(self, kind: str) -> None:
        """Count an object that does not fit."""
        self._refused.labels(kind).inc()

    def behind(self, objects: int) -> None:
        """Count what a sweep has found out."""
        self._behind.inc(objects)

    def kopf_ended(self) -> None:
        """Count an end of Kopf."""
        self._restarts.inc()

    def page(self, facts: Facts) -> bytes:
        """Return all metrics as Prometheus reads them."""
        self._trees.clear()
        for (flavour, state), number in Tally(facts.states).items():
            self._trees.labels(flavour, state).set(number)
        self._queued.set(facts.queued)
        self._unwritten.set(facts.unwritten)
        self._age.set(facts.age)
        self._silence.clear()
        for resource, seconds in facts.silences.items():
            self._silence.labels(resource).set(seconds)
        self._partial.set(facts.partial)
        self._overdue.set(facts.overdue)
        return generate_latest(self.registry)
