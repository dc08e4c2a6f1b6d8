"""Node selectors and required node affinity; the terms are tested with ``cpg_engine.cluster.node_selection``."""

import numpy as np

from cpg_api.core.affinity import Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.filters import node_affinity
from cpg_engine.testing.builders import node, pod


def test_selector_and_affinity_must_both_match() -> None:
    """A node that only one of them selects is rejected."""
    ledger = Ledger()
    for name, labels in (("n0", {"disk": "ssd"}), ("n1", {"zone": "a"}), ("n2", {"disk": "ssd", "zone": "a"})):
        ledger.put_node(node(name, labels=labels))
    term = NodeSelectorTerm((NodeSelectorRequirement("zone", "In", ("a",)),))
    wish = Affinity(node_affinity=NodeAffinity(NodeSelector((term,))))
    both = ledger.class_of(pod("p", node_selector={"disk": "ssd"}, affinity=wish))
    assert node_affinity.passes(both, ledger.cluster, np.arange(3)).tolist() == [False, False, True]
