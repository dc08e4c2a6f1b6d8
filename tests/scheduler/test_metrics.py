"""What is counted."""

from cpg_api.scheduling.forest import GroupKey
from cpg_engine.verdicts import Finding
from cpg_scheduler.metrics import Metrics
from cpg_scheduler.pending import Backoff, Order, Pending, RootKey


def lines(metrics: Metrics) -> set[str]:
    """Return the page without comments."""
    return {line for line in metrics.page("").body.decode().splitlines() if not line.startswith("#")}


def test_attempts_are_counted_by_result() -> None:
    """By upstream's names and words, and by how the search ended."""
    metrics = Metrics("mine", Pending(Backoff()), lambda: 2.5)
    for finding in (Finding.PLACED, Finding.IMPOSSIBLE, Finding.OUT_OF_BUDGET, Finding.CONTRADICTION):
        metrics.attempted(finding, 0.002)
    metrics.held("Invalid")
    metrics.bound(worked=True)
    metrics.bound(worked=False)
    found = lines(metrics)
    attempts = "scheduler_podgroup_schedule_attempts_total"
    assert {
        f'{attempts}{{profile="mine",result="scheduled"}} 1.0',
        f'{attempts}{{profile="mine",result="unschedulable"}} 2.0',
        f'{attempts}{{profile="mine",result="error"}} 1.0',
        'cpg_scheduler_tree_findings_total{finding="OutOfBudget"} 1.0',
        'cpg_scheduler_held_total{reason="Invalid"} 1.0',
        'cpg_scheduler_binds_total{result="success"} 1.0',
        'cpg_scheduler_binds_total{result="error"} 1.0',
        "cpg_scheduler_watch_age_seconds 2.5",
    } < found


def test_the_queue_is_counted_when_somebody_looks() -> None:
    """By where its roots are."""
    pending = Pending(Backoff())
    metrics = Metrics("mine", pending, lambda: 0.0)
    assert 'scheduler_queued_entities{queue="active"} 0.0' in lines(metrics)
    pending.put(Order(0, "", RootKey("", GroupKey("Pod", "default", "p"))))
    assert 'scheduler_queued_entities{queue="active"} 1.0' in lines(metrics)
