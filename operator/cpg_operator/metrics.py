"""What is counted about the operator."""

from collections import Counter as Tally
from collections.abc import Iterable

from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

PAGE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = tuple(0.0001 * 4**power for power in range(10))


class Facts(Struct, frozen=True, kw_only=True):
    """What is so at the moment somebody looks; ``states`` are flavour and state of every tree."""

    states: Iterable[tuple[str, str]]
    queued: int
    unwritten: int
    age: float


class Metrics:
    """Counts what is done, and shows what is so."""

    def __init__(self) -> None:
        """Count from zero."""
        registry = self._registry = CollectorRegistry()
        self._writes = Counter(
            "cpg_operator_writes", "Writes, by kind and result.", ("verb", "result"), registry=registry
        )
        self._seconds = Histogram(
            "cpg_operator_reconcile_seconds", "Time to look at one tree.", buckets=BUCKETS, registry=registry
        )
        self._mistakes = Counter(
            "cpg_operator_mistakes", "Looks at a tree that failed in our own code.", registry=registry
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
        self._age = Gauge("cpg_operator_watch_age_seconds", "Since the quietest watch was heard of.", registry=registry)

    def wrote(self, verb: str, result: str) -> None:
        """Count a write."""
        self._writes.labels(verb, result).inc()

    def looked(self, seconds: float) -> None:
        """Count a look at a tree."""
        self._seconds.observe(seconds)

    def mistaken(self) -> None:
        """Count a look that ended in a mistake of ours."""
        self._mistakes.inc()

    def refused(self, kind: str) -> None:
        """Count an object that does not fit."""
        self._refused.labels(kind).inc()

    def page(self, facts: Facts) -> bytes:
        """Return all metrics as Prometheus reads them."""
        self._trees.clear()
        for (flavour, state), number in Tally(facts.states).items():
            self._trees.labels(flavour, state).set(number)
        self._queued.set(facts.queued)
        self._unwritten.set(facts.unwritten)
        self._age.set(facts.age)
        return generate_latest(self._registry)
