"""Preemption as the scheduler goes about it: when it plans, what it waits for, and what becomes of a plan."""

import pytest
from msgspec.structs import replace

from cpg_api.core.affinity import Affinity, PodAffinity, PodAffinityTerm
from cpg_api.core.node import Taint
from cpg_api.core.pod import Pod
from cpg_api.meta import Condition, LabelSelector
from cpg_api.scheduling.podgroup import PodGroupStatus
from cpg_engine.testing.builders import leaf_template, metadata, node, pod, pod_group, reference, workload
from cpg_scheduler.preemption.jobs import UnitFailed
from cpg_scheduler.testing.preemption_setup import (
    FOUND,
    ONGOING,
    budget,
    foo,
    full,
    gang,
    low,
    messages,
    patient,
    plans,
)
from cpg_scheduler.testing.stage import Stage

# When.


def test_a_gang_takes_the_place_of_those_that_matter_less() -> None:
    """It is bound once they have gone, and nothing is left behind."""
    stage = full()
    stage.settle()
    assert sorted(stage.evicted) == ["low-0", "low-1"]
    assert stage.bound() == {"pg-0": "n1", "pg-1": "n1"}
    assert (len(plans(stage)), stage.cache.reservations.reserved_uids()) == (1, ())


def test_the_group_says_what_is_wrong_and_what_is_done_about_it() -> None:
    """F35: while the victim takes its time."""
    stage = Stage(node("n1", cpu=1), low("low-1"), *gang(size=1, minimum=1))
    stage.victims_linger = True
    stage.settle()
    assert "minCount (1) cannot be satisfied" in messages(stage)
    assert messages(stage).endswith(FOUND.format(1))
    assert stage.status.pods["pg-0"][1].endswith(FOUND.format(1))


@pytest.mark.parametrize("priority", [10, 9])
def test_equals_and_betters_are_left_alone(priority: int) -> None:
    """Only what matters less is evicted."""
    stage = full(priority=priority)
    stage.settle(60)
    assert (stage.evicted, plans(stage)) == ([], [])
    assert messages(stage).endswith("pod group preemption: No preemption victims found for incoming preemptor")


@pytest.mark.parametrize("who", ["pods", "group"])
def test_never_means_never(who: str) -> None:
    """Said by the pods or by their group."""
    group, *pods = gang()
    if who == "pods":
        pods = [replace(one, spec=replace(one.spec, preemption_policy="Never")) for one in pods]
    else:
        group = replace(group, spec=replace(group.spec, preemption_policy="Never"))
    stage = Stage(node("n1", cpu=2), low("low-0"), low("low-1"), group, *pods)
    stage.settle(60)
    assert stage.evicted == []
    assert messages(stage).endswith("pod group preemption: not eligible due to preemptionPolicy=Never.")


def test_nobody_is_evicted_for_what_no_eviction_can_help() -> None:
    """One member asks for a node that is not there."""
    stage = Stage(node("n1", cpu=2), low("low-0"), low("low-1"), *gang(size=1))
    stage.put(pod("odd", group="pg", priority=100, cpu=1, node_selector={"disk": "none"}))
    stage.settle(60)
    assert (stage.evicted, plans(stage)) == ([], [])


def test_nobody_is_evicted_when_that_is_not_enough() -> None:
    """F07: it says what would still be missing."""
    stage = Stage(node("n1", cpu=3), low("mid", priority=500), low("low-0"), low("low-1"), *gang(size=3, minimum=3))
    stage.settle(60)
    assert (stage.evicted, stage.executor.jobs) == ([], {})
    assert "would not make enough room" in messages(stage)


def test_nobody_is_evicted_where_others_are_about_to_leave() -> None:
    """Somebody has deleted enough of them; the room is kept, so that nobody less important slips in."""
    stage = Stage(node("n1", cpu=2), node("n2", cpu=2), *(low(f"low-{n}", f"n{1 + n // 2}") for n in range(4)), *gang())
    stage.victims_linger = True
    for name in ("low-2", "low-3"):
        stage.terminate(stage.pod(name))
    stage.settle()
    assert (stage.evicted, {stage.pod(f"pg-{n}").status.nominated_node_name for n in range(2)}) == ([], {"n2"})
    stage.put(pod("quick", cpu=1, priority=10))
    stage.delete(stage.pod("low-2"))
    stage.settle()
    assert "quick" not in stage.bound()
    stage.delete(stage.pod("low-3"))
    stage.settle(10)
    assert [stage.bound()[f"pg-{n}"] for n in range(2)] == ["n2", "n2"]
    assert stage.evicted == []


