"""Who waits, where and for what, counted when somebody looks: metrics that are the state of this moment.

With ten thousand trees that takes a while, in which nobody would be scheduled: so it is done a little at a time, and
what was counted is good for others who ask soon after.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from msgspec import Struct, field
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cpg_api.core.pod import Pod
from cpg_engine.gangs.unit import POD
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.observability.metrics import age_of
from cpg_scheduler.queueing.scheduling_queue import (
    ACTIVE,
    BINDING,
    PARKED,
    POPPED,
    WAITING,
    QueuePosition,
    SchedulingQueue,
)
from cpg_scheduler.units import is_incomplete, pending_pods

GATED, INCOMPLETE = "gated", "incomplete"
QUEUES = (ACTIVE, WAITING, PARKED, GATED, INCOMPLETE)
NEW, HELD = "new", "held"
SLICE = 200
"""Roots and pods that are counted in one go."""
FRESH = 5.0
"""Seconds for which what was counted is good enough."""
LAST = "9999"
"""Later than any time that an API server writes, all of which begin with a year."""


class _Tally(Struct):
    """What has been counted: pods and roots by queue, pods by reason, and the creation of the oldest of each."""

    pods: Counter[str] = field(default_factory=Counter)
    entities: Counter[tuple[str, str]] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    oldest: dict[str, str] = field(default_factory=dict)

    def add(self, place: QueuePosition, waiting: Collection[Pod], *, incomplete: bool) -> None:
        """Count a root and the pods that wait at it, be it for an object that is missing."""
        gated = sum(bool(pod.spec.scheduling_gates) for pod in waiting)
        queue = ACTIVE if place.queue == POPPED else place.queue
        if incomplete and queue != BINDING:
            queue = INCOMPLETE
        self.entities[queue, _kind(place)] += 1
        self.pods[queue] += len(waiting) - gated
        self.pods[GATED] += gated
        if queue != BINDING:
            reason = _reason(place)
            self.reasons[reason] += len(waiting)
            self.oldest[reason] = min((self.oldest.get(reason, LAST), *(() if gated else _created(waiting))))


class PendingCollector(Collector):
    """Counts the waiting when it is asked; labels name queues, kinds and reasons, never an object."""

    def __init__(
        self,
        state: ClusterCache,
        pending: SchedulingQueue,
        *,
        wall: Callable[[], float],
        ages: Callable[[], Mapping[str, float]],
    ) -> None:
        """Count in this state and queue; ``wall`` is the time of day, ``ages`` for how long each watch was silent."""
        self._state = state
        self._pending = pending
        self._wall = wall
        self._ages = ages
        self._tally = _Tally()
        self._counted: float | None = None

    def counting(self) -> Iterator[bytes]:
        """Count those who wait, unless that has just been done; yield nothing, at moments at which others may work."""
        if self._is_fresh():
            return
        tally, weight = _Tally(), 0
        for place in self._pending.places():
            root = place.order.key
            waiting = pending_pods(self._state, root)
            tally.add(place, waiting, incomplete=is_incomplete(self._state, root))
            weight += 1 + len(waiting)
            if weight >= SLICE:
                weight = 0
                yield b""
        self._tally, self._counted = tally, self._wall()

    def collect(self) -> Iterator[Metric]:
        """Yield what was counted a moment ago, or is counted now."""
        for _ in self.counting():
            pass
        families, tally = _families(), self._tally
        pods, entities, reasons, oldest = tally.pods, tally.entities, tally.reasons, tally.oldest
        for queue in QUEUES:
            families["scheduler_pending_pods"].add_metric((queue,), pods[queue])
        for (queue, kind), number in entities.items():
            families["scheduler_queued_entities"].add_metric((queue, kind), number)
        for reason, number in reasons.items():
            families["cpg_scheduler_waiting_pods"].add_metric((reason,), number)
        for reason, created in oldest.items():
            families["cpg_scheduler_oldest_waiting_seconds"].add_metric((reason,), age_of(created, self._wall()))
        families["cpg_scheduler_assumed_binds"].add_metric((), len(self._state.assumed))
        families["cpg_scheduler_nodes"].add_metric((), len(self._state.snapshot.ledger.cluster.row_of))
        families["cpg_scheduler_pods"].add_metric((), len(self._state.pods))
        families["cpg_scheduler_pod_classes"].add_metric((), self._state.snapshot.ledger.class_count)
        for resource, age in self._ages().items():
            families["cpg_scheduler_watch_silence_seconds"].add_metric((resource,), age)
        yield from families.values()
        yield _surprises(self._pending.surprises)

    def _is_fresh(self) -> bool:
        return self._counted is not None and 0.0 <= self._wall() - self._counted < FRESH

    def describe(self) -> Iterator[Metric]:
        """Yield what there is to count, without counting."""
        yield from _families().values()
        yield _surprises()


def _created(pods: Iterable[Pod]) -> Iterator[str]:
    """Yield when pods were created: a tree may be old, and the pod of it that waits new."""
    return (pod.metadata.creation_timestamp for pod in pods if pod.metadata.creation_timestamp)


def _kind(place: QueuePosition) -> str:
    """Return the type of an entity as kube-scheduler has it, for which a tree is one podgroup."""
    return "pod" if place.order.key.key.kind == POD else "podgroup"


def _reason(place: QueuePosition) -> str:
    if place.failure is None:
        return NEW
    explanation = place.failure.explanation
    return HELD if explanation is None else explanation.finding.value


def _surprises(number: int | None = None) -> CounterMetricFamily:
    """Return how often a root was placed that no news had helped."""
    text = "Roots placed though no news seemed to help them; any is a defect: report it."
    return CounterMetricFamily("cpg_scheduler_surprises", text, value=number)


def _families() -> dict[str, GaugeMetricFamily]:
    """Return the families, still empty."""
    told: tuple[tuple[str, str, tuple[str, ...]], ...] = (
        (
            "scheduler_pending_pods",
            "Pods of ours without a node, by queue: active, backoff, unschedulable, gated, incomplete (lacks a group).",
            ("queue",),
        ),
        (
            "scheduler_queued_entities",
            "Roots, which are attempted as one, by queue and type: a pod alone, or a podgroup with its whole tree.",
            ("queue", "type"),
        ),
        (
            "cpg_scheduler_waiting_pods",
            "Pods that wait, by how the last attempt ended: what the search found, held (not tried), or new (none).",
            ("reason",),
        ),
        (
            "cpg_scheduler_oldest_waiting_seconds",
            "Seconds since the oldest pod that waits was created, by the reasons above; who is gated is left aside.",
            ("reason",),
        ),
        ("cpg_scheduler_assumed_binds", "Binds that were decided and are not confirmed by the watch yet.", ()),
        ("cpg_scheduler_nodes", "Nodes known.", ()),
        ("cpg_scheduler_pods", "Pods known, of all schedulers.", ()),
        ("cpg_scheduler_pod_classes", "Kinds of pods known that scheduling can tell apart.", ()),
        (
            "cpg_scheduler_watch_silence_seconds",
            "Seconds since a watch was last heard of, by resource; a healthy one is heard of every minute.",
            ("resource",),
        ),
    )
    return {name: GaugeMetricFamily(name, text, labels=labels) for name, text, labels in told}
