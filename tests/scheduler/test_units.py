"""Building units from groups and pods, and the problems why there may be none."""

from typing import Any

import pytest
from msgspec.structs import replace

from cpg_api.core.pod import Pod, SchedulingGate, SchedulingGroup
from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_api.scheduling.forest import Group, GroupKey, key_of
from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_api.scheduling.workload import Workload
from cpg_engine.testing.builders import (
    bare,
    composite,
    constraints,
    inner_template,
    leaf_template,
    metadata,
    node,
    pod,
    pod_group,
    priority_class,
    workload,
)
from cpg_scheduler.inadmissible import (
    GroupKindsNotServed,
    GroupMissing,
    Inadmissible,
    InconsistentMembership,
    InvalidTree,
    PodDeleted,
    PodGated,
    PreemptionPoliciesDiffer,
    PrioritiesDiffer,
    SchedulerNamesDiffer,
    TemplateMissing,
    TreeGated,
)
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.testing.stage import NATIVE, Stage
from cpg_scheduler.units import SchedulableUnit, build_unit, pending_pods, queue_key_of

GATES = (SchedulingGate(name="wait"),)


def built(stage: Stage, name: str) -> SchedulableUnit:
    """Return the unit of a pod."""
    found = build_unit(stage.cache, stage.cache.unit_of(stage.pod(name)))
    assert isinstance(found, SchedulableUnit)
    return found


def inadmissible(stage: Stage, name: str) -> Inadmissible:
    """Return the unit of a pod, which cannot be attempted."""
    found = build_unit(stage.cache, stage.cache.unit_of(stage.pod(name)))
    assert isinstance(found, Inadmissible)
    return found


def messages(stage: Stage, name: str) -> list[str]:
    """Return the problems of the tree of a pod."""
    problem = inadmissible(stage, name).problem
    assert isinstance(problem, InvalidTree)
    return [found.message for found in problem.problems]


def foreign(found: Pod) -> Pod:
    """Return a pod of another scheduler."""
    return replace(found, spec=replace(found.spec, scheduler_name="default-scheduler"))


def tree(*, minimum: int = 2) -> Stage:
    """Return a tree of two groups of two, of which the root needs so many."""
    stage = Stage(node("n1", cpu=8), composite("root", gang=minimum))
    stage.put(*(pod_group(name, gang=2, parent="root") for name in ("one", "two")))
    stage.put(*(pod(f"{name}-{number}", cpu=1, group=name) for name in ("one", "two") for number in range(2)))
    return stage


# Queue keys and pending pods.


def test_a_unit_is_ordered_by_the_priority_and_age_of_its_root() -> None:
    """Of its top group, or of the pod."""
    early, late = metadata("pg", created="2025"), metadata("p", created="2026")
    stage = Stage(
        pod_group("pg", priority=7, meta=early), pod("m", group="pg", priority=1), pod("p", priority=3, meta=late)
    )
    keys = [queue_key_of(stage.cache, stage.cache.unit_of(stage.pod(name))) for name in ("m", "p")]
    assert [key and key[:2] for key in keys] == [(-7, "2025"), (-3, "2026")]


def test_a_group_without_a_priority_has_that_of_its_class() -> None:
    """The default class counts; without any class, the priority is zero."""
    group = pod_group("pg", priority=None)
    stage = Stage(group, pod("m", group="pg"))
    unit = stage.cache.unit_of(stage.pod("m"))
    assert (queue_key_of(stage.cache, unit) or (1,))[0] == 0
    stage.put(priority_class("usual", 5, default=True))
    assert (queue_key_of(stage.cache, unit) or (1,))[0] == -5
    stage.put(replace(group, spec=replace(group.spec, priority_class_name="unknown")))
    assert (queue_key_of(stage.cache, unit) or (1,))[0] == 0


def test_a_unit_without_pending_pods_has_no_queue_key() -> None:
    """Its pods run, are gone, or belong to another scheduler."""
    stage = tree()
    stage.put(*(pod(f"{name}-{number}", group=name, node_name="n1") for name in ("one", "two") for number in range(2)))
    stage.put(pod("alone", node_name="n1"), foreign(pod("foreign")))
    units = [stage.cache.unit_of(stage.pod(name)) for name in ("one-0", "alone", "foreign")]
    for unit in (*units, stage.cache.unit_of(pod("gone"))):
        assert queue_key_of(stage.cache, unit) is None
        assert pending_pods(stage.cache, unit) == []


def test_the_pending_pods_of_a_unit_are_those_of_its_whole_tree() -> None:
    """Or the pod itself."""
    stage = tree()
    stage.put(pod("alone"), pod("one-0", group="one", node_name="n1"))
    assert pending_pods(stage.cache, stage.cache.unit_of(stage.pod("alone"))) == [stage.pod("alone")]
    names = [found.metadata.name for found in pending_pods(stage.cache, stage.cache.unit_of(stage.pod("two-0")))]
    assert names == ["one-1", "two-0", "two-1"]