def test_room_is_kept_where_all_lesser_pods_are_about_to_leave() -> None:
    """There is nobody to evict, and yet something to wait for."""
    stage = Stage(node("n1", cpu=2), low("low-0"), low("low-1"), *gang())
    stage.victims_linger = True
    for name in ("low-0", "low-1"):
        stage.terminate(stage.pod(name))
    stage.settle()
    stage.put(pod("quick", cpu=1, priority=1))
    stage.delete(stage.pod("low-0"))
    stage.settle(5)
    assert (stage.evicted, "quick" in stage.bound()) == ([], False)
    stage.delete(stage.pod("low-1"))
    stage.settle(5)
    assert stage.bound() == {"pg-0": "n1", "pg-1": "n1"}


def test_who_leaves_another_node_is_waited_for_too() -> None:
    """It does not suffer the preemptor in its zone."""
    terms = (PodAffinityTerm(topology_key="zone", label_selector=LabelSelector(match_labels={"app": "web"})),)
    rival = low("rival", "a1")
    rival = replace(
        rival,
        spec=replace(
            rival.spec,
            affinity=Affinity(pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=terms)),
        ),
    )
    web = pod("web", cpu=2, priority=100, meta=metadata("web", app="web"))
    zone = {"zone": "a"}
    stage = Stage(node("a1", cpu=1, labels=zone), node("a2", cpu=2, labels=zone), rival, web)
    stage.victims_linger = True
    stage.terminate(stage.pod("rival"))
    stage.settle()
    assert stage.pod("web").status.nominated_node_name == "a2"
    stage.put(pod("quick", cpu=2, priority=1))
    stage.settle(5)
    stage.delete(stage.pod("rival"))
    stage.settle(5)
    assert stage.bound() == {"web": "a2"}


def test_only_what_is_missing_beside_those_who_leave_is_evicted() -> None:
    """One leaves anyway, one is enough beside it."""
    stage = Stage(node("n1", cpu=3), *(low(f"low-{n}") for n in range(3)), *gang())
    stage.victims_linger = True
    stage.terminate(stage.pod("low-1"))
    stage.settle()
    assert len(stage.evicted) == 1
    assert "low-1" not in stage.evicted


def test_who_should_have_left_long_ago_is_not_waited_for() -> None:
    """Its kubelet may be dead: then others go after all."""
    stage = full()
    stage.victims_linger = True
    stage.put(node("n2", cpu=2), low("stuck", "n2", cpu=2))
    stage.terminate(stage.pod("stuck"))
    stage.settle()
    assert stage.evicted == []
    stage.settle(400)
    assert sorted(stage.evicted) == ["low-0", "low-1"]


def test_those_that_are_left_of_a_partly_placed_group_preempt_once_the_others_are_bound() -> None:
    """F29, A11: never in the cycle in which others of the tree are bound."""
    stage = Stage(node("n1", cpu=4), low("low", cpu=2), *gang(size=4, minimum=1))
    stage.run_passes()
    assert (len(stage.binder.batches), stage.executor.jobs) == (1, {})
    stage.complete_binds()
    stage.settle()
    assert (stage.evicted, len(stage.bound())) == (["low"], 4)


def test_a_late_member_evicts_for_itself_alone() -> None:
    """The gang runs; its fifth wheel is as important as the rest."""
    stage = Stage(node("n1", cpu=4), low("low-0"), low("low-1"), *gang())
    stage.settle()
    stage.put(pod("late", group="pg", cpu=1, priority=100))
    stage.settle(60)
    assert (len(stage.evicted), len(stage.bound())) == (1, 4)


