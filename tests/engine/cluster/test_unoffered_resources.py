"""Resources that no node offers: they share a column of the ledger until a node comes that does."""

import numpy as np
import pytest

from cpg_engine.cluster.axes import MAX_AMOUNT, UNOFFERED
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.filters.node_resources import passes, shortages
from cpg_engine.score_cache import INFEASIBLE
from cpg_engine.snapshot import new_snapshot
from cpg_engine.testing.builders import node, pod

INVENTED = {f"example.com/r{number}": MAX_AMOUNT for number in range(2000)}


@pytest.fixture
def ledger() -> Ledger:
    """Two nodes of 4 CPU."""
    found = Ledger()
    for name in ("a", "b"):
        found.put_node(node(name, memory="1Gi"))
    return found


def test_resources_that_no_node_offers_share_a_column(ledger: Ledger) -> None:
    """Thousands of names that pods invent do not widen the arrays, and such a pod fits no node."""
    before = ledger.used.shape
    waiting = ledger.class_of(pod("waiting", overhead=INVENTED))
    for number in range(3):
        ledger.put_pod(pod(f"p{number}", cpu=1, overhead=INVENTED), "a")
    assert (before, before[1]) == (ledger.used.shape, UNOFFERED + 1)
    assert ledger.used[0].tolist() == [3000, 0, 0, 3, 3]
    rows = np.array([0, 1])
    assert not passes(waiting, ledger, rows).any()
    assert shortages(waiting, ledger, rows) == dict.fromkeys(INVENTED, 2)


def test_a_name_leaves_the_shared_column_when_a_node_offers_it(ledger: Ledger) -> None:
    """Pods that request other such names, too, still count in the shared column; pods of a new node count at once."""
    both = {"example.com/a": 2, "example.com/b": 3}
    for name, home in (("both", "a"), ("late", "c")):
        ledger.put_pod(pod(name, overhead=both), home)
    ledger.put_pod(pod("one", overhead={"example.com/a": 5}), "b")
    version = ledger.version
    ledger.put_node(node("c", more={"example.com/a": 9}))
    rows = [ledger.cluster.row_of[name] for name in ("a", "b", "c")]
    assert ledger.used[rows, UNOFFERED:].tolist() == [[1, 2], [0, 5], [1, 2]]
    assert ledger.changed_since(version).tolist() == sorted(rows)
    ledger.put_node(node("d", more={"example.com/b": 1}))
    assert ledger.used[rows, UNOFFERED:].tolist() == [[0, 2, 3], [0, 5, 0], [0, 2, 3]]
    for name in ("both", "late", "one"):
        ledger.remove_pod(pod(name).metadata.uid)
    assert not ledger.used.any()


def test_scores_follow_a_name_that_a_node_offers() -> None:
    """A class that was scored and counted before fits the node afterwards, as a class that was made later does."""
    snapshot = new_snapshot()
    for name in ("a", "b"):
        snapshot.ledger.put_node(node(name))
    early = snapshot.ledger.class_of(pod("early", overhead={"gpu": 2}))
    scores = snapshot.score_cache.of(early)
    assert (scores.slots().tolist(), scores.empty_slots().tolist()) == ([0] * len(scores.keys),) * 2
    snapshot.ledger.put_node(node("c", more={"gpu": 5}))
    row = snapshot.ledger.cluster.row_of["c"]
    scores = snapshot.score_cache.of(early)
    assert np.flatnonzero(scores.keys != INFEASIBLE).tolist() == [row]
    assert (scores.slots()[row], scores.empty_slots()[row], scores.slots().sum()) == (2, 2, 2)
