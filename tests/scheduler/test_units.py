"""What there is to attempt at a root, and why there may be nothing."""

from typing import Any

import pytest
from msgspec.structs import replace

from cpg_api.core.pod import Pod, SchedulingGate
from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.names import POD_GROUP_LABEL
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
from cpg_scheduler.status.messages.units import inadmissible_text
from cpg_scheduler.testing.stage import NATIVE, Stage
from cpg_scheduler.units import Inadmissible, PodDeleted, SchedulableUnit, build_unit, pending_pods, queue_key_of

ANNOTATION = f"metadata.annotations[{POD_GROUP_LABEL}]"
LABEL = f"metadata.labels[{POD_GROUP_LABEL}]"
GATES = (SchedulingGate(name="wait"),)
UNSCHEDULABLE, INVALID, ERROR = "Unschedulable", "Invalid", "SchedulerError"


def attempt(stage: Stage, name: str) -> SchedulableUnit | Inadmissible:
    """Return what there is to attempt at the root of a pod."""
    return build_unit(stage.cache, stage.cache.unit_of(stage.pod(name)))


def refused(stage: Stage, name: str) -> tuple[str, str]:
    """Return why there is nothing to attempt at the root of a pod."""
    found = attempt(stage, name)
    assert isinstance(found, Inadmissible)
    return text_of(found)


def text_of(found: Inadmissible) -> tuple[str, str]:
    """Return the reason and the message of a unit that cannot be attempted."""
    return inadmissible_text(found.problem)[:2]


def foreign(found: Pod) -> Pod:
    """Return a pod of another scheduler."""
    return replace(found, spec=replace(found.spec, scheduler_name="default-scheduler"))


def tree(*, minimum: int = 2) -> Stage:
    """Return a tree of two groups of two under a root that needs so many of them."""
    stage = Stage(node("n1", cpu=8), composite("root", gang=minimum))
    stage.put(*(pod_group(name, gang=2, parent="root") for name in ("one", "two")))
    stage.put(*(pod(f"{name}-{number}", cpu=1, group=name) for name in ("one", "two") for number in range(2)))
    return stage


# Where a root stands in the queue.


def test_a_root_stands_by_priority_then_age() -> None:
    """Of its top group, or of the pod."""
    early, late = metadata("pg", created="2025"), metadata("p", created="2026")
    stage = Stage(
        pod_group("pg", priority=7, meta=early), pod("m", group="pg", priority=1), pod("p", priority=3, meta=late)
    )
    orders = [queue_key_of(stage.cache, stage.cache.unit_of(stage.pod(name))) for name in ("m", "p")]
    assert [found and found[:2] for found in orders] == [(-7, "2025"), (-3, "2026")]


def test_a_group_without_a_number_stands_by_its_class() -> None:
    """Also by the default one; by none, it stands at zero."""
    group = pod_group("pg", priority=None)
    stage = Stage(group, pod("m", group="pg"))
    root = stage.cache.unit_of(stage.pod("m"))
    assert (queue_key_of(stage.cache, root) or (1,))[0] == 0
    stage.put(priority_class("usual", 5, default=True))
    assert (queue_key_of(stage.cache, root) or (1,))[0] == -5
    stage.put(replace(group, spec=replace(group.spec, priority_class_name="unknown")))
    assert (queue_key_of(stage.cache, root) or (1,))[0] == 0


def test_where_nobody_waits_there_is_no_root() -> None:
    """Neither a pod that runs or is foreign or gone, nor a tree of such pods."""
    stage = tree()
    stage.put(*(pod(f"{name}-{number}", group=name, node_name="n1") for name in ("one", "two") for number in range(2)))
    stage.put(pod("alone", node_name="n1"), foreign(pod("foreign")))
    for name in ("one-0", "alone", "foreign"):
        root = stage.cache.unit_of(stage.pod(name))
        assert queue_key_of(stage.cache, root) is None
        assert pending_pods(stage.cache, root) == []
    gone = stage.cache.unit_of(pod("gone"))
    assert queue_key_of(stage.cache, gone) is None
    assert pending_pods(stage.cache, gone) == []


def test_who_waits_at_a_root_is_known() -> None:
    """The pod itself, or all that wait in the tree."""
    stage = tree()
    stage.put(pod("alone"), pod("one-0", group="one", node_name="n1"))
    assert pending_pods(stage.cache, stage.cache.unit_of(stage.pod("alone"))) == [stage.pod("alone")]
    names = [found.metadata.name for found in pending_pods(stage.cache, stage.cache.unit_of(stage.pod("two-0")))]
    assert names == ["one-1", "two-0", "two-1"]


