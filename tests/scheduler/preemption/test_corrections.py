"""What the API shows of preemptions is compared with what is active, and corrected until it is right."""

from msgspec.structs import replace

from cpg_api.core.pod import Pod, PodCondition
from cpg_api.meta import Condition
from cpg_api.scheduling.podgroup import PodGroup, PodGroupStatus
from cpg_engine.testing.builders import node, pod, pod_group
from cpg_scheduler.preemption.corrections import MAX_SECONDS_BETWEEN_WRITES, SECONDS_BETWEEN_CORRECTIONS
from cpg_scheduler.preemption.events import CorrectionDue
from cpg_scheduler.preemption.outbox import Outbox
from cpg_scheduler.testing.preemption_setup import full, low, terminating
from cpg_scheduler.testing.stage import Stage

SAYS = "cpg-scheduler: preempting to accommodate a higher priority pod default/gone uid-gone"


def correct(stage: Stage, times: int = 1) -> None:
    """Let the time pass between corrections, as often, with one correction each time."""
    for _ in range(times):
        stage.now += SECONDS_BETWEEN_CORRECTIONS
        stage.report(CorrectionDue())


def of_other(found: Pod) -> Pod:
    """Return a pod of another scheduler."""
    return replace(found, spec=replace(found.spec, scheduler_name="other"))


def nominated(found: Pod, where: str) -> Pod:
    """Return a pod with a nomination."""
    return replace(found, status=replace(found.status, nominated_node_name=where))


def evicted(found: Pod, message: str = SAYS) -> Pod:
    """Return a pod that says that it is evicted."""
    said = PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler", message=message)
    return replace(found, status=replace(found.status, conditions=(said,)))


def marked_group(status: str = "True", message: str = SAYS) -> PodGroup:
    """Return a group of two that says whether it is evicted."""
    said = Condition(type="DisruptionTarget", status=status, reason="PreemptionByScheduler", message=message)
    return replace(pod_group("whole", gang=2, all_=True, priority=10), status=PodGroupStatus(conditions=(said,)))


def test_a_nomination_without_a_reservation_is_cleared_until_the_watch_shows_it() -> None:
    """The first writes fail. The time between two of them doubles, so that a refused write costs little."""
    stage = Stage(node("n1", cpu=1), nominated(pod("lost", cpu=9), "n1"))
    sent = []
    for _ in range(8):
        correct(stage)
        sent.append(len(stage.executor.cleared))
        stage.executor.cleared.clear()
    assert sent == [0, 1, 0, 1, 0, 0, 0, 1]
    correct(stage, 8)
    stage.settle()
    assert stage.pod("lost").status.nominated_node_name == ""
    correct(stage, int(2 * MAX_SECONDS_BETWEEN_WRITES / SECONDS_BETWEEN_CORRECTIONS))
    assert stage.executor.is_idle


def test_the_nomination_of_another_component_stays() -> None:
    """It reserves nothing, also after a restart. A preemption that ends does not clear it either."""
    hinted = replace(nominated(pod("hinted", cpu=9), "n1"), is_nominated_by_other=True)
    stage = Stage(node("n1", cpu=1), hinted)
    stage.run_passes()
    correct(stage, 4)
    assert (stage.executor.cleared, stage.cache.reservations.reserved_uids()) == ([], ())
    outbox = Outbox()
    outbox.clear_nominations([hinted])
    assert outbox.take() == []


def test_a_difference_that_vanishes_is_not_written() -> None:
    """The watch was late. A later difference is a new one."""
    stage = Stage(node("n1", cpu=1), nominated(pod("lost", cpu=9), "n1"))
    correct(stage)
    stage.put(nominated(pod("lost", cpu=9), ""))
    correct(stage)
    stage.put(nominated(pod("lost", cpu=9), "n1"))
    correct(stage)
    assert stage.executor.is_idle
    correct(stage)
    assert [one.metadata.name for one in stage.executor.cleared] == ["lost"]


