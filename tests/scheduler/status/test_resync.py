"""Status resync: trees without pending pods report their present state, whatever happened in between."""

import pytest
from msgspec import convert, to_builtins
from msgspec.structs import replace

from cpg_api.core.pod import Pod, PodCondition, PodStatus
from cpg_api.meta import Condition
from cpg_api.scheduling.podgroup import PodGroup, PodGroupStatus
from cpg_api.scheduling.workload import PodGroupTemplate
from cpg_engine.testing.builders import composite, node, pod, pod_group, workload
from cpg_scheduler.status.updates import GroupRecovered
from cpg_scheduler.testing.stage import CRD, NATIVE, Stage

PLACED = (True, "", "")


def bound(found: Pod, where: str = "n1") -> Pod:
    """Return a pod with a node."""
    return replace(found, spec=replace(found.spec, node_name=where))


def foreign(found: Pod) -> Pod:
    """Return a pod of another scheduler."""
    return replace(found, spec=replace(found.spec, scheduler_name="default-scheduler"))


def member(name: str, group: str = "pg") -> Pod:
    """Return a member of a group that requests a CPU."""
    return pod(name, group=group, cpu="1")


def with_condition(group: PodGroup, status: str, reason: str) -> PodGroup:
    """Return a group with a condition from before."""
    condition = Condition(type="PodGroupInitiallyScheduled", status=status, reason=reason, message="earlier message")
    return replace(group, status=PodGroupStatus(conditions=(condition,)))


def test_a_new_leader_reports_a_tree_that_the_last_one_has_only_bound() -> None:
    """At every level; no pod is pending."""
    tree = (composite("root", gang=2), pod_group("a", gang=2, parent="root"), pod_group("b", gang=1, parent="root"))
    pods = [bound(member(f"a{number}", "a")) for number in range(2)] + [bound(member("b0", "b"))]
    stage = Stage(node("n1", cpu="4"), *tree, *pods)
    stage.settle()
    assert stage.status.groups == dict.fromkeys(("root", "a", "b"), PLACED)
    assert (stage.bound(), len(stage.queue)) == ({"a0": "n1", "a1": "n1", "b0": "n1"}, 0)


def test_a_bind_of_unknown_outcome_may_complete_a_tree() -> None:
    """Its answer was lost, and the watch shows the node."""
    stage = Stage(node("n1", cpu="4"), pod_group("pg", gang=2), member("p"), member("q"))
    stage.run_passes()
    stage.fail_binds()
    for name in ("p", "q"):
        stage.put(bound(stage.pod(name)))
    stage.settle()
    assert stage.status.groups["pg"] == PLACED


def test_a_group_is_not_reported_before_its_binds_have_worked() -> None:
    """The bind of an assumed pod may fail."""
    stage = Stage(node("n1", cpu="4"), pod_group("pg", gang=1), member("p"))
    stage.run_passes()
    stage.put(pod_group("pg", gang=1, all_=True), member("late"))
    stage.delete(member("late"))
    stage.run_passes()
    assert "pg" not in stage.status.groups
    stage.complete_binds()
    assert stage.status.groups["pg"] == PLACED


def test_the_minimum_of_a_group_may_be_that_of_its_template() -> None:
    """Until all its pods are bound, it is not placed."""
    full = pod_group("pg", gang=3, workload="w")
    group = replace(full, spec=replace(full.spec, scheduling_policy=None))
    policy = full.spec.scheduling_policy
    assert policy is not None
    template = PodGroupTemplate(name="pg", scheduling_policy=policy)
    stage = Stage(node("n1", cpu="4"), workload([template]), group, member("p"), member("q"), member("r"))
    stage.run_passes()
    stage.complete_binds(refused=["q", "r"])
    assert stage.status.groups["pg"][0] is False
    stage.settle(60)
    assert stage.status.groups["pg"] == PLACED


def test_a_message_about_deleted_members_is_replaced() -> None:
    """Instead of room the group lacks members."""
    stage = Stage(node("n1", cpu="1"), pod_group("pg", gang=2), member("p"), member("q"))
    stage.settle()
    assert "room for" in stage.status.groups["pg"][2]
    stage.put(with_condition(pod_group("pg", gang=2), "False", "Unschedulable"))
    stage.delete(stage.pod("p"), stage.pod("q"))
    stage.settle()
    assert stage.status.groups["pg"][2] == "waiting for 2 more pods: minCount is 2, there is none"


def test_an_inadmissible_tree_is_reported_though_its_pods_run() -> None:
    """They were bound before it became inadmissible, or by another scheduler."""
    stage = Stage(node("n1", cpu="4"), pod_group("pg", gang=1, parent="missing"), bound(member("p")))
    stage.settle()
    assert "which does not exist" in stage.status.groups.pop("pg")[2]
    stage.put(pod_group("deep", gang=1, parent="deep0"), bound(member("q", "deep")))
    stage.put(*(composite(f"deep{n}", gang=1, parent=f"deep{n + 1}") for n in range(4)), composite("deep4", gang=1))
    stage.settle()
    assert {reason for _, reason, _ in stage.status.groups.values()} == {"Invalid"}


