"""Which units are equivalent, and which changes may help a unit that has failed."""

from typing import Any

import pytest
from msgspec.structs import replace

from cpg_api.core.affinity import Affinity, PodAffinity, PodAffinityTerm
from cpg_api.core.node import Node, Taint
from cpg_api.core.pod import ContainerPort, Pod
from cpg_api.meta import LabelSelector
from cpg_engine.cycle import decide
from cpg_engine.decisions import Decision
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.testing.builders import NAMESPACE, composite, metadata, node, pod, pod_group
from cpg_engine.verdicts import Finding, Remedy
from cpg_scheduler.queueing.hint_index import may_help
from cpg_scheduler.queueing.hints import (
    ANY_CHANGE,
    FailedAttempt,
    RequeueHint,
    failed_attempt,
    hint_for,
    signature_of,
)
from cpg_scheduler.testing.stage import Stage
from cpg_scheduler.units import SchedulableUnit, build_unit

TERM = PodAffinityTerm(topology_key="rack", label_selector=LabelSelector(match_labels={"app": "web"}))
NEAR = Affinity(pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(TERM,)))


def built(stage: Stage, name: str) -> SchedulableUnit:
    """Return the unit of a pod."""
    found = build_unit(stage.cache, stage.cache.unit_of(stage.pod(name)))
    assert isinstance(found, SchedulableUnit)
    return found


def gang(name: str, *, cpu: int = 1, size: int = 2, **spec: Any) -> list[Any]:
    """Return a group with a minimum of two, and its pods."""
    return [pod_group(name, gang=2), *(pod(f"{name}-{number}", group=name, cpu=cpu, **spec) for number in range(size))]


def decided(stage: Stage, unit: SchedulableUnit, *, detail: bool = False) -> Decision:
    """Return the decision about a unit now."""
    return decide(stage.cache.snapshot, unit.unit, SearchOptions(detail=detail))


def hint(stage: Stage, name: str) -> RequeueHint | None:
    """Return the hint of the unit of a pod after an attempt now."""
    unit = built(stage, name)
    decision = decided(stage, unit)
    unplaced = unit.pods.keys() - {bind.uid for bind in decision.binds}
    return hint_for(stage.cache.snapshot, unit.unit, decision.explanation.finding, unplaced)


def failed(stage: Stage, name: str) -> FailedAttempt:
    """Return a failed attempt at the unit of a pod now."""
    unit = built(stage, name)
    return failed_attempt(stage.cache.snapshot, unit, decided(stage, unit, detail=True), unit.pods)


# Signatures.


def test_gangs_of_one_shape_are_equivalent() -> None:
    """Names and ages make no difference."""
    stage = Stage(*gang("a"), *gang("b"))
    assert signature_of(built(stage, "a-0")) == signature_of(built(stage, "b-0")) is not None


@pytest.mark.parametrize(
    "other",
    [gang("b", cpu=2), gang("b", size=3), gang("b", preemption_policy="Never"), [pod("b-0", cpu=1)]],
    ids=["requests", "size", "policy", "single pod"],
)
def test_units_that_the_engine_can_tell_apart_are_not_equivalent(other: list[Any]) -> None:
    """By requests, size, preemption policy or kind."""
    stage = Stage(*gang("a"), *other)
    assert signature_of(built(stage, "a-0")) != signature_of(built(stage, "b-0"))


def test_pods_of_different_priority_are_not_equivalent() -> None:
    """One of them might preempt pods that the other may not."""
    stage = Stage(pod("a", cpu=1), pod("b", cpu=1, priority=5), pod("c", cpu=1))
    assert signature_of(built(stage, "a")) != signature_of(built(stage, "b"))
    assert signature_of(built(stage, "a")) == signature_of(built(stage, "c"))


def test_trees_of_different_constraints_are_not_equivalent() -> None:
    """The topology constraint of a group is part of the shape."""
    leaves = [pod_group("x", gang=1, parent="root"), pod_group("y", gang=1, parent="root")]
    pods = [pod("x-0", group="x"), pod("y-0", group="y")]
    plain = Stage(composite("root", gang=2), *leaves, *pods)
    racked = Stage(composite("root", gang=2, key="rack"), *leaves, *pods)
    assert signature_of(built(plain, "x-0")) != signature_of(built(racked, "x-0"))


