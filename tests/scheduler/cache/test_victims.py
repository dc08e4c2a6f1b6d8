"""Victims: the units that preemption could evict, and their priorities."""

import time
from typing import Any

import pytest
from msgspec.structs import replace

from cpg_api.core.pod import SchedulingGroup
from cpg_engine.preemption.values import VictimUnit
from cpg_engine.testing.builders import (
    bare,
    composite,
    disruption,
    leaf_template,
    node,
    pod,
    pod_group,
    priority_class,
    workload,
)
from cpg_scheduler.testing.stage import CRD, NATIVE, Stage

ABOVE_ALL = 2**31


def units(stage: Stage, below: int = ABOVE_ALL, *spared: str) -> dict[str, list[str]]:
    """Return the victim units below a priority by name, with the pods of each."""
    found = stage.cache.victims.units(below, {f"uid-default-{name}" for name in spared})
    return {str(unit.key): sorted(uid.removeprefix("uid-default-") for uid in unit.pods) for unit in found}


def runs(name: str, group: str | None = None, **more: Any) -> Any:  # noqa: ANN401 - a pod, as a builder returns it
    """Return a running pod."""
    return pod(name, group=group, node_name="n1", **more)


def test_a_single_pod_is_a_unit_with_its_own_priority() -> None:
    """Units of the asked priority are no victims."""
    stage = Stage(node("n1"), runs("a", priority=1), runs("b", priority=2), runs("c", priority=None))
    assert units(stage, 2) == {"Pod default/a": ["a"], "Pod default/c": ["c"]}
    assert stage.cache.victims.units(-1) == ()


@pytest.mark.parametrize("state", ["pending", "terminating", "ended", "deleted"])
def test_a_pod_that_does_not_run_is_no_victim(state: str) -> None:
    """Nor is a terminating one."""
    stage = Stage(node("n1"), runs("a"))
    a = stage.pod("a")
    match state:
        case "pending":
            stage.put(replace(a, spec=replace(a.spec, node_name="")))
        case "terminating":
            stage.terminate(a)
        case "ended":
            stage.put(replace(a, status=replace(a.status, phase="Succeeded")))
        case _:
            stage.delete(a)
    assert units(stage) == {}


def test_pods_of_other_schedulers_are_victims_too() -> None:
    """They take room as ours do."""
    foreign = runs("a", "pg")
    foreign = replace(foreign, spec=replace(foreign.spec, scheduler_name="default-scheduler"))
    assert units(Stage(node("n1"), pod_group("pg", all_=True), foreign)) == {"PodGroup default/pg": ["a"]}


def test_the_highest_ancestor_that_is_disrupted_whole_is_the_unit() -> None:
    """Whatever the disruption modes below it, and on whichever nodes its pods run."""
    stage = Stage(node("n1"), composite("root"), composite("whole", parent="root", all_=True))
    stage.put(pod_group("one", parent="whole"), pod_group("two", parent="whole", all_=True))
    stage.put(pod_group("three", parent="root"))
    stage.put(runs("a", "one"), runs("b", "two"), runs("c", "two"), runs("d", "three"))
    assert units(stage) == {"CompositePodGroup default/whole": ["a", "b", "c"], "Pod default/d": ["d"]}
    assert units(stage, ABOVE_ALL, "b") == {"Pod default/d": ["d"]}


def priorities(stage: Stage) -> dict[str, int]:
    """Return the priority of each victim unit by name."""
    return {str(unit.key): unit.priority for unit in stage.cache.victims.units(ABOVE_ALL)}


@pytest.mark.parametrize("number", [None, 0, 1_000_000_000])
def test_the_priority_of_a_group_does_not_count(number: int | None) -> None:
    """Users can write any number there, or create a root later; admission resolves the priority of pods."""
    stage = Stage(node("n1"), pod_group("pg", parent="root", priority=number), runs("a", "pg", priority=100))
    stage.put(composite("root", priority=number), priority_class("some", 3, default=True))
    assert priorities(stage) == {"Pod default/a": 100}


def test_a_whole_unit_has_the_highest_priority_of_its_pods() -> None:
    """Over all its groups, for as long as the pod of that priority runs. Single pods keep their own."""
    groups = [pod_group(name, parent="root", all_=True) for name in ("one", "two")]
    stage = Stage(node("n1"), composite("root", all_=True), *groups, pod_group("three"))
    stage.put(runs("a", "one", priority=1), runs("b", "two", priority=50), runs("c", "two", priority=2))
    stage.put(runs("d", "three", priority=5), runs("e", "three", priority=60))
    assert priorities(stage) == {"CompositePodGroup default/root": 50, "Pod default/d": 5, "Pod default/e": 60}
    assert units(stage, 50) == {"Pod default/d": ["d"]}
    assert stage.cache.victims.victim_unit_of(stage.pod("a")) == (50, {f"uid-default-{name}" for name in "abc"})
    stage.delete(stage.pod("b"))
    assert units(stage, 50) == {"CompositePodGroup default/root": ["a", "c"], "Pod default/d": ["d"]}


