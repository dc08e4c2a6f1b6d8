"""Least allocated and balanced allocation, with numbers worked out from kube-scheduler's formulas."""

import numpy as np
import pytest

from cpg_engine.cluster.ledger import Ledger
from cpg_engine.scores.node_resources import balanced, least_allocated
from cpg_engine.testing.builders import node, pod

ONE = np.array([0])


def ledger_of(cpu: str | None = None, memory: str | None = None) -> Ledger:
    """Return a ledger of one node."""
    ledger = Ledger()
    ledger.put_node(node("n", cpu=cpu, memory=memory))
    return ledger


def test_upstreams_example_of_least_allocated() -> None:
    """3 CPU and 5000 bytes on 4 CPU and 10000 are 25 and 50, so 37; on 6 CPU they are 50 and 50."""
    ledger = Ledger()
    ledger.put_node(node("n0", cpu=4, memory="10000"))
    ledger.put_node(node("n1", cpu=6, memory="10000"))
    found = ledger.class_of(pod("p", cpu=3, memory="5000"))
    assert least_allocated(found, ledger, np.arange(2)).tolist() == [37, 50]


@pytest.mark.parametrize(
    ("cpu", "memory", "score"),
    [
        ("4", "4Gi", 47),  # CPU (4-2-1)/4 = 25; memory (4096-200-1024)/4096 = 70
        ("4", None, 25),  # what a node has none of does not count
        (None, "4Gi", 70),
        (None, None, 0),
        ("0", "0", 0),
        ("2", "4Gi", 35),  # more than there is scores 0, not less
    ],
)
def test_the_emptier_of_two_nodes_is_better(cpu: str | None, memory: str | None, score: int) -> None:
    """With 2 CPU in use, a pod of 1 CPU and 1Gi leaves so much, on average over what the node has."""
    ledger = ledger_of(cpu, memory)
    ledger.put_pod(pod("x", cpu=2), "n")
    found = ledger.class_of(pod("p", cpu=1, memory="1Gi"))
    assert [score] == least_allocated(found, ledger, ONE).tolist()


def test_pods_without_requests_count_with_defaults() -> None:
    """They have 100m and 200Mi by default: after ten of them, 72 % of 4 CPU and 45 % of 4000Mi are left."""
    ledger = ledger_of("4", "4000Mi")
    found = ledger.class_of(pod("p", cpu=None, overhead={"x": 0}))
    assert least_allocated(found, ledger, ONE)[0] == (97 + 95) // 2
    assert least_allocated(found, ledger, ONE, 10)[0] == (72 + 45) // 2


@pytest.mark.parametrize(
    ("use", "ask", "score"),
    [
        ((None, None), ("3", "5000"), 68),  # 75 % and 50 %: 87 after 100 before, 50 + 37 // 2
        ((None, None), ("2", "5000"), 75),  # even before and after
        (("2", "1"), ("1m", "5000"), 87),  # 50 % and 0 %: 75 before, even after
        (("2", "1"), ("2", None), 62),  # 50 % and 0 %, then 100 % and 0 %: 75 before, 50 after
        (("9", "1"), ("1", None), 75),  # more than all of it is all of it
        (("2", "1"), (None, None), 0),  # pods without requests are scored alike everywhere
    ],
)
def test_balance_is_the_change_that_the_pod_makes(
    use: tuple[str | None, str | None], ask: tuple[str | None, str | None], score: int
) -> None:
    """It is 50 + (50 + after - before) / 2, each of the two 100 for even use, on 4 CPU and 10000 bytes."""
    ledger = ledger_of("4", "10000")
    if use[0]:
        ledger.put_pod(pod("x", cpu=use[0], memory=use[1]), "n")
    found = ledger.class_of(pod("p", cpu=ask[0], memory=ask[1]))
    assert [score] == balanced(found, ledger, ONE).tolist()


@pytest.mark.parametrize(("cpu", "memory"), [("4", None), (None, "1Gi"), (None, None), ("0", "0")])
def test_a_single_resource_is_always_even(cpu: str | None, memory: str | None) -> None:
    """A node that lacks one of the two has nothing to balance."""
    ledger = ledger_of(cpu, memory)
    assert balanced(ledger.class_of(pod("p", cpu=1)), ledger, ONE).tolist() == [75]


def test_extra_pods_count_as_placed() -> None:
    """The scores with so many extra pods are those that the node has once they are placed."""
    ledger = ledger_of("4", "4Gi")
    found = ledger.class_of(pod("p", cpu="300m", memory="1Gi"))
    for extra in range(5):
        expected = [score(found, ledger, ONE, extra)[0] for score in (least_allocated, balanced)]
        assert expected == [score(found, ledger, ONE)[0] for score in (least_allocated, balanced)] or extra
        mark = ledger.mark()
        ledger.place(found, np.zeros(extra, dtype=np.intp))
        assert expected == [score(found, ledger, ONE)[0] for score in (least_allocated, balanced)]
        ledger.rollback(mark)


def test_absurd_amounts_stay_within_the_scale() -> None:
    """The largest node and the largest pods score between 0 and 100."""
    ledger = ledger_of("9E", "9E")
    ledger.place(ledger.class_of(pod("x", cpu="9E", memory="9E")), np.zeros(1000, dtype=np.intp))
    found = ledger.class_of(pod("p", cpu="9E", memory="1"))
    for score in (least_allocated, balanced):
        assert 0 <= score(found, ledger, ONE)[0] <= 100
