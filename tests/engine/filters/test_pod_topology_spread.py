"""Spreading over domains."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from msgspec.structs import replace

from cpg_api.core.affinity import TopologySpreadConstraint
from cpg_api.core.node import Taint
from cpg_api.core.pod import Pod
from cpg_api.meta import LabelSelector
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import NOMINATED
from cpg_engine.filters.pod_topology_spread import (
    HOSTNAME,
    MAX_CACHED_CONSTRAINTS,
    REASON,
    UNLABELLED_REASON,
    PodTopologySpread,
    PodTopologySpreadState,
)
from cpg_engine.testing.builders import metadata, node, pod
from cpg_engine.testing.filter_model import PlacedPods, spread_rejection, spread_scores
from cpg_engine.testing.filter_strategies import FilterCase, filter_cases, with_spread
from cpg_engine.testing.strategies import cases
from cpg_engine.weights import Weights

WEB = LabelSelector(match_labels={"app": "web"})
ZONES = {"a1": "a", "a2": "a", "b1": "b", "nowhere": None}
FAULTS = {REASON: "uneven", UNLABELLED_REASON: "unlabelled"}


def constraint(key: str = "zone", *, soft: bool = False, **more: Any) -> TopologySpreadConstraint:
    """Return a constraint on the web pods."""
    more.setdefault("label_selector", WEB)
    action = "ScheduleAnyway" if soft else "DoNotSchedule"
    return TopologySpreadConstraint(topology_key=key, when_unsatisfiable=action, **more)


def web(name: str, *constraints: TopologySpreadConstraint, app: str = "web", **spec: Any) -> Pod:
    """Return a pod of an app."""
    return pod(name, meta=metadata(name, app=app), topology_spread_constraints=constraints or None, **spec)


def cluster(*homes: str, coming: Sequence[str] = ()) -> Ledger:
    """Return a ledger of two nodes in zone ``a``, one in ``b``, one without a zone, with a web pod on each named node.

    ``coming`` are nominated pods.
    """
    ledger = Ledger()
    for name, zone in ZONES.items():
        labels = {HOSTNAME: name, "zone": zone} if zone else {HOSTNAME: name}
        taints = (Taint(key="team", effect="NoSchedule"),) if name == "b1" else ()
        ledger.put_node(node(name, labels=labels, taints=taints))
    for number, home in enumerate(homes):
        ledger.put_pod(web(f"w{number}"), home)
    for number, home in enumerate(coming):
        found = web(f"c{number}")
        ledger.put_pod(replace(found, metadata=replace(found.metadata, uid=NOMINATED + found.metadata.uid)), home)
    return ledger


def state_of(ledger: Ledger, found: Pod) -> PodTopologySpreadState:
    """Return the state of a pod's class, which has to have one."""
    state = PodTopologySpread(ledger, Weights(spread=1)).pre_filter(ledger.class_of(found))
    assert state is not None
    return state


def passed(ledger: Ledger, found: Pod) -> set[str]:
    """Return the nodes that pass."""
    rows = ledger.cluster.everything()
    return {ledger.cluster.name(row) for row in rows[state_of(ledger, found).passes(rows)].tolist()}


@pytest.mark.parametrize(
    ("homes", "constraints", "spec", "expected"),
    [
        ([], [constraint()], {}, {"a1", "a2", "b1"}),
        (["a1"], [constraint()], {}, {"b1"}),
        (["a1"], [constraint(max_skew=2)], {}, {"a1", "a2", "b1"}),
        (["a1", "nowhere"], [constraint()], {}, {"b1"}),
        (["a1"], [constraint()], {"app": "db"}, {"a1", "a2", "b1"}),
        (["a1", "a2"], [constraint()], {"app": "db"}, {"b1"}),
        (["a1", "b1"], [constraint(min_domains=3)], {}, set()),
        (["a1", "b1"], [constraint(min_domains=2)], {}, {"a1", "a2", "b1"}),
        (["a1"], [constraint()], {"node_selector": {"zone": "a"}}, {"a1", "a2", "b1"}),
        (["a1"], [constraint(node_affinity_policy="Ignore")], {"node_selector": {"zone": "a"}}, {"b1"}),
        (["a1"], [constraint(node_taints_policy="Honor")], {}, {"a1", "a2", "b1"}),
        (["a1"], [constraint(HOSTNAME)], {}, {"a2", "b1", "nowhere"}),
        (["a1"], [constraint(), constraint(HOSTNAME)], {}, {"b1"}),
        (["a1"], [constraint(label_selector=LabelSelector())], {}, {"a1", "a2", "b1"}),
        (["a1"], [constraint(label_selector=None)], {}, {"a1", "a2", "b1"}),
        ([], [constraint("rack")], {}, set()),
        ([], [constraint("rack", min_domains=0)], {}, set()),
    ],
)
def test_domains_stay_within_the_skew(
    homes: list[str], constraints: list[TopologySpreadConstraint], spec: dict[str, Any], expected: set[str]
) -> None:
    """The pod itself counts if it is selected, and domains only where the pod counts a node of theirs."""
    assert passed(cluster(*homes), web("new", *constraints, **spec)) == expected


