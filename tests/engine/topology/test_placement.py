"""How good a domain is for a group, with numbers worked out from kube-scheduler's two placement scores."""

from collections.abc import Sequence

import numpy as np

from cpg_engine.cluster.ledger import Ledger
from cpg_engine.testing.builders import node, pod
from cpg_engine.topology.domains import Topology
from cpg_engine.topology.placement import placement_scores
from cpg_engine.weights import Weights


def ledger_of(memory: str | None = None) -> Ledger:
    """Return a ledger with two nodes of 4 CPU in rack 1 and one in rack 2."""
    ledger = Ledger()
    for name, rack in (("n0", "1"), ("n1", "1"), ("n2", "2")):
        ledger.put_node(node(name, memory=memory, labels={"rack": rack}))
    return ledger


def scores(ledger: Ledger, fits: Sequence[int], *wanted: tuple[str, int], weights: Weights | None = None) -> list[int]:
    """Return the scores of the racks for so many pods of so much CPU."""
    topology = Topology(ledger)
    found: list[int] = placement_scores(
        ledger,
        topology.partition(topology.whole(), "rack"),
        np.array(fits, dtype=np.int64),
        wanted=[(ledger.class_of(pod("p", cpu=cpu)), number) for cpu, number in wanted],
        weights=weights or Weights(),
    ).tolist()
    return found


def test_the_fuller_domain_is_better() -> None:
    """Two pods of 2 CPU take half of rack 1 and all of rack 2; both take all pods."""
    assert scores(ledger_of(), [2, 2], ("2", 2)) == [50 + 100, 100 + 100]


def test_usage_counts() -> None:
    """With 2 CPU in use in rack 2, one pod fits there: it is as full as with two, but takes half of the pods."""
    ledger = ledger_of()
    ledger.put_pod(pod("x", cpu=2), "n2")
    assert scores(ledger, [2, 1], ("2", 2)) == [50 + 100, 100 + 50]


def test_memory_counts_where_there_is_some() -> None:
    """On 4000Mi each, two pods of 2 CPU without memory requests count 200Mi each: 5 % of rack 1, 10 % of rack 2."""
    assert scores(ledger_of("4000Mi"), [2, 2], ("2", 2)) == [(50 + 5) // 2 + 100, (100 + 10) // 2 + 100]


def test_pods_of_several_kinds_are_estimated_together() -> None:
    """Of 2 + 1 pods that take 5 CPU, a rack that takes two of three is estimated to need two thirds: 3333m of 4000m."""
    assert scores(ledger_of(), [3, 2], ("2", 2), ("1", 1)) == [5000 * 100 // 8000 + 100, 83 + 66]


def test_an_estimate_beyond_the_capacity_is_full() -> None:
    """An estimate may need more than a domain has."""
    assert scores(ledger_of(), [9, 9], ("4", 9)) == [100 + 100, 100 + 100]


def test_weights_scale_the_two() -> None:
    """Either score can be left out."""
    assert scores(ledger_of(), [2, 2], ("2", 2), weights=Weights(placement_allocated=0)) == [100, 100]
    assert scores(ledger_of(), [2, 2], ("2", 2), weights=Weights(placement_allocated=3, placement_pods=0)) == [150, 300]


def test_nothing_wanted_and_nothing_fitting_are_no_error() -> None:
    """A group that needs no pods, or fits nowhere, has scores all the same."""
    assert scores(ledger_of(), [0, 0]) == [0, 0]
    assert scores(ledger_of(), [0, 0], ("2", 2)) == [0, 0]


def test_absurd_amounts_keep_the_scale() -> None:
    """The largest nodes and pods score between 0 and 200."""
    ledger = Ledger()
    for number in range(3):
        ledger.put_node(node(f"n{number}", cpu="9E", memory="9E", labels={"rack": str(number // 2)}))
    ledger.place(ledger.class_of(pod("x", cpu="9E", memory="9E")), np.zeros(1000, dtype=np.intp))
    assert all(0 <= score <= 200 for score in scores(ledger, [5, 5], ("9E", 5)))
