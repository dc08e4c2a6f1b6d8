"""When preemption begins, what it waits for, and what it reserves."""

import pytest
from msgspec.structs import replace

from cpg_api.core.affinity import Affinity, PodAffinity, PodAffinityTerm
from cpg_api.meta import LabelSelector
from cpg_engine.testing.builders import metadata, node, pod
from cpg_scheduler.testing.preemption_setup import FOUND, ONGOING, full, gang, low, message, plans
from cpg_scheduler.testing.stage import Stage


def test_a_gang_preempts_pods_of_lower_priority() -> None:
    """It is bound when they have ended, and no reservation is left."""
    stage = full()
    stage.settle()
    assert sorted(stage.evicted) == ["low-0", "low-1"]
    assert stage.bound() == {"pg-0": "n1", "pg-1": "n1"}
    assert (len(plans(stage)), stage.cache.reservations.reserved_uids()) == (1, ())


def test_the_conditions_say_what_is_wrong_and_that_preemption_goes_on() -> None:
    """Those of the group and of its pods, as long as the victim terminates."""
    stage = Stage(node("n1", cpu=1), low("low-1"), *gang(size=1, minimum=1))
    stage.victims_linger = True
    stage.settle()
    assert "minCount (1) cannot be satisfied" in message(stage)
    assert message(stage).endswith(FOUND.format(1))
    assert stage.status.pods["pg-0"][1].endswith(FOUND.format(1))


@pytest.mark.parametrize("priority", [10, 9])
def test_pods_of_equal_or_higher_priority_are_not_evicted(priority: int) -> None:
    """The message says that there are no victims."""
    stage = full(priority=priority)
    stage.settle(60)
    assert (stage.evicted, plans(stage)) == ([], [])
    assert message(stage).endswith("pod group preemption: No preemption victims found for incoming preemptor")


@pytest.mark.parametrize("where", ["pods", "group"])
def test_preemption_policy_never_forbids_evictions(where: str) -> None:
    """On the pods or on their group."""
    group, *pods = gang()
    if where == "pods":
        pods = [replace(one, spec=replace(one.spec, preemption_policy="Never")) for one in pods]
    else:
        group = replace(group, spec=replace(group.spec, preemption_policy="Never"))
    stage = Stage(node("n1", cpu=2), low("low-0"), low("low-1"), group, *pods)
    stage.settle(60)
    assert stage.evicted == []
    assert message(stage).endswith("pod group preemption: not eligible due to preemptionPolicy=Never.")


def test_no_pod_is_evicted_if_no_eviction_can_help() -> None:
    """One member selects a node that does not exist."""
    stage = Stage(node("n1", cpu=2), low("low-0"), low("low-1"), *gang(size=1))
    stage.put(pod("odd", group="pg", priority=100, cpu=1, node_selector={"disk": "none"}))
    stage.settle(60)
    assert (stage.evicted, plans(stage)) == ([], [])


def test_no_pod_is_evicted_if_all_evictions_together_are_not_enough() -> None:
    """The message says what would still be missing."""
    stage = Stage(node("n1", cpu=3), low("mid", priority=500), low("low-0"), low("low-1"), *gang(size=3, minimum=3))
    stage.settle(60)
    assert (stage.evicted, stage.executor.jobs) == ([], {})
    assert "would not make enough room" in message(stage)


def test_no_pod_is_evicted_if_terminating_pods_make_enough_room() -> None:
    """The room is reserved, so that no pod of lower priority takes it meanwhile."""
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


def test_room_is_reserved_if_all_pods_of_lower_priority_terminate() -> None:
    """There is nothing to evict, and yet something to wait for."""
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


def test_a_terminating_pod_on_another_node_is_waited_for_if_it_is_in_the_way() -> None:
    """Its anti-affinity keeps the preemptor out of its zone."""
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


def test_only_what_terminating_pods_leave_missing_is_evicted() -> None:
    """One pod terminates anyway, so one victim is enough."""
    stage = Stage(node("n1", cpu=3), *(low(f"low-{n}") for n in range(3)), *gang())
    stage.victims_linger = True
    stage.terminate(stage.pod("low-1"))
    stage.settle()
    assert len(stage.evicted) == 1
    assert "low-1" not in stage.evicted


