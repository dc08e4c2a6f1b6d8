"""What a plan keeps and whom it leaves alone while things change around it."""

import pytest
from msgspec.structs import replace

from cpg_api.core.pod import MIRROR
from cpg_api.core.priorityclass import PriorityClass
from cpg_client.flavours import CRD, NATIVE
from cpg_engine.testing.builders import composite, metadata, node, pod, pod_group, priority_class
from cpg_scheduler.preemption.jobs import EvictUnit, UnitEvicted, UnitFailed
from cpg_scheduler.preemption.terminating import MAX_CLOCK_SKEW_SECONDS
from cpg_scheduler.testing.preemption_setup import ONGOING, full, gang, low, messages, patient, plans
from cpg_scheduler.testing.stage import DELETED, DENIED, Stage


def cordoned(stage: Stage, *, closed: bool) -> None:
    """Close the node, or open it again."""
    found = node("n1", cpu=2)
    stage.put(replace(found, spec=replace(found.spec, unschedulable=closed)))
    stage.settle()


def gone(stage: Stage, *names: str) -> None:
    """Let victims end."""
    stage.delete(*(stage.pod(name) for name in names))
    stage.settle(3)


def test_room_is_kept_though_one_more_comes_that_fits_nowhere() -> None:
    """Who was to be evicted has gone for somebody."""
    stage = patient()
    stage.put(pod("late", group="pg", cpu=9, priority=100))
    stage.settle(3)
    gone(stage, "low-0")
    stage.put(pod("quick", cpu=1, priority=1))
    stage.settle(3)
    gone(stage, "low-1")
    assert stage.bound() == {"pg-0": "n1", "pg-1": "n1"}
    assert sorted(stage.evicted) == ["low-0", "low-1"]


def test_room_is_kept_where_somebody_else_makes_it_for_a_part() -> None:
    """Two leave, which is enough for the minimum, and the third member fits nowhere."""
    stage = Stage(node("n1", cpu=2), low("low-0"), low("low-1"), *gang(size=3, minimum=2))
    stage.victims_linger = True
    for name in ("low-0", "low-1"):
        stage.terminate(stage.pod(name))
    stage.settle()
    stage.put(pod("quick", cpu=1, priority=1))
    gone(stage, "low-0")
    gone(stage, "low-1")
    assert (stage.evicted, "quick" in stage.bound(), len(stage.bound())) == ([], False, 2)
    assert messages(stage).count("preempting 0") == 0


def test_a_node_that_comes_back_is_waited_for_again() -> None:
    """All on it are about to leave, and nobody else is less important."""
    stage = patient()
    cordoned(stage, closed=True)
    assert stage.cache.reservations.reserved_uids() == ()
    cordoned(stage, closed=False)
    stage.settle(3)
    assert len(stage.cache.reservations.reserved_uids()) == 2
    stage.put(pod("quick", cpu=1, priority=1))
    gone(stage, "low-0")
    gone(stage, "low-1")
    assert stage.bound() == {"pg-0": "n1", "pg-1": "n1"}


def test_a_bind_that_fails_keeps_the_room_that_was_made() -> None:
    """Else others came in while it backs off, and had to be evicted as well."""
    stage = patient()
    stage.delete(*(stage.pod(f"low-{number}") for number in range(2)))
    stage.run_passes()
    stage.fail_binds(DENIED)
    stage.put(pod("quick", cpu=1, priority=1))
    stage.settle()
    assert "quick" not in stage.bound()
    stage.settle(3)
    assert stage.bound() == {"pg-0": "n1", "pg-1": "n1"}
    assert (len(plans(stage)), stage.cache.reservations.reserved_uids()) == (1, ())


def test_who_was_never_nominated_keeps_no_room() -> None:
    """A bind that fails is nobody's plan."""
    stage = Stage(node("n1", cpu=2), *gang())
    stage.run_passes()
    stage.fail_binds(DENIED)
    assert stage.cache.reservations.reserved_uids() == ()


