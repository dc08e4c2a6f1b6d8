"""The metrics of attempts, binds, queues and plans."""

from cpg_api.scheduling.forest import GroupKey
from cpg_engine.preemption.values import Eviction, EvictionReason, PlanOutcome, PreemptionPlan, VictimUnit
from cpg_engine.testing.builders import node, pod, pod_group
from cpg_engine.verdicts import Finding
from cpg_scheduler.keys import QueueKey, UnitKey
from cpg_scheduler.observability.metrics import SchedulerMetrics
from cpg_scheduler.queueing.policy import RequeueBackoff
from cpg_scheduler.queueing.scheduling_queue import SchedulingQueue
from cpg_scheduler.testing.stage import Stage


def lines(metrics: SchedulerMetrics) -> set[str]:
    """Return the samples of the page."""
    return {line for line in metrics.page("").body.decode().splitlines() if not line.startswith("#")}


def test_attempts_are_counted_by_result() -> None:
    """By kube-scheduler's names, and by the finding of the search."""
    metrics = SchedulerMetrics("mine", lambda: 2.5, loop_lag=lambda: 0.5)
    for finding in (Finding.PLACED, Finding.IMPOSSIBLE, Finding.OUT_OF_BUDGET, Finding.CONTRADICTION):
        metrics.attempted(finding, 0.002)
    metrics.held("Invalid")
    metrics.bound("success")
    metrics.bound("error")
    metrics.mistaken()
    found = lines(metrics)
    attempts = "scheduler_podgroup_schedule_attempts_total"
    assert {
        f'{attempts}{{profile="mine",result="scheduled"}} 1.0',
        f'{attempts}{{profile="mine",result="unschedulable"}} 3.0',
        'cpg_scheduler_tree_findings_total{finding="OutOfBudget"} 1.0',
        'cpg_scheduler_held_total{reason="Invalid"} 1.0',
        'cpg_scheduler_binds_total{result="success"} 1.0',
        'cpg_scheduler_binds_total{result="error"} 1.0',
        'cpg_scheduler_binds_total{result="gone"} 0.0',
        "cpg_scheduler_mistakes_total 1.0",
        "cpg_scheduler_watch_age_seconds 2.5",
        "cpg_scheduler_longest_stall_seconds 0.5",
    } < found


def test_a_contradiction_of_running_members_is_no_mistake_of_the_scheduler() -> None:
    """Users bound the members to two racks: the attempt and its pods are unschedulable, and no error is counted."""
    stage = Stage(*(node(name, cpu=4, labels={"rack": name}) for name in ("a", "b")))
    running = (pod(f"on-{name}", cpu=1, group="g", node_name=name) for name in ("a", "b"))
    stage.put(pod_group("g", gang=3, key="rack"), *running, pod("late", cpu=1, group="g"))
    stage.settle()
    found = lines(stage.metrics)
    assert {
        'cpg_scheduler_tree_findings_total{finding="Contradiction"} 1.0',
        'scheduler_podgroup_schedule_attempts_total{profile="cpg-scheduler",result="unschedulable"} 1.0',
        'scheduler_schedule_attempts_total{profile="cpg-scheduler",result="unschedulable"} 1.0',
        "cpg_scheduler_mistakes_total 0.0",
    } < found
    assert not any('result="error"' in line and "attempt" in line for line in found)


def test_a_unit_is_timed_from_its_creation_to_its_last_bind() -> None:
    """By type; without a creation time its age is 0."""
    metrics = SchedulerMetrics("mine", lambda: 0.0, wall=lambda: 1767225630.0)
    metrics.placed("podgroup", 3, seconds=0.5, created="2026-01-01T00:00:00Z")
    metrics.placed("pod", 1, seconds=0.5, created=None)
    metrics.ended(metrics.attempted(Finding.PLACED, 0.001, placed=3, left=1), 0.002)
    assert {
        'cpg_scheduler_tree_placement_duration_seconds_sum{type="podgroup"} 30.0',
        'cpg_scheduler_tree_placement_duration_seconds_sum{type="pod"} 0.0',
        'cpg_scheduler_tree_bind_duration_seconds_sum{type="podgroup"} 0.5',
        'cpg_scheduler_tree_binds_sum{type="podgroup"} 3.0',
        'scheduler_schedule_attempts_total{profile="mine",result="scheduled"} 3.0',
        'scheduler_schedule_attempts_total{profile="mine",result="unschedulable"} 1.0',
        'scheduler_podgroup_scheduling_attempt_duration_seconds_sum{profile="mine",result="scheduled"} 0.002',
    } < lines(metrics)


