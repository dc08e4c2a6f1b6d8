"""Plans looked at once more: before the first is evicted, and when the turn of each unit has come."""

from typing import Any

import pytest
from msgspec.structs import replace

from cpg_api.core.affinity import Affinity, PodAffinity, PodAffinityTerm
from cpg_api.core.pod import Pod, PodStatus
from cpg_api.meta import LabelSelector
from cpg_engine.testing.builders import metadata, node, pod, pod_group
from cpg_scheduler.testing.preemption_setup import budget, foo, full, gang, low, plans
from cpg_scheduler.testing.stage import Stage


def planned(*things: Any) -> Stage:
    """Return a stage on which somebody is about to be evicted."""
    stage = Stage(*things)
    stage.run_passes()
    assert len(stage.executor.preparing) == 1
    return stage


def ended(stage: Stage) -> list[str]:
    """Return who was evicted in the end."""
    stage.settle()
    stage.settle(60)
    return sorted(stage.evicted)


def waiting_unit(*things: Any) -> Stage:
    """Return a stage on which the units of a valid plan wait for their turn, until another job has ended."""
    stage = Stage(node("n0", cpu=1, labels={"only": "first"}), low("ahead", "n0"))
    stage.put(pod("first", cpu=1, priority=1000, node_selector={"only": "first"}))
    stage.run_passes()
    assert stage.prepare(stage.executor.preparing[0])
    stage.put(*things)
    stage.run_passes()
    assert stage.prepare(stage.executor.preparing[0])
    assert [one.metadata.name for unit in stage.executor.units for one in unit.victim.pods] == ["ahead"]
    return stage


def next_units(stage: Stage) -> list[list[str]]:
    """Let the unit in flight be evicted, and the others in turn; return the pods of these."""
    found: list[list[str]] = []
    while stage.executor.units:
        stage.evict_unit(stage.executor.units.pop(0))
        found += [[one.metadata.name for one in unit.victim.pods] for unit in stage.executor.units]
    return found


def foreign(name: str) -> Pod:
    """Return a pod that somebody else has bound."""
    found = pod(name, cpu=1, priority=1000, node_name="n1")
    return replace(found, spec=replace(found.spec, scheduler_name="default-scheduler"))


@pytest.mark.parametrize("taker", [foreign("other"), pod("boss", cpu=1, priority=1000)], ids=["theirs", "ours"])
def test_nobody_goes_where_the_free_part_has_been_taken(taker: Pod) -> None:
    """What would be left after the eviction is not enough."""
    stage = planned(node("n1", cpu=2), low("v"), *gang())
    stage.put(taker)
    assert ended(stage) == []
    assert set(stage.bound()) == {"v", taker.metadata.name}


def test_nobody_goes_where_room_has_appeared() -> None:
    """It is used at once."""
    stage = planned(node("n1", cpu=2), low("v0"), low("v1"), *gang())
    stage.put(node("n2", cpu=2))
    assert ended(stage) == []
    assert stage.bound() == {"v0": "n1", "v1": "n1", "pg-0": "n2", "pg-1": "n2"}


def racks(second: str) -> list[Any]:
    """Return two nodes, each of which has room for one pod."""
    return [node(name, cpu=1, labels={"rack": rack}) for name, rack in (("n1", "r1"), ("n2", second))]


def in_a_rack() -> list[Any]:
    """Return a gang that has to be in one rack, and whom it would evict there."""
    _, *pods = gang()
    return [low("v0", "n1"), low("v1", "n2"), pod_group("pg", gang=2, priority=100, key="rack"), *pods]


def test_nobody_goes_where_the_domain_has_come_apart() -> None:
    """Each node still takes the pod that is nominated to it, but not both."""
    stage = planned(*racks("r1"), *in_a_rack())
    stage.put(*racks("r2"))
    assert ended(stage) == []


def test_no_room_is_kept_in_a_domain_that_has_come_apart() -> None:
    """Though the victims are on their way out."""
    stage = Stage(*racks("r1"), *in_a_rack())
    stage.victims_linger = True
    stage.settle()
    assert len(stage.cache.reservations.reserved_uids()) == 2
    stage.put(*racks("r2"))
    stage.settle(5)
    assert stage.cache.reservations.reserved_uids() == ()


def test_nobody_goes_where_a_node_has_become_smaller() -> None:
    """One of two would not fit."""
    stage = planned(node("n1", cpu=2), low("v0"), low("v1"), *gang())
    stage.put(node("n1", cpu=1))
    assert ended(stage) == []