@pytest.mark.parametrize("least", [CRD, NATIVE])
def test_units_of_one_name_in_both_flavours_are_two(least: str) -> None:
    """One is the victim, the other has not grown."""
    stage = Stage(node("n1", cpu=2))
    for flavour, leaf in ((CRD, "a"), (NATIVE, "b")):
        top = composite("c", all_=True, priority=9 if flavour == least else 10)
        top = replace(top, metadata=replace(top.metadata, uid=flavour))
        stage.put(top, pod_group(leaf, parent="c"), flavour=flavour)
        stage.put(low(f"{leaf}-0", group=leaf))
    stage.put(pod("high", cpu=1, priority=100))
    stage.settle(60)
    assert stage.bound()["high"] == "n1"
    assert len(stage.evicted) == 1


@pytest.mark.parametrize("priority", [10, 500])
def test_a_victim_that_has_found_its_group_is_looked_at_anew(priority: int) -> None:
    """It goes with others by now, or is more important than it seemed: nobody goes in part, nor in vain."""
    stage = Stage(node("n1", cpu=1), node("n2", cpu=1), low("w-0", group="w"), low("w-1", "n2", group="w"))
    stage.put(pod("high", cpu=1, priority=100))
    stage.run_passes()
    assert len(stage.executor.preparing) == 1
    stage.put(pod_group("w", all_=True, priority=priority))
    stage.settle()
    stage.settle(60)
    assert sorted(stage.evicted) == ([] if priority > 100 else ["w-0", "w-1"])


def test_what_a_kubelet_runs_from_a_file_is_no_victim() -> None:
    """Deleted, it is there again at once."""
    static = low("static", cpu=2, meta=replace(metadata("static"), annotations={MIRROR: "hash"}))
    stage = Stage(node("n1", cpu=2), static, *gang())
    stage.settle(60)
    assert stage.evicted == []
    assert "No preemption victims found" in messages(stage)


def test_nobody_is_said_to_be_evicted_where_others_make_room() -> None:
    """The plan waits for those whom somebody else has deleted."""
    stage = full()
    stage.victims_linger = True
    for name in ("low-0", "low-1"):
        stage.terminate(stage.pod(name))
    stage.settle()
    assert (stage.evicted, messages(stage).endswith(ONGOING)) == ([], True)


@pytest.mark.parametrize("why", ["gone", "closed"])
def test_who_has_not_been_told_to_go_stays_once_it_is_in_vain(why: str) -> None:
    """The preemptor goes, or its node takes nobody any more, while the first of its victims goes; the plan is not."""
    stage = full()
    stage.run_passes()
    (job,) = stage.executor.preparing
    assert stage.prepare(job)
    (first,) = stage.executor.units
    stage.executor.units = []
    if why == "gone":
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


def test_who_counts_on_a_victim_that_stays_plans_anew() -> None:
    """Two gangs after one another; the first goes before all its victims have been told to."""
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


@pytest.mark.parametrize("ahead", [0, 35, 250])
def test_a_clock_that_is_ahead_evicts_nobody_more(ahead: int) -> None:
    """When victims should have ended is told by the API server's clock, and how long that is ago by ours."""
    stage = Stage(*(node(f"n{number}", cpu=2) for number in range(4)), *gang())
    stage.put(*(low(f"l{number}-{place}", f"n{number}") for number in range(4) for place in range(2)))
    stage.preemption._terminating._wall = lambda: DELETED.timestamp() + stage.now + ahead
    stage.victims_linger = True
    for _ in range(9):
        stage.settle(3)
    assert len(stage.evicted) == 2
    stage.settle(60)
    assert len(stage.evicted) == 4