# Single pods.


def test_a_pod_that_is_alone_is_ready() -> None:
    """It is its own unit."""
    stage = Stage(pod("p"))
    found = attempt(stage, "p")
    assert isinstance(found, SchedulableUnit)
    assert ([*found.pods.values()], found.groups, len(found.unit.nodes)) == ([stage.pod("p")], (), 1)


def test_a_pod_that_is_gone_is_not_attempted() -> None:
    """It was there when the news came."""
    stage = Stage(pod("p"))
    root = stage.cache.unit_of(stage.pod("p"))
    stage.delete(stage.pod("p"))
    assert build_unit(stage.cache, root) == Inadmissible(PodDeleted(root.key))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (pod("p", scheduling_gates=GATES), (UNSCHEDULABLE, "waiting for its scheduling gates to be removed")),
        (
            pod("p", meta=replace(metadata("p"), annotations={POD_GROUP_LABEL: "b"}, labels={POD_GROUP_LABEL: "a"})),
            (
                ERROR,
                f"{ANNOTATION}: The pod is in group 'b' here, but in 'a' at {LABEL}.",
            ),
        ),
    ],
    ids=["gated", "torn"],
)
def test_a_pod_that_cannot_be_attempted_says_why(made: Pod, expected: tuple[str, str]) -> None:
    """It waits for its gates, or says two things about its group."""
    assert refused(Stage(made), "p") == expected


def test_a_member_is_not_placed_alone_where_groups_are_not_served() -> None:
    """Its gang could never be kept together."""
    expected = UNSCHEDULABLE, "waiting for PodGroup default/pg: the API server serves no PodGroups"
    assert refused(Stage(pod("p", group="pg"), flavours=()), "p") == expected


# Trees that wait.


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("pg", "waiting for PodGroup default/pg, which does not exist"),
        ("mid", "waiting for CompositePodGroup default/mid, which does not exist"),
        ("top", "waiting for CompositePodGroup default/top, which does not exist"),
    ],
)
def test_a_tree_waits_for_what_is_missing(missing: str, expected: str) -> None:
    """The group itself or any ancestor (C09, C11), by name; all below it is held together."""
    groups: dict[str, Group] = {
        "pg": pod_group("pg", parent="mid"),
        "mid": composite("mid", parent="top"),
        "top": composite("top"),
    }
    stage = Stage(*(group for name, group in groups.items() if name != missing), pod("p", group="pg"))
    found = attempt(stage, "p")
    assert isinstance(found, Inadmissible)
    assert text_of(found) == (UNSCHEDULABLE, expected)
    assert [waits.metadata.name for waits in found.pods] == ["p"]
    assert len(found.groups) == {"pg": 0, "mid": 1, "top": 2}[missing]


@pytest.mark.parametrize("gang", [2, None], ids=["gang", "basic"])
def test_a_gated_member_holds_its_whole_tree(gang: int | None) -> None:
    """Also one that needs none of its pods in particular."""
    stage = tree(minimum=1)
    stage.put(pod_group("two", gang=gang, parent="root"), pod("two-0", group="two", scheduling_gates=GATES))
    found = attempt(stage, "one-0")
    assert isinstance(found, Inadmissible)
    assert text_of(found)[1] == "waiting for the scheduling gates of Pod default/two-0 to be removed"
    assert len(found.pods) == 4
    stage.put(*(pod(name, group="two", scheduling_gates=GATES) for name in ("two-1", "two-2")))
    assert refused(stage, "one-0")[1].startswith("waiting for the scheduling gates of Pod default/two-0 and 2 more to")


def test_a_gated_member_that_is_to_be_deleted_holds_nobody() -> None:
    """Its gates will never be removed."""
    stage = tree()
    gated = pod("two-9", group="two", scheduling_gates=GATES)
    stage.put(replace(gated, metadata=replace(gated.metadata, deletion_timestamp="2026")))
    assert isinstance(attempt(stage, "one-0"), SchedulableUnit)


# Trees that are wrong.


