"""Claims that are bound once their pod has a node, as a filter; see also ``cluster/test_volume_allocator.py``."""

import numpy as np
import pytest

from cpg_engine.cluster.ledger import Ledger
from cpg_engine.filters.volume_binding import REASON, VolumeBinding
from cpg_engine.testing.builders import node, pod
from cpg_engine.testing.storage_builders import claim, inline, stock, storage_class, using, volume


@pytest.fixture
def ledger() -> Ledger:
    """Return two nodes and a claim with a volume on one of them."""
    ledger = Ledger()
    for name in ("n1", "n2"):
        ledger.put_node(node(name, labels={"host": name}))
    stock(ledger.storage, storage_class(), claim("c"), volume("v", at={"host": ["n1"]}))
    return ledger


def test_nodes_without_a_volume_are_rejected(ledger: Ledger) -> None:
    """No eviction brings one, and no passing node is preferred."""
    state = VolumeBinding(ledger).pre_filter(ledger.class_of(pod("p", volumes=using("c"))))
    assert state is not None
    rows = ledger.cluster.everything()
    assert state.passes(rows).tolist() == state.could_ever_pass(rows).tolist() == [True, False]
    assert [(reason, passed.tolist()) for reason, passed in state.checks(rows)] == [(REASON, [True, False])]
    assert state.score(rows) is None
    ledger.place(ledger.class_of(pod("p", volumes=using("c"))), rows[:1])
    assert state.passes(rows[::-1]).tolist() == [False, True]
    assert state.still_passes(rows[:1]).tolist() == [True]


def test_classes_without_state(ledger: Ledger) -> None:
    """Pods without volumes, with volumes of other kinds, with bound claims, and with unknown claims."""
    stock(ledger.storage, claim("bound", bound_to="w"), volume("w"))
    found = VolumeBinding(ledger)
    others = (None, inline("driver"), using("bound"), using("gone"))
    assert [found.pre_filter(ledger.class_of(pod("p", volumes=volumes))) for volumes in others] == [None] * 4


def test_a_batch_reserves_a_shared_claim_once(ledger: Ledger) -> None:
    """Pods of one batch that share a claim share its allocation."""
    pod_class = ledger.class_of(pod("p", volumes=using("c")))
    ledger.place(pod_class, np.array([0, 0, 1]))
    assert len(ledger.volume_allocator.allocated) == 1
    ledger.rollback(0)
    assert ledger.volume_allocator.allocated == {}
