"""Who waits, counted when somebody looks."""

from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest

from cpg_api.core.pod import SchedulingGate
from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_engine.testing.builders import metadata, node, pod, pod_group
from cpg_scheduler.observability.pending import QUEUES, PendingCollector
from cpg_scheduler.testing.stage import Stage


def lines(stage: Stage) -> set[str]:
    """Return what is counted on a stage half a minute after everything was created."""
    registry = CollectorRegistry()
    ages = {"/api/v1/pods": 2.5}
    registry.register(PendingCollector(stage.cache, stage.queue, wall=lambda: 1767225630.0, ages=lambda: ages))
    return {line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")}


def test_everybody_is_counted_where_they_wait_and_for_what() -> None:
    """Pods one by one, and trees as what is attempted at once."""
    stage = Stage(node("n1", cpu=1), pod("fits", cpu=1), pod("big", cpu=9), pod("orphan", group="nobody"))
    gated = pod("gated", scheduling_gates=(SchedulingGate(name="wait"),))
    stage.put(pod_group("pg", gang=2), pod("a", group="pg", cpu=9), pod("b", group="pg", cpu=9), gated)
    stage.cycles()
    stage.put(pod("new", cpu=1))
    stage.loop._requeuer.take_events(0.0)
    assert lines(stage) == {
        'scheduler_pending_pods{queue="active"} 1.0',
        'scheduler_pending_pods{queue="backoff"} 0.0',
        'scheduler_pending_pods{queue="unschedulable"} 3.0',
        'scheduler_pending_pods{queue="incomplete"} 1.0',
        'scheduler_pending_pods{queue="gated"} 1.0',
        'scheduler_queued_entities{queue="binding",type="pod"} 1.0',
        'scheduler_queued_entities{queue="active",type="pod"} 1.0',
        'scheduler_queued_entities{queue="unschedulable",type="pod"} 2.0',
        'scheduler_queued_entities{queue="unschedulable",type="podgroup"} 1.0',
        'scheduler_queued_entities{queue="incomplete",type="podgroup"} 1.0',
        'cpg_scheduler_waiting_pods{reason="new"} 1.0',
        'cpg_scheduler_waiting_pods{reason="held"} 2.0',
        'cpg_scheduler_waiting_pods{reason="Impossible"} 3.0',
        'cpg_scheduler_oldest_waiting_seconds{reason="new"} 30.0',
        'cpg_scheduler_oldest_waiting_seconds{reason="held"} 30.0',
        'cpg_scheduler_oldest_waiting_seconds{reason="Impossible"} 30.0',
        "cpg_scheduler_assumed_binds 1.0",
        "cpg_scheduler_nodes 1.0",
        "cpg_scheduler_pods 7.0",
        f"cpg_scheduler_pod_classes {len(stage.cache.snapshot.ledger.classes)}.0",
        "cpg_scheduler_missed_hints_total 0.0",
        'cpg_scheduler_watch_silence_seconds{resource="/api/v1/pods"} 2.5',
    }


def test_an_empty_cluster_has_nobody_waiting() -> None:
    """Nor anybody who has waited for long."""
    assert not any(line.startswith("cpg_scheduler_oldest_waiting_seconds") for line in lines(Stage()))


def test_who_waits_is_as_old_as_its_pods_and_never_if_it_is_gated() -> None:
    """A member that is made anew is new, however old its tree; who is to wait is not told of as waiting too long."""
    stage = Stage(node("n1", cpu=1))
    meta = replace(metadata("anew", **{POD_GROUP_LABEL: "old"}), creation_timestamp="2026-01-01T00:00:20Z")
    stage.put(pod_group("old", gang=1), pod("anew", meta=meta, cpu=9))
    stage.put(pod("gated", scheduling_gates=(SchedulingGate(name="wait"),)))
    stage.cycles()
    assert {line for line in lines(stage) if line.startswith("cpg_scheduler_oldest_waiting_seconds")} == {
        'cpg_scheduler_oldest_waiting_seconds{reason="Impossible"} 10.0',
        'cpg_scheduler_oldest_waiting_seconds{reason="held"} 0.0',
    }


def test_a_crowd_is_counted_a_little_at_a_time() -> None:
    """So that others have their turn in between, and whoever may be bound or gone meanwhile does no harm."""
    stage = Stage(*(pod(f"p{number}") for number in range(1000)))
    stage.loop._requeuer.take_events(0.0)
    census = PendingCollector(stage.cache, stage.queue, wall=lambda: 0.0, ages=dict)
    counting = census.count_in_slices()
    assert next(counting) == b""
    stage.delete(*(stage.pod(f"p{number}") for number in range(500, 900)))
    assert 1 < sum(piece == b"" for piece in counting) < 100
    (pods,) = (family for family in census.collect() if family.name == "scheduler_pending_pods")
    assert 600 <= {sample.labels["queue"]: sample.value for sample in pods.samples}["active"] < 1000


def test_what_was_counted_is_good_for_who_asks_soon_after() -> None:
    """And not for longer; a clock that was set back counts as time that has passed."""
    stage, now = Stage(pod("p")), [1000.0]
    census = PendingCollector(stage.cache, stage.queue, wall=lambda: now[0], ages=dict)

    def active() -> float:
        (pods,) = (family for family in census.collect() if family.name == "scheduler_pending_pods")
        return next(sample.value for sample in pods.samples if sample.labels["queue"] == "active")

    assert active() == 0
    for later, expected in ((4.0, 0), (6.0, 3), (-60.0, 4)):
        stage.put(pod(f"p{later}"))
        stage.loop._requeuer.take_events(0.0)
        now[0] += later
        assert active() == expected


def test_whose_group_or_its_parent_is_missing_is_incomplete() -> None:
    """Also where the API server knows no groups; not who waits for a pod, nor who is gated."""
    stage = Stage(pod_group("child", gang=1, parent="nobody"), pod_group("short", gang=2), pod("s", group="short"))
    stage.put(pod("c", group="child"), pod("gated", group="none", scheduling_gates=(SchedulingGate(name="wait"),)))
    stage.cycles()
    pending = {line for line in lines(stage) if line.startswith("scheduler_pending_pods") and not line.endswith(" 0.0")}
    assert pending == {f'scheduler_pending_pods{{queue="{queue}"}} 1.0' for queue in QUEUES[2:]}
    alone = Stage(pod("c", group="child"), pod("p"), flavours=())
    alone.cycles()
    assert 'scheduler_pending_pods{queue="incomplete"} 1.0' in lines(alone)
