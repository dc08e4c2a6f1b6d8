"""Pending pods and units, counted when Prometheus asks."""

from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest

from cpg_api.core.pod import SchedulingGate
from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_engine.testing.builders import composite, metadata, node, pod, pod_group
from cpg_scheduler.observability.pending import QUEUES, PendingCollector
from cpg_scheduler.testing.stage import Stage


def lines(stage: Stage) -> set[str]:
    """Return the metrics of a stage half a minute after its objects were created."""
    registry = CollectorRegistry()
    ages = {"/api/v1/pods": 2.5}
    registry.register(PendingCollector(stage.cache, stage.queue, wall=lambda: 1767225630.0, ages=lambda: ages))
    return {line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")}


def test_pods_and_units_are_counted_by_queue_and_reason() -> None:
    """A tree is one unit."""
    stage = Stage(node("n1", cpu=1), pod("fits", cpu=1), pod("big", cpu=9), pod("orphan", group="missing"))
    gated = pod("gated", scheduling_gates=(SchedulingGate(name="wait"),))
    stage.put(pod_group("pg", gang=2), pod("a", group="pg", cpu=9), pod("b", group="pg", cpu=9), gated)
    stage.run_passes()
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
        'scheduler_queued_entities{queue="unschedulable",type="pod"} 1.0',
        'scheduler_queued_entities{queue="gated",type="pod"} 1.0',
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


def test_an_empty_cluster_has_no_oldest_pending_pod() -> None:
    """For no reason."""
    assert not any(line.startswith("cpg_scheduler_oldest_waiting_seconds") for line in lines(Stage()))


def test_the_oldest_pending_pod_counts_and_not_its_tree() -> None:
    """A member that is created again is new, however old its tree; gated pods do not count."""
    stage = Stage(node("n1", cpu=1))
    meta = replace(metadata("again", **{POD_GROUP_LABEL: "old"}), creation_timestamp="2026-01-01T00:00:20Z")
    stage.put(pod_group("old", gang=1), pod("again", meta=meta, cpu=9))
    stage.put(pod("gated", scheduling_gates=(SchedulingGate(name="wait"),)))
    stage.run_passes()
    assert {line for line in lines(stage) if line.startswith("cpg_scheduler_oldest_waiting_seconds")} == {
        'cpg_scheduler_oldest_waiting_seconds{reason="Impossible"} 10.0',
        'cpg_scheduler_oldest_waiting_seconds{reason="held"} 0.0',
    }


def test_many_pods_are_counted_in_slices() -> None:
    """The loop goes on in between; pods that are bound or deleted meanwhile do no harm."""
    stage = Stage(*(pod(f"p{number}") for number in range(1000)))
    stage.loop._requeuer.take_events(0.0)
    while stage.loop._requeuer.is_behind:
        stage.loop._requeuer.take_events(0.0)
    collector = PendingCollector(stage.cache, stage.queue, wall=lambda: 0.0, ages=dict)
    slices = collector.count_in_slices()
    assert next(slices) == b""
    stage.delete(*(stage.pod(f"p{number}") for number in range(500, 900)))
    assert 1 < sum(piece == b"" for piece in slices) < 100
    (pods,) = (family for family in collector.collect() if family.name == "scheduler_pending_pods")
    assert 600 <= {sample.labels["queue"]: sample.value for sample in pods.samples}["active"] < 1000


def test_a_count_is_good_for_a_few_seconds() -> None:
    """A clock that was set back ends it too."""
    stage, now = Stage(pod("p")), [1000.0]
    collector = PendingCollector(stage.cache, stage.queue, wall=lambda: now[0], ages=dict)

    def active() -> float:
        (pods,) = (family for family in collector.collect() if family.name == "scheduler_pending_pods")
        return next(sample.value for sample in pods.samples if sample.labels["queue"] == "active")

    assert active() == 0
    for later, expected in ((4.0, 0), (6.0, 3), (-60.0, 4)):
        stage.put(pod(f"p{later}"))
        stage.loop._requeuer.take_events(0.0)
        now[0] += later
        assert active() == expected


def queues(stage: Stage) -> dict[str, tuple[int, int]]:
    """Return the numbers of units and pods by queue, without the empty ones."""
    stage.run_passes()
    found = {line.split(" ")[0]: int(float(line.split(" ")[1])) for line in lines(stage)}
    units = {queue: found.get(f'scheduler_queued_entities{{queue="{queue}",type="podgroup"}}', 0) for queue in QUEUES}
    pods = {queue: found[f'scheduler_pending_pods{{queue="{queue}"}}'] for queue in QUEUES}
    return {queue: (units[queue], pods[queue]) for queue in QUEUES if units[queue] or pods[queue]}


def test_a_gang_is_gated_until_it_has_its_minimum() -> None:
    """As kube-scheduler counts it, for trees too; with too little room it is unschedulable."""
    stage = Stage(node("n1", cpu=1), pod_group("pg", gang=2), pod("a", group="pg", cpu=1))
    root = composite("root", gang=2)
    stage.put(root, pod_group("x", gang=1, parent="root"), pod_group("y", gang=1, parent="root"))
    stage.put(pod("x-1", group="x", cpu=9))
    assert queues(stage) == {"gated": (2, 2)}
    stage.put(pod("b", group="pg", cpu=1), pod("y-1", group="y", cpu=1))
    assert queues(stage) == {"unschedulable": (2, 4)}


def test_one_gated_pod_gates_its_whole_tree() -> None:
    """All its pods count as gated, as in kube-scheduler, from the moment at which they are seen."""
    gate = (SchedulingGate(name="wait"),)
    stage = Stage(pod_group("pg", gang=2), pod("a", group="pg"), pod("b", group="pg", scheduling_gates=gate))
    stage.loop._requeuer.take_events(0.0)
    assert {'scheduler_queued_entities{queue="gated",type="podgroup"} 1.0'} < lines(stage)
    assert queues(stage) == {"gated": (1, 2)}


def test_malformed_members_are_not_gated() -> None:
    """They are there and can never be placed; more members would not help them."""
    stage = Stage(node("n1", cpu=4), pod_group("pg", gang=2), pod("a", group="pg", cpu=-1), pod("b", group="pg", cpu=1))
    assert queues(stage) == {"unschedulable": (1, 2)}


def test_a_unit_is_incomplete_if_its_group_an_ancestor_or_a_template_is_missing() -> None:
    """Also with a gated pod, and where the API server serves no groups."""
    stage = Stage(pod_group("child", gang=1, parent="missing"), pod("c", group="child"))
    stage.put(pod("gated", group="none", scheduling_gates=(SchedulingGate(name="wait"),)))
    from_template = pod_group("late", workload="w", template="t")
    stage.put(replace(from_template, spec=replace(from_template.spec, scheduling_policy=None)), pod("l", group="late"))
    assert queues(stage) == {"incomplete": (3, 3)}
    single = Stage(pod("c", group="child"), pod("p"), flavours=())
    single.run_passes()
    assert 'scheduler_pending_pods{queue="incomplete"} 1.0' in lines(single)
