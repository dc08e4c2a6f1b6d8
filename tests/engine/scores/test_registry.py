"""The scores together."""

import numpy as np

from cpg_api.core.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
)
from cpg_api.core.node import Taint
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.scores.registry import dynamic_score, static_score
from cpg_engine.testing.builders import node, pod
from cpg_engine.weights import Weights

ROWS = np.arange(3)


def taint(number: int) -> list[Taint]:
    """Return so many PreferNoSchedule taints."""
    return [Taint(str(one), "", "PreferNoSchedule") for one in range(number)]


def test_taints_are_scaled_by_the_worst_node() -> None:
    """0, 1 and 3 untolerated taints score 100, 67 and 0, as in kube-scheduler, with a default weight of three."""
    ledger = Ledger()
    for number in (0, 1, 3):
        ledger.put_node(node(f"n{number}", taints=taint(number)))
    found = ledger.class_of(pod("p"))
    assert static_score(found, ledger.cluster, ROWS, Weights()).tolist() == [300, 201, 0]
    assert static_score(found, ledger.cluster, ROWS[:2], Weights()).tolist() == [300, 0]


def test_preferences_are_scaled_by_the_best_node() -> None:
    """Nodes with 0, 3 and 8 score 0, 37 and 100, with a default weight of two, beside the 300 of untainted nodes."""
    ledger = Ledger()
    for name, labels in (("n0", {}), ("n1", {"a": ""}), ("n2", {"a": "", "b": ""})):
        ledger.put_node(node(name, labels=labels))
    terms = tuple(
        PreferredSchedulingTerm(weight, NodeSelectorTerm((NodeSelectorRequirement(key, "Exists"),)))
        for weight, key in ((3, "a"), (5, "b"))
    )
    found = ledger.class_of(pod("p", affinity=Affinity(node_affinity=NodeAffinity(None, terms))))
    assert static_score(found, ledger.cluster, ROWS, Weights()).tolist() == [300, 374, 500]
    assert static_score(found, ledger.cluster, ROWS, Weights(taints=0, node_affinity=1)).tolist() == [0, 37, 100]


def test_preferences_that_no_node_meets_score_zero() -> None:
    """Where the best node has zero, so have all."""
    ledger = Ledger()
    ledger.put_node(node("n0"))
    term = PreferredSchedulingTerm(9, NodeSelectorTerm((NodeSelectorRequirement("x", "Exists"),)))
    found = ledger.class_of(pod("p", affinity=Affinity(node_affinity=NodeAffinity(None, (term,)))))
    assert static_score(found, ledger.cluster, ROWS[:1], Weights()).tolist() == [300]
    assert static_score(found, ledger.cluster, ROWS[:0], Weights()).tolist() == []


def test_the_scores_of_usage_add_up() -> None:
    """2 of 4 CPU are 50 for the room that is left and 75 for a balance of one resource; weights scale each."""
    ledger = Ledger()
    ledger.put_node(node("n0"))
    found = ledger.class_of(pod("p", cpu=2))
    one = ROWS[:1]
    assert dynamic_score(found, ledger, one, weights=Weights()).tolist() == [125]
    assert dynamic_score(found, ledger, one, weights=Weights(), extra=1).tolist() == [0 + 75]
    assert dynamic_score(found, ledger, one, weights=Weights(least_allocated=10, balanced=2)).tolist() == [650]
