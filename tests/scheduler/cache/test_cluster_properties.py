"""In any order of arrival the cache depends on the objects alone, and its events miss no change of a unit."""

from typing import Any, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_engine.testing.builders import (
    composite,
    leaf_template,
    metadata,
    node,
    pod,
    pod_group,
    priority_class,
    workload,
)
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.testing.stage import CRD, NATIVE, KubeObject, Stage
from cpg_scheduler.units import SchedulableUnit, build_unit, queue_key_of

Step: TypeAlias = tuple[KubeObject, str, bool]
"""An object, its flavour, and whether it is put or deleted."""

GROUP_NAMES = st.sampled_from(["a", "b", "a", ""])
PARENTS = st.sampled_from(["top", "mid", None])
SMALL = st.integers(1, 2)


def some_pod(name: str, group: str, bound: str, phase: str, more: dict[str, Any]) -> KubeObject:
    """Return a pod with fields that may matter."""
    meta = metadata(name, **({POD_GROUP_LABEL: group} if group else {}))
    made = pod(name, meta=replace(meta, deletion_timestamp=more["deleted"]), cpu=more["cpu"], node_name=bound)
    spec = replace(made.spec, scheduler_name=more["scheduler"] or made.spec.scheduler_name)
    return replace(made, spec=spec, status=replace(made.status, phase=phase))


MORE = st.fixed_dictionaries(
    {
        "deleted": st.sampled_from([None, None, "2026"]),
        "cpu": st.sampled_from([1, 2, "much"]),
        "scheduler": st.sampled_from(["", "", "", "other"]),
    }
)
PODS = st.builds(
    some_pod,
    st.sampled_from("pqrs"),
    GROUP_NAMES,
    st.sampled_from(["", "", "n1", "n2"]),
    st.sampled_from(["", "", "Running", "Succeeded", "Failed"]),
    MORE,
)
THINGS: st.SearchStrategy[KubeObject] = st.one_of(
    PODS,
    PODS,
    st.builds(
        lambda name, gang, parent: pod_group(name, gang=gang, parent=parent), st.sampled_from("ab"), SMALL, PARENTS
    ),
    st.builds(lambda name, parent: composite(name, parent=parent), st.sampled_from(["top", "mid"]), PARENTS),
    st.builds(lambda: replace(pod_group("a"), spec=replace(pod_group("a").spec, priority=None))),
    st.builds(lambda name, cpu: node(name, cpu=cpu), st.sampled_from(["n1", "n2"]), st.integers(1, 4)),
    st.builds(
        lambda names: workload([leaf_template(name) for name in names]), st.sets(st.sampled_from("ab"), min_size=1)
    ),
    st.builds(lambda value: priority_class("usual", value, default=True), st.integers(0, 2)),
)
STEPS = st.tuples(THINGS, st.sampled_from([CRD, CRD, CRD, NATIVE]), st.sampled_from([True, True, True, False]))


class RecordedStage:
    """A stage that keeps the objects that exist."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.things: dict[tuple[str, str, str], tuple[KubeObject, str]] = {}

    def perform(self, step: Step) -> None:
        """Put or delete an object; only groups and Workloads have a flavour."""
        thing, flavour, is_put = step
        if not isinstance(thing, type(pod_group("a")) | type(composite("a")) | type(workload([leaf_template("a")]))):
            flavour = CRD
        key = (type(thing).__name__, flavour, thing.metadata.key)
        if is_put:
            self.things[key] = (thing, flavour)
            self.stage.put(thing, flavour=flavour)
        elif key in self.things:
            del self.things[key]
            self.stage.delete(thing, flavour=flavour)


def summary(cache: ClusterCache) -> dict[UnitKey, object]:
    """Return what an attempt at each pending unit would be about."""
    units = {cache.unit_of(found) for found in cache.pods.values()}
    keys = {unit: queue_key_of(cache, unit) for unit in units}
    return {unit: (key, sketch(cache, unit)) for unit, key in keys.items() if key is not None}


def sketch(cache: ClusterCache, unit: UnitKey) -> object:
    """Return an attempt without what depends on the order in which pod classes were first seen."""
    attempt = build_unit(cache, unit)
    if not isinstance(attempt, SchedulableUnit):
        return attempt.problem, {found.metadata.uid for found in attempt.pods}
    return [
        (
            each.key,
            each.minimum,
            each.end,
            [member.uid for member in each.pending],
            each.scheduled,
            sorted(each.member_nodes),
        )
        for each in attempt.unit.nodes
    ]


def used(cache: ClusterCache) -> dict[str, dict[str, int]]:
    """Return what is taken of each node, by resource."""
    ledger = cache.snapshot.ledger
    return {
        name: {
            key: number
            for key, number in zip(ledger.classes.axis.names, ledger.used[row].tolist(), strict=True)
            if number
        }
        for name, row in ledger.cluster.row_of.items()
    }


@settings(max_examples=150)
@given(st.lists(STEPS, min_size=8, max_size=25), st.randoms(use_true_random=False))
def test_the_cache_depends_on_the_objects_alone(steps: list[Step], random: Any) -> None:  # noqa: ANN401 - a Random
    """It is the same as if the objects that exist in the end had been created once, in another order."""
    recorded, fresh = RecordedStage(), Stage()
    for step in steps:
        recorded.perform(step)
    rest = [*recorded.things.values()]
    random.shuffle(rest)
    for thing, flavour in rest:
        fresh.put(thing, flavour=flavour)
    assert summary(recorded.stage.cache) == summary(fresh.cache)
    assert used(recorded.stage.cache) == used(fresh.cache)


@settings(max_examples=150)
@given(st.lists(st.lists(STEPS, min_size=1, max_size=4), min_size=4, max_size=10))
def test_every_unit_that_changes_is_in_the_events(chapters: list[list[Step]]) -> None:
    """Each unit that would be attempted in another way than before, or that exists no more."""
    recorded = RecordedStage()
    cache = recorded.stage.cache
    before: dict[UnitKey, object] = {}
    for chapter in chapters:
        for step in chapter:
            recorded.perform(step)
        after, changed = summary(cache), cache.take_events().changed_units
        current = {cache.current_unit(unit) for unit in changed}
        assert {unit for unit in after if after[unit] != before.get(unit)} <= current
        assert before.keys() - after.keys() <= changed | current
        before = after


@settings(max_examples=100)
@given(st.lists(PODS, min_size=4, max_size=20))
def test_every_node_with_more_room_is_freed(pods: list[KubeObject]) -> None:
    """More room of any resource."""
    stage = Stage(node("n1"), node("n2"))
    for found in pods:
        before = used(stage.cache)
        stage.cache.take_events()
        stage.put(found)
        freed = stage.cache.take_events().freed_nodes
        for name, amounts in used(stage.cache).items():
            if any(amounts.get(key, 0) < number for key, number in before[name].items()):
                assert name in freed
