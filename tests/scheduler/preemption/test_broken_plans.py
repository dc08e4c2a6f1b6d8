"""What breaks a plan, and what happens then."""

import pytest
from msgspec.structs import replace

from cpg_api.core.node import Taint
from cpg_engine.testing.builders import node, pod, pod_group
from cpg_scheduler.preemption.events import CorrectionDue
from cpg_scheduler.preemption.jobs import UnitFailed
from cpg_scheduler.testing.preemption_setup import FOUND, full, gang, low, message, plans, terminating
from cpg_scheduler.testing.stage import Stage


@pytest.mark.parametrize("how", ["deleted", "cordoned"])
def test_a_plan_breaks_when_its_node_is_lost(how: str) -> None:
    """The next plan uses another node. Victims that terminate already are not evicted twice."""
    stage = terminating(node("n2", cpu=2), low("other-0", "n2", priority=20), low("other-1", "n2", priority=20))
    assert sorted(stage.evicted) == ["low-0", "low-1"]
    if how == "deleted":
        stage.delete(node("n1"))
    else:
        stage.put(node("n1", cpu=2, unschedulable=True))
    stage.settle(60)
    assert sorted(stage.evicted) == ["low-0", "low-1", "other-0", "other-1"]
    assert {stage.pod(name).status.nominated_node_name for name in ("pg-0", "pg-1")} == {"n2"}


def test_no_pod_is_evicted_if_the_plan_breaks_before_its_first_eviction() -> None:
    """The nominations are cleared."""
    stage = full()
    while stage.run_passes():
        pass
    stage.put(node("n1", cpu=2, unschedulable=True))
    stage.settle(60)
    assert (stage.evicted, stage.cache.reservations.reserved_uids()) == ([], ())
    assert stage.pod("pg-0").status.nominated_node_name == ""


def test_no_pod_is_evicted_if_a_victim_unit_has_grown() -> None:
    """A unit is evicted as a whole, so there is a new plan."""
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


def test_a_plan_breaks_when_the_pods_of_its_preemptor_change() -> None:
    """The next plan counts on the terminating victims, and evicts one more pod."""
    stage = terminating(node("n2", cpu=1), low("other", "n2", priority=20))
    stage.put(pod("late", group="pg", cpu=1, priority=100))
    stage.settle(20)
    assert sorted(stage.evicted) == ["low-0", "low-1", "other"]
    for name in stage.evicted:
        stage.delete(stage.pod(name))
    stage.settle()
    assert len(stage.bound()) == 3


def test_a_refused_victim_is_left_out_of_the_next_plan() -> None:
    """The plan breaks, and after a backoff there is another one."""
    stage = Stage(node("n1", cpu=1), node("n2", cpu=1), low("guarded"), low("other", "n2", priority=20))
    stage.put(pod("high", cpu=1, priority=100))
    stage.run_passes()
    (job,) = stage.executor.preparing
    assert [one.metadata.name for victim in job.victims for one in victim.pods] == ["guarded"]
    stage.refuse_eviction(job.id, job.victims[0].pods[0])
    assert job.id in stage.executor.cancelled
    stage.settle(60)
    assert (stage.evicted, stage.bound()["high"]) == (["other"], "n2")


def test_a_refused_victim_can_be_evicted_after_five_minutes() -> None:
    """The preemptor is attempted then, even if its last attempt was a moment before."""
    stage = Stage(node("n1", cpu=1), low("guarded"))
    stage.put(pod("high", cpu=1, priority=100))
    stage.run_passes()
    (job,) = stage.executor.preparing
    stage.refuse_eviction(job.id, job.victims[0].pods[0])
    for seconds in (290, 5, 10):
        stage.put(node("n1", cpu=1, labels={"seen": str(seconds)}))
        stage.report(CorrectionDue())
        stage.settle(seconds)
        assert stage.evicted == []
    stage.report(CorrectionDue())
    stage.settle(10)
    assert stage.evicted == ["guarded"]