def test_a_tree_with_running_or_invalid_members_is_equivalent_to_no_other() -> None:
    """The engine's decision depends on where the members run, and on what is wrong with them."""
    stage = Stage(node("n1"), *gang("a"), pod("a-9", group="a", node_name="n1"), pod("bad", cpu="much"))
    assert signature_of(built(stage, "a-0")) is None
    assert signature_of(built(stage, "bad")) is None


def test_a_unit_that_was_placed_in_part_has_no_signature() -> None:
    """It has taken the room itself, so its failure says nothing about others."""
    stage = Stage(node("n1", cpu=2), *gang("a", size=3))
    unit = built(stage, "a-0")
    failure = failed_attempt(stage.cache.snapshot, unit, decided(stage, unit), {"uid-default-a-2"})
    assert failure.signature is None


# Hints.


def test_an_incomplete_gang_has_no_hint() -> None:
    """No node can help it."""
    assert hint(Stage(node("n1"), *gang("a", size=1)), "a-0") is None


def test_a_unit_that_was_proven_not_to_fit_is_helped_by_room() -> None:
    """For one of the classes of its pending pods, or by a change of a node of its members."""
    stage = Stage(node("n1", cpu=1), *gang("a", cpu=2), pod("a-9", group="a", cpu=1, node_name="n1"))
    unit = built(stage, "a-0").unit
    assert hint(stage, "a-0") == RequeueHint((unit.nodes[0].pending[0].pod_class,), frozenset({"n1"}))


@pytest.mark.parametrize("finding", [Finding.CONTRADICTION, Finding.NOT_FOUND, Finding.OUT_OF_BUDGET])
def test_any_change_may_help_where_nothing_was_proven(finding: Finding) -> None:
    """The search may take another way the next time."""
    stage = Stage(*gang("a"))
    assert hint_for(stage.cache.snapshot, built(stage, "a-0").unit, finding, {"uid-default-a-0"}) == ANY_CHANGE


def test_any_change_may_help_a_pod_with_affinity() -> None:
    """The pod that it wants near may be bound."""
    stage = Stage(node("n1"), pod("near", affinity=NEAR))
    assert hint(stage, "near") == ANY_CHANGE


def test_any_change_may_help_a_pod_that_a_running_pod_rejects() -> None:
    """Anti-affinity is symmetric, so the pod may have no constraint itself."""
    apart = Affinity(pod_anti_affinity=NEAR.pod_affinity)
    alone = pod("alone", affinity=apart, node_name="n1")
    web = pod("web", meta=metadata("web", app="web"))
    assert hint(Stage(node("n1", labels={"rack": "a"}), alone, web), "web") == ANY_CHANGE


def test_any_change_may_help_a_pod_with_a_host_port() -> None:
    """The pod that has the port may end."""
    port = ContainerPort(container_port=80, host_port=80)
    first, second = (with_port(pod(name), port) for name in ("first", "second"))
    stage = Stage(node("n1"), replace(first, spec=replace(first.spec, node_name="n1")), second)
    assert hint(stage, "second") == ANY_CHANGE


def test_any_change_may_help_extra_pods_when_others_have_just_been_placed() -> None:
    """A greedy placement proves nothing; once no more is placed, only room helps pods of one class."""
    stage = Stage(node("n1", cpu=2), *gang("a", size=3))
    assert hint(stage, "a-0") == ANY_CHANGE
    stage.settle()
    left = next(name for name in ("a-0", "a-1", "a-2") if name not in stage.bound())
    found = hint(stage, left)
    assert found is not None
    assert (found.member_nodes, found.any_change) == (frozenset({"n1"}), False)


def test_any_change_may_help_extra_pods_of_several_classes() -> None:
    """Another order might have placed one more."""
    stage = Stage(node("n1", cpu=2), *gang("a"))
    stage.settle()
    stage.put(pod("more", group="a", cpu=2), pod("less", group="a", cpu=1))
    assert hint(stage, "more") == ANY_CHANGE


@pytest.mark.parametrize(
    ("better", "expected"),
    [
        (node("n2", cpu=2), True),
        (node("n2", cpu=1), False),
        (node("n2", cpu=2, taints=(Taint(key="mine", effect="NoSchedule"),)), False),
        (node("n2", cpu=2, unschedulable=True), False),
    ],
    ids=["room", "too small", "tainted", "cordoned"],
)
def test_a_node_may_help_a_unit_whose_pod_it_can_take(better: Node, expected: bool) -> None:  # noqa: FBT001 - a parameter
    """By resources, and by all filters about the node itself."""
    stage = Stage(node("n1", cpu=1), pod("a", cpu=2))
    found = hint(stage, "a")
    stage.put(better)
    assert found is not None
    assert may_help(stage.cache.snapshot, found, {"n2"}) == expected