# Single pods.


def test_a_pod_without_a_group_is_a_unit() -> None:
    """It has one pod and no group."""
    stage = Stage(pod("p"))
    unit = built(stage, "p")
    assert ([*unit.pods.values()], unit.groups, len(unit.unit.nodes)) == ([stage.pod("p")], (), 1)


def test_a_deleted_pod_is_inadmissible() -> None:
    """It was deleted after it had been queued."""
    stage = Stage(pod("p"))
    unit = stage.cache.unit_of(stage.pod("p"))
    stage.delete(stage.pod("p"))
    assert build_unit(stage.cache, unit) == Inadmissible(PodDeleted(GroupKey("Pod", "default", "p")))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (pod("p", scheduling_gates=GATES), PodGated),
        (
            pod("p", meta=replace(metadata("p"), annotations={POD_GROUP_LABEL: "b"}, labels={POD_GROUP_LABEL: "a"})),
            InconsistentMembership,
        ),
    ],
    ids=["gated", "two groups"],
)
def test_a_gated_or_contradictory_pod_is_inadmissible(made: Pod, expected: type) -> None:
    """It has scheduling gates, or names two groups."""
    assert isinstance(inadmissible(Stage(made), "p").problem, expected)


def test_a_member_is_inadmissible_where_groups_are_not_served() -> None:
    """Its gang could not be scheduled as one."""
    assert inadmissible(Stage(pod("p", group="pg"), flavours=()), "p").problem == GroupKindsNotServed(
        GroupKey("PodGroup", "default", "pg")
    )


def test_a_member_of_an_unknown_group_says_that_the_kind_is_not_read() -> None:
    """Its label may name one of our groups, and only native ones are read. The native field may name one of those."""
    stage = Stage(pod("p", group="pg"), flavours=(NATIVE,))
    unit = UnitKey(NATIVE, GroupKey("PodGroup", "default", "pg"))
    found = build_unit(stage.cache, unit)
    assert isinstance(found, Inadmissible)
    assert found.problem == GroupKindsNotServed(unit.key, "scheduling.cpg.dev")
    stage.put(pod("p", scheduling_group=SchedulingGroup(pod_group_name="pg")))
    found = build_unit(stage.cache, unit)
    assert isinstance(found, Inadmissible)
    assert found.problem == GroupMissing(unit.key)


@pytest.mark.parametrize("missing", ["job.train.pods", "mid"])
def test_a_group_that_is_derived_comes_from_an_owner(missing: str) -> None:
    """Also one above the group of the pods; a pod that names its group itself waits for its user."""
    groups: dict[str, Group] = {
        "job.train.pods": pod_group("job.train.pods", parent="mid"),
        "mid": composite("mid"),
    }
    key = key_of(groups.pop(missing))
    derived = replace(pod("p"), derived_group="job.train.pods")
    for member, owner in ((derived, "Job train"), (pod("p", group="job.train.pods"), "")):
        assert inadmissible(Stage(*groups.values(), member), "p").problem == GroupMissing(key, owner)


# Trees that wait for an object or a change.


@pytest.mark.parametrize("missing", ["pg", "mid", "top"])
def test_a_tree_with_a_missing_group_is_inadmissible(missing: str) -> None:
    """The group of the pods, or any ancestor; all groups that exist below it are in the unit."""
    groups: dict[str, Group] = {
        "pg": pod_group("pg", parent="mid"),
        "mid": composite("mid", parent="top"),
        "top": composite("top"),
    }
    stage = Stage(*(group for name, group in groups.items() if name != missing), pod("p", group="pg"))
    unit = inadmissible(stage, "p")
    assert unit.problem == GroupMissing(key_of(groups[missing]))
    assert [found.metadata.name for found in unit.pods] == ["p"]
    assert len(unit.groups) == {"pg": 0, "mid": 1, "top": 2}[missing]


@pytest.mark.parametrize("gang", [2, None], ids=["gang", "basic"])
def test_a_gated_member_makes_its_whole_tree_inadmissible(gang: int | None) -> None:
    """Also in a group without a minimum."""
    stage = tree(minimum=1)
    stage.put(pod_group("two", gang=gang, parent="root"), pod("two-0", group="two", scheduling_gates=GATES))
    unit = inadmissible(stage, "one-0")
    assert (unit.problem, len(unit.pods)) == (TreeGated(("default/two-0",)), 4)
    stage.put(*(pod(name, group="two", scheduling_gates=GATES) for name in ("two-1", "two-2")))
    assert inadmissible(stage, "one-0").problem == TreeGated(("default/two-0", "default/two-1", "default/two-2"))


