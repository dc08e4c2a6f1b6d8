"""Affinity and anti-affinity to other pods."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from msgspec.structs import replace

from cpg_api.core.affinity import Affinity, PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm
from cpg_api.core.pod import Pod
from cpg_api.meta import LabelSelector
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import NOMINATED
from cpg_engine.filters import inter_pod_affinity
from cpg_engine.filters.inter_pod_affinity import (
    AFFINITY_REASON,
    ANTI_AFFINITY_REASON,
    EXISTING_ANTI_AFFINITY_REASON,
    InterPodAffinityState,
)
from cpg_engine.filters.inter_pod_affinity import InterPodAffinity as Filter
from cpg_engine.testing.builders import metadata, node, pod
from cpg_engine.testing.call_counts import count_calls
from cpg_engine.testing.filter_model import affinity_rejection, preference_scores
from cpg_engine.testing.filter_strategies import FilterCase, filter_cases, with_affinity
from cpg_engine.testing.strategies import cases
from cpg_engine.weights import Weights

ZONES = {"a1": "a", "a2": "a", "b1": "b", "nowhere": None}
FAULTS = {AFFINITY_REASON: "required", ANTI_AFFINITY_REASON: "anti", EXISTING_ANTI_AFFINITY_REASON: "existing"}


def term(app: str, key: str = "zone") -> PodAffinityTerm:
    """Return the term for the pods of an app."""
    return PodAffinityTerm(label_selector=LabelSelector(match_labels={"app": app}), topology_key=key)


def requiring(*terms: PodAffinityTerm) -> Affinity:
    """Return a required affinity."""
    return Affinity(pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=terms))


def rejecting(*terms: PodAffinityTerm) -> Affinity:
    """Return a required anti-affinity."""
    return Affinity(pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=terms))


def preferring(weight: int, *terms: PodAffinityTerm) -> Affinity:
    """Return a preferred affinity, or a preferred anti-affinity for a negative weight."""
    weighted = tuple(WeightedPodAffinityTerm(abs(weight), found) for found in terms)
    preferred = PodAffinity(preferred_during_scheduling_ignored_during_execution=weighted)
    return Affinity(pod_affinity=preferred) if weight > 0 else Affinity(pod_anti_affinity=preferred)


def app(name: str, affinity: Affinity | None = None, *, namespace: str = "default", uid: str = "") -> Pod:
    """Return a pod of an app."""
    return pod(name, meta=metadata(uid or name, namespace=namespace, app=name), affinity=affinity)


def nominated(found: Pod) -> Pod:
    """Return the pod as a nominated one."""
    return replace(found, metadata=replace(found.metadata, uid=NOMINATED + found.metadata.uid))


def cluster(*pods: tuple[Pod, str]) -> Ledger:
    """Return a ledger of two nodes in zone ``a``, one in ``b``, one without a zone, and of pods on them."""
    ledger = Ledger()
    for name, zone in ZONES.items():
        ledger.put_node(node(name, labels={"zone": zone} if zone else {}))
    for found, home in pods:
        ledger.put_pod(found, home)
    return ledger


def state_of(ledger: Ledger, found: Pod, weights: Weights | None = None) -> InterPodAffinityState:
    """Return the state of a pod's class, which has to have one."""
    state = Filter(ledger, weights or Weights(pod_affinity=1)).pre_filter(ledger.class_of(found))
    assert state is not None
    return state


def passed(ledger: Ledger, found: Pod) -> set[str]:
    """Return the nodes that pass."""
    rows = ledger.cluster.everything()
    return {ledger.cluster.name(row) for row in rows[state_of(ledger, found).passes(rows)].tolist()}


