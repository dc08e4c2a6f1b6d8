"""Claims that are bound when their pod has a node, as the search sees them; see also ``snapshot/test_bindings.py``."""

import numpy as np
import pytest

from cpg_engine.cluster.ledger import Ledger
from cpg_engine.filters.volume_binding import REASON, VolumeBinding
from cpg_engine.testing.builders import node, pod
from cpg_engine.testing.storage_builders import claim, inline, stock, storage_class, using, volume


@pytest.fixture
def ledger() -> Ledger:
    """Return two nodes and a claim with a volume at one of them."""
    ledger = Ledger()
    for name in ("n1", "n2"):
        ledger.put_node(node(name, labels={"host": name}))
    stock(ledger.storage, storage_class(), claim("c"), volume("v", at={"host": ["n1"]}))
    return ledger


def test_nodes_without_a_volume_are_out(ledger: Ledger) -> None:
    """No eviction brings one, and none of those that have is better than another."""
    view = VolumeBinding(ledger).pre_filter(ledger.class_of(pod("p", volumes=using("c"))))
    assert view is not None
    rows = ledger.cluster.everything()
    assert view.passes(rows).tolist() == view.could_ever_pass(rows).tolist() == [True, False]
    assert [(reason, passed.tolist()) for reason, passed in view.checks(rows)] == [(REASON, [True, False])]
    assert view.score(rows) is None
    ledger.place(ledger.class_of(pod("p", volumes=using("c"))), rows[:1])
    assert view.passes(rows[::-1]).tolist() == [False, True]
    assert view.still_passes(rows[:1]).tolist() == [True]


def test_who_is_not_concerned(ledger: Ledger) -> None:
    """Pods without volumes, with volumes of other kinds, with bound claims, and with claims that are not there."""
    stock(ledger.storage, claim("bound", bound_to="w"), volume("w"))
    found = VolumeBinding(ledger)
    others = (None, inline("driver"), using("bound"), using("gone"))
    assert [found.pre_filter(ledger.class_of(pod("p", volumes=volumes))) for volumes in others] == [None] * 4


def test_several_pods_placed_at_once_choose_one_by_one(ledger: Ledger) -> None:
    """A batch of pods that share a claim makes its choice once."""
    pod_class = ledger.class_of(pod("p", volumes=using("c")))
    ledger.place(pod_class, np.array([0, 0, 1]))
    assert len(ledger.volume_allocator.allocated) == 1
    ledger.rollback(0)
    assert ledger.volume_allocator.allocated == {}