def test_an_overdue_pod_is_not_waited_for() -> None:
    """Its kubelet may be dead, so other pods are evicted."""
    stage = full()
    stage.victims_linger = True
    stage.put(node("n2", cpu=2), low("stuck", "n2", cpu=2))
    stage.terminate(stage.pod("stuck"))
    stage.settle()
    assert stage.evicted == []
    stage.settle(400)
    assert sorted(stage.evicted) == ["low-0", "low-1"]


def test_the_rest_of_a_partly_placed_group_preempts_after_the_bind_of_the_others() -> None:
    """Never in the cycle in which other pods of the tree are bound."""
    stage = Stage(node("n1", cpu=4), low("low", cpu=2), *gang(size=4, minimum=1))
    stage.run_passes()
    assert (len(stage.binder.batches), stage.executor.jobs) == (1, {})
    stage.complete_binds()
    stage.settle()
    assert (stage.evicted, len(stage.bound())) == (["low"], 4)


def test_a_later_member_preempts_for_itself_alone() -> None:
    """The gang runs already, and the new pod has its priority."""
    stage = Stage(node("n1", cpu=4), low("low-0"), low("low-1"), *gang())
    stage.settle()
    stage.put(pod("late", group="pg", cpu=1, priority=100))
    stage.settle(60)
    assert (len(stage.evicted), len(stage.bound())) == (1, 4)


def test_single_pods_preempt_each_for_itself() -> None:
    """They are equivalent, but one attempt does not count for all: each needs victims of its own."""
    stage = Stage(node("n1", cpu=3), *(low(f"low-{number}") for number in range(3)))
    stage.put(*(pod(f"high-{number}", cpu=1, priority=100) for number in range(4)))
    stage.settle()
    assert (len(stage.evicted), len(stage.bound()), len(plans(stage))) == (3, 3, 3)
    (left,) = {f"high-{number}" for number in range(4)} - stage.bound().keys()
    said = stage.status.pods[left][1]
    assert said.endswith("; preemption: No preemption victims found for incoming preemptor")


def test_no_second_plan_is_made_while_victims_terminate() -> None:
    """However many events arrive meanwhile."""
    stage = full()
    stage.victims_linger = True
    stage.settle()
    for number in range(20):
        stage.put(node(f"small-{number}", cpu=0))
        stage.settle(30)
    assert (len(plans(stage)), sorted(stage.evicted)) == (1, ["low-0", "low-1"])
    stage.delete(stage.pod("low-0"))
    stage.settle(30)
    assert message(stage).endswith(ONGOING)
    stage.delete(stage.pod("low-1"))
    stage.settle()
    assert (len(plans(stage)), len(stage.bound())) == (1, 2)


def test_a_unit_is_attempted_at_once_when_its_last_victim_has_ended() -> None:
    """It does not wait for its backoff."""
    stage = full()
    stage.victims_linger = True
    stage.settle()
    stage.settle(20)
    stage.delete(stage.pod("low-0"))
    stage.settle()
    stage.delete(stage.pod("low-1"))
    stage.settle()
    assert sorted(stage.bound()) == ["pg-0", "pg-1"]


def test_a_victim_that_has_ended_takes_no_room() -> None:
    """Also if a finalizer keeps the pod."""
    stage = full()
    stage.victims_linger = True
    stage.settle()
    for name in ("low-0", "low-1"):
        ended = stage.pod(name)
        stage.put(replace(ended, status=replace(ended.status, phase="Failed")))
    stage.settle()
    assert {"pg-0", "pg-1"} < stage.bound().keys()


def test_room_elsewhere_is_used_without_further_evictions() -> None:
    """The reservations are dropped then."""
    stage = full()
    stage.victims_linger = True
    stage.settle()
    stage.put(node("n2", cpu=2))
    stage.settle(60)
    assert {stage.bound()[name] for name in ("pg-0", "pg-1")} == {"n2"}
    assert (len(stage.evicted), stage.cache.reservations.reserved_uids()) == (2, ())


@pytest.mark.parametrize(("priority", "gets"), [(50, False), (100, False), (200, True)])
def test_only_a_higher_priority_ignores_the_reservations_of_a_plan(priority: int, *, gets: bool) -> None:
    """The victims have ended, and another pod is attempted first."""
    stage = full()
    stage.victims_linger = True
    stage.settle()
    stage.put(pod("quick", cpu=1, priority=priority))
    stage.loop.run_pass()
    stage.delete(stage.pod("low-0"))
    stage.settle(60)
    assert ("quick" in stage.bound()) is gets


def test_a_preemption_ends_with_its_preemptor() -> None:
    """Its room is free when its victims have ended."""
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
