"""The ledger: who takes how much of which node, whatever the order of the news."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cpg_engine.cluster.axes import MAX_AMOUNT
from cpg_engine.cluster.class_registry import MAX_STALE_VECTORS
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.cluster.pod_index import MAX_CACHED_QUERIES
from cpg_engine.cluster.requests import SCORED_CPU, SCORED_MEMORY, RequestError
from cpg_engine.cycle import decide
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.gangs.unit import pod_unit
from cpg_engine.score_cache import MAX_IDLE_CLASSES
from cpg_engine.snapshot import new_snapshot
from cpg_engine.testing.builders import node, pod

Event = tuple[str, str, str]
NODES = ("a", "b")
PODS = ("p", "q", "r")


def used(ledger: Ledger, name: str) -> list[int]:
    """Return what is used of a node, by column."""
    return [int(amount) for amount in ledger.used[ledger.cluster.row_of[name]]]


@pytest.fixture
def ledger() -> Ledger:
    """Two nodes of 4 CPU."""
    found = Ledger()
    for name in NODES:
        found.put_node(node(name, memory="1Gi"))
    return found


def test_a_node_offers_what_it_says(ledger: Ledger) -> None:
    """Amounts stand in their columns: thousandths of CPU, bytes, pods."""
    assert ledger.allocatable[0].tolist() == [4000, 2**30, 0, 110]


def test_a_bound_pod_is_counted_once(ledger: Ledger) -> None:
    """Being told of a pod again changes nothing; being told that it is elsewhere, or larger, replaces it."""
    ledger.put_pod(pod("p", cpu=1, node_name="a"), "a")
    version = ledger.version
    ledger.put_pod(pod("p", cpu=1, node_name="a"), "a")
    assert ([1000, 0, 0, 1], version) == (used(ledger, "a"), ledger.version)
    ledger.put_pod(pod("p", cpu=2, node_name="a"), "a")
    assert used(ledger, "a") == [2000, 0, 0, 1]
    ledger.put_pod(pod("p", cpu=2, node_name="b"), "b")
    assert (used(ledger, "a"), used(ledger, "b")) == ([0, 0, 0, 0], [2000, 0, 0, 1])


def test_an_assumed_pod_and_the_bound_one_are_the_same(ledger: Ledger) -> None:
    """A pod that is counted where it has been sent is not counted again when the watch shows it there."""
    ledger.put_pod(pod("p", cpu=1), "a")
    ledger.put_pod(pod("p", cpu=1, node_name="a"), "a")
    assert used(ledger, "a") == [1000, 0, 0, 1]


def test_a_removed_pod_takes_nothing(ledger: Ledger) -> None:
    """What it took is free again; removing it twice, or a stranger, is no news."""
    ledger.put_pod(pod("p", cpu=1), "a")
    uid = pod("p").metadata.uid
    for _ in range(2):
        ledger.remove_pod(uid)
        assert used(ledger, "a") == [0, 0, 0, 0]
    assert ledger.scored[0].tolist() == [0, 0]


def test_scores_count_silent_pods_as_a_little(ledger: Ledger) -> None:
    """A container that asks for no memory counts as 200Mi where nodes are scored, and as nothing where they fill up."""
    ledger.put_pod(pod("p", cpu="50m"), "a")
    assert ledger.scored[0].tolist() == [50, SCORED_MEMORY]
    ledger.put_pod(pod("p", memory="1Mi"), "a")
    assert ledger.scored[0].tolist() == [SCORED_CPU, 2**20]


def test_pods_wait_for_a_node_that_was_not_seen(ledger: Ledger) -> None:
    """A pod may be told of before its node, and a node may go and come back: its pods count while it is there."""
    ledger.put_pod(pod("p", cpu=1), "late")
    ledger.put_pod(pod("q", cpu=1), "late")
    ledger.remove_pod(pod("q").metadata.uid)
    ledger.put_node(node("late"))
    assert used(ledger, "late") == [1000, 0, 0, 1]
    ledger.remove_node("late")
    ledger.put_node(node("late"))
    assert used(ledger, "late") == [1000, 0, 0, 1]
    ledger.remove_node("late")
    ledger.remove_pod(pod("p").metadata.uid)
    ledger.put_node(node("late"))
    assert used(ledger, "late") == [0, 0, 0, 0]


def test_a_row_is_empty_when_its_node_is_gone(ledger: Ledger) -> None:
    """The next node in the row starts with nothing of the one before it."""
    ledger.put_pod(pod("p", cpu=1), "a")
    ledger.put_node(node("a", cpu="broken"))
    assert {"a"} == set(ledger.node_problems)
    ledger.remove_node("a")
    assert (ledger.allocatable[0].sum(), ledger.used[0].sum(), ledger.scored[0].sum()) == (0, 0, 0)
    ledger.put_node(node("c", cpu=2, pods=3))
    assert ledger.cluster.row_of["c"] == 0
    assert (ledger.allocatable[0].tolist(), used(ledger, "c")) == ([2000, 0, 0, 3], [0, 0, 0, 0])
    assert ledger.node_problems == {}


def test_removing_a_stranger_is_unchanged(ledger: Ledger) -> None:
    """Nothing has changed when a node goes that was not there."""
    version = ledger.version
    ledger.remove_node("nobody")
    assert version == ledger.version


def test_a_broken_node_is_told_and_mended(ledger: Ledger) -> None:
    """What a node says that is no amount counts as nothing, with the reason kept until it is put right."""
    ledger.put_node(node("a", cpu="broken"))
    assert ledger.allocatable[0, 0] == 0
    assert ledger.node_problems["a"][0].path == "status.allocatable[cpu]"
    ledger.put_node(node("a"))
    assert (ledger.node_problems, ledger.allocatable[0, 0]) == ({}, 4000)


def test_a_broken_pod_is_an_error_and_leaves_no_trace(ledger: Ledger) -> None:
    """Nothing is counted for a pod that asks for no amount, and what was known of it stays."""
    ledger.put_pod(pod("p", cpu=1), "a")
    with pytest.raises(RequestError):
        ledger.put_pod(pod("p", cpu="?"), "a")
    assert used(ledger, "a") == [1000, 0, 0, 1]


@pytest.mark.parametrize("first", ["pod", "node"])
def test_the_axis_grows_with_either(ledger: Ledger, first: str) -> None:
    """A resource that nobody has named before gets a column, be it a pod or a node that brings it."""
    old = ledger.class_of(pod("old", cpu=1))
    gpu: list[Callable[[], None]] = [
        lambda: ledger.put_pod(pod("p", cpu=1, overhead={"gpu": 2}), "a"),
        lambda: ledger.put_node(node("a", memory="1Gi", more={"gpu": 8})),
    ]
    for step in gpu if first == "pod" else reversed(gpu):
        step()
    assert (ledger.classes.axis.names[4], ledger.allocatable[0, 4], ledger.used[0, 4]) == ("gpu", 8, 2)
    assert ledger.classes.vector_of(old).tolist() == [1000, 0, 0, 1, 0]


def test_rows_grow_with_the_nodes(ledger: Ledger) -> None:
    """The hundredth node is counted like the first."""
    for number in range(100):
        ledger.put_node(node(f"n{number:03}", cpu=number))
    ledger.put_pod(pod("p", cpu=1), "n099")
    row = ledger.cluster.row_of["n099"]
    assert (ledger.allocatable[row, 0], ledger.used[row, 0]) == (99000, 1000)
    assert ledger.cluster.size == len(ledger.used) == len(ledger.scored) == len(ledger.changed_at)


def test_huge_pods_never_make_a_node_look_free(ledger: Ledger) -> None:
    """A thousand pods that ask for the largest amount there is still add up to more than the node has."""
    huge = ledger.class_of(pod("huge", cpu="9E", memory="9E"))
    ledger.place(huge, np.zeros(1000, dtype=np.intp))
    assert 1000 * MAX_AMOUNT == ledger.used[0, 0] == ledger.scored[0, 1]
    ledger.rollback(0)
    assert ledger.used.sum() == 0


def test_versions_tell_what_changed(ledger: Ledger) -> None:
    """Whoever remembers a version learns which rows have changed since, and whether any node itself has."""
    before, nodes = ledger.version, ledger.node_version
    assert ledger.changed_since(before).tolist() == []
    ledger.put_pod(pod("p", cpu=1), "b")
    assert ([1], nodes) == (ledger.changed_since(before).tolist(), ledger.node_version)
    ledger.put_node(node("a", cpu=1))
    assert ledger.changed_since(before).tolist() == [0, 1]
    assert before < ledger.node_version == ledger.version


def test_a_heartbeat_changes_nothing(ledger: Ledger) -> None:
    """A node that says nothing new makes nobody compute anything again."""
    version = ledger.version
    found = node("a", memory="1Gi")
    ledger.put_node(replace(found, metadata=replace(found.metadata, resource_version="9")))
    assert version == ledger.version


def test_placing_counts_and_rolls_back(ledger: Ledger) -> None:
    """A row that stands several times takes as many pods; what came after a mark goes first."""
    small, large = ledger.class_of(pod("s", cpu=1)), ledger.class_of(pod("l", cpu=2, memory="1Mi"))
    ledger.place(small, np.array([0, 1, 0]))
    mark = ledger.mark()
    ledger.place(large, np.array([1]))
    assert (used(ledger, "a"), used(ledger, "b")) == ([2000, 0, 0, 2], [3000, 2**20, 0, 2])
    ledger.rollback(mark)
    assert (used(ledger, "a"), used(ledger, "b")) == ([2000, 0, 0, 2], [1000, 0, 0, 1])
    ledger.rollback(0)
    assert (ledger.used.sum(), ledger.scored.sum()) == (0, 0)


def test_held_pods_can_be_lifted_and_put_back(ledger: Ledger) -> None:
    """Who is lifted takes nothing, once; who is put back takes what it took; strangers and the homeless are no news."""
    for name, home in (("p", "a"), ("q", "a"), ("r", "b"), ("late", "nowhere")):
        ledger.put_pod(pod(name, cpu=1), home)
    uids = [pod(name).metadata.uid for name in ("p", "q", "r", "late", "stranger")]
    mark = ledger.mark()
    ledger.ignore(uids[:1])
    assert used(ledger, "a") == [1000, 0, 0, 1]
    ledger.ignore([*uids, *uids])
    assert ledger.used.sum() == 0
    ledger.restore(uids[1:])
    ledger.restore(uids[1:])
    assert (used(ledger, "a"), used(ledger, "b")) == ([1000, 0, 0, 1], [1000, 0, 0, 1])
    ledger.rollback(mark)
    assert (used(ledger, "a"), used(ledger, "b")) == ([2000, 0, 0, 2], [1000, 0, 0, 1])
    ledger.restore(uids)
    assert ledger.mark() == mark


def test_held_pods_can_be_found(ledger: Ledger) -> None:
    """One by one or all at once: their class and row, and nothing of those that take no room at present."""
    found = {name: pod(name, cpu=1).metadata.uid for name in ("p", "q", "late", "stranger")}
    for name, home in (("p", "a"), ("q", "b"), ("late", "nowhere")):
        ledger.put_pod(pod(name, cpu=1), home)
    kind = ledger.class_of(pod("p", cpu=1))
    ledger.ignore([found["q"]])
    assert [ledger.location_of(uid) for uid in found.values()] == [(kind, 0), None, None, None]
    rows, indexes = ledger.locations_of(found.values())
    assert ([row >= 0 for row in rows], rows[0], indexes[0]) == ([True, False, False, False], 0, kind.index)
    assert ledger.classes.vectors_of([kind.index, kind.index]).tolist() == [[1000, 0, 0, 1]] * 2
    ledger.rollback(0)
    assert ledger.location_of(found["q"]) == (kind, 1)
    ledger.remove_node("b")
    assert ledger.location_of(found["q"]) is None
    ledger.put_node(node("nowhere"))
    assert ledger.location_of(found["late"]) == (kind, 1)


class Counting:
    """A tally of pods by row."""

    def __init__(self) -> None:
        """Start at zero."""
        self.counts: dict[int, int] = {}

    def add(self, pod_class: PodClass, row: int, number: int) -> None:
        """Count pods."""
        self.counts[row] = self.counts.get(row, 0) + number * pod_class.requests["pods"]

    def forget(self, row: int) -> None:
        """Drop a row."""
        self.counts.pop(row, None)


def test_tallies_follow_every_pod() -> None:
    """What is counted beyond resources sees the same pods come and go, bound ones and those that are only tried."""
    tally = Counting()
    ledger = Ledger([tally])
    ledger.put_node(node("a"))
    ledger.put_pod(pod("p"), "a")
    ledger.place(ledger.class_of(pod("q")), np.array([0, 0]))
    assert tally.counts == {0: 3}
    ledger.ignore([pod("p").metadata.uid])
    assert tally.counts == {0: 2}
    ledger.rollback(0)
    assert tally.counts == {0: 1}
    ledger.remove_node("a")
    assert tally.counts == {}


HELD = {"u": "a", "v": "a", "w": "b"}
steps = st.one_of(
    st.tuples(st.sampled_from([1, 2]), st.lists(st.integers(0, 1), min_size=1, max_size=5)),
    st.tuples(st.sampled_from(["ignore", "restore"]), st.lists(st.sampled_from([*HELD, "nobody"]), max_size=4)),
)


def simulate(ledger: Ledger, step: tuple[int | str, list[int] | list[str]]) -> None:
    """Place pods, or take held ones out or in."""
    match step:
        case int(cpu), rows:
            ledger.place(ledger.class_of(pod("p", cpu=cpu)), np.array(rows))
        case "ignore", names:
            ledger.ignore(pod(str(name)).metadata.uid for name in names)
        case _, names:
            ledger.restore(pod(str(name)).metadata.uid for name in names)


@given(st.lists(steps, min_size=1, max_size=8), st.data())
@settings(deadline=None)
def test_rollback_is_exact(moves: list[tuple[int | str, list[int] | list[str]]], data: st.DataObject) -> None:
    """Whatever was done since a mark, rolling back leaves every array as it was, bit for bit, and the same pods in."""
    tally = Counting()
    ledger = Ledger([tally])
    for name in NODES:
        ledger.put_node(node(name))
    for name, home in HELD.items():
        ledger.put_pod(pod(name, cpu=3), home)
    seen = []
    for step in moves:
        seen.append((ledger.mark(), ledger.used.copy(), ledger.scored.copy(), dict(tally.counts)))
        simulate(ledger, step)
    mark, amounts, scored, counts = data.draw(st.sampled_from(seen))
    ledger.rollback(mark)
    assert np.array_equal(amounts, ledger.used)
    assert np.array_equal(scored, ledger.scored)
    assert counts == tally.counts
    ledger.rollback(0)
    assert ledger.used[:, 0].tolist() == [6000 if row == 0 else 3000 * (row == 1) for row in range(ledger.cluster.size)]


events = st.one_of(
    st.tuples(st.just("node"), st.sampled_from(NODES), st.sampled_from(["2", "4"])),
    st.tuples(st.just("gone"), st.sampled_from(NODES), st.just("")),
    st.tuples(st.just("pod"), st.sampled_from(PODS), st.sampled_from(NODES)),
    st.tuples(st.just("done"), st.sampled_from(PODS), st.just("")),
)


def tell(ledger: Ledger, event: Event) -> None:
    """Bring one piece of news."""
    kind, name, other = event
    match kind:
        case "node":
            ledger.put_node(node(name, cpu=other))
        case "gone":
            ledger.remove_node(name)
        case "pod":
            ledger.put_pod(pod(name, cpu=1 + PODS.index(name)), other)
        case _:
            ledger.remove_pod(pod(name).metadata.uid)


@given(st.lists(events, max_size=12))
@settings(deadline=None)
def test_the_ledger_is_what_the_news_amount_to(news: list[Event]) -> None:
    """After any news in any order, each node offers and has used what follows from the last of each object."""
    ledger, cpu, homes = Ledger(), dict[str, str](), dict[str, str]()
    for event in news:
        tell(ledger, event)
        kind, name, other = event
        if kind in {"node", "pod"}:
            (cpu if kind == "node" else homes)[name] = other
        else:
            (cpu if kind == "gone" else homes).pop(name, None)
    assert set(cpu) == set(ledger.cluster.row_of)
    for name in cpu:
        row = ledger.cluster.row_of[name]
        taken = sum(1000 * (1 + PODS.index(one)) for one, home in homes.items() if home == name)
        assert (int(cpu[name]) * 1000, taken) == (ledger.allocatable[row, 0], ledger.used[row, 0])
    assert ledger.used[~ledger.cluster.alive].sum() == 0


def test_namespaces_are_known_by_their_labels(ledger: Ledger) -> None:
    """The labels of a namespace are there for those that select by them, until it is gone."""
    ledger.put_namespace("ns", {"team": "a"})
    assert ledger.pod_index.namespaces == {"ns": {"team": "a"}}
    ledger.put_namespace("ns", None)
    assert ledger.pod_index.namespaces == {}


def test_who_is_at_a_node_is_known_whether_the_node_is_or_not() -> None:
    """Pods may come before their node, and stay when it goes."""
    ledger = Ledger()
    ledger.put_pod(pod("a"), "n1")
    assert (list(ledger.uids_on_node("n1")), list(ledger.uids_on_node("n2"))) == (["uid-default-a"], [])


def test_a_class_is_kept_for_as_long_as_somebody_holds_it(ledger: Ledger) -> None:
    """By a pod on a node, or by who waits; its index is never handed on, since it may be remembered."""
    ledger.put_pod(pod("p", cpu="1m"), "a")
    waiting, gone = ledger.class_of(pod("q", cpu="2m")), ledger.class_of(pod("r", cpu="3m")).index
    assert len(ledger.classes) == 2
    assert ledger.class_of(pod("other", cpu="2m")) is waiting
    assert ledger.class_of(pod("r", cpu="3m")).index > gone


def test_nothing_is_left_of_pods_that_were_all_different() -> None:
    """Three thousand kinds come and go, half of them from nodes that go, too; then it decides as a new one does."""
    worn, new = new_snapshot(), new_snapshot()
    for number in range(3000):
        name = f"n{number % 50}-{number // 50}"
        worn.ledger.put_node(node(name, cpu=4))
        one = pod("p", cpu=f"{number + 1}m")
        if number % 2:
            worn.ledger.put_pod(one, name)
        else:
            assert decide(worn, pod_unit(one, worn.ledger), SearchOptions()).binds
        worn.ledger.remove_node(name)
        worn.ledger.remove_pod(one.metadata.uid)
    ledger = worn.ledger
    assert len(ledger.classes) <= MAX_IDLE_CLASSES + 3 * MAX_CACHED_QUERIES
    assert len(ledger.classes.vectors) <= 2 * (len(ledger.classes) + MAX_STALE_VECTORS)
    assert [*ledger._held, *ledger._on_node, *ledger.pod_index._rows] == []
    for snapshot in (worn, new):
        for name in NODES:
            snapshot.ledger.put_node(node(name, cpu=4))
        snapshot.ledger.put_pod(pod("there", cpu=1), "a")
    found, expected = (
        decide(snapshot, pod_unit(pod("q", cpu="7m"), snapshot.ledger), SearchOptions()) for snapshot in (worn, new)
    )
    assert found == expected
