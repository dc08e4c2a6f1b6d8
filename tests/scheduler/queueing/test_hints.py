"""Who fails alike, and what could help."""

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
from cpg_scheduler.queueing.hint_index import fulfilled
from cpg_scheduler.queueing.hints import ANYTHING, FailedAttempt, RequeueHint, hint_for
from cpg_scheduler.testing.stage import Stage
from cpg_scheduler.units import SchedulableUnit, build_unit

TERM = PodAffinityTerm(topology_key="rack", label_selector=LabelSelector(match_labels={"app": "web"}))
NEAR = Affinity(pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(TERM,)))


def ready(stage: Stage, name: str) -> SchedulableUnit:
    """Return the attempt at the root of a pod."""
    found = build_unit(stage.cache, stage.cache.unit_of(stage.pod(name)))
    assert isinstance(found, SchedulableUnit)
    return found


def gang(name: str, *, cpu: int = 1, size: int = 2, **spec: Any) -> list[Any]:
    """Return a group of two or more and its pods."""
    return [pod_group(name, gang=2), *(pod(f"{name}-{number}", group=name, cpu=cpu, **spec) for number in range(size))]


def hope(stage: Stage, name: str) -> RequeueHint | None:
    """Return what the root of a pod hopes for after an attempt now."""
    attempt = ready(stage, name)
    decision = decide(stage.cache.snapshot, attempt.unit, SearchOptions())
    left = attempt.pods.keys() - {bind.uid for bind in decision.binds}
    return hint_for(stage.cache.snapshot, attempt.unit, decision.explanation.finding, left)


def test_gangs_made_from_one_template_are_alike() -> None:
    """Their names are their own, and so is when they came."""
    stage = Stage(*gang("a"), *gang("b"))
    assert ready(stage, "a-0").signature == ready(stage, "b-0").signature is not None


@pytest.mark.parametrize(
    "other",
    [gang("b", cpu=2), gang("b", size=3), gang("b", preemption_policy="Never"), [pod("b-0", cpu=1)]],
    ids=["demand", "size", "policy", "alone"],
)
def test_roots_that_differ_are_not_alike(other: list[Any]) -> None:
    """Whatever the engine may look at makes a difference."""
    stage = Stage(*gang("a"), *other)
    assert ready(stage, "a-0").signature != ready(stage, "b-0").signature


def test_pods_of_different_priority_are_not_alike() -> None:
    """The one might evict what the other must not touch."""
    stage = Stage(pod("a", cpu=1), pod("b", cpu=1, priority=5), pod("c", cpu=1))
    assert ready(stage, "a").signature != ready(stage, "b").signature
    assert ready(stage, "a").signature == ready(stage, "c").signature


def test_the_shape_of_a_tree_counts() -> None:
    """Which group stands below which, and what it requires."""
    leaves = [pod_group("x", gang=1, parent="root"), pod_group("y", gang=1, parent="root")]
    pods = [pod("x-0", group="x"), pod("y-0", group="y")]
    plain = Stage(composite("root", gang=2), *leaves, *pods)
    racked = Stage(composite("root", gang=2, key="rack"), *leaves, *pods)
    assert ready(plain, "x-0").signature != ready(racked, "x-0").signature


def test_a_tree_with_running_members_is_like_no_other() -> None:
    """Where they run matters; and a pod that makes no sense matters, too."""
    stage = Stage(node("n1"), *gang("a"), pod("a-9", group="a", node_name="n1"), pod("bad", cpu="much"))
    assert ready(stage, "a-0").signature is None
    assert ready(stage, "bad").signature is None


def test_who_waits_for_members_hopes_for_nothing_else() -> None:
    """No node can help a gang that is not complete."""
    assert hope(Stage(node("n1"), *gang("a", size=1)), "a-0") is None


def test_who_needs_room_hopes_for_a_node_with_room() -> None:
    """By the classes of its pods that wait, and the homes of those that run."""
    stage = Stage(node("n1", cpu=1), *gang("a", cpu=2), pod("a-9", group="a", cpu=1, node_name="n1"))
    unit = ready(stage, "a-0").unit
    assert hope(stage, "a-0") == RequeueHint((unit.nodes[0].pending[0].pod_class,), frozenset({"n1"}))


@pytest.mark.parametrize("finding", [Finding.CONTRADICTION, Finding.NOT_FOUND, Finding.OUT_OF_BUDGET])
def test_what_is_not_proven_hopes_for_anything(finding: Finding) -> None:
    """The search might go another way next time."""
    stage = Stage(*gang("a"))
    assert hint_for(stage.cache.snapshot, ready(stage, "a-0").unit, finding, {"uid-default-a-0"}) == ANYTHING


def test_who_looks_at_other_pods_hopes_for_anything() -> None:
    """Somebody may come whom it wants near, or go whose ports it wants."""
    stage = Stage(node("n1"), pod("near", affinity=NEAR))
    assert hope(stage, "near") == ANYTHING


def test_what_others_think_of_a_pod_counts() -> None:
    """A pod may be kept off by one that runs, without asking for anything itself."""
    apart = Affinity(pod_anti_affinity=NEAR.pod_affinity)
    alone = pod("alone", affinity=apart, node_name="n1")
    web = pod("web", meta=metadata("web", app="web"))
    assert hope(Stage(node("n1", labels={"rack": "a"}), alone, web), "web") == ANYTHING