def test_single_pods_preempt_each_for_itself() -> None:
    """They are alike, and yet one attempt does not answer for all: each needs victims of its own."""
    stage = Stage(node("n1", cpu=3), *(low(f"low-{number}") for number in range(3)))
    stage.put(*(pod(f"high-{number}", cpu=1, priority=100) for number in range(4)))
    stage.settle()
    assert (len(stage.evicted), len(stage.bound()), len(plans(stage))) == (3, 3, 3)
    (left,) = {f"high-{number}" for number in range(4)} - stage.bound().keys()
    said = stage.status.pods[left][1]
    assert said.endswith("; preemption: No preemption victims found for incoming preemptor")


# While it is under way.


def test_no_second_plan_is_made_while_victims_take_their_time() -> None:
    """However much happens meanwhile."""
    stage = full()
    stage.victims_linger = True
    stage.settle()
    for number in range(20):
        stage.put(node(f"small-{number}", cpu=0))
        stage.settle(30)
    assert (len(plans(stage)), sorted(stage.evicted)) == (1, ["low-0", "low-1"])
    stage.delete(stage.pod("low-0"))
    stage.settle(30)
    assert messages(stage).endswith(ONGOING)
    stage.delete(stage.pod("low-1"))
    stage.settle()
    assert (len(plans(stage)), len(stage.bound())) == (1, 2)


def test_it_is_attempted_at_once_when_the_last_victim_is_gone() -> None:
    """No backoff holds it up."""
    stage = full()
    stage.victims_linger = True
    stage.settle()
    stage.settle(20)
    stage.delete(stage.pod("low-0"))
    stage.settle()
    stage.delete(stage.pod("low-1"))
    stage.settle()
    assert sorted(stage.bound()) == ["pg-0", "pg-1"]


def test_a_victim_that_has_come_to_its_end_takes_no_room() -> None:
    """Also when somebody's finalizer holds the pod."""
    stage = full()
    stage.victims_linger = True
    stage.settle()
    for name in ("low-0", "low-1"):
        ended = stage.pod(name)
        stage.put(replace(ended, status=replace(ended.status, phase="Failed")))
    stage.settle()
    assert {"pg-0", "pg-1"} < stage.bound().keys()


def test_room_elsewhere_is_taken_without_more_evictions() -> None:
    """And the room that was kept is free again."""
    stage = full()
    stage.victims_linger = True
    stage.settle()
    stage.put(node("n2", cpu=2))
    stage.settle(60)
    assert {stage.bound()[name] for name in ("pg-0", "pg-1")} == {"n2"}
    assert (len(stage.evicted), stage.cache.reservations.reserved_uids()) == (2, ())


@pytest.mark.parametrize(("priority", "gets"), [(50, False), (100, False), (200, True)])
def test_the_room_of_a_plan_is_kept_from_all_but_its_betters(priority: int, *, gets: bool) -> None:
    """The victims have gone, and somebody is quicker."""
    stage = full()
    stage.victims_linger = True
    stage.settle()
    stage.put(pod("quick", cpu=1, priority=priority))
    stage.loop.run_pass()
    stage.delete(stage.pod("low-0"))
    stage.settle(60)
    assert ("quick" in stage.bound()) is gets


def test_a_plan_ends_with_its_preemptor() -> None:
    """Its room is free, and no victim is missed."""
    stage = full()
    stage.victims_linger = True
    stage.settle()
    for name in ("pg-0", "pg-1"):
        stage.delete(stage.pod(name))
    stage.settle()
    assert stage.cache.reservations.reserved_uids() == ()
    for name in ("low-0", "low-1"):
        stage.delete(stage.pod(name))
    stage.put(pod("other", cpu=2))
    stage.settle(60)
    assert stage.bound() == {"other": "n1"}


# What breaks a plan.


@pytest.mark.parametrize("how", ["deleted", "cordoned"])
def test_a_plan_breaks_when_its_node_is_lost(how: str) -> None:
    """The next one goes elsewhere; who is going anyway is not evicted twice."""
    stage = patient(node("n2", cpu=2), low("other-0", "n2", priority=20), low("other-1", "n2", priority=20))
    assert sorted(stage.evicted) == ["low-0", "low-1"]
    if how == "deleted":
        stage.delete(node("n1"))
    else:
        stage.put(node("n1", cpu=2, unschedulable=True))
    stage.settle(60)
    assert sorted(stage.evicted) == ["low-0", "low-1", "other-0", "other-1"]
    assert {stage.pod(name).status.nominated_node_name for name in ("pg-0", "pg-1")} == {"n2"}