@pytest.mark.parametrize(
    ("homes", "coming", "max_skew", "expected"),
    [
        ([], ["a1"], 1, {"b1"}),
        (["a1"], ["b1"], 1, set()),
        (["a1"], ["b1"], 2, {"a1", "a2", "b1"}),
        (["a1", "b1"], ["b1"], 1, {"a1", "a2"}),
        (["a1"], ["nowhere"], 1, {"b1"}),
    ],
)
def test_nominated_pods_fill_their_own_domain_alone(
    homes: list[str], coming: list[str], max_skew: int, expected: set[str]
) -> None:
    """A nominated pod counts in its domain, and does not make the emptiest one less empty."""
    assert passed(cluster(*homes, coming=coming), web("new", constraint(max_skew=max_skew))) == expected


def test_domains_without_nominated_pods_score_higher() -> None:
    """A soft constraint prefers domains without nominated pods."""
    ledger = cluster(coming=["a1"])
    rows = np.array([ledger.cluster.row_of[name] for name in ZONES])
    score = state_of(ledger, web("new", constraint(soft=True))).score(rows)
    assert score is not None
    assert score.tolist() == [0, 0, 100, 0]


def test_a_missing_label_has_a_reason_of_its_own() -> None:
    """It is given where the label is missing, and no eviction helps there; elsewhere it might."""
    ledger = cluster("a1")
    rows = np.array([ledger.cluster.row_of[name] for name in ZONES])
    state = state_of(ledger, web("new", constraint()))
    found = [(reason, held.tolist()) for reason, held in state.checks(rows)]
    assert found[0] == (UNLABELLED_REASON, [True, True, True, False])
    assert (found[1][0], found[1][1][:3]) == (REASON, [False, False, True])
    assert state.could_ever_pass(rows).tolist() == [True, True, True, False]


def test_terminating_pods_do_not_count() -> None:
    """They move into a class of their own."""
    ledger = cluster("a1")
    assert passed(ledger, web("new", constraint())) == {"b1"}
    doomed = web("w0")
    ledger.put_pod(replace(doomed, metadata=replace(doomed.metadata, deletion_timestamp="2026-01-01T00:00:00Z")), "a1")
    assert passed(ledger, web("new", constraint())) == {"a1", "a2", "b1"}


@pytest.mark.parametrize(
    ("homes", "constraints", "expected"),
    [
        ([], [constraint(soft=True)], [100, 100, 100, 0]),
        (["a1", "a2", "b1"], [constraint(soft=True)], [33, 33, 100, 0]),
        (["a1"], [constraint(soft=True)], [0, 0, 100, 0]),
        (["a1"], [constraint(HOSTNAME, soft=True)], [0, 100, 100, 100]),
        (["a1"], [constraint(HOSTNAME, soft=True), constraint(soft=True)], [0, 66, 100, 0]),
        (["a1", "a1"], [constraint(soft=True, max_skew=4)], [50, 50, 100, 0]),
        (["a1"], [constraint("rack", soft=True)], [0, 0, 0, 0]),
    ],
)
def test_emptier_domains_score_higher(
    homes: list[str], constraints: list[TopologySpreadConstraint], expected: list[int]
) -> None:
    """It is kube-scheduler's formula: counts by the logarithm of the number of domains, then 100 for the emptiest."""
    ledger = cluster(*homes)
    rows = np.array([ledger.cluster.row_of[name] for name in ZONES])
    score = state_of(ledger, web("new", *constraints)).score(rows)
    assert score is not None
    assert score.tolist() == expected