def test_domains_are_counted_as_placements() -> None:
    """By kube-scheduler's names: the candidates, and the results of those that were tried."""
    stage = Stage(*(node(name, cpu=cpu, labels={"rack": name}) for name, cpu in (("a", 1), ("b", 2), ("c", 2))))
    stage.put(pod_group("g", gang=2, key="rack"), *(pod(name, cpu=1, group="g") for name in "pq"))
    stage.settle()
    assert {
        'scheduler_generated_placements_total{profile="cpg-scheduler"} 3.0',
        'scheduler_placement_evaluations_total{profile="cpg-scheduler",result="feasible"} 1.0',
        'scheduler_placement_evaluations_total{profile="cpg-scheduler",result="infeasible"} 0.0',
    } < lines(stage.metrics)


def test_units_that_enter_a_queue_are_counted_by_event() -> None:
    """And by type."""
    stage = Stage(node("n1", cpu=1), pod("p", cpu=2))
    stage.settle()
    stage.put(node("n2", cpu=2))
    stage.settle()
    assert {
        'scheduler_queue_incoming_entities_total{event="change",queue="active",type="pod"} 1.0',
        'scheduler_queue_incoming_entities_total{event="failure",queue="unschedulable",type="pod"} 1.0',
        'scheduler_queue_incoming_entities_total{event="hint",queue="backoff",type="pod"} 1.0',
        'scheduler_queue_incoming_pods_total{event="hint",queue="backoff"} 1.0',
    } < lines(stage.metrics)


def test_the_pending_pods_of_a_tree_enter_a_queue_with_it() -> None:
    """All of them are counted."""
    metrics = SchedulerMetrics("mine", lambda: 0.0, pending_pods_of=lambda root: len(root.key.name))
    pending = SchedulingQueue(RequeueBackoff(), metrics.count_incoming)
    pending.activate(QueueKey(0, "", UnitKey("crd", GroupKey("PodGroup", "default", "four"))))
    pending.activate(QueueKey(0, "", UnitKey("", GroupKey("Pod", "default", "p"))))
    assert {
        'scheduler_queue_incoming_entities_total{event="change",queue="active",type="podgroup"} 1.0',
        'scheduler_queue_incoming_pods_total{event="change",queue="active"} 5.0',
    } < lines(metrics)


def test_every_metric_has_a_help_text() -> None:
    """It is a sentence, and no label is the name of an object."""
    for family in SchedulerMetrics("mine", lambda: 0.0).registry.collect():
        assert family.documentation.endswith("."), family.name
        labels = {label for sample in family.samples for label in sample.labels}
        assert labels <= {"profile", "result", "le", "version", "python"}


def test_plans_are_counted_by_kube_schedulers_names() -> None:
    """By preemptor and result, with their victims and the spared units."""
    metrics = SchedulerMetrics("mine", lambda: 0.0)
    units = [
        VictimUnit(key=GroupKey("Pod", "default", name), priority=1, since="", pods=tuple(name)) for name in ("a", "bc")
    ]
    why = EvictionReason(preemptor=GroupKey("Pod", "default", "high"), node="n")
    evictions = (Eviction(units[0], why), Eviction(units[1], why, violates=("default/pdb",)))
    metrics.preemption.planned(
        "podgroup", PreemptionPlan(outcome=PlanOutcome.PLANNED, evictions=evictions, considered=5), 0.01
    )
    metrics.preemption.planned("pod", PreemptionPlan(outcome=PlanOutcome.NO_VICTIMS), 0.01)
    metrics.attempted(Finding.IMPOSSIBLE, 0.01, waits=True)
    assert {
        'scheduler_workload_preemption_attempts_total{result="Success"} 1.0',
        "scheduler_preemption_attempts_total 1.0",
        "scheduler_workload_preemption_victims_sum 3.0",
        'scheduler_preemption_workload_disruptions_sum{preemptor="podgroup"} 2.0',
        'scheduler_preemption_pdb_violations_total{preemptor="podgroup"} 1.0',
        'scheduler_preemption_evaluation_duration_seconds_count{preemptor="podgroup",result="Success"} 1.0',
        "cpg_scheduler_preemption_reprieved_total 3.0",
        'scheduler_podgroup_schedule_attempts_total{profile="mine",result="waiting_on_preemption"} 1.0',
    } < lines(metrics)