def test_groups_without_pods_are_not_reported() -> None:
    """The API server has given them their first condition; placed groups are not reported again either."""
    stage = Stage(
        node("n1", cpu="4"), pod_group("new", gang=3), with_condition(pod_group("old", gang=1), "True", "Scheduled")
    )
    stage.put(bound(member("p", "old")))
    stage.settle()
    assert stage.status.groups == {}


@pytest.mark.parametrize("flavour", [CRD, NATIVE])
@pytest.mark.parametrize("found", [member("t"), bound(member("t"))], ids=["pending", "running"])
def test_trees_of_other_schedulers_are_not_reported(flavour: str, found: Pod) -> None:
    """Whether they are admissible or not."""
    stage = Stage(node("n1", cpu="1"))
    stage.put(pod_group("pg", gang=2, parent="missing"), pod_group("other", gang=2), flavour=flavour)
    stage.put(foreign(found), foreign(member("u", "other")))
    stage.settle()
    assert stage.status.groups == {}


def test_a_tree_of_two_schedulers_is_reported() -> None:
    """Also without pending pods of ours."""
    stage = Stage(node("n1", cpu="1"), pod_group("pg", gang=2), foreign(member("t")), bound(member("p")))
    stage.settle()
    assert "need one schedulerName: Pod default/t has default-scheduler" in stage.status.groups["pg"][2]


def test_terminating_pods_of_ours_do_not_make_a_tree_ours() -> None:
    """Another scheduler has taken it over; without pods of that scheduler it is ours again."""
    terminating = replace(
        member("p"), metadata=replace(member("p").metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    )
    other = foreign(member("t"))
    stage = Stage(node("n1", cpu="1"), pod_group("pg", gang=2), bound(terminating), other)
    stage.settle()
    assert stage.status.groups == {}
    stage.delete(other)
    stage.settle()
    assert "waiting for 2 more pods" in stage.status.groups["pg"][2]


@pytest.mark.parametrize(("evictor", "recovered"), [("cpg-scheduler", ["whole"]), ("default-scheduler", [])])
def test_a_foreign_group_that_we_have_evicted_is_reported_as_recovered(evictor: str, recovered: list[str]) -> None:
    """Nothing else of it is; the other scheduler reports the recovery of a group that it has evicted itself."""
    message = f"{evictor}: preempting to accommodate a higher priority pod"
    condition = Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler", message=message)
    group = pod_group("whole", gang=2, all_=True)
    stage = Stage(node("n1", cpu="4"), replace(group, status=PodGroupStatus(conditions=(condition,))))
    stage.put(*(foreign(member(f"t{number}", "whole")) for number in range(2)))
    for number in range(2):
        stage.settle()
        assert stage.status.recovered == []
        stage.put(bound(stage.pod(f"t{number}")))
    stage.settle()
    assert (stage.status.recovered, stage.status.groups) == (recovered, {})


@pytest.mark.parametrize(("parent", "more"), [(None, [pod("large", group="whole", cpu="9")]), ("missing", [])])
def test_a_group_recovers_whatever_else_its_tree_lacks(parent: str | None, more: list[Pod]) -> None:
    """The tree has a pending pod, for which no attempt may follow, or is inadmissible."""
    condition = Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    group = replace(pod_group("whole", gang=2, parent=parent), status=PodGroupStatus(conditions=(condition,)))
    stage = Stage(node("n1", cpu="4"), group, *(bound(member(f"t{number}", "whole")) for number in range(2)), *more)
    root = stage.cache.unit_of(stage.pod("t0"))
    assert GroupRecovered(group, root) in stage.trees.resync(root)


@pytest.mark.parametrize(
    ("phase", "deleted", "recovered"),
    [("Running", None, []), ("Succeeded", None, ["whole"]), ("Succeeded", "2026-11-20T00:00:00Z", [])],
)
def test_a_group_recovers_once_its_last_victim_has_ended_by_itself(
    phase: str, deleted: str | None, recovered: list[str]
) -> None:
    """The mark of such a pod stays. One that ends because it is deleted is a victim still."""
    mark = Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    victim = bound(member("v", "whole"))
    status = PodStatus(phase=phase, conditions=(convert(to_builtins(mark), PodCondition),))
    metadata = replace(victim.metadata, deletion_timestamp=deleted)
    stage = Stage(
        node("n1", cpu="4"),
        replace(pod_group("whole", gang=1), status=PodGroupStatus(conditions=(mark,))),
        replace(victim, metadata=metadata, status=status),
    )
    stage.settle()
    assert stage.status.recovered == recovered


def test_trees_with_pending_pods_are_left_to_their_attempts() -> None:
    """Single pods have no group to report."""
    stage = Stage(node("n1", cpu="1"), pod_group("pg", gang=2), member("p"), member("q"), pod("single", cpu="9"))
    roots = {stage.cache.unit_of(stage.pod(name)) for name in ("p", "single")}
    assert len(roots) == 2
    assert [stage.trees.resync(root) for root in roots] == [[], []]
    assert CRD in {root.flavour for root in roots}