def test_an_overdrawn_resource_matters_only_to_pods_that_request_it() -> None:
    """A pod without a CPU request fits a node with an overdrawn CPU."""
    stage = Stage(node("n1", cpu=1, memory="1Gi"), pod("big", cpu=4, node_name="n1"), pod("a", memory="2Gi"))
    found = hint(stage, "a")
    stage.put(node("n1", cpu=1, memory="4Gi"))
    assert found is not None
    assert may_help(stage.cache.snapshot, found, {"n1"})


def test_a_removed_node_may_help_units_that_had_a_member_on_it() -> None:
    """Without that member, the tree may be placed in another domain."""
    snapshot = Stage(node("n1")).cache.snapshot
    assert may_help(snapshot, RequeueHint(member_nodes=frozenset({"gone"})), {"gone"})
    assert not may_help(snapshot, RequeueHint(member_nodes=frozenset({"n1"})), {"gone"})
    assert may_help(snapshot, ANY_CHANGE, {"gone"})


# Failed attempts.


def test_a_failure_is_explained_for_an_equivalent_unit_by_its_own_names() -> None:
    """The explanation is the same, for another tree of the same shape."""
    stage = Stage(node("n1", cpu=1), *gang("a"), *gang("b"))
    failure = failed(stage, "a-0")
    found = failure.explained_for(built(stage, "b-0").unit)
    assert found is not None
    assert found.next_step is not None
    names = found.reports[0].key.name, found.next_step.group.name
    assert (names, found.next_step.remedy) == (("b", "b"), Remedy.MAKE_ROOM)
    assert failure.explanation is not None
    assert replace(found, next_step=None).finding is failure.explanation.finding


def test_blocking_groups_are_renamed_for_an_equivalent_unit() -> None:
    """The explanation names groups of the tree that it is reported for."""
    stage = Stage(node("n1", cpu=1))
    for name in "ab":
        stage.put(composite(f"{name}-root", gang=1), pod_group(f"{name}-leaf", gang=1, parent=f"{name}-root"))
        stage.put(pod(name, group=f"{name}-leaf", cpu=2))
    found = failed(stage, "a").explained_for(built(stage, "b").unit)
    assert found is not None
    assert [blocker.name for blocker in found.reports[0].blockers] == ["b-leaf"]


def test_a_failed_ancestor_is_renamed_for_an_equivalent_unit() -> None:
    """A child that would fit is lost through the root of the tree that it is reported for."""
    stage = Stage(node("n1", cpu=1))
    for name in "ab":
        stage.put(composite(f"{name}-root", gang=2))
        for child, cpu in (("fits", 1), ("large", 2)):
            stage.put(pod_group(f"{name}-{child}", gang=1, parent=f"{name}-root"))
            stage.put(pod(f"{name}-{child}-1", group=f"{name}-{child}", cpu=cpu))
    found = failed(stage, "a-fits-1").explained_for(built(stage, "b-fits-1").unit)
    assert found is not None
    lost = {report.key.name: report.failed_ancestor and report.failed_ancestor.name for report in found.reports}
    assert lost["b-fits"] == "b-root"
    assert set(lost.values()) <= {"b-root", "b-large", None}


def test_an_inadmissible_unit_has_no_explanation() -> None:
    """It was not attempted, so there is no cause either."""
    stage = Stage(*gang("a"))
    assert FailedAttempt().explained_for(built(stage, "a-0").unit) is None
    assert FailedAttempt().cause is None


def test_the_cause_of_a_failure_does_not_depend_on_the_number_of_nodes() -> None:
    """One more node that is too small changes nothing; one that is tainted adds a reason."""
    stage = Stage(node("n1", cpu=1), pod("a", cpu=2))
    first = failed(stage, "a").cause
    stage.put(node("n2", cpu=1))
    assert failed(stage, "a").cause == first
    stage.put(node("n3", cpu=1, taints=(Taint(key="mine", effect="NoSchedule"),)))
    assert failed(stage, "a").cause != first


def with_port(found: Pod, port: ContainerPort) -> Pod:
    """Return a pod that uses a port of its node."""
    containers = tuple(replace(one, ports=(port,)) for one in found.spec.containers or ())
    assert found.metadata.namespace == NAMESPACE
    return replace(found, spec=replace(found.spec, containers=containers))
