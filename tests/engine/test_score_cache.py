"""The score cache: how good each node is for a class now, and where a run of pods goes."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_api.core.volumes import ClaimVolumeSource, PodVolume
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.score_cache import (
    INFEASIBLE,
    MAX_ARGMAX_COUNT,
    MAX_IDLE_CLASSES,
    SCORE_SHIFT,
    ClassScores,
    ScoreCache,
    choose_nodes,
)
from cpg_engine.testing.builders import node, pod
from cpg_engine.weights import Weights


def ledger_of(*cpus: int, pods: int = 110) -> Ledger:
    """Return a ledger of nodes a, b, ... with so many CPUs."""
    ledger = Ledger()
    for number, cpu in enumerate(cpus):
        ledger.put_node(node(chr(ord("a") + number), cpu=cpu, pods=pods))
    return ledger


def scores_of(ledger: Ledger, one: Pod) -> ClassScores:
    """Return new scores of the class of a pod."""
    return ClassScores(ledger.class_of(one), ledger, Weights())


def one_by_one(ledger: Ledger, one: Pod, rows: list[int], count: int) -> list[int]:
    """Place pods the slow way: score every node for each pod, take the best, by score and then by name."""
    chosen: list[int] = []
    mark = ledger.mark()
    for _ in range(count):
        keys = scores_of(ledger, one).keys
        best = max(rows, key=lambda row: keys[row], default=None)
        if best is None or keys[best] == INFEASIBLE:
            break
        ledger.place(ledger.class_of(one), np.array([best]))
        chosen.append(best)
    ledger.rollback(mark)
    return chosen


def test_a_key_has_the_score_above_the_rank_by_name() -> None:
    """The better score wins, of equal ones the earlier name, and infeasible nodes come last."""
    ledger = ledger_of(4, 4, 8, 1)
    keys = scores_of(ledger, pod("p", cpu=2)).keys
    assert (keys[:3] >> SCORE_SHIFT).tolist() == [425, 425, 450]
    assert keys[2] > keys[0] > keys[1] > INFEASIBLE == keys[3] == keys[4]


def test_names_and_not_arrival_break_ties() -> None:
    """The node that is first by name is preferred, even if it came last."""
    ledger = Ledger()
    for name in ("b", "c", "a"):
        ledger.put_node(node(name))
    keys = scores_of(ledger, pod("p", cpu=1)).keys
    assert [ledger.cluster.name(row) for row in np.argsort(-keys[:3]).tolist()] == ["a", "b", "c"]


def test_scores_follow_the_ledger() -> None:
    """Refreshed scores equal new ones, whether pods, nodes or neither have changed."""
    ledger = ledger_of(4, 4, 8)
    scores = scores_of(ledger, pod("p", cpu=2))
    steps: tuple[Callable[[], object], ...] = (
        lambda: 0,
        lambda: ledger.put_pod(pod("x", cpu=3), "a"),
        lambda: ledger.put_node(node("b", cpu=4, unschedulable=True)),
        lambda: ledger.remove_node("c"),
        lambda: ledger.put_node(node("d", cpu=6)),
        lambda: ledger.place(scores.pod_class, np.array([2, 2])),
    )
    for step in steps:
        step()
        scores.refresh()
        fresh = scores_of(ledger, pod("p", cpu=2))
        assert fresh.keys.tolist() == scores.keys.tolist()
        assert fresh.slots().tolist() == scores.slots().tolist()


def test_only_changed_nodes_are_scored_again() -> None:
    """A pod that comes changes the key of its node and of no other."""
    ledger = ledger_of(4, 4, 4)
    scores = scores_of(ledger, pod("p", cpu=1))
    before = scores.keys.copy()
    ledger.put_pod(pod("x", cpu=1), "b")
    scores.refresh()
    assert np.flatnonzero(scores.keys != before).tolist() == [1]


def test_slots_are_room_where_the_class_may_run() -> None:
    """A cordoned node has no room, whatever its resources, and a node that fills up has less."""
    ledger = ledger_of(4, 3)
    ledger.put_node(node("c", unschedulable=True))
    scores = scores_of(ledger, pod("p", cpu=2))
    assert scores.slots()[:3].tolist() == [2, 1, 0]
    ledger.place(scores.pod_class, np.array([0]))
    assert scores.slots()[:3].tolist() == [1, 1, 0]


def test_empty_slots_ignore_the_pods_on_a_node() -> None:
    """What would fit if nothing ran there depends on the node alone, and follows it."""
    ledger = ledger_of(4, 3)
    scores = scores_of(ledger, pod("p", cpu=2))
    ledger.place(scores.pod_class, np.array([0]))
    for _ in range(2):
        assert scores.empty_slots()[:3].tolist() == [2, 1, 0]
    ledger.put_node(node("b", cpu=8))
    scores.refresh()
    assert scores.empty_slots()[:3].tolist() == [2, 4, 0]


def test_scores_are_cached_by_class() -> None:
    """Identical pods share their scores; the least recently used ones are dropped for new ones."""
    ledger = ledger_of(4)
    score_cache = ScoreCache(ledger, Weights())
    classes = [ledger.class_of(pod("p", cpu=f"{number + 1}m")) for number in range(MAX_IDLE_CLASSES + 1)]
    first, second = score_cache.of(classes[0]), score_cache.of(classes[1])
    for one in classes[2:MAX_IDLE_CLASSES]:
        score_cache.of(one)
    assert score_cache.of(classes[0]) is first
    score_cache.of(classes[MAX_IDLE_CLASSES])
    assert score_cache.of(classes[0]) is first
    assert score_cache.of(classes[1]) is not second


def test_all_classes_of_a_unit_are_cached() -> None:
    """None is scored twice for it, however many it has; the next unit drops those that it does not need itself."""
    ledger = ledger_of(4)
    score_cache = ScoreCache(ledger, Weights())
    classes = [ledger.class_of(pod("p", cpu=f"{number + 1}m")) for number in range(3 * MAX_IDLE_CLASSES)]
    score_cache.reserve_capacity(len(classes))
    first = [score_cache.of(one) for one in classes]
    assert [score_cache.of(one) for one in classes] == first
    score_cache.reserve_capacity(1)
    assert score_cache.of(classes[-MAX_IDLE_CLASSES - 1]) is first[-MAX_IDLE_CLASSES - 1]
    assert score_cache.of(classes[0]) is not first[0]


def test_the_cache_is_bounded_by_the_scores_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many classes pods have, they do not fill the memory."""
    monkeypatch.setattr("cpg_engine.score_cache.MAX_CACHED_SCORES", 20)
    ledger = ledger_of(4, 4)
    score_cache = ScoreCache(ledger, Weights())
    score_cache.reserve_capacity(1000)
    classes = [ledger.class_of(pod("p", cpu=f"{number + 1}m")) for number in range(MAX_IDLE_CLASSES + 20)]
    first = score_cache.of(classes[0])
    for one in classes[1 : MAX_IDLE_CLASSES + 20 // ledger.cluster.size]:
        score_cache.of(one)
    assert score_cache.of(classes[0]) is first
    for one in classes[1:]:
        score_cache.of(one)
    assert score_cache.of(classes[0]) is not first


def test_cached_scores_are_up_to_date() -> None:
    """They are refreshed on every access."""
    ledger = ledger_of(1)
    score_cache = ScoreCache(ledger, Weights())
    found = ledger.class_of(pod("p", cpu=1))
    assert score_cache.of(found).keys[0] > INFEASIBLE
    ledger.put_pod(pod("x", cpu=1), "a")
    assert score_cache.of(found).keys[0] == INFEASIBLE


def test_storage_changes_concern_classes_with_volumes() -> None:
    """Nodes are not scored again for a class without volumes."""
    ledger = ledger_of(1)
    volumes = (PodVolume("v", persistent_volume_claim=ClaimVolumeSource("c")),)
    plain, storing = scores_of(ledger, pod("p")), scores_of(ledger, pod("q", volumes=volumes))
    before = plain.keys, storing.keys
    ledger.storage.version += 1
    plain.refresh()
    storing.refresh()
    assert plain.keys is before[0]
    assert storing.keys is not before[1]


@pytest.mark.parametrize(
    ("cpus", "count", "chosen"),
    [
        ([4, 4, 4], 3, [0, 1, 2]),  # the emptier first, then by name
        ([4, 8], 3, [1, 0, 1]),  # 4 CPU: 75, 50; 8 CPU: 87, 75, 62
        ([2, 2], 9, [0, 1, 0, 1]),  # as many as there is room for
        ([0, 0], 2, []),
        ([4], 0, []),
        ([], 3, []),
    ],
)
def test_a_run_is_placed_as_its_pods_would_be(cpus: list[int], count: int, chosen: list[int]) -> None:
    """Pods of 1 CPU go where they would go one after the other."""
    ledger = ledger_of(*cpus)
    scores = scores_of(ledger, pod("p", cpu=1))
    assert chosen == choose_nodes(scores, ledger.cluster.everything(), count).tolist()


def test_a_run_keeps_to_its_rows() -> None:
    """A better node outside of the rows is not considered, and the scores are unchanged."""
    ledger = ledger_of(8, 4, 4)
    scores = scores_of(ledger, pod("p", cpu=1))
    before = scores.keys.copy()
    assert choose_nodes(scores, np.array([2, 1]), 3).tolist() == [1, 2, 1]
    assert before.tolist() == scores.keys.tolist()


def test_a_single_node_is_filled_up_to_its_last_pod() -> None:
    """No node is chosen more often than it has room."""
    ledger = ledger_of(4, 0, pods=3)
    scores = scores_of(ledger, pod("p"))
    assert choose_nodes(scores, np.array([0]), 99).tolist() == [0] * 3
    large = scores_of(ledger, pod("q", cpu=2))
    assert choose_nodes(large, np.array([0, 1]), 3).tolist() == [0, 0]


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), min_size=1, max_size=6),
    st.sampled_from([0, 1, 3, MAX_ARGMAX_COUNT, MAX_ARGMAX_COUNT + 1, 50]),
    st.sampled_from(["500m", "1", "1500m"]),
    st.data(),
)
@settings(max_examples=60)
def test_a_run_is_the_same_as_one_by_one(
    nodes: list[tuple[int, int]], count: int, cpu: str, data: st.DataObject
) -> None:
    """On any nodes, in any order of rows, a batch of pods goes exactly where its pods would have gone alone."""
    ledger = Ledger()
    for number, (offered, memory) in enumerate(nodes):
        ledger.put_node(node(f"n{number}", cpu=offered, memory=f"{memory}Gi"))
    one = pod("p", cpu=cpu, memory="300Mi")
    rows = data.draw(st.lists(st.sampled_from(range(len(nodes))), unique=True))
    found = choose_nodes(scores_of(ledger, one), np.array(rows, dtype=np.intp), count)
    assert one_by_one(ledger, one, rows, count) == found.tolist()


def test_many_nodes_are_no_different() -> None:
    """With more nodes than pods, most of them scored only once, the batch is still the same as one by one."""
    ledger = Ledger()
    for number in range(90):
        ledger.put_node(node(f"n{number:02}", cpu=1 + number % 5, memory=f"{1 + number % 3}Gi"))
    one = pod("p", cpu="700m", memory="100Mi")
    rows = ledger.cluster.everything()
    found = choose_nodes(scores_of(ledger, one), rows, MAX_ARGMAX_COUNT + 8)
    assert one_by_one(ledger, one, rows.tolist(), MAX_ARGMAX_COUNT + 8) == found.tolist()


def test_a_named_node_is_the_only_feasible_one() -> None:
    """Static filters make nodes infeasible."""
    ledger = ledger_of(4, 4)
    wishing = replace(pod("p"), spec=replace(pod("p").spec, node_name="b"))
    assert (scores_of(ledger, wishing).keys[:2] > INFEASIBLE).tolist() == [False, True]