def test_a_plan_that_breaks_before_anybody_is_evicted_evicts_nobody() -> None:
    """What was prepared is taken back."""
    stage = full()
    while stage.run_passes():
        pass
    stage.put(node("n1", cpu=2, unschedulable=True))
    stage.settle(60)
    assert (stage.evicted, stage.cache.reservations.reserved_uids()) == ([], ())
    assert stage.pod("pg-0").status.nominated_node_name == ""


def test_nobody_is_evicted_when_a_unit_has_grown_meanwhile() -> None:
    """A unit goes whole: the plan is made anew."""
    whole = pod_group("whole", priority=10, all_=True)
    stage = Stage(node("n1", cpu=2), node("n2", cpu=1), whole, *gang())
    stage.put(*(low(f"w-{number}", group="whole") for number in range(2)))
    while stage.run_passes():
        pass
    stage.put(low("w-2", "n2", group="whole"))
    stage.evict()
    assert stage.evicted == []
    stage.settle(60)
    assert (sorted(stage.evicted), len(stage.bound())) == (["w-0", "w-1", "w-2"], 2)


def test_a_plan_breaks_when_its_pods_change() -> None:
    """Somebody came: the next plan counts on those that are going, and evicts one more."""
    stage = patient(node("n2", cpu=1), low("other", "n2", priority=20))
    stage.put(pod("late", group="pg", cpu=1, priority=100))
    stage.settle(20)
    assert sorted(stage.evicted) == ["low-0", "low-1", "other"]
    for name in stage.evicted:
        stage.delete(stage.pod(name))
    stage.settle()
    assert len(stage.bound()) == 3


def test_a_victim_that_must_not_be_evicted_is_left_out_of_the_next_plan() -> None:
    """The plan falls whole, and after a while there is another one."""
    stage = Stage(node("n1", cpu=1), node("n2", cpu=1), low("guarded"), low("other", "n2", priority=20))
    stage.put(pod("high", cpu=1, priority=100))
    stage.run_passes()
    (job,) = stage.executor.preparing
    assert [one.metadata.name for victim in job.victims for one in victim.pods] == ["guarded"]
    stage.refuse_eviction(job.id, job.victims[0].pods[0])
    assert job.id in stage.executor.cancelled
    stage.settle(60)
    assert (stage.evicted, stage.bound()["high"]) == (["other"], "n2")


def test_a_refusal_after_another_plan_was_made_frees_who_counted_on_its_victims() -> None:
    """The first plan was replaced while it was performed, and the second waits for the same pods: they stay now."""
    stage = Stage(
        node("n1", cpu=2), node("n2", cpu=1), low("x-0"), low("x-1"), low("other", "n2", priority=20), *gang()
    )
    stage.run_passes()
    (job,) = stage.executor.preparing
    assert stage.prepare(job)
    (unit,) = stage.executor.units
    assert [one.metadata.name for one in unit.victim.pods] == ["x-0"]
    stage.executor.units = []
    stage.put(pod("pg-2", group="pg", cpu=1, priority=100))
    stage.run_passes()
    stage.refuse_eviction(job.id, stage.pod("x-0"))
    stage.refuse_eviction(job.id, stage.pod("x-0"))
    stage.report(UnitFailed(job.id, unit.number))
    for _ in range(3):
        stage.settle(60)
    assert "x-0" not in stage.evicted
    assert sorted(set(stage.bound().values()) & {"n1", "n2"}) == ["n1", "n2"]
    assert len([name for name in stage.bound() if name.startswith("pg-")]) == 2


def test_who_counted_on_a_plan_that_falls_plans_anew() -> None:
    """Nobody waits for victims that nobody evicts."""
    stage = Stage(node("n1", cpu=2), low("big", cpu=2))
    stage.put(pod("first", cpu=1, priority=100), pod("second", cpu=1, priority=100))
    stage.run_passes()
    first, second = stage.executor.preparing
    assert ([len(first.victims), len(second.victims)], stage.executor.cancelled) == ([1, 0], set())
    stage.delete(stage.pod("first"))
    stage.loop.run_pass()
    assert stage.executor.cancelled == {first.id, second.id}
    stage.settle(60)
    assert (stage.evicted, stage.bound()) == (["big"], {"second": "n1"})


