"""Metrics, by the names of kube-scheduler wherever it has the same thing, so that boards and alerts carry over."""

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
from cpg_engine.preemption.values import PlanOutcome, PreemptionPlan
from cpg_engine.verdicts import Finding
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.queueing.scheduling_queue import SchedulingQueue

BUCKETS = tuple(0.001 * 2**power for power in range(15))
RESULTS = {
    Finding.PLACED: "scheduled",
    Finding.CONTRADICTION: "error",
}
BINDS = ("success", "error", "gone")
"""What becomes of a bind."""


NO_TRIES = PlacementCounts()
LONG = tuple(0.01 * 4**power for power in range(12))
"""From ten milliseconds to half a day."""

COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
STATUSES = {
    PlanOutcome.PLANNED: "Success",
    PlanOutcome.NO_VICTIMS: "UnschedulableAndUnresolvable",
    PlanOutcome.NOT_ENOUGH: "Unschedulable",
    PlanOutcome.NOT_HELPFUL: "UnschedulableAndUnresolvable",
}


def age_of(created: str, now: float) -> float:
    """Return for how long something has been there, by the time that the API server wrote; 0 where it wrote none."""
    try:
        return max(now - dt.datetime.fromisoformat(created).timestamp(), 0.0)
    except ValueError:
        return 0.0


class PreemptionMetrics:
    """What is counted of plans and evictions; the preemptor is pod, podgroup or compositepodgroup."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Count from zero."""
        self._single_attempts = Counter(
            "scheduler_preemption_attempts", "Plans made for pods of no group.", registry=registry
        )
        self._single_victims = Histogram(
            "scheduler_preemption_victims",
            "Pods evicted by a plan for a pod of no group.",
            buckets=COUNTS,
            registry=registry,
        )
        self._attempts = Counter(
            "scheduler_workload_preemption_attempts",
            "Plans made for groups, by result.",
            ("result",),
            registry=registry,
        )
        self._victims = Histogram(
            "scheduler_workload_preemption_victims",
            "Pods evicted by a plan for a group.",
            buckets=COUNTS,
            registry=registry,
        )
        self._disruptions = Histogram(
            "scheduler_preemption_workload_disruptions",
            "Units evicted by a plan: single pods, and groups that go as a whole.",
            ("preemptor",),
            buckets=COUNTS,
            registry=registry,
        )
        self._evaluation = Histogram(
            "scheduler_preemption_evaluation_duration_seconds",
            "Time to plan; a tree of groups counts as a podgroup, as in kube-scheduler.",
            ("preemptor", "result"),
            buckets=BUCKETS,
            registry=registry,
        )
        self._execution = Histogram(
            "scheduler_preemption_execution_duration_seconds",
            "Time to perform a plan, up to the last request.",
            ("preemptor", "result"),
            buckets=BUCKETS,
            registry=registry,
        )
        self._violations = Counter(
            "scheduler_preemption_pdb_violations",
            "Units evicted against a PodDisruptionBudget.",
            ("preemptor",),
            registry=registry,
        )
        self._reprieved = Counter(
            "cpg_scheduler_preemption_reprieved", "Units that plans could have evicted and did not.", registry=registry
        )

    def planned(self, preemptor: str, plan: PreemptionPlan, seconds: float) -> None:
        """Count a plan."""
        result, is_single = STATUSES[plan.outcome], preemptor == "pod"
        if is_single:
            self._single_attempts.inc()
        else:
            self._attempts.labels(result).inc()
        self._evaluation.labels("pod" if is_single else "podgroup", result).observe(seconds)
        if plan.outcome is PlanOutcome.PLANNED:
            victims = self._single_victims if is_single else self._victims
            victims.observe(sum(len(eviction.unit.pods) for eviction in plan.evictions))
            self._disruptions.labels(preemptor).observe(len(plan.evictions))
            self._violations.labels(preemptor).inc(sum(bool(eviction.violates) for eviction in plan.evictions))
            self._reprieved.inc(max(plan.considered - len(plan.evictions), 0))

    def executed(self, preemptor: str, seconds: float, *, worked: bool) -> None:
        """Count a plan that was performed, or dropped on the way."""
        self._execution.labels(preemptor, "success" if worked else "error").observe(seconds)