def test_the_nominations_of_an_active_preemption_stay() -> None:
    """Also while they are written, and those of other schedulers."""
    stage = full()
    stage.put(nominated(of_other(pod("foreign", cpu=9)), "n1"))
    stage.run_passes()
    correct(stage, 3)
    assert (stage.executor.cleared, stage.executor.nominated) == ([], [])
    stage.victims_linger = True
    stage.settle()
    correct(stage, 3)
    assert stage.executor.is_idle
    assert stage.pod("pg-0").status.nominated_node_name == "n1"


def test_a_missing_nomination_is_written_again() -> None:
    """Room is reserved for the pod, and the API does not show that, or shows another node."""
    stage = terminating()
    stage.put(nominated(stage.pod("pg-0"), ""), nominated(stage.pod("pg-1"), "n7"))
    correct(stage, 2)
    assert sorted((one.pod.metadata.name, one.node) for one in stage.executor.nominated) == [
        ("pg-0", "n1"),
        ("pg-1", "n1"),
    ]


def test_the_mark_of_a_pod_that_is_no_victim_is_retracted() -> None:
    """Again and again until the watch shows it. Marks of other schedulers stay, and those of pods that end."""
    gone = low("gone")
    gone = replace(gone, metadata=replace(gone.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
    foreign = evicted(low("foreign"), "default-scheduler: preempting")
    stage = Stage(node("n1", cpu=9), evicted(low("stays")), foreign, evicted(gone))
    correct(stage, 2)
    assert [one.metadata.name for one in stage.executor.retracted] == ["stays"]
    stage.executor.retracted.clear()
    correct(stage, 2)
    stage.settle()
    assert [one.status for one in stage.pod("stays").status.conditions or ()] == ["False"]


def test_the_marks_of_victims_stay() -> None:
    """Of those whose deletions are under way, and of those that the watch does not show as terminating yet."""
    stage = full()
    stage.run_passes()
    (job,) = stage.executor.preparing
    stage.mark_victims(job, *job.victims)
    correct(stage, 3)
    assert stage.executor.retracted == []


def test_marks_in_namespaces_in_which_we_may_not_act_stay() -> None:
    """A write there would be refused."""
    stage = Stage(node("n1", cpu=9), evicted(low("stays")), namespaces=("other",))
    correct(stage, 3)
    assert stage.executor.is_idle


def test_the_mark_of_a_group_with_its_minimum_is_retracted() -> None:
    """The write of the status is repeated by a resync of its tree, also if nothing of the tree has changed."""
    pods = [low(f"w-{number}", group="whole") for number in range(2)]
    stage = Stage(node("n1", cpu=9), marked_group(), *pods)
    stage.settle()
    stage.status.recovered.clear()
    correct(stage, 2)
    stage.settle()
    assert stage.status.recovered == ["whole"]
    stage.put(marked_group("False"))
    stage.status.recovered.clear()
    correct(stage, 9)
    stage.settle()
    assert stage.status.recovered == []


def test_the_mark_of_a_group_is_retracted_though_it_has_a_pending_pod() -> None:
    """No attempt follows when the mark of its last pod has been retracted, however long that took."""
    gone = evicted(low("gone", group="whole"))
    gone = replace(gone, metadata=replace(gone.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
    pods = [low(f"w-{number}", group="whole") for number in range(2)]
    stage = Stage(node("n1", cpu=9), marked_group(), gone, *pods, pod("large", cpu=99, group="whole", priority=10))
    stage.settle()
    correct(stage, 40)
    stage.settle()
    assert stage.status.recovered == []
    stage.delete(gone)
    stage.settle()
    stage.status.recovered.clear()
    attempts = stage.queue.attempts(stage.cache.unit_of(pods[0]))
    correct(stage, 2)
    stage.settle()
    assert stage.status.recovered == ["whole"]
    assert stage.queue.attempts(stage.cache.unit_of(pods[0])) == attempts


def test_the_marks_of_groups_of_other_schedulers_stay() -> None:
    """They are not ours to retract."""
    pods = [of_other(low(f"w-{number}", group="whole")) for number in range(2)]
    stage = Stage(node("n1", cpu=9), marked_group(message="default-scheduler: preempting"), *pods)
    stage.settle()
    correct(stage, 3)
    stage.settle()
    assert stage.status.recovered == []