@pytest.mark.parametrize("when", ["before its bind", "after its bind"])
def test_a_pod_with_a_refused_nomination_can_be_a_victim_later(when: str) -> None:
    """The API server also refuses it because the pod is bound already; its eviction is another matter."""
    stage = Stage(node("n1", cpu=1), low("low"))
    stage.mark_deleted(stage.pod("low"))
    stage.put(pod("middle", cpu=1, priority=50))
    stage.run_passes()
    (job,) = stage.executor.preparing
    assert (job.victims, [one.metadata.name for one, _ in job.nominations]) == ([], ["middle"])
    if when == "before its bind":
        stage.refuse_eviction(job.id, stage.pod("middle"))
    stage.delete(stage.pod("low"))
    stage.run_passes()
    if when == "after its bind":
        stage.refuse_eviction(job.id, stage.pod("middle"))
    stage.settle(60)
    assert stage.bound() == {"middle": "n1"}
    stage.put(pod("high", cpu=1, priority=100))
    stage.settle(60)
    assert stage.evicted == ["middle"]


def test_a_late_refusal_breaks_the_plan_that_counts_on_the_victim() -> None:
    """The first plan was replaced meanwhile, and the second waits for the same pod, which stays."""
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


def test_a_plan_breaks_with_the_plan_that_it_counts_on() -> None:
    """Otherwise it would wait for victims that are not evicted."""
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
    """Return how many attempts of a unit were logged."""
    calls = (call.kwargs for call in stage.log.calls)
    return sum(call.get("event") == "attempt" and call["root"].endswith(f"/{name}") for call in calls)


@pytest.mark.parametrize("how", ["deleted", "cordoned", "relabelled"])
def test_a_unit_that_has_lost_its_only_suitable_node_delays_no_other(how: str) -> None:
    """No eviction can help any more. It waits for an event, and pods of lower priority are attempted."""
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
    """By its taints: no pod can be placed there, and no victim will end."""
    stage = terminating(node("n2", cpu=2), low("other-0", "n2", priority=20), low("other-1", "n2", priority=20))
    lost = node("n1", cpu=2)
    taints = tuple(Taint(key="node.kubernetes.io/unreachable", effect=effect) for effect in ("NoSchedule", "NoExecute"))
    stage.put(replace(lost, spec=replace(lost.spec, taints=taints)))
    stage.settle(20)
    assert sorted(stage.evicted) == ["low-0", "low-1", "other-0", "other-1"]
    assert {stage.pod(name).status.nominated_node_name for name in ("pg-0", "pg-1")} == {"n2"}


def test_overdue_victims_are_waited_for_until_other_pods_can_be_evicted() -> None:
    """Without other victims the room stays reserved."""
    stage = terminating()
    stage.settle(400)
    assert (len(plans(stage)), message(stage).endswith(FOUND.format(2))) == (1, True)
    assert {stage.pod(name).status.nominated_node_name for name in ("pg-0", "pg-1")} == {"n1"}
    stage.put(node("n2", cpu=2), low("other-0", "n2", priority=20), low("other-1", "n2", priority=20))
    stage.settle(20)
    stage.settle(40)
    assert sorted(stage.evicted) == ["low-0", "low-1", "other-0", "other-1"]
    assert {stage.pod(name).status.nominated_node_name for name in ("pg-0", "pg-1")} == {"n2"}
    assert len(stage.cache.reservations.reserved_uids()) == 2


def test_an_overdue_victim_is_noticed_without_any_event() -> None:
    """For a minute, nothing changes in the cluster."""
    stage = terminating(node("n2", cpu=2), low("other-0", "n2", priority=20), low("other-1", "n2", priority=20))
    assert sorted(stage.evicted) == ["low-0", "low-1"]
    stage.settle(60)
    assert sorted(stage.evicted) == ["low-0", "low-1", "other-0", "other-1"]
