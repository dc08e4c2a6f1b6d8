"""What becomes of a plan when the leader that made it is followed by another."""

from typing import Any

import pytest
from msgspec.structs import replace

from cpg_api.meta import Condition
from cpg_api.scheduling.podgroup import PodGroupStatus
from cpg_engine.testing.builders import node, pod, pod_group
from cpg_scheduler.preemption.jobs import Victim
from cpg_scheduler.testing.preemption_setup import ONGOING, full, gang, low, messages, patient, plans
from cpg_scheduler.testing.stage import Stage


def restarted(stage: Stage) -> Stage:
    """Return a stage with the same objects, on which another leader has just begun."""
    after = Stage(*stage.objects())
    after.victims_linger = stage.victims_linger
    after.recover()
    return after


def test_a_new_leader_waits_for_the_victims_of_the_old_one() -> None:
    """It makes no second plan, keeps the room, and binds when they have gone."""
    after = restarted(patient())
    after.put(pod("quick", cpu=1, priority=100))
    after.settle(60)
    assert (after.evicted, plans(after)) == ([], [])
    assert messages(after).endswith(ONGOING)
    for name in ("low-0", "low-1"):
        after.delete(after.pod(name))
    after.settle(60)
    assert after.bound() == {"pg-0": "n1", "pg-1": "n1"}


def interrupted(*things: Any, told: int = 2, **given: Any) -> Stage:
    """Return a stage whose leader died after it had told so many victims, and before the first had gone."""
    stage = full(**given)
    stage.put(*things)
    stage.run_passes()
    (job,) = stage.executor.preparing
    stage.nominate(job)
    stage.mark_victims(job, *job.victims[:told])
    return stage


def test_a_new_leader_ends_what_the_old_one_began() -> None:
    """It died after the first of two deletions: half a unit is not left behind, also where it has grown meanwhile."""
    stage = Stage(node("n1", cpu=2), node("n2", cpu=1), pod_group("whole", priority=10, all_=True), *gang())
    stage.put(*(low(f"w-{number}", group="whole") for number in range(2)))
    stage.run_passes()
    (job,) = stage.executor.preparing
    stage.nominate(job)
    stage.mark_victims(job, *job.victims)
    stage.delete(stage.pod("w-0"))
    stage.put(low("w-2", "n2", group="whole"))
    after = restarted(stage)
    after.settle(60)
    assert (sorted(after.evicted), len(after.bound()), plans(after)) == (["w-1", "w-2"], 2, [])


def whole(*, told: int) -> Stage:
    """Return a stage whose leader has told so many of a unit of three, and whose preemptor has gone since."""
    stage = Stage(node("n1", cpu=3), node("n2", cpu=1), pod_group("whole", priority=10, all_=True), *gang())
    stage.put(*(low(f"w-{number}", group="whole") for number in range(3)))
    stage.run_passes()
    (job,) = stage.executor.preparing
    stage.mark_victims(job, Victim(job.victims[0].pods[:told]))
    for name in ("pg-0", "pg-1"):
        stage.delete(stage.pod(name))
    return stage


def test_a_unit_goes_whole_though_the_preemptor_has_gone() -> None:
    """The old leader had deleted the first pod of it, and was about to delete the others, and who came since."""
    stage = whole(told=3)
    stage.delete(stage.pod("w-0"))
    late = low("w-3", "n2", group="whole")
    stage.put(replace(late, metadata=replace(late.metadata, creation_timestamp="2099-01-01T00:00:00Z")))
    after = restarted(stage)
    after.settle(60)
    assert sorted(after.evicted) == ["w-1", "w-2", "w-3"]


def test_an_older_victim_says_nothing_of_when_a_unit_was_told() -> None:
    """It has been on its way since before the unit came, all of which would count as later than that."""
    stage = whole(told=1)
    older = low("stuck", "n2")
    said = stage.pod("w-0").status.conditions or ()
    early = [replace(one, last_transition_time="2025-01-01T00:00:00Z") for one in said]
    gone = replace(older.metadata, deletion_timestamp="2025-01-01T00:00:00Z")
    stage.put(replace(older, metadata=gone, status=replace(older.status, conditions=tuple(early))))
    after = restarted(stage)
    after.settle(20)
    assert after.evicted == []


