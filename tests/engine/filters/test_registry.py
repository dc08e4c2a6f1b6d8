"""The filters together: their order is the order in which reasons are chosen."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cpg_api.core.node import Taint
from cpg_api.tolerations import untolerated_taints
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.filters import node_affinity, node_name, node_unschedulable, taint_toleration
from cpg_engine.filters.registry import (
    STATIC,
    blocking_taints,
    catalog_checks,
    dynamic_filters,
    selects_nodes,
    statically_feasible,
)
from cpg_engine.testing.builders import node, pod
from cpg_engine.testing.filter_strategies import FilterCase, filter_cases, with_affinity, with_ports, with_spread
from cpg_engine.testing.strategies import cases
from cpg_engine.weights import Weights


def test_the_static_filters_have_kube_schedulers_order() -> None:
    """A node that several reject is counted with the first, so their order is visible to users."""
    assert [found.reason for found in STATIC] == [
        "node(s) were unschedulable",
        "node(s) didn't match the requested node name",
        "node(s) had untolerated taint(s)",
        "node(s) didn't match Pod's node affinity/selector",
    ]
    assert [node_unschedulable.passes, node_name.passes, taint_toleration.passes, node_affinity.passes] == [
        found.passes for found in STATIC
    ]


def test_a_node_must_pass_every_static_filter() -> None:
    """One filter is enough to reject it, and a row without a node is always rejected."""
    ledger = Ledger()
    labels = {"disk": "ssd"}
    ledger.put_node(node("good", labels=labels))
    ledger.put_node(node("cordoned", labels=labels, unschedulable=True))
    ledger.put_node(node("tainted", labels=labels, taints=[Taint("t", "", "NoSchedule")]))
    ledger.put_node(node("other"))
    pod_class = ledger.class_of(pod("p", node_selector=labels))
    every = np.arange(ledger.cluster.size)
    assert np.flatnonzero(statically_feasible(pod_class, ledger.cluster, every)).tolist() == [0]
    assert statically_feasible(pod_class, ledger.cluster, np.array([3, 0])).tolist() == [False, True]


@cases(200)
@given(filter_cases(with_spread()), st.integers(0, 1))
def test_feasible_nodes_are_selected_and_have_no_taint_that_is_not_tolerated(case: FilterCase, cordons: int) -> None:
    """The static filters are two halves, of which one does not depend on tolerations and the other on nothing else."""
    ledger, incoming, rows = case.settled()
    if cordons:
        first = case.placed.nodes[0]
        ledger.put_node(replace(first, spec=replace(first.spec, unschedulable=True)))
    open_to_it = [not untolerated_taints(blocking_taints(ledger.cluster, row), incoming.tolerations) for row in rows]
    expected = statically_feasible(incoming, ledger.cluster, rows)
    assert (selects_nodes(incoming, ledger.cluster, rows) & np.array(open_to_it)).tolist() == expected.tolist()


def test_plain_pods_have_no_state() -> None:
    """In a plain cluster they need no storage check and no dynamic filter."""
    ledger = Ledger()
    ledger.put_node(node("a"))
    pod_class = ledger.class_of(pod("p", cpu=1))
    assert list(catalog_checks(pod_class, ledger, np.arange(1))) == []
    assert {None} == {found.pre_filter(pod_class) for found in dynamic_filters(ledger, Weights())}


@cases(400)
@given(filter_cases(st.one_of(with_ports(), with_affinity(), with_spread())), st.lists(st.integers(0, 3), max_size=3))
def test_a_running_pod_passes_where_it_would_pass_as_new(case: FilterCase, mates: list[int]) -> None:
    """For a pod in place, every filter answers as it does before the pod comes, whatever other pods are there."""
    ledger, incoming, rows = case.settled()
    for mate in mates:
        ledger.place(incoming, rows[[mate % len(rows)]])
    for found in dynamic_filters(ledger, Weights()):
        for place in range(len(rows)):
            at = rows[[place]]
            before = found.pre_filter(incoming)
            passes = before is None or before.passes(at)[0]
            mark = ledger.mark()
            ledger.place(incoming, at)
            after = found.pre_filter(incoming)
            assert passes == (after is None or after.still_passes(at)[0])
            ledger.rollback(mark)
