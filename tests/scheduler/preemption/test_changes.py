"""What a preemption keeps, and which pods it spares, while the cluster changes."""

import pytest
from msgspec.structs import replace

from cpg_api.core.pod import MIRROR
from cpg_client.flavours import CRD, NATIVE
from cpg_engine.testing.builders import composite, metadata, node, pod, pod_group
from cpg_scheduler.preemption.jobs import EvictUnit, UnitEvicted, UnitFailed
from cpg_scheduler.preemption.terminating import MAX_GRACE_PERIOD_SECONDS, OVERDUE_SECONDS
from cpg_scheduler.testing.preemption_setup import ONGOING, full, gang, low, message, plans, terminating
from cpg_scheduler.testing.stage import DENIED, Stage


def cordon(stage: Stage, *, is_cordoned: bool) -> None:
    """Cordon the node, or uncordon it."""
    found = node("n1", cpu=2)
    stage.put(replace(found, spec=replace(found.spec, unschedulable=is_cordoned)))
    stage.settle()


def end_pods(stage: Stage, *names: str) -> None:
    """Let pods end."""
    stage.delete(*(stage.pod(name) for name in names))
    stage.settle(3)


def test_room_stays_reserved_if_a_new_member_fits_nowhere() -> None:
    """The victims are not evicted in vain."""
    stage = terminating()
    stage.put(pod("late", group="pg", cpu=9, priority=100))
    stage.settle(3)
    end_pods(stage, "low-0")
    stage.put(pod("quick", cpu=1, priority=1))
    stage.settle(3)
    end_pods(stage, "low-1")
    assert stage.bound() == {"pg-0": "n1", "pg-1": "n1"}
    assert sorted(stage.evicted) == ["low-0", "low-1"]


def test_room_is_reserved_for_the_minimum_if_terminating_pods_make_it() -> None:
    """Two pods terminate, which is enough for the minimum. The third member fits nowhere."""
    stage = Stage(node("n1", cpu=2), low("low-0"), low("low-1"), *gang(size=3, minimum=2))
    stage.victims_linger = True
    for name in ("low-0", "low-1"):
        stage.terminate(stage.pod(name))
    stage.settle()
    stage.put(pod("quick", cpu=1, priority=1))
    end_pods(stage, "low-0")
    end_pods(stage, "low-1")
    assert (stage.evicted, "quick" in stage.bound(), len(stage.bound())) == ([], False, 2)
    assert message(stage).count("preempting 0") == 0


def test_room_is_reserved_again_on_a_node_that_is_uncordoned() -> None:
    """All its pods terminate, and there are no other victims."""
    stage = terminating()
    cordon(stage, is_cordoned=True)
    assert stage.cache.reservations.reserved_uids() == ()
    cordon(stage, is_cordoned=False)
    stage.settle(3)
    assert len(stage.cache.reservations.reserved_uids()) == 2
    stage.put(pod("quick", cpu=1, priority=1))
    end_pods(stage, "low-0")
    end_pods(stage, "low-1")
    assert stage.bound() == {"pg-0": "n1", "pg-1": "n1"}


def test_a_failed_bind_keeps_the_room_of_the_victims() -> None:
    """Otherwise other pods would take it during the backoff, and would have to be evicted as well."""
    stage = terminating()
    stage.delete(*(stage.pod(f"low-{number}") for number in range(2)))
    stage.run_passes()
    stage.fail_binds(DENIED)
    stage.put(pod("quick", cpu=1, priority=1))
    stage.settle()
    assert "quick" not in stage.bound()
    stage.settle(3)
    assert stage.bound() == {"pg-0": "n1", "pg-1": "n1"}
    assert (len(plans(stage)), stage.cache.reservations.reserved_uids()) == (1, ())


def test_a_failed_bind_of_a_pod_that_was_not_nominated_reserves_no_room() -> None:
    """There was no preemption."""
    stage = Stage(node("n1", cpu=2), *gang())
    stage.run_passes()
    stage.fail_binds(DENIED)
    assert stage.cache.reservations.reserved_uids() == ()