def test_a_gated_member_that_terminates_is_ignored() -> None:
    """Its gates are never removed."""
    stage = tree()
    gated = pod("two-9", group="two", scheduling_gates=GATES)
    stage.put(replace(gated, metadata=replace(gated.metadata, deletion_timestamp="2026")))
    assert len(built(stage, "one-0").pods) == 4


def test_a_tree_waits_for_the_template_of_a_group_without_a_policy() -> None:
    """Then the template counts as if its fields stood in the group."""
    stage = Stage(bare(pod_group("g", workload="w", template="t")), pod("p", group="g", cpu=1, priority=7))
    stage.put(priority_class("low", 7))
    problem = inadmissible(stage, "p").problem
    assert isinstance(problem, TemplateMissing)
    assert problem.message.startswith("waiting for Workload default/w with a template t for a PodGroup")
    template = replace(
        leaf_template("t", gang=3), scheduling_constraints=constraints("rack"), preemption_policy="Never"
    )
    stage.put(workload([replace(template, priority=7)]))
    unit = built(stage, "p")
    assert (unit.unit.nodes[0].minimum, unit.unit.nodes[0].required) == (3, "rack")
    assert (unit.priority, unit.preempts) == (7, False)


# Invalid trees.


def owned_workload(*owners: OwnerReference) -> Workload:
    """Return a Workload of these owners."""
    found = workload([leaf_template("t", gang=1)])
    return replace(found, metadata=replace(found.metadata, owner_references=owners))


@pytest.mark.parametrize(
    ("uid", "owner", "waits"),
    [
        ("1", "JobSet/1", False),
        ("1", "JobSet/2", True),
        ("", "JobSet/2", False),
        ("1", "Job/2", False),
        ("1", "", False),
    ],
)
def test_a_pod_waits_for_the_groups_of_its_own_owner(uid: str, owner: str, *, waits: bool) -> None:
    """Those of an earlier owner of that name have other minimums and constraints. Only owners of its kind count."""
    reference = OwnerReference(kind="JobSet", name="train", uid=uid, controller=True)
    member = replace(pod("p"), derived_group="g", derived_owner=owner)
    stage = Stage(pod_group("g", workload="w", template="t"), member, owned_workload(*([reference] if uid else [])))
    if not waits:
        assert len(built(stage, "p").pods) == 1
        return
    message = "waiting for the groups of its JobSet: PodGroup default/g is of an earlier one"
    assert inadmissible(stage, "p").problem == TemplateMissing(message)


def test_a_derived_group_of_an_earlier_workload_is_about_to_go() -> None:
    """The Workload of the later owner may be made before the groups of the earlier one are gone."""
    group = pod_group("g", workload="w", template="t")
    earlier = OwnerReference(kind="Workload", name="w", uid="earlier", controller=True)
    group = replace(group, metadata=replace(group.metadata, owner_references=(earlier,)))
    member = replace(pod("p"), derived_group="g", derived_owner="JobSet/1")
    later = OwnerReference(kind="JobSet", name="train", uid="1", controller=True)
    assert isinstance(inadmissible(Stage(group, member, owned_workload(later)), "p").problem, TemplateMissing)
    now = replace(earlier, uid=owned_workload().metadata.uid)
    group = replace(group, metadata=replace(group.metadata, owner_references=(now,)))
    assert built(Stage(group, member, owned_workload(later)), "p").pods


def test_a_derived_group_without_its_workload_is_about_to_go() -> None:
    """A pod that derives it waits; one that names it does not."""
    group = pod_group("g", workload="w", template="t")
    stage = Stage(group, replace(pod("p"), derived_group="g", derived_owner="JobSet/1"))
    assert isinstance(inadmissible(stage, "p").problem, TemplateMissing)
    assert built(Stage(group, pod("p", group="g")), "p").pods
    both = replace(pod("p", group="g"), derived_group="other", derived_owner="JobSet/1")
    assert built(Stage(group, both), "p").pods
    going = pod_group("g")
    going = replace(going, metadata=replace(going.metadata, deletion_timestamp="2026-01-01T00:00:01Z"))
    assert isinstance(inadmissible(Stage(going, replace(pod("p"), derived_group="g")), "p").problem, TemplateMissing)
    assert built(Stage(going, pod("p", group="g")), "p").pods
    without = Stage(pod_group("g"), replace(pod("p"), derived_group="g", derived_owner="JobSet/1"))
    assert built(without, "p").pods