@pytest.mark.parametrize("last", [True, False])
def test_the_nodes_of_a_whole_unit_are_freed_when_its_priority_falls(*, last: bool) -> None:
    """More preemptors may evict its pods then, on every node, also where another of its groups has lost a pod."""
    stage = Stage(node("n1"), node("n2"), composite("root", all_=True))
    stage.put(pod_group("one", parent="root", all_=True), pod_group("two", parent="root", all_=True))
    stage.put(runs("a", "one", priority=1), pod("b", group="two", node_name="n2", priority=50))
    if not last:
        stage.put(pod("c", group="two", node_name="n2", priority=2))
    stage.cache.victims.units(ABOVE_ALL)
    stage.delete(stage.pod("b"))
    stage.cache.victims.units(ABOVE_ALL)
    assert "n1" in stage.cache.take_events().freed_nodes


def test_a_group_may_leave_its_disruption_mode_to_its_template() -> None:
    """The template counts as soon as the Workload exists."""
    stage = Stage(node("n1"), bare(pod_group("pg", workload="w")), runs("a", "pg"), runs("b", "pg"))
    assert units(stage) == {"Pod default/a": ["a"], "Pod default/b": ["b"]}
    whole = replace(leaf_template("pg"), disruption_mode=disruption(all_=True))
    stage.put(workload([whole]))
    assert units(stage) == {"PodGroup default/pg": ["a", "b"]}
    stage.delete(workload([whole]))
    stage.delete(bare(pod_group("pg", workload="w")))
    assert units(stage) == {"PodGroup default/pg": ["a", "b"]}


def test_a_unit_changes_with_its_ancestors() -> None:
    """Groups are created while their pods run; the highest ancestor counts, also after its deletion."""
    stage = Stage(node("n1"), runs("a", "pg", priority=5), runs("b", "pg", priority=6))
    assert units(stage, 6) == {"Pod default/a": ["a"]}
    root = composite("root", all_=True)
    stage.put(pod_group("pg", parent="root"))
    assert units(stage, 6) == {"Pod default/a": ["a"]}
    stage.put(root)
    assert units(stage, 6) == {}
    assert units(stage) == {"CompositePodGroup default/root": ["a", "b"]}
    stage.delete(root)
    assert units(stage) == {"CompositePodGroup default/root": ["a", "b"]}
    stage.put(pod_group("pg"))
    assert units(stage, 6) == {"Pod default/a": ["a"]}


def test_the_group_of_the_first_flavour_counts() -> None:
    """A group of that name in the other flavour does not."""
    stage = Stage(node("n1"), runs("a", "pg"), pod_group("pg"))
    assert units(stage) == {"Pod default/a": ["a"]}
    stage.put(pod_group("pg", all_=True), flavour=NATIVE)
    assert units(stage) == {"PodGroup default/pg": ["a"]}


def test_a_unit_is_as_old_as_its_earliest_pod() -> None:
    """As far as kubelets have reported start times."""
    stage = Stage(node("n1"), composite("root", all_=True), *(pod_group(n, parent="root") for n in ("one", "two")))
    started = runs("b", "one")
    stage.put(replace(started, status=replace(started.status, start_time="2026-02")))
    stage.put(runs("a", "one"), runs("c", "two"))
    (unit,) = stage.cache.victims.units(ABOVE_ALL)
    assert unit.since == "2026-02"
    stage.delete(started)
    (unit,) = stage.cache.victims.units(ABOVE_ALL)
    assert unit.since == ""


def test_a_pod_of_a_missing_group_is_a_unit_by_itself() -> None:
    """With its own priority, for as long as it runs."""
    stage = Stage(node("n1", cpu=4), runs("p", "gone"))
    assert units(stage) == {"Pod default/p": ["p"]}
    stage.delete(stage.pod("p"))
    assert units(stage) == {}


def test_nothing_is_kept_of_deleted_groups() -> None:
    """Also if no preemptor ever asks for victims."""
    stage = Stage(node("n1", cpu=4))
    for number in range(20):
        group = pod_group(f"g{number}")
        stage.put(group, runs("p", f"g{number}"), runs("q", f"h{number}"))
        stage.settle()
        stage.delete(stage.pod("p"), stage.pod("q"), group)
        stage.settle()
    victims = stage.cache.victims
    assert [*victims._regrouped, *victims._stale, *victims._members] == []


def test_victims_are_looked_up_quickly_among_many_pods() -> None:
    """Five thousand pods, of which almost all units are known. Limit: 0.02 s, measured 0.3 ms."""
    stage = Stage(node("n1"))
    for number in range(400):
        stage.put(pod_group(f"g{number}", all_=number % 2 == 0, priority=number % 10))
        stage.put(*(runs(f"g{number}-{member}", f"g{number}") for member in range(10)))
    stage.put(*(runs(f"p{number}", priority=number % 10) for number in range(1000)))
    stage.cache.victims.units(10)
    stage.put(runs("more", "g1"))
    began = time.perf_counter()
    found: tuple[VictimUnit, ...] = stage.cache.victims.units(10)
    assert len(found) == 200 + 2001 + 1000
    assert time.perf_counter() - began < 0.02