@pytest.mark.parametrize("least", [CRD, NATIVE])
def test_units_of_one_name_in_two_flavours_are_different_units(least: str) -> None:
    """One is the victim, and the pods of the other do not count as growth."""
    stage = Stage(node("n1", cpu=2))
    for flavour, leaf in ((CRD, "a"), (NATIVE, "b")):
        top = composite("c", all_=True)
        top = replace(top, metadata=replace(top.metadata, uid=flavour))
        stage.put(top, pod_group(leaf, parent="c"), flavour=flavour)
        stage.put(low(f"{leaf}-0", group=leaf, priority=9 if flavour == least else 10))
    stage.put(pod("high", cpu=1, priority=100))
    stage.settle(60)
    assert stage.bound()["high"] == "n1"
    assert len(stage.evicted) == 1


@pytest.mark.parametrize("priority", [10, 500])
def test_a_victim_is_validated_again_when_its_group_arrives(priority: int) -> None:
    """It belongs to a larger unit then, or one of higher priority: no unit is evicted in part, and no pod in vain."""
    other = low("w-1", "n2", group="w", priority=priority)
    stage = Stage(node("n1", cpu=1), node("n2", cpu=1), low("w-0", group="w"), other)
    stage.put(pod("high", cpu=1, priority=100))
    stage.run_passes()
    assert len(stage.executor.preparing) == 1
    stage.put(pod_group("w", all_=True))
    stage.settle()
    stage.settle(60)
    assert sorted(stage.evicted) == ([] if priority > 100 else ["w-0", "w-1"])


def test_a_static_pod_is_no_victim() -> None:
    """The kubelet would run it again at once."""
    static = low("static", cpu=2, meta=replace(metadata("static"), annotations={MIRROR: "hash"}))
    stage = Stage(node("n1", cpu=2), static, *gang())
    stage.settle(60)
    assert stage.evicted == []
    assert "No preemption victims found" in message(stage)


def test_the_message_of_a_plan_without_evictions_counts_no_victims() -> None:
    """The plan waits for pods that terminate for other reasons."""
    stage = full()
    stage.victims_linger = True
    for name in ("low-0", "low-1"):
        stage.terminate(stage.pod(name))
    stage.settle()
    assert (stage.evicted, message(stage).endswith(ONGOING)) == ([], True)


@pytest.mark.parametrize("why", ["deleted", "cordoned"])
def test_units_that_have_not_been_started_stay_when_the_plan_breaks(why: str) -> None:
    """The preemptor is deleted, or its node cordoned, while the first unit is evicted; that unit is completed."""
    stage = full()
    stage.run_passes()
    (job,) = stage.executor.preparing
    assert stage.prepare(job)
    (first,) = stage.executor.units
    stage.executor.units = []
    if why == "deleted":
        stage.delete(stage.pod("pg-0"), stage.pod("pg-1"))
    else:
        found = node("n1", cpu=2)
        stage.put(replace(found, spec=replace(found.spec, unschedulable=True)))
    stage.run_passes()
    stage.report(UnitEvicted(job.id, first.number))
    assert (stage.executor.units, job.id in stage.executor.cancelled) == ([], False)
    stage.delete(*first.victim.pods)
    stage.settle(60)
    assert stage.evicted == []
    assert [pod.metadata.name for pod in stage.executor.cleared] == []


def test_a_victim_that_stays_can_be_chosen_by_the_next_plan() -> None:
    """The first gang is deleted before all of its victims have been started."""
    stage = Stage(node("n1", cpu=4), *(low(f"low-{number}") for number in range(4)), *gang("first", priority=200))
    stage.run_passes()
    (job,) = stage.executor.preparing
    assert stage.prepare(job)
    stage.executor.units = []
    started, left = job.victims
    stage.victims_linger = True
    stage.terminate(started.pods[0])
    stage.delete(*(stage.pod(f"first-{number}") for number in range(2)))
    stage.run_passes()
    stage.put(*gang("second", size=4, minimum=4, priority=100))
    stage.run_passes()
    (later,) = stage.executor.preparing
    evicted = {pod.metadata.name for victim in later.victims for pod in victim.pods}
    assert evicted == {f"low-{number}" for number in range(4)} - {started.pods[0].metadata.name}
    assert left.pods[0].metadata.name in evicted