def test_few_counted_nodes_are_kept() -> None:
    """They are computed once for all classes with the same constraint, and of very many constraints the oldest go."""
    ledger = cluster("a1")
    spread = PodTopologySpread(ledger, Weights())
    for number in range(MAX_CACHED_CONSTRAINTS + 9):
        spread.pre_filter(ledger.class_of(web("p", constraint(), node_selector={"disk": str(number)})))
    assert len(spread._counted) == MAX_CACHED_CONSTRAINTS
    kept = dict(spread._counted)
    spread.pre_filter(ledger.class_of(web("q", constraint(), cpu=2, node_selector={"disk": "200"})))
    assert dict(spread._counted) == kept
    ledger.put_node(node("more", labels={"zone": "z"}))
    spread.pre_filter(ledger.class_of(web("q", constraint())))
    assert len(spread._counted) == 1


def test_hard_constraints_do_not_score() -> None:
    """There is no score without soft constraints, and no state without any."""
    ledger = cluster("a1")
    rows = ledger.cluster.everything()
    assert state_of(ledger, web("new", constraint())).score(rows) is None
    assert PodTopologySpread(ledger, Weights()).pre_filter(ledger.class_of(web("new"))) is None


@given(filter_cases(with_spread()))
@cases(400)
def test_it_agrees_with_the_obvious_model(case: FilterCase) -> None:
    """On small clusters, every node gets the answer, the reason and the score of the slow model."""
    ledger, incoming, rows = case.settled()
    state = PodTopologySpread(ledger, Weights(spread=1)).pre_filter(incoming)
    faults: list[str | None] = [None] * len(rows)
    score = None
    if state is not None:
        for reason, out in [(reason, ~held) for reason, held in state.checks(rows)]:
            faults = [fault or (FAULTS[reason] if fails else None) for fault, fails in zip(faults, out, strict=True)]
        assert state.passes(rows).tolist() == [fault is None for fault in faults]
        score = state.score(rows)
    assert [spread_rejection(case.placed, case.incoming, home) for home in case.placed.nodes] == faults
    if score is not None:
        assert spread_scores(case.placed, case.incoming, case.placed.nodes) == score.tolist()


@given(filter_cases(with_spread()))
@cases(400)
def test_passing_nodes_pass_whether_nominated_pods_come_or_not(case: FilterCase) -> None:
    """Whether all nominated pods come or none, as the slow model has it."""
    ledger, incoming, rows = case.settled()
    state = PodTopologySpread(ledger, Weights()).pre_filter(incoming)
    passes = [True] * len(rows) if state is None else state.passes(rows)
    for home in (home for home, seat in zip(case.placed.nodes, passes, strict=True) if seat):
        assert spread_rejection(case.placed.if_all_come(), case.incoming, home) is None
        assert spread_rejection(case.placed.if_none_comes(), case.incoming, home) is None


def test_hosts_count_as_in_the_model() -> None:
    """A host is a domain of its own; the example is one that random search may miss."""
    nodes = tuple(node(name, labels={HOSTNAME: name}) for name in ("n1", "n2", "n3"))
    setup = tuple((web(f"w{number}"), nodes[place]) for number, place in enumerate((0, 0, 1)))
    incoming = web("new", constraint(HOSTNAME, soft=True))
    ledger = Ledger()
    for host in nodes:
        ledger.put_node(host)
    for other, home in setup:
        ledger.put_pod(other, home.metadata.name)
    state = PodTopologySpread(ledger, Weights(spread=1)).pre_filter(ledger.class_of(incoming))
    assert state is not None
    scores = state.score(np.array([ledger.cluster.row_of[host.metadata.name] for host in nodes]))
    assert scores is not None
    assert scores.tolist() == spread_scores(PlacedPods(nodes, setup, {}), incoming, nodes) == [0, 33, 100]