def test_who_should_have_ended_long_ago_is_not_waited_for() -> None:
    """Also by who has only just heard of him; clocks do not differ that much."""
    stage = Stage(node("n1", cpu=2), node("n2", cpu=2), *(low(f"dead-{n}") for n in range(2)))
    stage.put(*(low(f"low-{n}", "n2", priority=20) for n in range(2)))
    stage.victims_linger = True
    for number in range(2):
        stage.terminate(stage.pod(f"dead-{number}"))
    stage.now = MAX_CLOCK_SKEW_SECONDS + 1
    stage.put(*gang())
    stage.settle()
    assert sorted(stage.evicted) == ["low-0", "low-1"]


@pytest.mark.parametrize("how", ["deleted", "lowered"])
def test_who_waits_learns_at_once_that_somebody_matters_less(how: str) -> None:
    """The group of those who run is gone, and with it its priority; or has another."""
    running = pod_group("run", priority=1000)
    stage = Stage(node("n1", cpu=2), running, low("r0", group="run"), low("r1", group="run"), *gang())
    stage.settle(30)
    assert stage.evicted == []
    if how == "deleted":
        stage.delete(running)
    else:
        stage.put(pod_group("run", priority=10))
    stage.settle(5)
    assert sorted(stage.evicted) == ["r0", "r1"]


@pytest.mark.parametrize("there", [priority_class("high", 1000), None])
def test_a_tree_whose_priority_is_lost_matters_as_much_as_its_pods(there: PriorityClass | None) -> None:
    """Nobody evicts it because somebody has deleted its class."""
    group = pod_group("run", priority=None, all_=True)
    group = replace(group, spec=replace(group.spec, workload_ref=None, priority_class_name="high"))
    stage = Stage(node("n1", cpu=2), group, *(low(f"r{n}", group="run", priority=1000) for n in range(2)))
    stage.put(*([there] if there else []), *gang())
    stage.settle(60)
    assert stage.evicted == []
    stage.put(*gang("top", priority=2000))
    stage.settle(60)
    assert sorted(stage.evicted) == ["r0", "r1"]


def test_a_unit_of_which_a_part_may_matter_more_does_not_go() -> None:
    """What its leaves matter is not known; a pod of one of them has come that matters much."""
    top = composite("c", all_=True, priority=None)
    stage = Stage(node("n1", cpu=3), top, pod_group("a", parent="c"), pod_group("b", parent="c"))
    stage.put(low("a-0", group="a"), low("b-0", group="b"))
    assert [unit.priority for unit in stage.cache.victims.units(100)] == [10]
    stage.put(low("b-1", group="b", priority=1000))
    assert stage.cache.victims.units(100) == ()


def forgotten() -> tuple[Stage, EvictUnit]:
    """Return a stage on which a pod is about to be deleted for a preemptor that is gone, and the unit in flight."""
    stage = Stage(node("n1", cpu=2), low("l0"), low("l1", priority=20), pod("first", cpu=1, priority=100))
    stage.run_passes()
    (job,) = stage.executor.preparing
    assert stage.prepare(job)
    (unit,) = stage.executor.units
    stage.executor.units = []
    assert [one.metadata.name for one in unit.victim.pods] == ["l0"]
    stage.delete(stage.pod("first"))
    return stage, unit


def test_who_goes_for_a_plan_that_is_forgotten_is_counted_on() -> None:
    """Before the API server shows that he goes; nobody else is evicted in his place."""
    stage, _ = forgotten()
    stage.put(pod("second", cpu=1, priority=100))
    stage.run_passes()
    assert stage.executor.preparing[0].victims == []
    stage.settle()
    stage.delete(stage.pod("l0"))
    stage.settle(5)
    assert (stage.bound(), stage.evicted) == ({"l1": "n1", "second": "n1"}, [])


def test_who_stays_after_all_is_not_counted_on() -> None:
    """The API server will not have him evicted, and the plan is forgotten: somebody else goes for the next one."""
    stage, unit = forgotten()
    stage.run_passes()
    stage.refuse_eviction(unit.job_id, stage.pod("l0"))
    stage.report(UnitFailed(unit.job_id, unit.number))
    stage.put(pod("second", cpu=1, priority=100))
    stage.settle()
    assert stage.evicted == ["l1"]
