"""What groups say when nobody waits in their tree: what is so, also after a death, a deletion, a late confirmation."""

import pytest
from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_api.meta import Condition
from cpg_api.scheduling.podgroup import PodGroup, PodGroupStatus
from cpg_engine.testing.builders import composite, node, pod, pod_group
from cpg_scheduler.testing.stage import CRD, NATIVE, Stage

PLACED = (True, "", "")


def bound(found: Pod, where: str = "n1") -> Pod:
    """Return a pod that has its node."""
    return replace(found, spec=replace(found.spec, node_name=where))


def theirs(found: Pod) -> Pod:
    """Return a pod that another scheduler is to place."""
    return replace(found, spec=replace(found.spec, scheduler_name="default-scheduler"))


def member(name: str, group: str = "pg") -> Pod:
    """Return a pod of a group that needs a CPU."""
    return pod(name, group=group, cpu="1")


def saying(group: PodGroup, status: str, reason: str) -> PodGroup:
    """Return a group that says so already."""
    condition = Condition(type="PodGroupInitiallyScheduled", status=status, reason=reason, message="earlier words")
    return replace(group, status=PodGroupStatus(conditions=(condition,)))


def test_a_death_between_the_last_bind_and_the_report_is_made_good() -> None:
    """The next process finds everything bound and nobody waiting, and says so at every level."""
    tree = (composite("root", gang=2), pod_group("a", gang=2, parent="root"), pod_group("b", gang=1, parent="root"))
    pods = [bound(member(f"a{number}", "a")) for number in range(2)] + [bound(member("b0", "b"))]
    stage = Stage(node("n1", cpu="4"), *tree, *pods)
    stage.settle()
    assert stage.status.groups == dict.fromkeys(("root", "a", "b"), PLACED)
    assert (stage.bound(), len(stage.queue)) == ({"a0": "n1", "a1": "n1", "b0": "n1"}, 0)


def test_a_bind_of_unknown_outcome_may_complete_a_tree() -> None:
    """The answer was lost, the watch shows the node: nobody waits any more, and the group says so."""
    stage = Stage(node("n1", cpu="4"), pod_group("pg", gang=2), member("p"), member("q"))
    stage.run_passes()
    stage.fail_binds()
    for name in ("p", "q"):
        stage.put(bound(stage.pod(name)))
    stage.settle()
    assert stage.status.groups["pg"] == PLACED


def test_nothing_is_said_before_binds_have_worked() -> None:
    """What is assumed may still fail."""
    stage = Stage(node("n1", cpu="4"), pod_group("pg", gang=1), member("p"))
    stage.run_passes()
    stage.put(pod_group("pg", gang=1, all_=True), member("late"))
    stage.delete(member("late"))
    stage.run_passes()
    assert "pg" not in stage.status.groups
    stage.complete_binds()
    assert stage.status.groups["pg"] == PLACED


def test_words_about_members_that_are_gone_are_taken_back() -> None:
    """There is no lack of room any more, there is a lack of members."""
    stage = Stage(node("n1", cpu="1"), pod_group("pg", gang=2), member("p"), member("q"))
    stage.settle()
    assert "room for" in stage.status.groups["pg"][2]
    stage.put(saying(pod_group("pg", gang=2), "False", "Unschedulable"))
    stage.delete(stage.pod("p"), stage.pod("q"))
    stage.settle()
    assert stage.status.groups["pg"][2] == "waiting for 2 more pods: minCount is 2, there is none"


def test_a_wrong_tree_says_so_when_its_pods_run() -> None:
    """It had its nodes before it became wrong, or came without us."""
    stage = Stage(node("n1", cpu="4"), pod_group("pg", gang=1, parent="nobody"), bound(member("p")))
    stage.settle()
    assert "which does not exist" in stage.status.groups.pop("pg")[2]
    stage.put(pod_group("deep", gang=1, parent="deep0"), bound(member("q", "deep")))
    stage.put(*(composite(f"deep{n}", gang=1, parent=f"deep{n + 1}") for n in range(4)), composite("deep4", gang=1))
    stage.settle()
    assert {reason for _, reason, _ in stage.status.groups.values()} == {"Invalid"}


def test_groups_that_nobody_has_joined_are_left_alone() -> None:
    """The API server has given them their first words; nor is anything said twice of those that were placed."""
    stage = Stage(node("n1", cpu="4"), pod_group("new", gang=3), saying(pod_group("old", gang=1), "True", "Scheduled"))
    stage.put(bound(member("p", "old")))
    stage.settle()
    assert stage.status.groups == {}


@pytest.mark.parametrize("flavour", [CRD, NATIVE])
@pytest.mark.parametrize("found", [member("t"), bound(member("t"))], ids=["waits", "runs"])
def test_nothing_is_said_of_trees_that_others_place(flavour: str, found: Pod) -> None:
    """Neither of those that are as they should be, nor of what is wrong with them."""
    stage = Stage(node("n1", cpu="1"))
    stage.put(pod_group("pg", gang=2, parent="nobody"), pod_group("other", gang=2), flavour=flavour)
    stage.put(theirs(found), theirs(member("u", "other")))
    stage.settle()
    assert stage.status.groups == {}


def test_a_tree_of_two_schedulers_is_told_that_it_is_one() -> None:
    """Also where nobody of ours waits any more."""
    stage = Stage(node("n1", cpu="1"), pod_group("pg", gang=2), theirs(member("t")), bound(member("p")))
    stage.settle()
    assert "need one schedulerName: Pod default/t has default-scheduler" in stage.status.groups["pg"][2]


def test_pods_of_ours_that_end_make_no_tree_ours() -> None:
    """It has gone over to another scheduler; with nobody left but them it is looked at as ever."""
    doomed = replace(member("p"), metadata=replace(member("p").metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
    other = theirs(member("t"))
    stage = Stage(node("n1", cpu="1"), pod_group("pg", gang=2), bound(doomed), other)
    stage.settle()
    assert stage.status.groups == {}
    stage.delete(other)
    stage.settle()
    assert "waiting for 2 more pods" in stage.status.groups["pg"][2]


@pytest.mark.parametrize(("evictor", "back"), [("cpg-scheduler", ["whole"]), ("default-scheduler", [])])
def test_a_group_of_others_that_we_have_evicted_says_when_it_is_back(evictor: str, back: list[str]) -> None:
    """Nobody else would, and nothing more is said of it; what others have said is theirs to take back."""
    words = f"{evictor}: preempting to accommodate a higher priority pod"
    said = Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler", message=words)
    group = pod_group("whole", gang=2, all_=True)
    stage = Stage(node("n1", cpu="4"), replace(group, status=PodGroupStatus(conditions=(said,))))
    stage.put(*(theirs(member(f"t{number}", "whole")) for number in range(2)))
    for number in range(2):
        stage.settle()
        assert stage.status.recovered == []
        stage.put(bound(stage.pod(f"t{number}")))
    stage.settle()
    assert (stage.status.recovered, stage.status.groups) == (back, {})


def test_who_waits_is_spoken_of_by_others() -> None:
    """An attempt says more, and says it at its time; pods without a group have no group that could speak."""
    stage = Stage(node("n1", cpu="1"), pod_group("pg", gang=2), member("p"), member("q"), pod("alone", cpu="9"))
    roots = {stage.cache.unit_of(stage.pod(name)) for name in ("p", "alone")}
    assert len(roots) == 2
    assert [stage.trees.resync(root) for root in roots] == [[], []]
    assert CRD in {root.flavour for root in roots}
