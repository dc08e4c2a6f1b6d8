"""Pods that name their node."""

import numpy as np
import pytest
from msgspec.structs import replace

from cpg_engine.cluster.ledger import Ledger
from cpg_engine.filters import node_name
from cpg_engine.testing.builders import node, pod


@pytest.mark.parametrize(
    ("name", "passed"), [("", [True, True]), ("b", [False, True]), ("gone", [False, False]), ("B", [False, False])]
)
def test_a_named_node_is_the_only_one(name: str, passed: list[bool]) -> None:
    """Without a name all nodes pass, with one that node alone, and none if it does not exist."""
    ledger = Ledger()
    ledger.put_node(node("a"))
    ledger.put_node(node("b"))
    wishing = replace(pod("p"), spec=replace(pod("p").spec, node_name=name))
    assert passed == node_name.passes(ledger.class_of(wishing), ledger.cluster, np.arange(2)).tolist()
