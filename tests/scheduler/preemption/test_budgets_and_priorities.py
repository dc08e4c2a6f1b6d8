"""Budgets and priorities of victims, and the events after which preemption is tried again."""

import pytest
from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_api.meta import Condition
from cpg_api.scheduling.podgroup import PodGroupStatus
from cpg_engine.testing.builders import composite, leaf_template, node, pod, pod_group, reference, workload
from cpg_scheduler.testing.preemption_setup import budget, foo, gang, low
from cpg_scheduler.testing.stage import Stage


def test_two_plans_do_not_share_the_allowance_of_a_budget() -> None:
    """The disruption controller counts a moment later."""
    stage = Stage(*(node(f"n{number}", cpu=1) for number in range(3)), budget(1))
    stage.victims_linger = True
    stage.put(*(foo(f"foo-{n}", f"n{n}") for n in range(2)))
    stage.put(low("free", "n2", priority=20))
    stage.put(pod("high-0", cpu=1, priority=100), pod("high-1", cpu=1, priority=100))
    stage.settle()
    assert (stage.evicted[0][:3], stage.evicted[1]) == ("foo", "free")


def test_a_plan_that_ends_early_gives_its_allowance_back() -> None:
    """The next plan uses it, instead of evicting a pod of higher priority."""
    stage = Stage(node("n0", cpu=1), node("n1", cpu=1), budget(1), foo("foo", "n0"))
    stage.put(low("dear", "n1", priority=50), pod("high", cpu=1, priority=100))
    stage.run_passes()
    stage.delete(stage.pod("high"))
    stage.settle(60)
    stage.put(pod("again", cpu=1, priority=100))
    stage.settle(60)
    assert stage.evicted == ["foo"]


def test_a_group_has_the_priority_of_its_workload() -> None:
    """Before the Workload arrives it has that of its pods, so no pod of lower priority preempts it."""
    whole = pod_group("whole", priority=None, all_=True)
    whole = replace(whole, spec=replace(whole.spec, workload_ref=reference("w", "t")))
    stage = Stage(node("n1", cpu=1), whole, low("member", group="whole", priority=1000))
    assert [unit.priority for unit in stage.cache.victims.units(2000)] == [1000]
    stage.put(workload([replace(leaf_template("t"), priority=1000)]))
    stage.put(pod("high", cpu=1, priority=50))
    stage.settle(60)
    assert stage.evicted == []


def test_the_eviction_of_a_member_may_help_by_its_own_priority() -> None:
    """A number in the spec of its group does not count."""
    stage = Stage(node("n1", cpu=1), pod_group("group", priority=10), low("member", group="group", priority=500))
    uid = stage.pod("member").metadata.uid
    assert (stage.cache.victims.uids_on(["n1"], 501), stage.cache.victims.uids_on(["n1"], 500)) == ([uid], [])


@pytest.mark.parametrize("whole", [True, False])
def test_a_number_on_a_group_protects_no_pods(*, whole: bool) -> None:
    """The group has the highest priority that users can write, its running pods have none."""
    group = pod_group("group", priority=1_000_000_000, all_=whole)
    stage = Stage(node("n1", cpu=2), group, *(low(f"r{n}", group="group", priority=0) for n in range(2)), *gang())
    stage.settle(30)
    assert sorted(stage.evicted) == ["r0", "r1"]


@pytest.mark.parametrize("whole", [True, False])
def test_a_root_that_comes_late_exposes_no_pods(*, whole: bool) -> None:
    """It has a lower priority than the running pods below it."""
    leaf = pod_group("leaf", parent="root", priority=1000, all_=whole)
    stage = Stage(node("n1", cpu=2), leaf, *(low(f"r{n}", group="leaf", priority=1000) for n in range(2)), *gang())
    stage.settle(30)
    stage.put(composite("root", priority=0, all_=whole))
    stage.settle(60)
    assert stage.evicted == []


def theirs(priority: int) -> Pod:
    """Return a pod that another scheduler has nominated to n1."""
    found = pod("theirs", cpu=1, priority=priority)
    spec = replace(found.spec, scheduler_name="default-scheduler")
    return replace(found, spec=spec, status=replace(found.status, nominated_node_name="n1"))


@pytest.mark.parametrize(("priority", "gets"), [(50, True), (100, False)])
def test_reservations_of_other_schedulers_are_respected(priority: int, *, gets: bool) -> None:
    """Except by pods of higher priority, and only as long as the nominated pod is pending."""
    stage = Stage(node("n1", cpu=1), theirs(priority), pod("ours", cpu=1, priority=70))
    stage.settle()
    assert ("ours" in stage.bound()) is gets
    stage.delete(stage.pod("theirs"))
    stage.settle(20)
    assert stage.bound() == {"ours": "n1"}


def test_a_unit_is_requeued_if_evictions_could_make_room_on_a_changed_node() -> None:
    """The node gets the label that the pod selects, and is full of pods of lower priority."""
    stage = Stage(node("n1", cpu=1), low("low"), pod("high", cpu=1, priority=100, node_selector={"rack": "r1"}))
    stage.settle()
    assert stage.evicted == []
    stage.put(node("n1", cpu=1, labels={"rack": "r1"}))
    stage.settle(60)
    assert (stage.evicted, stage.bound()) == (["low"], {"high": "n1"})


def test_a_unit_is_requeued_when_a_pod_of_higher_priority_has_ended() -> None:
    """Half of the node is free then, and an eviction frees the other half."""
    stage = Stage(node("n1", cpu=4), low("mid", cpu=2, priority=500), low("low", cpu=2))
    stage.put(pod("high", cpu=4, priority=100))
    stage.settle()
    assert stage.evicted == []
    stage.delete(stage.pod("mid"))
    stage.settle(60)
    assert (stage.evicted, stage.bound()) == (["low"], {"high": "n1"})


def test_an_event_that_cannot_help_causes_no_attempt() -> None:
    """A pod of lower priority ends. Without all of these, the unit did not fit either."""
    stage = Stage(node("n1", cpu=4), node("n2", cpu=1), low("mid", cpu=3, priority=500), low("low"), low("far", "n2"))
    stage.put(pod("high", cpu=4, priority=100))
    stage.settle()
    before = len(stage.log.calls)
    stage.delete(stage.pod("far"))
    stage.settle(60)
    assert len(stage.log.calls) == before


def test_a_group_that_was_evicted_as_a_whole_recovers_with_its_minimum() -> None:
    """Not before its old pods have ended, and not before its minimum is placed."""
    whole = pod_group("whole", gang=2, priority=10, all_=True)
    said = Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler", message="for pg")
    group = replace(whole, status=PodGroupStatus(conditions=(said,)))
    stage = Stage(node("n1", cpu=2), *(low(f"old-{n}", group="whole") for n in range(2)), whole, *gang())
    stage.victims_linger = True
    stage.settle()
    stage.put(group)
    stage.settle()
    assert (sorted(stage.evicted), stage.status.recovered) == (["old-0", "old-1"], [])
    stage.put(node("n2", cpu=2), pod("new-0", group="whole", cpu=1, priority=10))
    stage.settle(60)
    stage.delete(stage.pod("old-0"))
    stage.put(pod("new-1", group="whole", cpu=1, priority=10))
    stage.settle(60)
    assert stage.status.recovered == []
    stage.delete(stage.pod("old-1"))
    stage.settle(60)
    assert stage.status.recovered == ["whole"]