def test_a_cycle_is_invalid() -> None:
    """And says so on every group of it."""
    stage = Stage(
        composite("a", parent="b"), composite("b", parent="a"), pod_group("pg", parent="a"), pod("p", group="pg")
    )
    found = attempt(stage, "p")
    assert isinstance(found, Inadmissible)
    assert text_of(found)[1] == "the parents of CompositePodGroup default/a form a cycle: a -> b -> a"
    assert (text_of(found)[0], len(found.groups)) == (INVALID, 3)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ([pod_group("one", parent="root", workload="v")], "all groups of a tree are made from one Workload"),
        ([workload([inner_template("root", [leaf_template("one")])])], "references template two, which Workload"),
        ([composite("root", all_=True)], "(and 1 more problem)"),
        ([pod_group("one", parent="root", priority=3)], "all groups of a tree have one priority"),
        ([pod("one-0", group="one", priority=3)], "give the pod the tree's priorityClassName"),
        (
            [composite(f"c{depth}", parent=f"c{depth - 1}" if depth else "root") for depth in range(4)],
            "a tree has at most 4 levels",
        ),
    ],
    ids=["workloads", "template", "all", "priority", "member", "depth"],
)
def test_an_invalid_tree_says_at_which_edge(wrong: list[Any], says: str) -> None:
    """Nothing in it is attempted."""
    stage = tree()
    stage.put(*wrong)
    found = attempt(stage, "two-0")
    assert isinstance(found, Inadmissible)
    assert says in text_of(found)[1]
    assert (text_of(found)[0], len(found.pods)) == (INVALID, 4)


def test_many_problems_are_one_and_a_number() -> None:
    """A thousand pods of the wrong priority make no sentence of a thousand lines."""
    stage = tree()
    stage.put(*(pod(f"one-{number}", group="one", priority=3) for number in range(99)))
    message = refused(stage, "two-0")[1]
    assert message.endswith("(and 98 more problems)")
    assert len(message) < 300


def test_pods_of_a_tree_have_one_scheduler() -> None:
    """Or nobody could keep it together."""
    stage = tree()
    stage.put(foreign(pod("one-0", group="one")))
    assert refused(stage, "two-0") == (
        ERROR,
        "all pods of a tree need one schedulerName: Pod default/one-0 has default-scheduler, others have cpg-scheduler",
    )


def test_pods_of_a_tree_have_one_preemption_policy() -> None:
    """Saying nothing is saying the default."""
    stage = tree()
    stage.put(pod("one-0", group="one", preemption_policy="PreemptLowerPriority"))
    assert isinstance(attempt(stage, "two-0"), SchedulableUnit)
    stage.put(pod("two-1", group="two", preemption_policy="Never"))
    reason, message = refused(stage, "two-0")
    assert (reason, message.split(": ")[0]) == (ERROR, "all pods of a tree need one preemptionPolicy")
    assert message.endswith("Pod default/two-1 has Never, Pod default/one-0 has PreemptLowerPriority")


@pytest.mark.parametrize(
    "change", [{"deletion_timestamp": "2026"}, {"phase": "Failed"}, {"phase": "Succeeded"}], ids=str
)
def test_who_is_at_the_end_can_do_no_more_wrong(change: dict[str, str]) -> None:
    """Neither by its scheduler nor by its priority."""
    stage = tree()
    wrong = foreign(pod("wrong", group="one", priority=3))
    metadata_, status = wrong.metadata, wrong.status
    if "phase" in change:
        status = replace(status, **change)
    else:
        metadata_ = replace(metadata_, **change)
    stage.put(replace(wrong, metadata=metadata_, status=status))
    assert isinstance(attempt(stage, "one-0"), SchedulableUnit)


def test_a_tree_waits_for_the_templates_that_it_leaves_all_to() -> None:
    """Until they are there it says so; then it is what they say, with nobody to write it down."""
    stage = Stage(bare(pod_group("g", workload="w", template="t")), pod("p", group="g", cpu=1, priority=7))
    stage.put(priority_class("meek", 7))
    reason, message = refused(stage, "p")
    assert reason == UNSCHEDULABLE
    assert message.startswith("waiting for Workload default/w with a template t for a PodGroup")
    template = replace(
        leaf_template("t", gang=3), scheduling_constraints=constraints("rack"), preemption_policy="Never"
    )
    stage.put(workload([replace(template, priority=7)]))
    found = attempt(stage, "p")
    assert isinstance(found, SchedulableUnit)
    assert (found.unit.nodes[0].minimum, found.unit.nodes[0].required) == (3, "rack")
    assert (found.priority, found.preempts) == (7, False)


