"""Whatever comes in whatever order: what is known is that of the objects, and no change of a root goes untold."""

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
from cpg_scheduler.testing.stage import CRD, NATIVE, Stage, Thing
from cpg_scheduler.units import SchedulableUnit, build_unit, queue_key_of

Piece: TypeAlias = tuple[Thing, str, bool]
"""An object, its flavour, and whether it comes (or changes) or goes."""

GROUP_NAMES = st.sampled_from(["a", "b", "a", ""])
PARENTS = st.sampled_from(["top", "mid", None])
SMALL = st.integers(1, 2)


def some_pod(name: str, group: str, bound: str, phase: str, more: dict[str, Any]) -> Thing:
    """Return a pod with whatever may matter."""
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
THINGS: st.SearchStrategy[Thing] = st.one_of(
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
PIECES = st.tuples(THINGS, st.sampled_from([CRD, CRD, CRD, NATIVE]), st.sampled_from([True, True, True, False]))


class Teller:
    """Tells a stage of pieces, and keeps what there is in the end."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.things: dict[tuple[str, str, str], tuple[Thing, str]] = {}

    def tell(self, piece: Piece) -> None:
        """Let an object come, change, or go; cluster-scoped and core objects have no flavour."""
        thing, flavour, comes = piece
        if not isinstance(thing, type(pod_group("a")) | type(composite("a")) | type(workload([leaf_template("a")]))):
            flavour = CRD
        place = (type(thing).__name__, flavour, thing.metadata.key)
        if comes:
            self.things[place] = (thing, flavour)
            self.stage.put(thing, flavour=flavour)
        elif place in self.things:
            del self.things[place]
            self.stage.delete(thing, flavour=flavour)


def summary(state: ClusterCache) -> dict[UnitKey, object]:
    """Return of every root what an attempt would look at."""
    roots = {state.unit_of(found) for found in state.pods.values()}
    orders = {root: queue_key_of(state, root) for root in roots}
    return {root: (order, sketch(state, root)) for root, order in orders.items() if order is not None}


def sketch(state: ClusterCache, root: UnitKey) -> object:
    """Return an attempt without what depends on when which class was first seen."""
    attempt = build_unit(state, root)
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


def taken(state: ClusterCache) -> dict[str, dict[str, int]]:
    """Return what is used of each node."""
    ledger = state.snapshot.ledger
    return {
        name: {
            key: number
            for key, number in zip(ledger.classes.axis.names, ledger.used[row].tolist(), strict=True)
            if number
        }
        for name, row in ledger.cluster.row_of.items()
    }


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, min_size=8, max_size=25), st.randoms(use_true_random=False))
def test_what_is_known_does_not_depend_on_the_way(pieces: list[Piece], chance: Any) -> None:  # noqa: ANN401 - a Random
    """It is the same as if the objects that are left had come once, in another order."""
    teller, again = Teller(), Stage()
    for piece in pieces:
        teller.tell(piece)
    rest = [*teller.things.values()]
    chance.shuffle(rest)
    for thing, flavour in rest:
        again.put(thing, flavour=flavour)
    assert summary(teller.stage.cache) == summary(again.cache)
    assert taken(teller.stage.cache) == taken(again.cache)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(PIECES, min_size=1, max_size=4), min_size=4, max_size=10))
def test_every_root_that_changes_is_touched(chapters: list[list[Piece]]) -> None:
    """Between any two moments: who is attempted otherwise than before, or is no root any more, is in the news."""
    teller = Teller()
    state = teller.stage.cache
    before: dict[UnitKey, object] = {}
    for chapter in chapters:
        for piece in chapter:
            teller.tell(piece)
        after, touched = summary(state), state.take_events().changed_units
        anchored = {state.current_unit(root) for root in touched}
        assert {root for root in after if after[root] != before.get(root)} <= anchored
        assert before.keys() - after.keys() <= touched | anchored
        before = after


@settings(max_examples=100, deadline=None)
@given(st.lists(PODS, min_size=4, max_size=20))
def test_room_that_appears_is_told(pods: list[Thing]) -> None:
    """A node that has more room than before, of anything, is named."""
    stage = Stage(node("n1"), node("n2"))
    for found in pods:
        before = taken(stage.cache)
        stage.cache.take_events()
        stage.put(found)
        eased = stage.cache.take_events().freed_nodes
        for name, used in taken(stage.cache).items():
            if any(used.get(key, 0) < number for key, number in before[name].items()):
                assert name in eased
