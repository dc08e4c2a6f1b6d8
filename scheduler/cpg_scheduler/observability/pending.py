"""Pending pods and units by queue and reason, counted when Prometheus asks.

Counting ten thousand units takes a while, during which nothing would be scheduled. So it is done in slices, and a count
is good for a few seconds.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from msgspec import Struct, field
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cpg_api.core.pod import Pod
from cpg_engine.gangs.unit import POD
from cpg_engine.verdicts import Finding, Remedy
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.observability.metrics import age_of
from cpg_scheduler.queueing.places import ACTIVE, BACKOFF, BINDING, POPPED, UNSCHEDULABLE
from cpg_scheduler.queueing.scheduling_queue import QueuePosition, SchedulingQueue
from cpg_scheduler.units import has_scheduling_gates, is_incomplete, pending_pods

GATED, INCOMPLETE = "gated", "incomplete"
QUEUES = (ACTIVE, BACKOFF, UNSCHEDULABLE, GATED, INCOMPLETE)
NEW, HELD = "new", "held"
OBJECTS_PER_SLICE = 200
"""Units and pods that are counted between two turns of the event loop."""
SECONDS_A_COUNT_IS_GOOD = 5.0
AFTER_ALL_TIMES = "9999"
"""Sorts after every time that an API server writes, since these begin with a year."""
FAMILIES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "scheduler_pending_pods",
        "Pending pods by queue: active, backoff, unschedulable, gated (lacks members), incomplete (lacks a group).",
        ("queue",),
    ),
    (
        "scheduler_queued_entities",
        "Units by queue and type: a single pod, or a podgroup for a whole tree.",
        ("queue", "type"),
    ),
    (
        "cpg_scheduler_waiting_pods",
        "Pending pods by the last attempt: the finding of its search, held (inadmissible), or new (no attempt yet).",
        ("reason",),
    ),
    (
        "cpg_scheduler_oldest_waiting_seconds",
        "Age of the oldest pending pod, by the reasons of cpg_scheduler_waiting_pods, without gated pods.",
        ("reason",),
    ),
    ("cpg_scheduler_assumed_binds", "Assumed pods: their bind is decided and not confirmed by the watch.", ()),
    ("cpg_scheduler_nodes", "Nodes in the cache.", ()),
    ("cpg_scheduler_pods", "Pods in the cache, of all schedulers.", ()),
    ("cpg_scheduler_pod_classes", "Classes of pods that are equal for scheduling.", ()),
    (
        "cpg_scheduler_watch_silence_seconds",
        "Seconds since the last sign of life of a watch, by resource; a healthy watch gives one at least every minute.",
        ("resource",),
    ),
)
MISSED_HINTS = "Units that were placed though no event had hinted that they could be; each is a defect, please report."


class _Counts(Struct):
    """Pods and units by queue, pods by reason, and the creation time of the oldest pod by reason."""

    pods: Counter[str] = field(default_factory=Counter)
    entities: Counter[tuple[str, str]] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    oldest: dict[str, str] = field(default_factory=dict)

    def add(self, position: QueuePosition, pods: Collection[Pod], queue: str) -> None:
        """Count a unit and its pending pods in a queue."""
        self.entities[queue, _type_of(position)] += 1
        self.pods[queue] += len(pods)
        if queue != BINDING:
            reason = _reason_of(position)
            self.reasons[reason] += len(pods)
            created = () if has_scheduling_gates(pods) else _creation_times(pods)
            self.oldest[reason] = min((self.oldest.get(reason, AFTER_ALL_TIMES), *created))


class PendingCollector(Collector):
    """Counts pending pods; labels name queues, types and reasons, never an object."""

    def __init__(
        self,
        cache: ClusterCache,
        queue: SchedulingQueue,
        *,
        wall: Callable[[], float],
        ages: Callable[[], Mapping[str, float]],
    ) -> None:
        """Count in this cache and queue; ``wall`` is the time of day, ``ages`` the silence of each watch in seconds."""
        self._cache = cache
        self._queue = queue
        self._wall = wall
        self._ages = ages
        self._counts = _Counts()
        self._counted_at: float | None = None

    def count_in_slices(self) -> Iterator[bytes]:
        """Count, unless the last count is still good; yield an empty piece of the response after each slice."""
        if self._is_good():
            return
        counts, size = _Counts(), 0
        for position in self._queue.positions():
            unit = position.queue_key.unit
            pods = pending_pods(self._cache, unit)
            counts.add(position, pods, self._queue_of(position, pods))
            size += 1 + len(pods)
            if size >= OBJECTS_PER_SLICE:
                size = 0
                yield b""
        self._counts, self._counted_at = counts, self._wall()

    def collect(self) -> Iterator[Metric]:
        """Yield the last count, or count now."""
        for _ in self.count_in_slices():
            pass
        families, counts, cache = _families(), self._counts, self._cache
        for queue in QUEUES:
            families["scheduler_pending_pods"].add_metric((queue,), counts.pods[queue])
        for (queue, kind), number in counts.entities.items():
            families["scheduler_queued_entities"].add_metric((queue, kind), number)
        for reason, number in counts.reasons.items():
            families["cpg_scheduler_waiting_pods"].add_metric((reason,), number)
        for reason, created in counts.oldest.items():
            families["cpg_scheduler_oldest_waiting_seconds"].add_metric((reason,), age_of(created, self._wall()))
        families["cpg_scheduler_assumed_binds"].add_metric((), len(cache.assumed))
        families["cpg_scheduler_nodes"].add_metric((), len(cache.snapshot.ledger.cluster.row_of))
        families["cpg_scheduler_pods"].add_metric((), len(cache.pods))
        families["cpg_scheduler_pod_classes"].add_metric((), len(cache.snapshot.ledger.classes))
        for resource, age in self._ages().items():
            families["cpg_scheduler_watch_silence_seconds"].add_metric((resource,), age)
        yield from families.values()
        yield _missed_hints(self._queue.missed_hints)

    def describe(self) -> Iterator[Metric]:
        """Yield the families, without counting."""
        yield from _families().values()
        yield _missed_hints()

    def _queue_of(self, position: QueuePosition, pods: Collection[Pod]) -> str:
        """Return the queue in which kube-scheduler would hold a unit."""
        if position.queue == BINDING:
            return BINDING
        if is_incomplete(self._cache, position.queue_key.unit):
            return INCOMPLETE
        if has_scheduling_gates(pods) or (position.queue == UNSCHEDULABLE and _lacks_members(position)):
            return GATED
        return ACTIVE if position.queue == POPPED else position.queue

    def _is_good(self) -> bool:
        return self._counted_at is not None and 0.0 <= self._wall() - self._counted_at < SECONDS_A_COUNT_IS_GOOD


def _creation_times(pods: Iterable[Pod]) -> Iterator[str]:
    """Yield the creation times of pods; they may be younger than their group."""
    return (pod.metadata.creation_timestamp for pod in pods if pod.metadata.creation_timestamp)


def _type_of(position: QueuePosition) -> str:
    """Return the type of a unit as kube-scheduler names it; a tree is one podgroup."""
    return "pod" if position.queue_key.unit.key.kind == POD else "podgroup"


def _reason_of(position: QueuePosition) -> str:
    if position.failure is None:
        return NEW
    explanation = position.failure.explanation
    return HELD if explanation is None else explanation.finding.value


def _lacks_members(position: QueuePosition) -> bool:
    """Return whether the last attempt found fewer members than the minimum; malformed pods are no missing members."""
    explanation = position.failure.explanation if position.failure else None
    if explanation is None or explanation.finding is not Finding.INADMISSIBLE:
        return False
    return explanation.next_step is not None and explanation.next_step.remedy is Remedy.ADD_MEMBERS


def _missed_hints(number: int | None = None) -> CounterMetricFamily:
    return CounterMetricFamily("cpg_scheduler_missed_hints", MISSED_HINTS, value=number)


def _families() -> dict[str, GaugeMetricFamily]:
    """Return the gauges, still empty."""
    return {name: GaugeMetricFamily(name, text, labels=labels) for name, text, labels in FAMILIES}