# Trees that are ready.


def test_members_are_counted_by_what_has_become_of_them() -> None:
    """Those with a node and those that succeeded are settled; failed and terminating ones are not missed."""
    stage = tree()
    stage.put(pod("runs", group="one", node_name="n1"), foreign(pod("other")))
    for name, phase in (("done", "Succeeded"), ("failed", "Failed")):
        ended = pod(name, group="one", node_name="n1")
        stage.put(replace(ended, status=replace(ended.status, phase=phase)))
    leaving = pod("leaving", group="one", node_name="n1")
    stage.put(replace(leaving, metadata=replace(leaving.metadata, deletion_timestamp="2026")))
    found = attempt(stage, "one-0")
    assert isinstance(found, SchedulableUnit)
    one = found.unit.nodes[1]
    assert ([member.uid for member in one.pending], one.scheduled, one.member_nodes) == (
        ["uid-default-one-0", "uid-default-one-1"],
        2,
        ("n1",),
    )
    assert (len(found.pods), len(found.groups)) == (4, 3)


def test_members_are_those_of_the_flavour() -> None:
    """A group of the same name in the other flavour has none."""
    stage = Stage(pod("p", group="pg"))
    stage.put(pod_group("pg"), flavour=NATIVE)
    stage.put(pod_group("pg", gang=9, meta=ObjectMeta(name="pg", namespace="default", uid="other")))
    found = attempt(stage, "p")
    assert isinstance(found, SchedulableUnit)
    assert found.unit.nodes[0].minimum == 1


# Stories of spec-by-example, as far as they are about waiting.


def test_a_tree_is_placed_when_its_root_comes() -> None:
    """C09: everything is there but the root."""
    stage = Stage(node("n1", cpu=8), pod_group("pg1", gang=2, parent="mid"), composite("mid", parent="root"))
    stage.put(*(pod(name, cpu=2, group="pg1") for name in ("p1", "p2")))
    stage.settle()
    said = "waiting for CompositePodGroup default/root, which does not exist"
    assert stage.status.pods == {"p1": (UNSCHEDULABLE, said), "p2": (UNSCHEDULABLE, said)}
    stage.put(composite("root"))
    stage.settle()
    assert stage.bound() == {"p1": "n1", "p2": "n1"}


def test_a_tree_is_placed_when_a_node_comes() -> None:
    """C10: there are no nodes at first."""
    stage = tree()
    stage.delete(node("n1"))
    stage.settle()
    assert all("no nodes available" in message for _, message in stage.status.pods.values())
    stage.put(node("n2", cpu=8))
    stage.settle(60)
    assert len(stage.bound()) == 4


def test_a_tree_is_placed_when_its_second_child_comes() -> None:
    """C11: the pods of the missing child wait for it, those of the other for more groups."""
    stage = tree()
    stage.delete(pod_group("two", gang=2, parent="root"))
    stage.settle()
    assert stage.status.pods["two-0"][1] == "waiting for PodGroup default/two, which does not exist"
    assert stage.status.pods["one-0"][1] == (
        "CompositePodGroup default/root cannot be placed: waiting for more child groups: minGroupCount is 2"
    )
    stage.put(pod_group("two", gang=2, parent="root"))
    stage.settle()
    assert len(stage.bound()) == 4


def test_a_tree_is_placed_when_its_last_pod_comes() -> None:
    """C12: one pod is missing, and all the others say so."""
    stage = tree()
    last = stage.pod("two-1")
    stage.delete(last)
    stage.settle()
    assert stage.bound() == {}
    assert stage.status.pods["two-0"][1] == "waiting for more pods: minCount is 2"
    assert stage.status.groups["two"][2] == "waiting for 1 more pod: minCount is 2, there is 1"
    stage.put(last)
    stage.settle()
    assert len(stage.bound()) == 4


def test_a_tree_is_placed_when_a_minimum_deep_in_it_is_lowered() -> None:
    """C13: the quorum is met without another pod."""
    stage = Stage(node("n1"), composite("root"), composite("mid", parent="root"))
    stage.put(pod_group("pg1", gang=2, parent="mid"), pod("p1", cpu=2, group="pg1"))
    stage.settle()
    stage.put(pod_group("pg1", gang=1, parent="mid"))
    stage.settle()
    assert stage.bound() == {"p1": "n1"}