class AttemptMetrics:
    """What is counted of attempts, each with what became of it."""

    def __init__(self, registry: CollectorRegistry, profile: str) -> None:
        """Count from zero."""
        self._profile = profile
        self._attempts = Counter(
            "scheduler_podgroup_schedule_attempts",
            "Attempts to place a root unit, by result.",
            ("result", "profile"),
            registry=registry,
        )
        self._seconds = Histogram(
            "scheduler_podgroup_scheduling_algorithm_duration_seconds",
            "Time to decide about a root unit.",
            ("result", "profile"),
            buckets=BUCKETS,
            registry=registry,
        )
        self._whole_seconds = Histogram(
            "scheduler_podgroup_scheduling_attempt_duration_seconds",
            "Seconds that an attempt at a root took as a whole: deciding, preemption, words; not binding.",
            ("result", "profile"),
            buckets=BUCKETS,
            registry=registry,
        )
        self._pods = Counter(
            "scheduler_schedule_attempts",
            "Attempts to place a pod, by result: each pod of a tree counts with every attempt at the tree.",
            ("result", "profile"),
            registry=registry,
        )
        self._generated = Counter(
            "scheduler_generated_placements",
            "Domains that groups with a topology had to choose from.",
            ("profile",),
            registry=registry,
        )
        self._evaluations = Counter(
            "scheduler_placement_evaluations",
            "Domains that were tried, by whether the group could be placed in them; where the room is too little by"
            " itself, they are not.",
            ("result", "profile"),
            registry=registry,
        )
        self._findings = Counter(
            "cpg_scheduler_tree_findings", "Attempts by how the search ended.", ("finding",), registry=registry
        )
        self._held = Counter(
            "cpg_scheduler_held", "Roots that could not be tried, by reason.", ("reason",), registry=registry
        )
        self._mistakes = Counter(
            "cpg_scheduler_mistakes",
            "Attempts that failed in our own code; any is a defect: report it.",
            registry=registry,
        )

    def count(self, finding: Finding, seconds: float, *, waits: bool, placed: int, left: int) -> str:
        """Count an attempt; return its result."""
        result = "waiting_on_preemption" if waits else RESULTS.get(finding, "unschedulable")
        self._attempts.labels(result, self._profile).inc()
        self._seconds.labels(result, self._profile).observe(seconds)
        self._findings.labels(finding.value).inc()
        if finding is Finding.CONTRADICTION:
            self.mistaken()
        self._pods.labels("scheduled", self._profile).inc(placed)
        self._pods.labels("error" if result == "error" else "unschedulable", self._profile).inc(left)
        return result

    def tried(self, tries: PlacementCounts) -> None:
        """Count the domains that a search looked at."""
        self._generated.labels(self._profile).inc(tries.offered)
        for result, number in (("feasible", tries.feasible), ("infeasible", tries.infeasible)):
            self._evaluations.labels(result, self._profile).inc(number)

    def ended(self, result: str, seconds: float) -> None:
        """Count an attempt as a whole."""
        self._whole_seconds.labels(result, self._profile).observe(seconds)

    def held(self, reason: str) -> None:
        """Count a root that could not be tried."""
        self._held.labels(reason).inc()

    def mistaken(self) -> None:
        """Count an attempt that failed in our own code."""
        self._mistakes.inc()


class BindMetrics:
    """What is counted of binds, one by one and by tree."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Count from zero."""
        self._binds = Counter(
            "cpg_scheduler_binds",
            "Binds sent, by result: success, error, or gone where the pod was deleted meanwhile.",
            ("result",),
            registry=registry,
        )
        # A series that begins with its first event hides that event from every rate.
        for result in BINDS:
            self._binds.labels(result)
        self._placing = Histogram(
            "cpg_scheduler_tree_placement_duration_seconds",
            "Seconds from the creation of a root to the last bind of the attempt that placed it.",
            ("type",),
            buckets=LONG,
            registry=registry,
        )
        self._binding = Histogram(
            "cpg_scheduler_tree_bind_duration_seconds",
            "Seconds from a decision until all its binds were confirmed by the API server.",
            ("type",),
            buckets=BUCKETS,
            registry=registry,
        )
        self._sizes = Histogram(
            "cpg_scheduler_tree_binds", "Pods bound by one decision.", ("type",), buckets=COUNTS, registry=registry
        )

    def sent(self, result: str) -> None:
        """Count a bind."""
        self._binds.labels(result).inc()

    def placed(self, kind: str, pods: int, *, seconds: float, age: float) -> None:
        """Count a root whose binds have all worked, by what it took and how old it is."""
        self._binding.labels(kind).observe(seconds)
        self._placing.labels(kind).observe(age)
        self._sizes.labels(kind).observe(pods)