def attempts(stage: Stage, name: str) -> int:
    """Return how often a root was attempted."""
    calls = (call.kwargs for call in stage.log.calls)
    return sum(call.get("event") == "attempt" and call["root"].endswith(f"/{name}") for call in calls)


@pytest.mark.parametrize("how", ["deleted", "cordoned", "relabelled"])
def test_who_has_lost_the_only_node_that_would_do_holds_up_nobody(how: str) -> None:
    """No eviction can help any more: it waits for news like anybody else, and lesser ones have their turn."""
    group, *pods = gang()
    wants = [replace(one, spec=replace(one.spec, node_selector={"disk": "ssd"})) for one in pods]
    stage = Stage(node("n1", cpu=2, labels={"disk": "ssd"}), low("low-0"), low("low-1"), group, *wants)
    stage.victims_linger = True
    stage.settle()
    if how == "deleted":
        stage.delete(node("n1"))
    else:
        stage.put(node("n1", cpu=2, unschedulable=how == "cordoned"))
    stage.put(node("n2", cpu=1), pod("lesser", cpu=1, priority=5))
    before = attempts(stage, "pg")
    stage.settle(20)
    assert (stage.bound().get("lesser"), attempts(stage, "pg") - before < 5) == ("n2", True)
    assert stage.cache.reservations.reserved_uids() == ()


def test_a_plan_breaks_when_its_node_is_not_ready() -> None:
    """Its kubelet is dead, so nobody ends there; the taint says so, and nobody can be placed there."""
    stage = patient(node("n2", cpu=2), low("other-0", "n2", priority=20), low("other-1", "n2", priority=20))
    lost = node("n1", cpu=2)
    taints = tuple(Taint(key="node.kubernetes.io/unreachable", effect=effect) for effect in ("NoSchedule", "NoExecute"))
    stage.put(replace(lost, spec=replace(lost.spec, taints=taints)))
    stage.settle(20)
    assert sorted(stage.evicted) == ["low-0", "low-1", "other-0", "other-1"]
    assert {stage.pod(name).status.nominated_node_name for name in ("pg-0", "pg-1")} == {"n2"}


def test_victims_that_do_not_end_are_waited_for_until_others_can_go() -> None:
    """Half a minute after their time; with nobody else to evict, the room is kept. Without any news, it looks again."""
    stage = patient()
    stage.settle(400)
    assert (len(plans(stage)), messages(stage).endswith(FOUND.format(2))) == (1, True)
    assert {stage.pod(name).status.nominated_node_name for name in ("pg-0", "pg-1")} == {"n1"}
    stage.put(node("n2", cpu=2), low("other-0", "n2", priority=20), low("other-1", "n2", priority=20))
    stage.settle(20)
    stage.settle(40)
    assert sorted(stage.evicted) == ["low-0", "low-1", "other-0", "other-1"]
    assert {stage.pod(name).status.nominated_node_name for name in ("pg-0", "pg-1")} == {"n2"}
    assert len(stage.cache.reservations.reserved_uids()) == 2


def test_a_stuck_victim_is_noticed_without_news() -> None:
    """Nothing happens in the cluster for a minute."""
    stage = patient(node("n2", cpu=2), low("other-0", "n2", priority=20), low("other-1", "n2", priority=20))
    assert sorted(stage.evicted) == ["low-0", "low-1"]
    stage.settle(60)
    assert sorted(stage.evicted) == ["low-0", "low-1", "other-0", "other-1"]


# Budgets.


def test_two_plans_do_not_use_the_same_allowance() -> None:
    """The disruption controller counts a moment later."""
    stage = Stage(*(node(f"n{number}", cpu=1) for number in range(3)), budget(1))
    stage.victims_linger = True
    stage.put(*(foo(f"foo-{n}", f"n{n}") for n in range(2)))
    stage.put(low("free", "n2", priority=20))
    stage.put(pod("high-0", cpu=1, priority=100), pod("high-1", cpu=1, priority=100))
    stage.settle()
    assert (stage.evicted[0][:3], stage.evicted[1]) == ("foo", "free")


