"""The ledger: what each pod takes of its node, whatever the order of events."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cpg_engine.cluster.axes import BASE, MAX_AMOUNT, UNOFFERED
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
    """Return what is used of the base resources of a node, by column."""
    return [int(amount) for amount in ledger.used[ledger.cluster.row_of[name], : len(BASE)]]


@pytest.fixture
def ledger() -> Ledger:
    """Two nodes of 4 CPU."""
    found = Ledger()
    for name in NODES:
        found.put_node(node(name, memory="1Gi"))
    return found


def test_a_node_offers_its_allocatable(ledger: Ledger) -> None:
    """Amounts stand in their columns: thousandths of CPU, bytes, pods."""
    assert ledger.allocatable[0].tolist() == [4000, 2**30, 0, 110, 0]


def test_a_bound_pod_is_counted_once(ledger: Ledger) -> None:
    """Putting a pod again changes nothing; putting it on another node, or with larger requests, replaces it."""
    ledger.put_pod(pod("p", cpu=1, node_name="a"), "a")
    version = ledger.version
    ledger.put_pod(pod("p", cpu=1, node_name="a"), "a")
    assert ([1000, 0, 0, 1], version) == (used(ledger, "a"), ledger.version)
    ledger.put_pod(pod("p", cpu=2, node_name="a"), "a")
    assert used(ledger, "a") == [2000, 0, 0, 1]
    ledger.put_pod(pod("p", cpu=2, node_name="b"), "b")
    assert (used(ledger, "a"), used(ledger, "b")) == ([0, 0, 0, 0], [2000, 0, 0, 1])


def test_an_assumed_pod_and_the_bound_one_are_the_same(ledger: Ledger) -> None:
    """A pod that is counted on its assumed node is not counted again when the watch shows it there."""
    ledger.put_pod(pod("p", cpu=1), "a")
    ledger.put_pod(pod("p", cpu=1, node_name="a"), "a")
    assert used(ledger, "a") == [1000, 0, 0, 1]


def test_a_removed_pod_takes_nothing(ledger: Ledger) -> None:
    """Its room is free again; removing it twice, or an unknown pod, changes nothing."""
    ledger.put_pod(pod("p", cpu=1), "a")
    uid = pod("p").metadata.uid
    for _ in range(2):
        ledger.remove_pod(uid)
        assert used(ledger, "a") == [0, 0, 0, 0]
    assert ledger.scored[0].tolist() == [0, 0]


def test_a_container_without_requests_counts_in_scores_alone(ledger: Ledger) -> None:
    """A container without a memory request counts as 200Mi when nodes are scored, and as zero when they are filled."""
    ledger.put_pod(pod("p", cpu="50m"), "a")
    assert ledger.scored[0].tolist() == [50, SCORED_MEMORY]
    ledger.put_pod(pod("p", memory="1Mi"), "a")
    assert ledger.scored[0].tolist() == [SCORED_CPU, 2**20]


def test_pods_of_an_unknown_node_count_once_it_is_known(ledger: Ledger) -> None:
    """A pod may be put before its node, and a node may go and come back: its pods count while it is there."""
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
    """The next node in the row starts without anything of the old one."""
    ledger.put_pod(pod("p", cpu=1), "a")
    ledger.put_node(node("a", cpu="broken"))
    assert {"a"} == set(ledger.node_problems)
    ledger.remove_node("a")
    assert (ledger.allocatable[0].sum(), ledger.used[0].sum(), ledger.scored[0].sum()) == (0, 0, 0)
    ledger.put_node(node("c", cpu=2, pods=3))
    assert ledger.cluster.row_of["c"] == 0
    assert (ledger.allocatable[0].tolist(), used(ledger, "c")) == ([2000, 0, 0, 3, 0], [0, 0, 0, 0])
    assert ledger.node_problems == {}


def test_removing_an_unknown_node_changes_nothing(ledger: Ledger) -> None:
    """The version stays the same."""
    version = ledger.version
    ledger.remove_node("unknown")
    assert version == ledger.version


def test_malformed_amounts_of_a_node_are_reported_until_corrected(ledger: Ledger) -> None:
    """An amount that is malformed counts as zero, with the problem kept until it is corrected."""
    ledger.put_node(node("a", cpu="broken"))
    assert ledger.allocatable[0, 0] == 0
    assert ledger.node_problems["a"][0].path == "status.allocatable[cpu]"
    ledger.put_node(node("a"))
    assert (ledger.node_problems, ledger.allocatable[0, 0]) == ({}, 4000)


def test_a_malformed_pod_is_an_error_and_leaves_no_trace(ledger: Ledger) -> None:
    """Nothing is counted for it, and its last state stays."""
    ledger.put_pod(pod("p", cpu=1), "a")
    with pytest.raises(RequestError):
        ledger.put_pod(pod("p", cpu="?"), "a")
    assert used(ledger, "a") == [1000, 0, 0, 1]


@pytest.mark.parametrize("first", ["pod", "node"])
def test_the_axis_grows_with_pods_and_nodes(ledger: Ledger, first: str) -> None:
    """A resource gets a column when the first node offers it, whether pods have requested it before or not."""
    old = ledger.class_of(pod("old", cpu=1))
    gpu: list[Callable[[], None]] = [
        lambda: ledger.put_pod(pod("p", cpu=1, overhead={"gpu": 2}), "a"),
        lambda: ledger.put_node(node("a", memory="1Gi", more={"gpu": 8})),
    ]
    for step in gpu if first == "pod" else reversed(gpu):
        step()
    assert (ledger.classes.axis.names[5], ledger.allocatable[0, 5], ledger.used[0, 5]) == ("gpu", 8, 2)
    assert ledger.classes.vector_of(old).tolist() == [1000, 0, 0, 1, 0, 0]
    assert not ledger.used[:, UNOFFERED].any()


def test_rows_grow_with_the_nodes(ledger: Ledger) -> None:
    """The hundredth node is counted like the first."""
    for number in range(100):
        ledger.put_node(node(f"n{number:03}", cpu=number))
    ledger.put_pod(pod("p", cpu=1), "n099")
    row = ledger.cluster.row_of["n099"]
    assert (ledger.allocatable[row, 0], ledger.used[row, 0]) == (99000, 1000)
    assert ledger.cluster.size == len(ledger.used) == len(ledger.scored) == len(ledger.changed_at)


def test_huge_pods_never_make_a_node_look_free(ledger: Ledger) -> None:
    """A thousand pods with the largest amount still add up to more than the node has."""
    huge = ledger.class_of(pod("huge", cpu="9E", memory="9E"))
    ledger.place(huge, np.zeros(1000, dtype=np.intp))
    assert 1000 * MAX_AMOUNT == ledger.used[0, 0] == ledger.scored[0, 1]
    ledger.rollback(0)
    assert ledger.used.sum() == 0


def test_versions_say_which_rows_have_changed(ledger: Ledger) -> None:
    """A reader with an old version gets the rows that have changed since, and whether a node itself has."""
    before, nodes = ledger.version, ledger.node_version
    assert ledger.changed_since(before).tolist() == []
    ledger.put_pod(pod("p", cpu=1), "b")
    assert ([1], nodes) == (ledger.changed_since(before).tolist(), ledger.node_version)
    ledger.put_node(node("a", cpu=1))
    assert ledger.changed_since(before).tolist() == [0, 1]
    assert before < ledger.node_version == ledger.version


def test_a_heartbeat_changes_nothing(ledger: Ledger) -> None:
    """A node update without changes leaves every version as it was."""
    version = ledger.version
    found = node("a", memory="1Gi")
    ledger.put_node(replace(found, metadata=replace(found.metadata, resource_version="9")))
    assert version == ledger.version


def test_placing_counts_and_rolls_back(ledger: Ledger) -> None:
    """A row that occurs several times takes as many pods; rollback undoes what came after the mark."""
    small, large = ledger.class_of(pod("s", cpu=1)), ledger.class_of(pod("l", cpu=2, memory="1Mi"))
    ledger.place(small, np.array([0, 1, 0]))
    mark = ledger.mark()
    ledger.place(large, np.array([1]))
    assert (used(ledger, "a"), used(ledger, "b")) == ([2000, 0, 0, 2], [3000, 2**20, 0, 2])
    ledger.rollback(mark)
    assert (used(ledger, "a"), used(ledger, "b")) == ([2000, 0, 0, 2], [1000, 0, 0, 1])
    ledger.rollback(0)
    assert (ledger.used.sum(), ledger.scored.sum()) == (0, 0)


def test_held_pods_can_be_ignored_and_restored(ledger: Ledger) -> None:
    """An ignored pod takes nothing, a restored one what it took; unknown pods and unknown nodes change nothing."""
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


def test_held_pods_can_be_located(ledger: Ledger) -> None:
    """One by one or all at once, with class and row; pods that take no room at present are not found."""
    found = {name: pod(name, cpu=1).metadata.uid for name in ("p", "q", "late", "stranger")}
    for name, home in (("p", "a"), ("q", "b"), ("late", "nowhere")):
        ledger.put_pod(pod(name, cpu=1), home)
    kind = ledger.class_of(pod("p", cpu=1))
    ledger.ignore([found["q"]])
    assert [ledger.location_of(uid) for uid in found.values()] == [(kind, 0), None, None, None]
    rows, indexes = ledger.locations_of(found.values())
    assert ([row >= 0 for row in rows], rows[0], indexes[0]) == ([True, False, False, False], 0, kind.index)
    assert ledger.classes.vectors_of([kind.index, kind.index]).tolist() == [[1000, 0, 0, 1, 0]] * 2
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
    """A tally counts the same pods as the ledger, bound ones and simulated ones."""
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
    st.tuples(st.sampled_from(["ignore", "restore"]), st.lists(st.sampled_from([*HELD, "unknown"]), max_size=4)),
)


def simulate(ledger: Ledger, step: tuple[int | str, list[int] | list[str]]) -> None:
    """Place pods, or ignore or restore held ones."""
    match step:
        case int(cpu), rows:
            ledger.place(ledger.class_of(pod("p", cpu=cpu)), np.array(rows))
        case "ignore", names:
            ledger.ignore(pod(str(name)).metadata.uid for name in names)
        case _, names:
            ledger.restore(pod(str(name)).metadata.uid for name in names)


@given(st.lists(steps, min_size=1, max_size=8), st.data())
def test_rollback_is_exact(moves: list[tuple[int | str, list[int] | list[str]]], data: st.DataObject) -> None:
    """Whatever was done since a mark, rollback leaves every array as it was, bit for bit, and the same pods ignored."""
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


def apply_event(ledger: Ledger, event: Event) -> None:
    """Apply one event."""
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
def test_the_ledger_follows_from_the_last_state_of_each_object(news: list[Event]) -> None:
    """After any events in any order, each node offers and has used what the last state of each object says."""
    ledger, cpu, homes = Ledger(), dict[str, str](), dict[str, str]()
    for event in news:
        apply_event(ledger, event)
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
    """The labels of a namespace are there for selectors until the namespace is gone."""
    ledger.pod_index.put_namespace("ns", {"team": "a"})
    assert ledger.pod_index.namespaces == {"ns": {"team": "a"}}
    ledger.pod_index.put_namespace("ns", None)
    assert ledger.pod_index.namespaces == {}


def test_the_pods_of_a_node_are_known_even_if_the_node_is_not() -> None:
    """Pods may come before their node, and stay when it goes."""
    ledger = Ledger()
    ledger.put_pod(pod("a"), "n1")
    assert (list(ledger.uids_on_node("n1")), list(ledger.uids_on_node("n2"))) == (["uid-default-a"], [])


def test_a_class_lives_as_long_as_anything_holds_it(ledger: Ledger) -> None:
    """A pod on a node or a pending pod may hold it; its index is never reused, since it may be stored."""
    ledger.put_pod(pod("p", cpu="1m"), "a")
    waiting, gone = ledger.class_of(pod("q", cpu="2m")), ledger.class_of(pod("r", cpu="3m")).index
    assert len(ledger.classes) == 2
    assert ledger.class_of(pod("other", cpu="2m")) is waiting
    assert ledger.class_of(pod("r", cpu="3m")).index > gone


def test_memory_is_bounded_when_all_pods_differ() -> None:
    """Three thousand classes come and go, half of them with their nodes; then the ledger decides as a new one does."""
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
