"""The domains of a label inside a scope."""

import numpy as np
import pytest

from cpg_engine.cluster.ledger import Ledger
from cpg_engine.testing.builders import node
from cpg_engine.topology import domains
from cpg_engine.topology.domains import Partition, Topology
from cpg_engine.verdicts import Domain


@pytest.fixture
def ledger() -> Ledger:
    """Two blocks with a rack 1 each, one of them also with a rack 2; a node without a rack, a node without labels."""
    ledger = Ledger()
    for name, block, rack in (
        ("n0", "b", "1"),
        ("n1", "a", "2"),
        ("n2", "a", "1"),
        ("n3", "a", "1"),
        ("n4", "a", None),
        ("n5", None, None),
    ):
        labels = {"block": block, "rack": rack}
        ledger.put_node(node(name, labels={key: value for key, value in labels.items() if value is not None}))
    return ledger


def domains_of(partition: Partition) -> list[tuple[str, list[int]]]:
    """Return the value and the rows of each domain."""
    return [(scope.chain[-1].value, scope.rows.tolist()) for scope in partition.scopes]


def test_the_whole_is_every_node(ledger: Ledger) -> None:
    """The scope of the cluster has no chain, and every row with a node."""
    whole = Topology(ledger).whole()
    assert (whole.chain, whole.rows.tolist()) == ((), [0, 1, 2, 3, 4, 5])


def test_domains_are_sorted_by_value(ledger: Ledger) -> None:
    """Each value of the label is a domain; nodes without the label are in none."""
    topology = Topology(ledger)
    assert domains_of(topology.partition(topology.whole(), "rack")) == [("1", [0, 2, 3]), ("2", [1])]
    assert domains_of(topology.partition(topology.whole(), "block")) == [("a", [1, 2, 3, 4]), ("b", [0])]


def test_domains_of_one_name_in_two_parents_are_two(ledger: Ledger) -> None:
    """The rack 1 of block a is not the rack 1 of block b, and each has its chain."""
    topology = Topology(ledger)
    a, b = topology.partition(topology.whole(), "block").scopes
    assert domains_of(topology.partition(a, "rack")) == [("1", [2, 3]), ("2", [1])]
    assert domains_of(topology.partition(b, "rack")) == [("1", [0])]
    assert (Domain("block", "b"), Domain("rack", "1")) == topology.partition(b, "rack").scopes[0].chain


def test_a_label_that_no_node_has_makes_no_domains(ledger: Ledger) -> None:
    """There is nothing to sum over, either."""
    topology = Topology(ledger)
    partition = topology.partition(topology.whole(), "zone")
    assert (domains_of(partition), partition.rows.tolist()) == ([], [])
    assert partition.sums(np.arange(6)).tolist() == []


def test_sums_are_by_domain(ledger: Ledger) -> None:
    """A number per node becomes one per domain; nodes in no domain do not count."""
    topology = Topology(ledger)
    partition = topology.partition(topology.whole(), "rack")
    assert partition.sums(np.array([1, 2, 4, 8, 16, 32])).tolist() == [1 + 4 + 8, 2]


def test_a_scope_of_no_nodes_has_no_domains(ledger: Ledger) -> None:
    """An empty cluster has an empty whole."""
    empty = Ledger()
    topology = Topology(empty)
    assert domains_of(topology.partition(topology.whole(), "rack")) == []
    assert ledger.cluster.size > empty.cluster.size == 0


def test_partitions_are_kept_while_labels_stay(ledger: Ledger) -> None:
    """Pods that come and nodes that shrink change no domain; a relabelled node changes them all."""
    topology = Topology(ledger)
    whole = topology.whole()
    kept = topology.partition(whole, "rack")
    ledger.put_node(node("n0", cpu=1, labels={"block": "b", "rack": "1"}))
    assert topology.whole() is whole
    assert topology.partition(whole, "rack") is kept
    ledger.put_node(node("n0", labels={"block": "b", "rack": "3"}))
    assert domains_of(topology.partition(topology.whole(), "rack")) == [("1", [2, 3]), ("2", [1]), ("3", [0])]
    ledger.remove_node("n0")
    assert domains_of(topology.partition(topology.whole(), "rack")) == [("1", [2, 3]), ("2", [1])]


def test_the_order_of_arrival_does_not_matter() -> None:
    """Domains are sorted by value, not by the first node of each."""
    ledger = Ledger()
    for name, rack in (("n0", "z"), ("n1", "b"), ("n2", "a")):
        ledger.put_node(node(name, labels={"rack": rack}))
    topology = Topology(ledger)
    assert [value for value, _ in domains_of(topology.partition(topology.whole(), "rack"))] == ["a", "b", "z"]


def test_partitions_are_bounded(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups may name a topology key each, for as long as no node changes."""
    monkeypatch.setattr(domains, "MAX_CACHED_ROWS", 20 * domains.ROWS_PER_DOMAIN)
    topology = Topology(ledger)
    blocks = domains_of(topology.partition(topology.whole(), "block"))
    for number in range(100):
        assert topology.partition(topology.whole(), f"key-{number}").scopes == ()
        assert domains_of(topology.partition(topology.whole(), "block")) == blocks
        assert len(topology._partitions) <= 20