def test_what_goes_already_is_left_to_go_where_the_preemptor_has_gone() -> None:
    """Also when the leaders change once more: it is not evicted, and told of, a second time."""
    stage = whole(told=3)
    stage.victims_linger = True
    for number in range(3):
        stage.terminate(stage.pod(f"w-{number}"))
    after = restarted(stage)
    after.settle(20)
    assert (after.evicted, after.executor.jobs) == ([], {})


def test_a_unit_of_which_nobody_can_have_gone_stays_where_the_preemptor_has_gone() -> None:
    """Not all had been told; who was, is told that it stays."""
    after = restarted(whole(told=2))
    after.settle(60)
    assert after.evicted == []
    said = [[one.status for one in after.pod(f"w-{number}").status.conditions or ()] for number in range(3)]
    assert sorted(said) == [[], ["False"], ["False"]]


def test_a_group_that_stays_is_told_so_with_its_pods() -> None:
    """It had been told that it goes as a whole."""
    stage = whole(told=2)
    said = Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler", message="")
    group = pod_group("whole", priority=10, all_=True)
    stage.put(replace(group, status=PodGroupStatus(conditions=(said,))))
    assert [one.metadata.name for one in restarted(stage).executor.retracted_groups] == ["whole"]


def test_pods_by_themselves_stay_where_the_preemptor_has_gone() -> None:
    """There is nobody to go for."""
    stage = interrupted()
    for name in ("pg-0", "pg-1"):
        stage.delete(stage.pod(name))
    after = restarted(stage)
    after.settle(60)
    assert after.evicted == []
    for name in ("low-0", "low-1"):
        assert [one.status for one in after.pod(name).status.conditions or ()] == ["False"]


@pytest.mark.parametrize("told", [0, 1, 2])
def test_a_new_leader_plans_anew_where_the_old_one_had_not_begun(told: int) -> None:
    """Nothing has changed, so it comes to the same."""
    after = restarted(interrupted(told=told))
    after.settle(60)
    assert (sorted(after.evicted), after.bound()) == (["low-0", "low-1"], {"pg-0": "n1", "pg-1": "n1"})


def test_a_new_leader_evicts_nobody_where_room_has_appeared() -> None:
    """Who had been told to go is told to stay."""
    stage = interrupted()
    stage.put(node("n9", cpu=4))
    after = restarted(stage)
    after.settle(60)
    assert (after.evicted, {after.bound()[name] for name in ("pg-0", "pg-1")}) == ([], {"n9"})
    said = [after.pod(name).status.conditions or () for name in ("low-0", "low-1")]
    assert [[condition.status for condition in conditions] for conditions in said] == [["False"], ["False"]]


def test_a_new_leader_evicts_nobody_from_a_node_that_has_been_closed() -> None:
    """The plan of the old one is as broken as if it had lived to see it."""
    stage = interrupted()
    stage.put(node("n1", cpu=2, unschedulable=True))
    after = restarted(stage)
    after.settle(60)
    assert (after.evicted, after.cache.reservations.reserved_uids()) == ([], ())


def test_a_new_leader_evicts_nobody_for_a_plan_that_was_dropped() -> None:
    """The first plan broke before anybody went; the second one is performed."""
    others = [low(f"b{number}", "n2", priority=20) for number in range(2)]
    stage = Stage(node("n1", cpu=2), node("n2", cpu=2), low("a0"), low("a1"), *others, *gang())
    stage.victims_linger = True
    while stage.run_passes():
        pass
    stage.put(node("n1", cpu=2, unschedulable=True))
    stage.settle(20)
    assert sorted(stage.evicted) == ["b0", "b1"]
    after = restarted(stage)
    after.settle(20)
    assert after.evicted == []


def test_nominations_that_lead_nowhere_are_dropped() -> None:
    """Somebody else's, or of a plan whose victims have gone without there being room."""
    lost = pod("lost", cpu=9)
    stage = Stage(node("n1", cpu=1), replace(lost, status=replace(lost.status, nominated_node_name="n1")))
    after = restarted(stage)
    after.settle(60)
    assert (after.pod("lost").status.nominated_node_name, after.cache.reservations.reserved_uids()) == ("", ())