def test_extra_pods_hope_for_anything_when_others_have_just_been_placed() -> None:
    """What was placed greedily proves nothing; when nothing more is placed, only room helps one kind of pods."""
    stage = Stage(node("n1", cpu=2), *gang("a", size=3))
    assert hope(stage, "a-0") == ANYTHING
    stage.settle()
    left = next(name for name in ("a-0", "a-1", "a-2") if name not in stage.bound())
    found = hope(stage, left)
    assert found is not None
    assert (found.homes, found.anything) == (frozenset({"n1"}), False)


def test_extra_pods_of_several_kinds_hope_for_anything() -> None:
    """Another order might have placed one more."""
    stage = Stage(node("n1", cpu=2), *gang("a"))
    stage.settle()
    stage.put(pod("more", group="a", cpu=2), pod("less", group="a", cpu=1))
    assert hope(stage, "more") == ANYTHING


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
def test_a_node_helps_whom_it_has_room_for(better: Node, expected: bool) -> None:  # noqa: FBT001 - a parameter
    """By resources, and by everything about the node itself."""
    stage = Stage(node("n1", cpu=1), pod("a", cpu=2))
    found = hope(stage, "a")
    stage.put(better)
    assert found is not None
    assert fulfilled(stage.cache.snapshot, found, {"n2"}) == expected


def test_a_resource_that_is_overdrawn_matters_only_to_who_asks_for_it() -> None:
    """A pod without CPU fits where there is less than none."""
    stage = Stage(node("n1", cpu=1, memory="1Gi"), pod("big", cpu=4, node_name="n1"), pod("a", memory="2Gi"))
    found = hope(stage, "a")
    stage.put(node("n1", cpu=1, memory="4Gi"))
    assert found is not None
    assert fulfilled(stage.cache.snapshot, found, {"n1"})


def test_a_node_that_is_gone_helps_only_who_had_a_home_there() -> None:
    """A tree whose member is gone may go elsewhere."""
    snapshot = Stage(node("n1")).cache.snapshot
    assert fulfilled(snapshot, RequeueHint(homes=frozenset({"gone"})), {"gone"})
    assert not fulfilled(snapshot, RequeueHint(homes=frozenset({"n1"})), {"gone"})
    assert fulfilled(snapshot, ANYTHING, {"gone"})


def test_a_failure_is_told_by_the_names_of_who_shares_it() -> None:
    """The same explanation, for another tree of the same shape."""
    stage = Stage(node("n1", cpu=1), *gang("a"), *gang("b"))
    first, second = ready(stage, "a-0"), ready(stage, "b-0")
    decision = decide(stage.cache.snapshot, first.unit, SearchOptions(detail=True))
    told = first.failure(stage.cache.snapshot, decision, first.pods).explained_for(second.unit)
    assert told is not None
    assert told.next_step is not None
    assert (told.reports[0].key.name, told.next_step.group.name, told.next_step.remedy) == ("b", "b", Remedy.MAKE_ROOM)
    assert replace(told, next_step=None).finding is decision.explanation.finding


def test_blockers_are_renamed_with_their_groups() -> None:
    """A reason points to a group of the tree that it is told to."""
    stage = Stage(node("n1", cpu=1))
    for name in "ab":
        stage.put(composite(f"{name}-root", gang=1), pod_group(f"{name}-leaf", gang=1, parent=f"{name}-root"))
        stage.put(pod(name, group=f"{name}-leaf", cpu=2))
    first, second = ready(stage, "a"), ready(stage, "b")
    decision = decide(stage.cache.snapshot, first.unit, SearchOptions())
    told = first.failure(stage.cache.snapshot, decision, first.pods).explained_for(second.unit)
    assert told is not None
    assert [blocker.name for blocker in told.reports[0].blockers] == ["b-leaf"]


def test_of_who_was_never_tried_there_is_nothing_to_tell() -> None:
    """It has neither a gist nor an explanation."""
    stage = Stage(*gang("a"))
    assert FailedAttempt().explained_for(ready(stage, "a-0").unit) is None
    assert FailedAttempt().gist is None


def test_the_gist_is_the_causes_and_not_the_counts() -> None:
    """One node more that is too small is nothing new; one that is tainted is."""
    stage = Stage(node("n1", cpu=1), pod("a", cpu=2))

    def gist() -> object:
        attempt = ready(stage, "a")
        decision = decide(stage.cache.snapshot, attempt.unit, SearchOptions(detail=True))
        return attempt.failure(stage.cache.snapshot, decision, attempt.pods).gist

    first = gist()
    stage.put(node("n2", cpu=1))
    assert gist() == first
    stage.put(node("n3", cpu=1, taints=(Taint(key="mine", effect="NoSchedule"),)))
    assert gist() != first


def test_what_was_placed_is_not_shared() -> None:
    """The room has been taken by the one; that says nothing about the next."""
    stage = Stage(node("n1", cpu=2), *gang("a", size=3))
    attempt = ready(stage, "a-0")
    decision: Decision = decide(stage.cache.snapshot, attempt.unit, SearchOptions())
    assert attempt.failure(stage.cache.snapshot, decision, {"uid-default-a-2"}).signature is None


def test_who_wants_a_host_port_hopes_for_anything() -> None:
    """Who has it may leave."""
    port = ContainerPort(container_port=80, host_port=80)
    first, second = (with_port(pod(name), port) for name in ("first", "second"))
    stage = Stage(node("n1"), replace(first, spec=replace(first.spec, node_name="n1")), second)
    assert hope(stage, "second") == ANYTHING


def with_port(found: Pod, port: ContainerPort) -> Pod:
    """Return a pod that wants a port of its node."""
    containers = tuple(replace(one, ports=(port,)) for one in found.spec.containers or ())
    assert found.metadata.namespace == NAMESPACE
    return replace(found, spec=replace(found.spec, containers=containers))