@pytest.mark.parametrize(
    ("there", "affinity", "expected"),
    [
        ([("db", "a1")], requiring(term("db")), {"a1", "a2"}),
        ([("db", "nowhere")], requiring(term("db")), set()),
        ([], requiring(term("db")), set()),
        ([], requiring(term("web")), {"a1", "a2", "b1"}),
        ([("web", "nowhere")], requiring(term("web")), {"a1", "a2", "b1"}),
        ([("web", "b1")], requiring(term("web")), {"b1"}),
        ([("db", "a1"), ("cache", "a2")], requiring(term("db"), term("cache")), set()),
        ([("db", "a1")], rejecting(term("db")), {"b1", "nowhere"}),
        ([("db", "a1")], rejecting(term("db"), term("cache", "rack")), {"b1", "nowhere"}),
        ([("cache", "a1")], rejecting(term("db")), set(ZONES)),
    ],
)
def test_required_terms_reject_nodes(there: list[tuple[str, str]], affinity: Affinity, expected: set[str]) -> None:
    """One pod has to match all terms; the first of its kind need not wait for itself; no label means no domain."""
    ledger = cluster(*((app(name), home) for name, home in there))
    assert passed(ledger, app("web", affinity)) == expected


@pytest.mark.parametrize(
    ("there", "coming", "affinity", "expected"),
    [
        ([], [("db", "a1")], requiring(term("db")), set()),
        ([("db", "b1")], [("db", "a1")], requiring(term("db")), {"b1"}),
        ([("db", "a1")], [("cache", "a1")], requiring(term("db"), term("cache")), set()),
        ([], [("web", "a1")], requiring(term("web")), {"a1", "a2"}),
        ([], [("web", "nowhere")], requiring(term("web")), {"a1", "a2", "b1"}),
        ([("web", "b1")], [("web", "a1")], requiring(term("web")), {"b1"}),
        ([], [("db", "a1")], rejecting(term("db")), {"b1", "nowhere"}),
    ],
)
def test_nominated_pods_do_not_satisfy_required_affinity(
    there: list[tuple[str, str]], coming: list[tuple[str, str]], affinity: Affinity, expected: set[str]
) -> None:
    """They reject others as if they ran; the first pod of a kind goes to nominated pods of that kind."""
    pods = [(app(name), home) for name, home in there]
    ledger = cluster(*pods, *((nominated(app(name)), home) for name, home in coming))
    assert passed(ledger, app("web", affinity)) == expected


def test_the_terms_of_nominated_pods_count() -> None:
    """Their anti-affinity rejects, and preferences of both sides count."""
    ledger = cluster((nominated(app("db", rejecting(term("web")))), "a1"))
    assert passed(ledger, app("web")) == {"b1", "nowhere"}
    ledger = cluster((nominated(app("db", preferring(3, term("web")))), "a1"))
    rows = np.array([ledger.cluster.row_of[name] for name in ZONES])
    for mind in (None, preferring(5, term("db"))):
        score = state_of(ledger, app("web", mind)).score(rows)
        assert score is not None
        assert score.tolist() == [100, 100, 0, 0]


def test_running_pods_reject_by_their_anti_affinity() -> None:
    """The incoming pod has no term itself, and the reason says so."""
    ledger = cluster((app("db", rejecting(term("web"))), "a1"))
    rows = ledger.cluster.everything()
    state = state_of(ledger, app("web"))
    assert passed(ledger, app("web")) == {"b1", "nowhere"}
    assert [reason for reason, _ in state.checks(rows)] == [EXISTING_ANTI_AFFINITY_REASON]
    assert state.could_ever_pass(rows).all()


def test_evictions_help_against_anti_affinity_alone() -> None:
    """Where a required pod is missing, no eviction helps; where a rejecting one runs, evictions do."""
    both = Affinity(
        pod_affinity=requiring(term("db")).pod_affinity, pod_anti_affinity=rejecting(term("cache")).pod_anti_affinity
    )
    ledger = cluster((app("db"), "a1"), (app("cache"), "a2"))
    rows = ledger.cluster.everything()
    state = state_of(ledger, app("web", both))
    assert not state.passes(rows).any()
    assert {ledger.cluster.name(row) for row in rows[state.could_ever_pass(rows)].tolist()} == {"a1", "a2"}