def whole_tree(stage: Stage) -> None:
    """Create a tree that is evicted as a whole, with a running pod in each of two groups."""
    stage.put(composite("root", all_=True), *(pod_group(name, parent="root") for name in ("a", "b")))
    stage.put(runs("a-0", "a", priority=1), runs("b-0", "b", priority=2))


@pytest.mark.parametrize("deleted", [("root",), ("a",), ("b", "a"), ("root", "a", "b"), ("a", "b", "root")])
def test_a_unit_stays_whole_when_its_groups_are_deleted(deleted: tuple[str, ...]) -> None:
    """As when the CRDs are removed: its pods are never evicted one by one, and more pods change nothing."""
    stage = Stage(node("n1", cpu=9))
    whole_tree(stage)
    whole = {"CompositePodGroup default/root": ["a-0", "b-0"]}
    assert units(stage) == whole
    for name in deleted:
        stage.delete(composite("root") if name == "root" else pod_group(name))
        assert units(stage) == whole
    stage.put(runs("a-1", "a", priority=1))
    (unit,) = stage.cache.victims.units(ABOVE_ALL)
    assert (unit.priority, len(unit.pods)) == (2, 3)
    assert {group.metadata.name for group in stage.cache.victims.groups_of(unit)}.isdisjoint(deleted)


def test_a_deleted_group_is_forgotten_with_its_last_running_pod() -> None:
    """Later pods that name it are single pods; a group that is created again counts as it is."""
    stage = Stage(node("n1", cpu=9), pod_group("a", all_=True), runs("a-0", "a"), pod_group("b", all_=True))
    stage.put(runs("b-0", "b"), runs("b-1", "b"))
    assert units(stage) == {"PodGroup default/a": ["a-0"], "PodGroup default/b": ["b-0", "b-1"]}
    stage.delete(pod_group("a"), stage.pod("a-0"), pod_group("b"))
    stage.put(runs("a-1", "a"), pod_group("b"))
    assert units(stage) == {f"Pod default/{name}": [name] for name in ("a-1", "b-0", "b-1")}


def test_pods_of_groups_are_no_victims_where_no_groups_are_served() -> None:
    """Their units cannot be known. Pods without a group are victims, and terminating pods still count as such."""
    stage = Stage(node("n1", cpu=9), flavours=())
    stage.put(runs("a-0", "a"), runs("a-1", "a"), runs("single"))
    assert units(stage) == {"Pod default/single": ["single"]}
    stage.victims_linger = True
    stage.terminate(stage.pod("a-0"))
    assert list(stage.cache.victims.terminating) == ["uid-default-a-0"]
    stage.delete(stage.pod("a-1"))


def test_pods_of_an_unknown_group_are_one_unit_where_its_kind_is_not_read() -> None:
    """Their label may name one of our groups; once a native group of that name is there, that one counts."""
    stage = Stage(node("n1", cpu=9), flavours=(NATIVE,))
    stage.put(runs("a-0", "a"), runs("a-1", "a", priority=7), runs("single"))
    assert units(stage) == {"PodGroup default/a": ["a-0", "a-1"], "Pod default/single": ["single"]}
    (unit,) = (one for one in stage.cache.victims.units(below=100) if len(one.pods) > 1)
    assert (unit.priority, stage.cache.victims.groups_of(unit)) == (7, [])
    stage.put(pod_group("a"), flavour=NATIVE)
    assert sorted(units(stage)) == ["Pod default/a-0", "Pod default/a-1", "Pod default/single"]
    stage.delete(stage.pod("a-0"))
    stage.delete(stage.pod("a-1"))


def test_pods_that_name_an_unknown_native_group_are_one_unit_where_only_ours_are_read() -> None:
    """Another scheduler runs them as a gang."""
    stage = Stage(node("n1", cpu=9), flavours=(CRD,))
    native = SchedulingGroup(pod_group_name="a")
    stage.put(*(pod(f"a-{n}", scheduling_group=native, node_name="n1") for n in range(2)))
    assert units(stage) == {"PodGroup default/a": ["a-0", "a-1"]}


def test_an_ancestor_that_arrives_late_counts_though_a_workload_is_missing() -> None:
    """The watches of the kinds are independent; until then, the unit is the part that is known."""
    stage = Stage(node("n1", cpu=9), pod_group("a", parent="root", all_=True), runs("a-0", "a"), runs("a-1", "a"))
    assert units(stage) == {"PodGroup default/a": ["a-0", "a-1"]}
    stage.put(composite("root", all_=True))
    assert units(stage) == {"CompositePodGroup default/root": ["a-0", "a-1"]}
