"""What a new leader makes of the preemptions of the previous one."""

from typing import Any

import pytest
from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_api.meta import Condition
from cpg_api.scheduling.podgroup import PodGroupStatus
from cpg_engine.testing.builders import node, pod, pod_group
from cpg_scheduler.preemption.jobs import Victim
from cpg_scheduler.testing.preemption_setup import ONGOING, full, gang, low, message, plans, terminating
from cpg_scheduler.testing.stage import Stage


def restarted(stage: Stage) -> Stage:
    """Return a stage with the same objects and a new leader."""
    after = Stage(*stage.objects())
    after.victims_linger = stage.victims_linger
    after.recover()
    return after


def test_a_new_leader_waits_for_the_victims_of_the_previous_one() -> None:
    """It makes no second plan, keeps the room reserved, and binds when they have ended."""
    after = restarted(terminating())
    after.put(pod("quick", cpu=1, priority=100))
    after.settle(60)
    assert (after.evicted, plans(after)) == ([], [])
    assert message(after).endswith(ONGOING)
    for name in ("low-0", "low-1"):
        after.delete(after.pod(name))
    after.settle(60)
    assert after.bound() == {"pg-0": "n1", "pg-1": "n1"}


def interrupted(*things: Any, marked: int = 2, **given: Any) -> Stage:
    """Return a stage with a leader that has died after it had marked some victims, before the first deletion."""
    stage = full(**given)
    stage.put(*things)
    stage.run_passes()
    (job,) = stage.executor.preparing
    stage.nominate(job)
    stage.mark_victims(job, *job.victims[:marked])
    return stage


def newer(found: Pod) -> Pod:
    """Return a pod that was created after all marks."""
    return replace(found, metadata=replace(found.metadata, creation_timestamp="2099-01-01T00:00:00Z"))


def marked_whole(*things: Any, gang_of: int | None = 3) -> Stage:
    """Return a stage on which all three pods of a unit are marked for a gang that is nominated, and none is deleted."""
    unit = pod_group("whole", priority=10, all_=True, gang=gang_of)
    stage = Stage(node("n1", cpu=3), unit, *(low(f"w-{number}", group="whole") for number in range(3)), *gang())
    stage.run_passes()
    (job,) = stage.executor.preparing
    stage.nominate(job)
    stage.mark_victims(job, *job.victims)
    stage.put(*things)
    return stage


def test_a_mark_alone_evicts_no_pod() -> None:
    """All pods of the unit run: the retraction of a plan that broke has failed. There is room now, so they stay."""
    after = restarted(marked_whole(node("n9", cpu=4)))
    after.settle(60)
    assert (after.evicted, {after.bound()[name] for name in ("pg-0", "pg-1")}) == ([], {"n9"})
    said = [[one.status for one in after.pod(f"w-{number}").status.conditions or ()] for number in range(3)]
    assert said == [["False"]] * 3


@pytest.mark.parametrize("grows", [False, True])
def test_a_unit_that_has_lost_a_pod_is_completed(grows: bool) -> None:  # noqa: FBT001 - a parameter
    """It is below its minimum, or its pod has been replaced: no new plan is needed, though there is room now."""
    stage = marked_whole(node("n9", cpu=4), gang_of=2 if grows else 3)
    stage.delete(stage.pod("w-0"))
    if grows:
        stage.put(newer(low("w-4", "n9", group="whole")))
    after = restarted(stage)
    after.settle(60)
    assert sorted(after.evicted) == (["w-1", "w-2", "w-4"] if grows else ["w-1", "w-2"])


def test_a_unit_with_a_terminating_pod_is_completed() -> None:
    """The previous leader has deleted that pod."""
    stage = marked_whole()
    stage.victims_linger = True
    stage.terminate(stage.pod("w-0"))
    after = restarted(stage)
    after.settle(60)
    assert sorted(after.evicted) == ["w-1", "w-2"]


def test_a_complete_unit_stays_if_the_preemptor_is_gone() -> None:
    """All of its pods are marked, and all run. The marks are retracted."""
    stage = marked_whole()
    for name in ("pg-0", "pg-1"):
        stage.delete(stage.pod(name))
    after = restarted(stage)
    after.settle(60)
    said = [[one.status for one in after.pod(f"w-{number}").status.conditions or ()] for number in range(3)]
    assert (after.evicted, said) == ([], [["False"]] * 3)


def test_a_new_leader_completes_a_unit() -> None:
    """The previous one has died after the first of two deletions, and the unit has grown since."""
    stage = Stage(node("n1", cpu=2), node("n2", cpu=1), pod_group("whole", priority=10, all_=True), *gang())
    stage.put(*(low(f"w-{number}", group="whole") for number in range(2)))
    stage.run_passes()
    (job,) = stage.executor.preparing
    stage.nominate(job)
    stage.mark_victims(job, *job.victims)
    stage.delete(stage.pod("w-0"))
    stage.put(newer(low("w-2", "n2", group="whole")))
    after = restarted(stage)
    after.settle(60)
    assert (sorted(after.evicted), len(after.bound()), plans(after)) == (["w-1", "w-2"], 2, [])


