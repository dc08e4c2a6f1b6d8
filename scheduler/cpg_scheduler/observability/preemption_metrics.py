"""Metrics of preemption plans, by kube-scheduler's names."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from cpg_engine.preemption.values import PlanOutcome, PreemptionPlan
from cpg_scheduler.observability.buckets import COUNTS, SECONDS

STATUSES = {
    PlanOutcome.PLANNED: "Success",
    PlanOutcome.NO_VICTIMS: "UnschedulableAndUnresolvable",
    PlanOutcome.NOT_ENOUGH: "Unschedulable",
    PlanOutcome.NOT_HELPFUL: "UnschedulableAndUnresolvable",
}


class PreemptionMetrics:
    """Metrics of plans and evictions; a preemptor is a pod, podgroup or compositepodgroup."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Count from zero."""
        self._single_attempts = Counter(
            "scheduler_preemption_attempts", "Plans made for single pods.", registry=registry
        )
        self._single_victims = Histogram(
            "scheduler_preemption_victims",
            "Pods evicted by a plan for a single pod.",
            buckets=COUNTS,
            registry=registry,
        )
        self._attempts = Counter(
            "scheduler_workload_preemption_attempts",
            "Plans made for trees of groups, by result.",
            ("result",),
            registry=registry,
        )
        self._victims = Histogram(
            "scheduler_workload_preemption_victims",
            "Pods evicted by a plan for a tree of groups.",
            buckets=COUNTS,
            registry=registry,
        )
        self._disruptions = Histogram(
            "scheduler_preemption_workload_disruptions",
            "Victim units of a plan: single pods, and groups that are evicted as a whole.",
            ("preemptor",),
            buckets=COUNTS,
            registry=registry,
        )
        self._evaluation = Histogram(
            "scheduler_preemption_evaluation_duration_seconds",
            "Time to make a plan; a tree of groups counts as a podgroup, as in kube-scheduler.",
            ("preemptor", "result"),
            buckets=SECONDS,
            registry=registry,
        )
        self._execution = Histogram(
            "scheduler_preemption_execution_duration_seconds",
            "Time to carry out a plan, until its last request.",
            ("preemptor", "result"),
            buckets=SECONDS,
            registry=registry,
        )
        self._violations = Counter(
            "scheduler_preemption_pdb_violations",
            "Victim units evicted in violation of a PodDisruptionBudget.",
            ("preemptor",),
            registry=registry,
        )
        self._reprieved = Counter(
            "cpg_scheduler_preemption_reprieved",
            "Victim units that plans considered and spared.",
            registry=registry,
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
        """Count a plan that was carried out, or dropped before its end."""
        self._execution.labels(preemptor, "success" if worked else "error").observe(seconds)
