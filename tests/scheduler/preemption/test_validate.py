"""Plans are validated before their first eviction, and each unit is validated before it is evicted."""

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
    """Return a stage with one plan that is being prepared."""
    stage = Stage(*things)
    stage.run_passes()
    assert len(stage.executor.preparing) == 1
    return stage


def evicted(stage: Stage) -> list[str]:
    """Return the pods that were evicted in the end."""
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
    """Return a pod that another scheduler has bound."""
    found = pod(name, cpu=1, priority=1000, node_name="n1")
    return replace(found, spec=replace(found.spec, scheduler_name="default-scheduler"))


@pytest.mark.parametrize("taker", [foreign("other"), pod("boss", cpu=1, priority=1000)], ids=["theirs", "ours"])
def test_no_pod_is_evicted_if_the_free_room_of_the_plan_is_taken(taker: Pod) -> None:
    """The eviction would not be enough any more."""
    stage = planned(node("n1", cpu=2), low("v"), *gang())
    stage.put(taker)
    assert evicted(stage) == []
    assert set(stage.bound()) == {"v", taker.metadata.name}


def test_no_pod_is_evicted_if_room_has_appeared() -> None:
    """The room is used at once."""
    stage = planned(node("n1", cpu=2), low("v0"), low("v1"), *gang())
    stage.put(node("n2", cpu=2))
    assert evicted(stage) == []
    assert stage.bound() == {"v0": "n1", "v1": "n1", "pg-0": "n2", "pg-1": "n2"}


def racks(second: str) -> list[Any]:
    """Return two nodes with room for one pod each."""
    return [node(name, cpu=1, labels={"rack": rack}) for name, rack in (("n1", "r1"), ("n2", second))]


def in_a_rack() -> list[Any]:
    """Return a gang that requires one rack, and the victims there."""
    _, *pods = gang()
    return [low("v0", "n1"), low("v1", "n2"), pod_group("pg", gang=2, priority=100, key="rack"), *pods]


def test_no_pod_is_evicted_if_the_nodes_are_in_different_domains_now() -> None:
    """Each node still takes the pod that is nominated to it."""
    stage = planned(*racks("r1"), *in_a_rack())
    stage.put(*racks("r2"))
    assert evicted(stage) == []


def test_no_room_is_reserved_if_the_nodes_are_in_different_domains_now() -> None:
    """Though the victims terminate."""
    stage = Stage(*racks("r1"), *in_a_rack())
    stage.victims_linger = True
    stage.settle()
    assert len(stage.cache.reservations.reserved_uids()) == 2
    stage.put(*racks("r2"))
    stage.settle(5)
    assert stage.cache.reservations.reserved_uids() == ()


def test_no_pod_is_evicted_if_a_node_has_become_smaller() -> None:
    """One of two pods would not fit."""
    stage = planned(node("n1", cpu=2), low("v0"), low("v1"), *gang())
    stage.put(node("n1", cpu=1))
    assert evicted(stage) == []


def test_no_pod_is_evicted_if_the_preemptor_has_a_lower_priority_now() -> None:
    """The plan was made for the higher one."""
    stage = planned(node("n1", cpu=2), low("v0"), low("v1"), *gang(priority=100))
    stage.put(*gang(priority=5))
    assert not stage.prepare(stage.executor.preparing[0])
    assert evicted(stage) == []


def test_a_budget_that_allows_less_now_is_respected() -> None:
    """A pod of higher priority is evicted instead, which no budget covers."""
    stage = planned(
        budget(1),
        *(node(name, cpu=1) for name in ("n1", "n2")),
        foo("covered", "n1"),
        low("free", "n2", priority=20),
        pod("boss", cpu=1, priority=100),
    )
    stage.put(budget(0))
    assert evicted(stage) == ["free"]


def test_a_known_violation_of_a_budget_does_not_break_the_plan() -> None:
    """There is no other victim, and the violation was known when the plan was made."""
    stage = planned(budget(0), node("n1", cpu=1), foo("covered", "n1"), pod("boss", cpu=1, priority=100))
    assert evicted(stage) == ["covered"]
    assert [plan["violated"] for plan in plans(stage)] == [["default/pdb"]]


def test_a_unit_that_has_grown_is_not_evicted_in_part() -> None:
    """It has grown after the validation of its plan. The next plan evicts all of its pods."""
    whole = [pod_group("whole", priority=10, all_=True), *(low(f"w-{number}", group="whole") for number in range(2))]
    stage = waiting_unit(node("n1", cpu=2), node("n2", cpu=1), *whole, *gang())
    stage.put(low("w-2", "n2", group="whole"))
    assert next_units(stage) == []
    assert evicted(stage) == ["ahead", "w-0", "w-1", "w-2"]