@pytest.mark.parametrize("deleted_at", ["2020-01-01T00:00:00Z", "2049-01-01T00:00:00Z"])
def test_no_difference_of_clocks_makes_a_pod_overdue(deleted_at: str) -> None:
    """The API server stamps deletions by its clock, and ours may jump. Only our monotonic clock measures the delay."""
    stage = Stage(node("n1", cpu=2), node("n2", cpu=2), *(low(f"dead-{n}") for n in range(2)))
    stage.put(*(low(f"low-{n}", "n2", priority=20) for n in range(2)))
    for number in range(2):
        stage.mark_deleted(stage.pod(f"dead-{number}"), deleted_at)
    stage.put(*gang())
    for _ in range(29):
        stage.settle(1)
    assert stage.evicted == []
    stage.settle(30)
    assert sorted(stage.evicted) == ["low-0", "low-1"]


TEN_YEARS = 10 * 365 * 24 * 3600
SECONDS_TO_NOTICE = 60
"""Attempts of a unit that waits for victims are half a minute apart, and a little longer for a gang."""


def test_a_plan_waits_for_no_longer_than_the_limit_of_grace_periods() -> None:
    """Users choose grace periods. After the limit the pod is overdue, and another victim is evicted."""
    stage = full()
    stage.put(node("n2", cpu=2), low("endless", "n2", cpu=2))
    stage.mark_deleted(stage.pod("endless"), "2036-01-01T00:00:00Z", TEN_YEARS)
    stage.settle()
    assert stage.evicted == []
    while not stage.evicted and stage.now < TEN_YEARS:
        stage.settle(10)
    assert 0 <= stage.now - (MAX_GRACE_PERIOD_SECONDS + OVERDUE_SECONDS) <= SECONDS_TO_NOTICE
    assert sorted(stage.evicted) == ["low-0", "low-1"]


def test_a_grace_period_below_the_limit_is_waited_for() -> None:
    """The limit shortens no wait that a user has chosen in reason."""
    stage = full()
    stage.put(node("n2", cpu=2), low("slow", "n2", cpu=2))
    stage.mark_deleted(stage.pod("slow"), "2036-01-01T00:00:00Z", 300)
    while not stage.evicted:
        stage.settle(10)
    assert 0 <= stage.now - (300 + OVERDUE_SECONDS) <= SECONDS_TO_NOTICE
    assert sorted(stage.evicted) == ["low-0", "low-1"]


@pytest.mark.parametrize("how", ["separated", "left"])
def test_a_unit_is_requeued_when_running_pods_lose_the_protection_of_another(how: str) -> None:
    """They were evicted only together with a pod of higher priority; the group changes its mode, or that pod ends."""
    running = pod_group("run", all_=True)
    stage = Stage(node("n1", cpu=2), node("n2", cpu=1), running)
    stage.put(low("r0", group="run"), low("r1", group="run"), low("r2", "n2", group="run", priority=1000), *gang())
    stage.settle(30)
    assert stage.evicted == []
    if how == "separated":
        stage.delete(running)
        stage.put(pod_group("run"))
    else:
        stage.delete(stage.pod("r2"))
    stage.settle(5)
    assert sorted(stage.evicted) == ["r0", "r1"]


def in_flight() -> tuple[Stage, EvictUnit]:
    """Return a stage on which a pod is evicted for a preemptor that was deleted, and the unit in flight."""
    stage = Stage(node("n1", cpu=2), low("l0"), low("l1", priority=20), pod("first", cpu=1, priority=100))
    stage.run_passes()
    (job,) = stage.executor.preparing
    assert stage.prepare(job)
    (unit,) = stage.executor.units
    stage.executor.units = []
    assert [one.metadata.name for one in unit.victim.pods] == ["l0"]
    stage.delete(stage.pod("first"))
    return stage, unit


def test_a_victim_in_flight_is_counted_on_after_its_preemption_has_ended() -> None:
    """Before the API server shows its deletion. No other pod is evicted in its place."""
    stage, _ = in_flight()
    stage.put(pod("second", cpu=1, priority=100))
    stage.run_passes()
    assert stage.executor.preparing[0].victims == []
    stage.settle()
    stage.delete(stage.pod("l0"))
    stage.settle(5)
    assert (stage.bound(), stage.evicted) == ({"l1": "n1", "second": "n1"}, [])


def test_a_refused_victim_is_not_counted_on_after_its_preemption_has_ended() -> None:
    """Another pod is evicted for the next plan."""
    stage, unit = in_flight()
    stage.run_passes()
    stage.refuse_eviction(unit.job_id, stage.pod("l0"))
    stage.report(UnitFailed(unit.job_id, unit.number))
    stage.put(pod("second", cpu=1, priority=100))
    stage.settle()
    assert stage.evicted == ["l1"]