@pytest.mark.parametrize(
    ("there", "affinity", "expected"),
    [
        ([("db", None, "a1")], preferring(5, term("db")), [100, 100, 0, 0]),
        ([("db", None, "a1")], preferring(-5, term("db")), [0, 0, 100, 100]),
        ([("db", preferring(9, term("web")), "b1")], None, [0, 0, 100, 0]),
        ([("db", preferring(-9, term("web")), "b1")], None, [100, 100, 0, 100]),
        ([("db", requiring(term("web")), "b1")], None, [0, 0, 100, 0]),
        ([("db", None, "a1"), ("db", None, "b1"), ("db", None, "b1")], preferring(1, term("db")), [50, 50, 100, 0]),
    ],
)
def test_preferences_of_both_sides_score(
    there: list[tuple[str, Affinity | None, str]], affinity: Affinity | None, expected: list[int]
) -> None:
    """The domain with the lowest sum scores 0, the highest 100."""
    ledger = cluster(*((app(name, mind, uid=f"{name}{at}"), home) for at, (name, mind, home) in enumerate(there)))
    rows = np.array([ledger.cluster.row_of[name] for name in ZONES])
    score = state_of(ledger, app("web", affinity)).score(rows)
    assert score is not None
    assert score.tolist() == expected


def test_scores_are_weighted() -> None:
    """The score has a weight, and so has required affinity; without the latter such pods have no effect."""
    ledger = cluster((app("db", preferring(3, term("web"))), "a1"), (app("cache", requiring(term("web"))), "b1"))
    rows = np.array([ledger.cluster.row_of[name] for name in ZONES])
    score = state_of(ledger, app("web"), Weights(pod_affinity=2, hard_pod_affinity=6)).score(rows)
    assert score is not None
    assert score.tolist() == [100, 100, 200, 0]
    needed = cluster((app("cache", requiring(term("web"))), "b1"))
    assert Filter(needed, Weights(hard_pod_affinity=0)).pre_filter(needed.class_of(app("web"))) is None


def test_equal_sums_are_not_scored() -> None:
    """Without nodes, or with equal sums, there is no score."""
    ledger = cluster()
    state = state_of(ledger, app("web", preferring(1, term("db"))))
    assert state.score(ledger.cluster.everything()) is None
    assert state.score(np.zeros(0, dtype=np.intp)) is None
    assert state_of(ledger, app("web", rejecting(term("db")))).score(ledger.cluster.everything()) is None


def test_namespaces_are_selected_by_their_labels() -> None:
    """A change of a namespace's labels counts at once; a removed namespace has none."""
    far = PodAffinityTerm(
        label_selector=LabelSelector(match_labels={"app": "db"}),
        topology_key="zone",
        namespace_selector=LabelSelector(match_labels={"tier": "back"}),
    )
    ledger = cluster((app("db", namespace="stores"), "a1"))
    filtered = Filter(ledger, Weights())
    web = ledger.class_of(app("web", rejecting(far)))
    rows = ledger.cluster.everything()
    found = []
    for labels in ({}, {"tier": "back"}, {"tier": "front"}):
        ledger.pod_index.put_namespace("stores", labels)
        state = filtered.pre_filter(web)
        assert state is not None
        found.append(int(state.passes(rows).sum()))
    assert found == [4, 2, 4]