def test_a_unit_whose_priority_has_risen_stays() -> None:
    """A pod of higher priority has joined it; its plan was valid before."""
    whole = [pod_group("whole", all_=True), *(low(f"w-{number}", group="whole") for number in range(2))]
    stage = waiting_unit(node("n1", cpu=2), node("n2", cpu=1), *whole, *gang())
    stage.put(low("w-2", "n2", group="whole", priority=1000))
    assert next_units(stage) == []
    assert evicted(stage) == ["ahead"]


def test_a_victim_that_has_ended_is_not_evicted() -> None:
    """It is not marked as preempted."""
    stage = waiting_unit(node("n1", cpu=2), low("l0"), low("l1"), *gang())
    done = stage.pod("l0")
    stage.put(replace(done, status=PodStatus(phase="Succeeded")))
    assert next_units(stage) == [["l1"]]


def far_from(label: str) -> Affinity:
    """Return the anti-affinity to pods with a label in the same zone."""
    term = PodAffinityTerm(topology_key="zone", label_selector=LabelSelector(match_labels={"app": label}))
    return Affinity(pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(term,)))


def test_a_plan_breaks_if_a_pod_elsewhere_that_it_counts_on_stays() -> None:
    """The anti-affinity of that pod covers the zone. It was the victim of a preemptor that is deleted."""
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
    assert evicted(stage) == []


def test_a_plan_does_not_wait_for_terminating_pods_that_it_does_not_need() -> None:
    """They leave other nodes."""
    stage = full()
    stage.put(node("n2", cpu="500m"), pod("other", cpu="500m", node_name="n2"))
    stage.victims_linger = True
    stage.terminate(stage.pod("other"))
    stage.settle()
    (preemption,) = stage.preemption._active
    assert preemption.awaited == {"uid-default-low-0", "uid-default-low-1"}


def test_a_domain_that_becomes_free_as_a_whole_does_not_break_the_plan() -> None:
    """The plan counts on more room than the search finds before: a victim unit has pods in two racks."""
    stage = Stage(*(node(f"n{number}", cpu=3, labels={"rack": f"r{number}"}) for number in range(2)))
    stage.put(pod_group("w", priority=1, all_=True), low("p1", "n0", priority=5))
    stage.put(low("w0", "n0", cpu=2, priority=1, group="w"), low("w1", "n1", cpu=3, priority=1, group="w"))
    stage.put(pod_group("pg", gang=1, priority=100, key="rack"))
    stage.put(*(pod(f"q{number}", cpu=2 - number, priority=100, group="pg") for number in range(2)))
    assert evicted(stage) == ["p1", "w0", "w1"]
    assert set(stage.bound()) == {"q0", "q1"}
    assert not any(call.kwargs.get("event") == "plan broken" for call in stage.log.calls)


def test_two_plans_of_equal_priority_do_not_break_each_other_for_ever() -> None:
    """One needs affinity to a victim of the other. When it has given up, there is room for the other."""
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


def test_a_plan_that_waits_for_an_overdue_pod_keeps_its_room_when_its_node_is_relabelled() -> None:
    """The pod terminates for another reason, and does not end."""
    stage = Stage(node("n1", cpu=2), low("stuck"), low("v"), *gang())
    stage.victims_linger = True
    stage.terminate(stage.pod("stuck"))
    stage.settle()
    stage.delete(stage.pod("v"))
    stage.settle(40)
    stage.put(node("n1", cpu=2, labels={"new": "label"}))
    stage.settle(1)
    assert len(stage.cache.reservations.reserved_uids()) == 2


@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_unit_plans_anew_when_the_plan_that_it_counts_on_ends(*, is_prepared: bool) -> None:
    """A pod of higher priority than both is not delayed either."""
    stage = Stage(
        node("n1", cpu=2), low("v", cpu=2), pod("boss", cpu=1, priority=100), pod("second", cpu=1, priority=50)
    )
    stage.run_passes()
    first, second = stage.executor.preparing
    stage.nominate(first)
    stage.nominate(second)
    assert second.victims == []
    assert not is_prepared or stage.prepare(second)
    stage.delete(stage.pod("boss"))
    for _ in range(3):
        stage.settle(30)
    assert (stage.bound(), stage.evicted) == ({"second": "n1"}, ["v"])
    stage.put(pod("king", cpu=2, priority=1000))
    stage.settle(30)
    assert stage.bound() == {"king": "n1"}


def test_room_that_has_appeared_is_used_without_a_backoff() -> None:
    """Otherwise a pod of lower priority would take it."""
    stage = planned(node("n1", cpu=1), low("v1"), pod("boss", cpu=1, priority=100))
    stage.put(node("n2", cpu=1))
    assert not stage.prepare(stage.executor.preparing[0])
    stage.put(pod("quick", cpu=1, priority=1))
    stage.settle()
    assert (stage.bound(), stage.evicted) == ({"v1": "n1", "boss": "n2"}, [])


def test_the_grace_period_of_a_victim_begins_with_its_deletion() -> None:
    """Not with the start of its eviction."""
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