def test_a_plan_that_is_dropped_gives_its_allowance_back() -> None:
    """The next one uses it, instead of evicting who matters more."""
    stage = Stage(node("n0", cpu=1), node("n1", cpu=1), budget(1), foo("foo", "n0"))
    stage.put(low("dear", "n1", priority=50), pod("high", cpu=1, priority=100))
    stage.run_passes()
    stage.delete(stage.pod("high"))
    stage.settle(60)
    stage.put(pod("again", cpu=1, priority=100))
    stage.settle(60)
    assert stage.evicted == ["foo"]


# Who matters less.


def test_a_group_matters_as_much_as_its_workload_says_by_now() -> None:
    """Before the Workload has come, as much as its pods: they are not evicted for somebody who matters less."""
    whole = pod_group("whole", priority=None, all_=True)
    whole = replace(whole, spec=replace(whole.spec, workload_ref=reference("w", "t")))
    stage = Stage(node("n1", cpu=1), whole, low("member", group="whole", priority=1000))
    assert [unit.priority for unit in stage.cache.victims.units(2000)] == [1000]
    stage.put(workload([replace(leaf_template("t"), priority=1000)]))
    stage.put(pod("high", cpu=1, priority=50))
    stage.settle(60)
    assert stage.evicted == []


def test_a_member_matters_as_little_as_its_root() -> None:
    """Its own number is high, but it goes with its group: that is hope enough to try."""
    stage = Stage(node("n1", cpu=1), pod_group("group", priority=10), low("member", group="group", priority=500))
    uid = stage.pod("member").metadata.uid
    assert (stage.cache.victims.uids_on(["n1"], 100), stage.cache.victims.uids_on(["n1"], 10)) == ([uid], [])


def theirs(priority: int) -> Pod:
    """Return a pod for which another scheduler has made room on n1."""
    found = pod("theirs", cpu=1, priority=priority)
    spec = replace(found.spec, scheduler_name="default-scheduler")
    return replace(found, spec=spec, status=replace(found.status, nominated_node_name="n1"))


@pytest.mark.parametrize(("priority", "gets"), [(50, True), (100, False)])
def test_the_room_that_others_have_made_is_theirs(priority: int, *, gets: bool) -> None:
    """Unless who comes matters more; and for no longer than they wait for it."""
    stage = Stage(node("n1", cpu=1), theirs(priority), pod("ours", cpu=1, priority=70))
    stage.settle()
    assert ("ours" in stage.bound()) is gets
    stage.delete(stage.pod("theirs"))
    stage.settle(20)
    assert stage.bound() == {"ours": "n1"}


# What may help, where evicting did not.


def test_room_that_could_be_made_counts_where_a_node_becomes_better() -> None:
    """G03: the node that is wanted appears, full of lesser pods."""
    stage = Stage(node("n1", cpu=1), low("low"), pod("high", cpu=1, priority=100, node_selector={"rack": "r1"}))
    stage.settle()
    assert stage.evicted == []
    stage.put(node("n1", cpu=1, labels={"rack": "r1"}))
    stage.settle(60)
    assert (stage.evicted, stage.bound()) == (["low"], {"high": "n1"})


def test_who_could_not_be_helped_is_when_a_better_one_has_gone() -> None:
    """Half of the node is free then, and the other half can be."""
    stage = Stage(node("n1", cpu=4), low("mid", cpu=2, priority=500), low("low", cpu=2))
    stage.put(pod("high", cpu=4, priority=100))
    stage.settle()
    assert stage.evicted == []
    stage.delete(stage.pod("mid"))
    stage.settle(60)
    assert (stage.evicted, stage.bound()) == (["low"], {"high": "n1"})


def test_news_that_help_nobody_cause_no_attempt() -> None:
    """A lesser pod ends: with all of them gone it did not fit either."""
    stage = Stage(node("n1", cpu=4), node("n2", cpu=1), low("mid", cpu=3, priority=500), low("low"), low("far", "n2"))
    stage.put(pod("high", cpu=4, priority=100))
    stage.settle()
    before = len(stage.log.calls)
    stage.delete(stage.pod("far"))
    stage.settle(60)
    assert len(stage.log.calls) == before


def test_a_group_that_went_as_a_whole_says_when_it_is_back() -> None:
    """Not while its old pods end, and not before its minimum is placed."""
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