def test_a_cycle_of_parents_is_invalid() -> None:
    """Every group of it is in the unit."""
    stage = Stage(
        composite("a", parent="b"), composite("b", parent="a"), pod_group("pg", parent="a"), pod("p", group="pg")
    )
    assert messages(stage, "p") == ["the parents of CompositePodGroup default/a form a cycle: a -> b -> a"]
    assert len(inadmissible(stage, "p").groups) == 3


@pytest.mark.parametrize(
    ("wrong", "message", "number"),
    [
        ([pod_group("one", parent="root", workload="v")], "all groups of a tree are made from one Workload", 1),
        ([workload([inner_template("root", [leaf_template("one")])])], "references template two, which Workload", 1),
        ([composite("root", all_=True)], "", 2),
        ([pod_group("one", parent="root", priority=3)], "all groups of a tree have one priority", 1),
        (
            [composite(f"c{depth}", parent=f"c{depth - 1}" if depth else "root") for depth in range(4)],
            "a tree has at most 4 levels",
            1,
        ),
    ],
    ids=["workloads", "template", "all", "priority", "depth"],
)
def test_an_invalid_tree_is_inadmissible_with_all_its_problems(wrong: list[Any], message: str, number: int) -> None:
    """None of its pods is attempted."""
    stage = tree()
    stage.put(*wrong)
    found = messages(stage, "two-0")
    assert message in found[0]
    assert (len(found), len(inadmissible(stage, "two-0").pods)) == (number, 4)


def test_the_pods_of_a_tree_need_its_priority() -> None:
    """All pods with another one are named."""
    stage = tree()
    stage.put(*(pod(f"one-{number}", group="one", priority=3) for number in range(2)))
    problem = inadmissible(stage, "two-0").problem
    assert isinstance(problem, PrioritiesDiffer)
    assert [found.other for found in problem.problems] == ["Pod default/one-0", "Pod default/one-1"]


def test_the_pods_of_a_tree_need_one_scheduler() -> None:
    """Otherwise the tree could not be scheduled as one."""
    stage = tree()
    stage.put(foreign(pod("one-0", group="one")))
    assert inadmissible(stage, "two-0").problem == SchedulerNamesDiffer(
        "default/one-0", "default-scheduler", "cpg-scheduler"
    )


def test_the_pods_of_a_tree_need_one_preemption_policy() -> None:
    """A pod without a policy has the default one."""
    stage = tree()
    stage.put(pod("one-0", group="one", preemption_policy="PreemptLowerPriority"))
    assert built(stage, "two-0").preempts
    stage.put(pod("two-1", group="two", preemption_policy="Never"))
    expected = {"Never": "default/two-1", "PreemptLowerPriority": "default/one-0"}
    assert inadmissible(stage, "two-0").problem == PreemptionPoliciesDiffer(expected)


@pytest.mark.parametrize(
    "change", [{"deletion_timestamp": "2026"}, {"phase": "Failed"}, {"phase": "Succeeded"}], ids=str
)
def test_a_terminating_or_ended_pod_does_not_make_its_tree_invalid(change: dict[str, str]) -> None:
    """Neither by its scheduler nor by its priority."""
    stage = tree()
    wrong = foreign(pod("wrong", group="one", priority=3))
    meta, status = wrong.metadata, wrong.status
    if "phase" in change:
        status = replace(status, **change)
    else:
        meta = replace(meta, **change)
    stage.put(replace(wrong, metadata=meta, status=status))
    assert len(built(stage, "one-0").pods) == 4


# Schedulable trees.


def test_running_and_succeeded_members_count_towards_the_minimum() -> None:
    """Failed and terminating ones do not."""
    stage = tree()
    stage.put(pod("runs", group="one", node_name="n1"), foreign(pod("other")))
    for name, phase in (("done", "Succeeded"), ("failed", "Failed")):
        ended = pod(name, group="one", node_name="n1")
        stage.put(replace(ended, status=replace(ended.status, phase=phase)))
    terminating = pod("terminating", group="one", node_name="n1")
    stage.put(replace(terminating, metadata=replace(terminating.metadata, deletion_timestamp="2026")))
    unit = built(stage, "one-0")
    one = unit.unit.nodes[1]
    assert [member.uid for member in one.pending] == ["uid-default-one-0", "uid-default-one-1"]
    assert (one.scheduled, one.member_nodes) == (2, ("n1",))
    assert (len(unit.pods), len(unit.groups)) == (4, 3)


def test_pods_are_members_of_the_group_of_one_flavour() -> None:
    """A group of the same name in another flavour has none."""
    stage = Stage(pod("p", group="pg"))
    stage.put(pod_group("pg"), flavour=NATIVE)
    stage.put(pod_group("pg", gang=9, meta=ObjectMeta(name="pg", namespace="default", uid="other")))
    assert built(stage, "p").unit.nodes[0].minimum == 1
