"""Preferred node affinity."""

import numpy as np
import pytest

from cpg_api.core.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
)
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.scores import node_affinity
from cpg_engine.testing.builders import node, pod

ZONE = NodeSelectorTerm((NodeSelectorRequirement("zone", "In", ("a",)),))
DISK = NodeSelectorTerm((NodeSelectorRequirement("disk", "Exists"),))


@pytest.mark.parametrize(
    ("preferences", "raw"),
    [
        ((), [0, 0, 0]),
        (((3, ZONE), (5, DISK)), [3, 8, 0]),
        (((3, ZONE), (4, ZONE)), [7, 7, 0]),
        (((9, NodeSelectorTerm()),), [0, 0, 0]),
        (((-5, DISK), (2**62, ZONE)), [100, 100, 0]),
    ],
)
def test_the_weights_of_met_preferences_add_up(
    preferences: tuple[tuple[int, NodeSelectorTerm], ...], raw: list[int]
) -> None:
    """Every preference that a node meets counts with its weight, from 0 to 100; no node meets an empty one."""
    ledger = Ledger()
    for name, labels in (("n0", {"zone": "a"}), ("n1", {"zone": "a", "disk": "ssd"}), ("n2", {})):
        ledger.put_node(node(name, labels=labels))
    wish = NodeAffinity(None, tuple(PreferredSchedulingTerm(weight, term) for weight, term in preferences))
    pod_class = ledger.class_of(pod("p", affinity=Affinity(node_affinity=wish)))
    assert raw == node_affinity.raw(pod_class, ledger.cluster, np.arange(3)).tolist()