def whole(*, marked: int) -> Stage:
    """Return a stage on which some pods of a unit of three are marked, and the preemptor was deleted since."""
    stage = Stage(node("n1", cpu=3), node("n2", cpu=1), pod_group("whole", priority=10, all_=True), *gang())
    stage.put(*(low(f"w-{number}", group="whole") for number in range(3)))
    stage.run_passes()
    (job,) = stage.executor.preparing
    stage.mark_victims(job, Victim(job.victims[0].pods[:marked]))
    for name in ("pg-0", "pg-1"):
        stage.delete(stage.pod(name))
    return stage


def test_a_unit_is_completed_though_the_preemptor_is_gone() -> None:
    """The previous leader had deleted its first pod. All others are evicted, also one that is newer."""
    stage = whole(marked=3)
    stage.delete(stage.pod("w-0"))
    stage.put(newer(low("w-3", "n2", group="whole")))
    after = restarted(stage)
    after.settle(60)
    assert sorted(after.evicted) == ["w-1", "w-2", "w-3"]


def test_the_marks_of_other_victims_do_not_date_the_marks_of_a_unit() -> None:
    """An older victim terminates. By its mark, all pods of the unit would count as newer than the marks."""
    stage = whole(marked=1)
    older = low("stuck", "n2")
    said = stage.pod("w-0").status.conditions or ()
    early = [replace(one, last_transition_time="2025-01-01T00:00:00Z") for one in said]
    gone = replace(older.metadata, deletion_timestamp="2025-01-01T00:00:00Z")
    stage.put(replace(older, metadata=gone, status=replace(older.status, conditions=tuple(early))))
    after = restarted(stage)
    after.settle(20)
    assert after.evicted == []


def test_terminating_pods_are_not_evicted_again_if_the_preemptor_is_gone() -> None:
    """Also when the leader changes once more."""
    stage = whole(marked=3)
    stage.victims_linger = True
    for number in range(3):
        stage.terminate(stage.pod(f"w-{number}"))
    after = restarted(stage)
    after.settle(20)
    assert (after.evicted, after.executor.jobs) == ([], {})


def test_a_unit_that_is_not_fully_marked_stays_if_the_preemptor_is_gone() -> None:
    """None of its pods can have been deleted. The marks are retracted."""
    after = restarted(whole(marked=2))
    after.settle(60)
    assert after.evicted == []
    said = [[one.status for one in after.pod(f"w-{number}").status.conditions or ()] for number in range(3)]
    assert sorted(said) == [[], ["False"], ["False"]]


def test_the_mark_of_a_group_that_stays_is_retracted() -> None:
    """With those of its pods."""
    stage = whole(marked=2)
    said = Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler", message="")
    group = pod_group("whole", priority=10, all_=True)
    stage.put(replace(group, status=PodGroupStatus(conditions=(said,))))
    assert [one.metadata.name for one in restarted(stage).executor.retracted_groups] == ["whole"]


def test_single_pods_stay_if_the_preemptor_is_gone() -> None:
    """Their marks are retracted."""
    stage = interrupted()
    for name in ("pg-0", "pg-1"):
        stage.delete(stage.pod(name))
    after = restarted(stage)
    after.settle(60)
    assert after.evicted == []
    for name in ("low-0", "low-1"):
        assert [one.status for one in after.pod(name).status.conditions or ()] == ["False"]


@pytest.mark.parametrize("marked", [0, 1, 2])
def test_a_new_leader_plans_anew_if_no_unit_was_started(marked: int) -> None:
    """The cluster has not changed, so the victims are the same."""
    after = restarted(interrupted(marked=marked))
    after.settle(60)
    assert (sorted(after.evicted), after.bound()) == (["low-0", "low-1"], {"pg-0": "n1", "pg-1": "n1"})


def test_a_new_leader_evicts_no_pod_if_room_has_appeared() -> None:
    """The marks are retracted."""
    stage = interrupted()
    stage.put(node("n9", cpu=4))
    after = restarted(stage)
    after.settle(60)
    assert (after.evicted, {after.bound()[name] for name in ("pg-0", "pg-1")}) == ([], {"n9"})
    said = [after.pod(name).status.conditions or () for name in ("low-0", "low-1")]
    assert [[condition.status for condition in conditions] for conditions in said] == [["False"], ["False"]]


def test_a_new_leader_evicts_no_pod_from_a_cordoned_node() -> None:
    """The plan breaks, as it would have under the previous leader."""
    stage = interrupted()
    stage.put(node("n1", cpu=2, unschedulable=True))
    after = restarted(stage)
    after.settle(60)
    assert (after.evicted, after.cache.reservations.reserved_uids()) == ([], ())


def test_a_new_leader_does_not_take_up_a_plan_that_was_replaced() -> None:
    """The first plan broke before its first eviction, and the second was carried out."""
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


def test_nominations_without_a_plan_are_cleared() -> None:
    """They are of a plan with victims that ended without making enough room."""
    lost = pod("lost", cpu=9)
    stage = Stage(node("n1", cpu=1), replace(lost, status=replace(lost.status, nominated_node_name="n1")))
    after = restarted(stage)
    after.settle(60)
    assert (after.pod("lost").status.nominated_node_name, after.cache.reservations.reserved_uids()) == ("", ())