def test_nobody_goes_for_one_who_has_become_less_important() -> None:
    """The plan was made by another number."""
    stage = planned(node("n1", cpu=2), low("v0"), low("v1"), *gang(priority=100))
    stage.put(*gang(priority=5))
    assert not stage.prepare(stage.executor.preparing[0])
    assert ended(stage) == []


def test_a_budget_that_allows_less_by_now_is_heeded() -> None:
    """Somebody goes who matters more, and is not covered."""
    stage = planned(
        budget(1),
        *(node(name, cpu=1) for name in ("n1", "n2")),
        foo("covered", "n1"),
        low("free", "n2", priority=20),
        pod("boss", cpu=1, priority=100),
    )
    stage.put(budget(0))
    assert ended(stage) == ["free"]


def test_what_goes_against_a_budget_is_planned_once() -> None:
    """Nobody else would do, and it was known when the plan was made."""
    stage = planned(budget(0), node("n1", cpu=1), foo("covered", "n1"), pod("boss", cpu=1, priority=100))
    assert ended(stage) == ["covered"]
    assert [plan["violated"] for plan in plans(stage)] == [["default/pdb"]]


def test_a_unit_that_has_grown_does_not_go_in_part() -> None:
    """One more has come since the plan was begun; the next plan takes all."""
    whole = [pod_group("whole", priority=10, all_=True), *(low(f"w-{number}", group="whole") for number in range(2))]
    stage = waiting_unit(node("n1", cpu=2), node("n2", cpu=1), *whole, *gang())
    stage.put(low("w-2", "n2", group="whole"))
    assert next_units(stage) == []
    assert ended(stage) == ["ahead", "w-0", "w-1", "w-2"]


def test_a_unit_that_has_become_more_important_stays() -> None:
    """Though its eviction had been decided."""
    whole = [pod_group("whole", priority=10, all_=True), *(low(f"w-{number}", group="whole") for number in range(2))]
    stage = waiting_unit(node("n1", cpu=2), *whole, *gang())
    stage.put(pod_group("whole", priority=1000, all_=True))
    assert next_units(stage) == []
    assert ended(stage) == ["ahead"]


def test_who_has_come_to_his_end_is_not_evicted() -> None:
    """He is not told that he was preempted."""
    stage = waiting_unit(node("n1", cpu=2), low("l0"), low("l1"), *gang())
    done = stage.pod("l0")
    stage.put(replace(done, status=PodStatus(phase="Succeeded")))
    assert next_units(stage) == [["l1"]]


def far_from(label: str) -> Affinity:
    """Return the wish not to be in one zone with pods that have a label."""
    term = PodAffinityTerm(topology_key="zone", label_selector=LabelSelector(match_labels={"app": label}))
    return Affinity(pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(term,)))


def test_a_plan_that_counts_on_somebody_elsewhere_falls_with_his_staying() -> None:
    """He keeps the preemptor away from his whole zone, and is to go for somebody else, who disappears."""
    hostile = low("hostile", "a1", priority=200)
    hostile = replace(hostile, spec=replace(hostile.spec, affinity=far_from("web")))
    zone = {"zone": "a"}
    stage = Stage(
        node("a1", cpu=1, labels={**zone, "one": "y"}), node("a2", cpu=1, labels=zone), hostile, low("weak", "a2")
    )
    stage.put(pod("boss", cpu=1, priority=1000, node_selector={"one": "y"}))
    stage.put(pod("web", cpu=1, priority=100, meta=metadata("web", app="web")))
    stage.run_passes()
    stage.delete(stage.pod("boss"))
    assert ended(stage) == []


def test_a_plan_does_not_wait_for_those_whom_it_does_not_need() -> None:
    """They leave nodes that it has nothing to do with."""
    stage = full()
    stage.put(node("n2", cpu="500m"), pod("other", cpu="500m", node_name="n2"))
    stage.victims_linger = True
    stage.terminate(stage.pod("other"))
    stage.settle()
    (preemption,) = stage.preemption._active
    assert preemption.awaited == {"uid-default-low-0", "uid-default-low-1"}