def test_a_class_that_no_term_selects_has_no_state() -> None:
    """Such a class is placed in batches, also beside pods with affinity, until a pod comes that selects it."""
    ledger = cluster((app("db", rejecting(term("cache"))), "a1"))
    filtered = Filter(ledger, Weights())
    plain = ledger.class_of(app("web"))
    assert filtered.pre_filter(plain) is None
    mark = ledger.mark()
    rival = ledger.class_of(app("rival", rejecting(term("web"))))
    plain = ledger.class_of(app("web"))
    ledger.place(rival, ledger.cluster.everything()[:1])
    assert filtered.pre_filter(plain) is not None
    ledger.rollback(mark)
    assert filtered.pre_filter(plain) is None


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand jobs, each with a class of its own, leave nothing behind, as incoming or as running pods."""
    monkeypatch.setattr(inter_pod_affinity, "MAX_CACHED_CLASSES", 1)
    ledger = cluster()
    filtered = Filter(ledger, Weights())
    for number in range(5):
        ledger.put_pod(app(f"db{number}", rejecting(term("web"))), "a1")
        assert filtered.pre_filter(ledger.class_of(app("web"))) is not None
        assert max(len(bonds) for bonds in filtered._term_keys.values()) <= 4
        ledger.remove_pod(f"uid-default-db{number}")
    assert filtered.pre_filter(ledger.class_of(app("web"))) is None
    filtered.pre_filter(ledger.class_of(app("cache")))
    assert len(filtered._term_keys) == 1


def test_topology_keys_that_no_node_has_are_ignored() -> None:
    """They do not reject or prefer, and required affinity fails, before the first node has one and after the last."""
    ledger = cluster(
        (app("db", preferring(3, term("web", "rack"))), "a1"), (app("cache", rejecting(term("web", "rack"))), "b1")
    )
    filtered, web = Filter(ledger, Weights()), ledger.class_of(app("web"))
    rival = ledger.class_of(app("rival", rejecting(term("db", "rack"))))
    assert [filtered.pre_filter(found) for found in (web, rival)] == [None, None]
    for _ in range(2):
        ledger.put_node(node("b1", labels={"zone": "b", "rack": "r"}))
        state, rows = filtered.pre_filter(web), ledger.cluster.everything()
        assert state is not None
        assert ledger.cluster.name(rows[~state.passes(rows)].item()) == "b1"
        assert filtered.pre_filter(rival) is not None
        ledger.put_node(node("b1", labels={"zone": "b"}))
        assert [filtered.pre_filter(found) for found in (web, rival)] == [None, None]
    state = filtered.pre_filter(ledger.class_of(app("fan", requiring(term("db"), term("db", "rack")))))
    assert state is not None
    assert not state.could_ever_pass(ledger.cluster.everything()).any()


def evaluation_cost(there: Affinity, *keys: str) -> int:
    """Return how many calls the evaluation takes on nodes with labels of these keys, beside a known pod."""
    ledger = cluster((app("db", there), "a1"))
    for name, zone in ZONES.items():
        ledger.put_node(node(name, labels={**dict.fromkeys(keys, name), "zone": zone or ""}))
    web, filtered, rows = ledger.class_of(app("web")), Filter(ledger, Weights()), ledger.cluster.everything()
    Filter(ledger, Weights()).pre_filter(web)

    def work() -> None:
        for _ in range(5):
            state = filtered.pre_filter(web)
            if state is not None:
                state.passes(rows)
                state.score(rows)
            ledger.place(web, rows[:1])

    return count_calls(work)


@pytest.mark.parametrize("mind", [lambda *terms: preferring(-1, *terms), rejecting, requiring])
def test_terms_of_labels_that_no_node_has_take_no_time(mind: Callable[..., Affinity]) -> None:
    """One pod with a thousand of them delays no other pod."""
    few, many = (
        evaluation_cost(mind(*(term("web", f"key{number}") for number in range(count)))) for count in (1, 1000)
    )
    assert few == many


@pytest.mark.parametrize("mind", [lambda *terms: preferring(-1, *terms), rejecting, requiring])
def test_the_cost_is_linear_in_terms(mind: Callable[..., Affinity]) -> None:
    """Where nodes have the labels, twice the terms are twice the work."""

    def work(count: int) -> int:
        keys = [f"key{number}" for number in range(count)]
        return evaluation_cost(mind(*(term("web", key) for key in keys)), *keys)

    assert work(400) <= 2.1 * work(200)


@given(filter_cases(with_affinity()))
@cases(400)
def test_it_agrees_with_the_obvious_model(case: FilterCase) -> None:
    """On small clusters, every node gets the answer, the reason and the score of the slow model."""
    ledger, incoming, rows = case.settled()
    state = Filter(ledger, Weights(pod_affinity=1)).pre_filter(incoming)
    faults: list[str | None] = [None] * len(rows)
    score = None
    if state is not None:
        for reason, out in [(reason, ~held) for reason, held in state.checks(rows)]:
            faults = [fault or (FAULTS[reason] if fails else None) for fault, fails in zip(faults, out, strict=True)]
        assert state.passes(rows).tolist() == [fault is None for fault in faults]
        assert state.could_ever_pass(rows).tolist() == [fault != "required" for fault in faults]
        score = state.score(rows)
    assert [affinity_rejection(case.placed, case.incoming, home) for home in case.placed.nodes] == faults
    expected = preference_scores(case.placed, case.incoming, case.placed.nodes)
    assert expected == ([0] * len(rows) if score is None else score.tolist())
