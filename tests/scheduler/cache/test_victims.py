"""Who could be evicted, with whom."""

import time
from typing import Any

import pytest
from msgspec.structs import replace

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
from cpg_scheduler.testing.stage import NATIVE, Stage

EVERYBODY = 2**31


def units(stage: Stage, below: int = EVERYBODY, *spared: str) -> dict[str, list[str]]:
    """Return the units by name, with the pods of each."""
    found = stage.cache.victims.units(below, {f"uid-default-{name}" for name in spared})
    return {str(unit.key): sorted(uid.removeprefix("uid-default-") for uid in unit.pods) for unit in found}


def runs(name: str, group: str | None = None, **more: Any) -> Any:  # noqa: ANN401 - a pod, as a builder returns it
    """Return a pod that runs."""
    return pod(name, group=group, node_name="n1", **more)


def test_a_pod_of_its_own_is_a_unit_by_its_own_priority() -> None:
    """Only what matters less counts."""
    stage = Stage(node("n1"), runs("a", priority=1), runs("b", priority=2), runs("c", priority=None))
    assert units(stage, 2) == {"Pod default/a": ["a"], "Pod default/c": ["c"]}
    assert stage.cache.victims.units(-1) == ()


@pytest.mark.parametrize("state", ["waits", "terminates", "has ended", "is gone"])
def test_who_does_not_run_is_no_victim(state: str) -> None:
    """Nor who is on the way out already."""
    stage = Stage(node("n1"), runs("a"))
    a = stage.pod("a")
    match state:
        case "waits":
            stage.put(replace(a, spec=replace(a.spec, node_name="")))
        case "terminates":
            stage.terminate(a)
        case "has ended":
            stage.put(replace(a, status=replace(a.status, phase="Succeeded")))
        case _:
            stage.delete(a)
    assert units(stage) == {}


def test_pods_of_other_schedulers_count() -> None:
    """Whoever has placed them, they take room."""
    foreign = runs("a", "pg")
    foreign = replace(foreign, spec=replace(foreign.spec, scheduler_name="default-scheduler"))
    assert units(Stage(node("n1"), pod_group("pg", all_=True), foreign)) == {"PodGroup default/pg": ["a"]}


def test_the_highest_ancestor_that_goes_whole_is_the_unit() -> None:
    """G09: whatever is below it, and wherever its pods are."""
    stage = Stage(node("n1"), composite("root"), composite("whole", parent="root", all_=True))
    stage.put(pod_group("one", parent="whole"), pod_group("two", parent="whole", all_=True))
    stage.put(pod_group("three", parent="root"))
    stage.put(runs("a", "one"), runs("b", "two"), runs("c", "two"), runs("d", "three"))
    assert units(stage) == {"CompositePodGroup default/whole": ["a", "b", "c"], "Pod default/d": ["d"]}
    assert units(stage, EVERYBODY, "b") == {"Pod default/d": ["d"]}


def test_members_have_the_priority_of_their_root() -> None:
    """By its number, its class or the default class."""
    stage = Stage(node("n1"), composite("root", priority=None), pod_group("pg", parent="root", priority=7))
    stage.put(runs("a", "pg", priority=1), priority_class("some", 3, default=True))
    assert {unit.priority for unit in stage.cache.victims.units(EVERYBODY)} == {3}
    stage.put(priority_class("some", 4, default=True))
    assert {unit.priority for unit in stage.cache.victims.units(EVERYBODY)} == {4}


def test_members_go_as_the_template_says() -> None:
    """Of a group that leaves that to it, as soon as the Workload is there."""
    stage = Stage(node("n1"), bare(pod_group("pg", workload="w")), runs("a", "pg"), runs("b", "pg"))
    assert units(stage) == {"Pod default/a": ["a"], "Pod default/b": ["b"]}
    whole = replace(leaf_template("pg"), disruption_mode=disruption(all_=True), priority=4)
    stage.put(workload([whole]))
    assert units(stage) == {"PodGroup default/pg": ["a", "b"]}
    assert {unit.priority for unit in stage.cache.victims.units(EVERYBODY)} == {4}


def test_a_unit_changes_with_what_is_above_it() -> None:
    """Groups come and go while their pods run; G22: the nearest that is left counts."""
    stage = Stage(node("n1"), runs("a", "pg", priority=5), runs("b", "pg", priority=6))
    assert units(stage, 6) == {"Pod default/a": ["a"]}
    leaf = pod_group("pg", parent="root", priority=3)
    root = composite("root", all_=True, priority=1)
    stage.put(leaf)
    assert units(stage, 4) == {"Pod default/a": ["a"], "Pod default/b": ["b"]}
    stage.put(root)
    assert units(stage, 2) == {"CompositePodGroup default/root": ["a", "b"]}
    stage.delete(root)
    assert units(stage, 4) == {"Pod default/a": ["a"], "Pod default/b": ["b"]}


def test_the_flavour_that_has_the_group_counts() -> None:
    """A namesake of the other flavour has no say."""
    stage = Stage(node("n1"), runs("a", "pg"), pod_group("pg"))
    assert units(stage) == {"Pod default/a": ["a"]}
    stage.put(pod_group("pg", all_=True), flavour=NATIVE)
    assert units(stage) == {"PodGroup default/pg": ["a"]}


def test_a_unit_is_as_old_as_its_first_pod() -> None:
    """As far as the nodes have said so."""
    stage = Stage(node("n1"), composite("root", all_=True), *(pod_group(n, parent="root") for n in ("one", "two")))
    started = runs("b", "one")
    stage.put(replace(started, status=replace(started.status, start_time="2026-02")))
    stage.put(runs("a", "one"), runs("c", "two"))
    (unit,) = stage.cache.victims.units(EVERYBODY)
    assert unit.since == "2026-02"
    stage.delete(started)
    (unit,) = stage.cache.victims.units(EVERYBODY)
    assert unit.since == ""


def test_pods_whose_group_is_not_there_go_without_a_trace() -> None:
    """Each is a unit by its own priority for as long as it runs."""
    stage = Stage(node("n1", cpu=4), runs("p", "gone"))
    assert units(stage) == {"Pod default/p": ["p"]}
    stage.delete(stage.pod("p"))
    assert units(stage) == {}


def test_nothing_is_kept_of_groups_that_are_gone() -> None:
    """Also where nobody ever asks whom to evict."""
    stage = Stage(node("n1", cpu=4))
    for number in range(20):
        group = pod_group(f"g{number}")
        stage.put(group, runs("p", f"g{number}"), runs("q", f"h{number}"))
        stage.settle()
        stage.delete(stage.pod("p"), stage.pod("q"), group)
        stage.settle()
    victims = stage.cache.victims
    assert [*victims._regrouped, *victims._stale, *victims._members] == []


def test_asking_is_quick_where_many_run() -> None:
    """Five thousand pods: by far the most is looked up, not computed. Limit: 0.02 s, seen 0.3 ms."""
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