def test_a_domain_that_becomes_free_as_a_whole_is_no_objection() -> None:
    """The planner knows of a seat more than whoever searches it afterwards: a unit has its pods in two racks."""
    stage = Stage(*(node(f"n{number}", cpu=3, labels={"rack": f"r{number}"}) for number in range(2)))
    stage.put(pod_group("w", priority=1, all_=True), low("p1", "n0", priority=5))
    stage.put(low("w0", "n0", cpu=2, priority=1, group="w"), low("w1", "n1", cpu=3, priority=1, group="w"))
    stage.put(pod_group("pg", gang=1, priority=100, key="rack"))
    stage.put(*(pod(f"q{number}", cpu=2 - number, priority=100, group="pg") for number in range(2)))
    assert ended(stage) == ["p1", "w0", "w1"]
    assert set(stage.bound()) == {"q0", "q1"}
    assert not any(call.kwargs.get("event") == "plan broken" for call in stage.log.calls)


def test_two_plans_of_equals_do_not_object_to_each_other_for_ever() -> None:
    """One needs somebody near whom the other is about to evict; when it has given up, there is room for the other."""
    term = PodAffinityTerm(topology_key="rack", label_selector=LabelSelector(match_labels={"app": "a"}))
    near = Affinity(pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(term,)))
    places = (("n0", 1, "r1", "z1"), ("n1", 3, "r2", "z0"), ("n2", 4, "r1", "z0"))
    stage = Stage(*(node(name, cpu=cpu, labels={"rack": rack, "zone": zone}) for name, cpu, rack, zone in places))
    stage.put(low("p0", "n0", meta=metadata("p0", app="a")), low("p1", "n2", cpu=4, priority=1))
    stage.put(pod("q0", cpu=3, priority=100, meta=metadata("q0", app="x"), affinity=near))
    stage.put(pod("q1", cpu=1, priority=100, meta=metadata("q1", app="x"), affinity=far_from("x")))
    for _ in range(9):
        stage.settle(60)
    assert "q1" in stage.bound()
    assert len(plans(stage)) <= 4


def test_a_plan_that_waits_for_a_late_pod_keeps_its_room_whatever_its_node_is_called() -> None:
    """A label of the node is changed, and the pod that somebody else has deleted does not end."""
    stage = Stage(node("n1", cpu=2), low("stuck"), low("v"), *gang())
    stage.victims_linger = True
    stage.terminate(stage.pod("stuck"))
    stage.settle()
    stage.delete(stage.pod("v"))
    stage.settle(40)
    stage.put(node("n1", cpu=2, labels={"new": "label"}))
    stage.settle(1)
    assert len(stage.cache.reservations.reserved_uids()) == 2


@pytest.mark.parametrize("is_committed", [False, True])
def test_who_counted_on_a_plan_that_is_dropped_waits_for_nobody(*, is_committed: bool) -> None:
    """It plans anew, and who matters more than both is not kept waiting either."""
    stage = Stage(
        node("n1", cpu=2), low("v", cpu=2), pod("boss", cpu=1, priority=100), pod("second", cpu=1, priority=50)
    )
    stage.run_passes()
    first, second = stage.executor.preparing
    stage.nominate(first)
    stage.nominate(second)
    assert second.victims == []
    assert not is_committed or stage.prepare(second)
    stage.delete(stage.pod("boss"))
    for _ in range(3):
        stage.settle(30)
    assert (stage.bound(), stage.evicted) == ({"second": "n1"}, ["v"])
    stage.put(pod("king", cpu=2, priority=1000))
    stage.settle(30)
    assert stage.bound() == {"king": "n1"}


def test_room_that_has_appeared_is_taken_before_lesser_ones_come() -> None:
    """Its root does not wait for a while first."""
    stage = planned(node("n1", cpu=1), low("v1"), pod("boss", cpu=1, priority=100))
    stage.put(node("n2", cpu=1))
    assert not stage.prepare(stage.executor.preparing[0])
    stage.put(pod("quick", cpu=1, priority=1))
    stage.settle()
    assert (stage.bound(), stage.evicted) == ({"v1": "n1", "boss": "n2"}, [])


def test_who_takes_long_to_be_deleted_has_its_time_all_the_same() -> None:
    """How long a pod should take to end counts from its deletion, and not from when its turn came."""
    stage = planned(
        node("n1", cpu=1), node("n2", cpu=1), low("v1"), low("v2", "n2", priority=20), *gang(size=1, minimum=1)
    )
    assert stage.prepare(stage.executor.preparing[0])
    (unit,) = stage.executor.units
    stage.executor.units = []
    (terminating,) = unit.victim.pods
    stage.victims_linger = True
    stage.now += 100
    stage.terminate(terminating)
    for _ in range(2):
        stage.settle(10)
    assert stage.evicted == []