class Metrics:
    """Everything that is counted."""

    def __init__(
        self,
        profile: str,
        pending: SchedulingQueue,
        unheard: Callable[[], float],
        *,
        stalled: Callable[[], float] = lambda: 0.0,
        wall: Callable[[], float] = time.time,
        size: Callable[[UnitKey], int] = lambda _: 1,
    ) -> None:
        """Count from zero; the age of the news and stalls are asked for when somebody looks.

        ``size`` tells how many pods wait at a root.
        """
        # Else each counter has a second series, which nobody asks for.
        disable_created_metrics()  # type: ignore[no-untyped-call] # the library has forgotten it
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.preemption = PreemptionMetrics(registry)
        self._attempts = AttemptMetrics(registry, profile)
        self._binds = BindMetrics(registry)
        self._unheard = unheard
        self._stalled = stalled
        self._wall = wall
        self._size = size
        self._incoming_pods = Counter(
            "scheduler_queue_incoming_pods",
            "Pods of the roots that came into a queue, by queue and the event that brought them there.",
            ("queue", "event"),
            registry=registry,
        )
        self._incoming = Counter(
            "scheduler_queue_incoming_entities",
            "Roots that came into a queue, by queue, the event that brought them there, and type.",
            ("queue", "event", "type"),
            registry=registry,
        )
        pending.entered = self._entered
        Gauge(
            "cpg_scheduler_build_info",
            "Always 1; the labels tell what runs here.",
            ("version", "python"),
            registry=registry,
        ).labels(version("kube-cpg"), python_version()).set(1)
        self._crowds = Gauge(
            "cpg_scheduler_overcommitted_nodes",
            "Nodes with pods of ours that hold more than they have.",
            registry=registry,
        )
        self._age = Gauge(
            "cpg_scheduler_watch_age_seconds", "Seconds since the quietest watch was heard of.", registry=registry
        )

        self._stall = Gauge(
            "cpg_scheduler_longest_stall_seconds",
            "Longest time of the last minute or two for which one piece of work held up all else in the process.",
            registry=registry,
        )

    def _entered(self, queue: str, event: str, root: UnitKey) -> None:
        """Count a root that came into a queue."""
        self._incoming.labels(queue, event, "pod" if root.key.kind == POD else "podgroup").inc()
        self._incoming_pods.labels(queue, event).inc(self._size(root))

    def crowded(self, nodes: int) -> None:
        """Note how many nodes are over-committed."""
        self._crowds.set(nodes)

    def attempted(
        self,
        finding: Finding,
        seconds: float,
        *,
        waits: bool = False,
        placed: int = 0,
        left: int = 0,
        tries: PlacementCounts = NO_TRIES,
    ) -> str:
        """Count an attempt that placed and left so many pods; ``waits`` says that these wait for victims to go.

        Return its result, by which the attempt as a whole is to be counted when it is over.
        """
        self._attempts.tried(tries)
        return self._attempts.count(finding, seconds, waits=waits, placed=placed, left=left)

    def ended(self, result: str, seconds: float) -> None:
        """Count an attempt as a whole."""
        self._attempts.ended(result, seconds)

    def placed(self, kind: str, pods: int, *, seconds: float, created: str | None) -> None:
        """Count a root whose binds have all worked, so many seconds after the decision."""
        self._binds.placed(kind, pods, seconds=seconds, age=age_of(created or "", self._wall()))

    def held(self, reason: str) -> None:
        """Count a root that could not be tried."""
        self._attempts.held(reason)

    def mistaken(self) -> None:
        """Count an attempt that failed in our own code."""
        self._attempts.mistaken()

    def bound(self, result: str) -> None:
        """Count a bind by what has become of it."""
        self._binds.sent(result)

    def page(self, _: str) -> ProbeResponse:
        """Return all metrics as Prometheus reads them."""
        self._age.set(self._unheard())
        self._stall.set(self._stalled())
        return ProbeResponse(generate_latest(self.registry), content_type=METRICS_CONTENT_TYPE)
