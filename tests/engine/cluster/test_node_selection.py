"""Selectors, affinity and tolerations over columns, compared with the same evaluation node by node."""

import numpy as np
import pytest

from cpg_api.core.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from cpg_api.core.node import Taint
from cpg_api.core.pod import Toleration
from cpg_api.meta import LabelSelector, LabelSelectorRequirement
from cpg_api.selectors import LabelMatcher, NodeTermMatcher
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.node_selection import meets_affinity, selected, term_holds, tolerated
from cpg_engine.testing.builders import node, pod
from cpg_engine.testing.call_counts import count_calls

ROWS = np.arange(3)
ZONE_A = NodeSelectorRequirement("zone", "In", ("a",))
NAMED = NodeSelectorRequirement("metadata.name", "In", ("n2",))
NOT_NAMED = NodeSelectorRequirement("metadata.name", "NotIn", ("n2",))


@pytest.fixture
def ledger() -> Ledger:
    """n0 in zone a with a disk, n1 in zone b and tainted, n2 without a zone and with a soft taint."""
    ledger = Ledger()
    ledger.put_node(node("n0", labels={"zone": "a", "disk": "ssd"}))
    ledger.put_node(node("n1", labels={"zone": "b"}, taints=[Taint("gpu", "", "NoSchedule")]))
    ledger.put_node(node("n2", taints=[Taint("gpu", "", "PreferNoSchedule")]))
    return ledger


@pytest.mark.parametrize(
    ("labels", "rows"),
    [({}, [0, 1, 2]), ({"zone": "a"}, [0]), ({"zone": "a", "disk": "hdd"}, []), ({"zone": "c"}, []), ({"x": ""}, [])],
)
def test_all_labels_must_be_there(ledger: Ledger, labels: dict[str, str], rows: list[int]) -> None:
    """A node selector selects the nodes that have all of its labels."""
    assert rows == np.flatnonzero(selected(LabelMatcher.exact(labels), ledger.cluster, ROWS)).tolist()


def test_an_impossible_selector_selects_nothing(ledger: Ledger) -> None:
    """A malformed selector, or one for a label that no node has, selects no node."""
    broken = LabelSelector(match_expressions=(LabelSelectorRequirement("zone", "Foo"),))
    for selector in (None, broken):
        assert not selected(LabelMatcher.compile(selector), ledger.cluster, ROWS).any()


@pytest.mark.parametrize(
    ("term", "rows"),
    [
        (NodeSelectorTerm(), []),
        (NodeSelectorTerm((ZONE_A,)), [0]),
        (NodeSelectorTerm(match_fields=(NAMED,)), [2]),
        (NodeSelectorTerm(match_fields=(NOT_NAMED,)), [0, 1]),
        (NodeSelectorTerm((ZONE_A,), (NAMED,)), []),
        (NodeSelectorTerm((ZONE_A,), (NOT_NAMED,)), [0]),
        (NodeSelectorTerm(match_fields=(NodeSelectorRequirement("metadata.name", "In", ("gone",)),)), []),
        (NodeSelectorTerm(match_fields=(NodeSelectorRequirement("metadata.name", "NotIn", ("gone",)),)), [0, 1, 2]),
    ],
)
def test_a_term_holds_where_all_of_it_does(ledger: Ledger, term: NodeSelectorTerm, rows: list[int]) -> None:
    """Expressions and fields must all hold, as they do for a node by itself; an empty term never does."""
    matcher = NodeTermMatcher.compile(term)
    assert rows == np.flatnonzero(term_holds(matcher, ledger.cluster, ROWS)).tolist()
    nodes = [found for found in ledger.cluster.nodes if found is not None]
    assert rows == [row for row in range(3) if matcher.matches(nodes[row].metadata.labels, nodes[row].metadata.name)]


@pytest.mark.parametrize(
    ("selector", "terms", "rows"),
    [
        (None, None, [0, 1, 2]),
        ({"zone": "a"}, None, [0]),
        (None, (NodeSelectorTerm((ZONE_A,)), NodeSelectorTerm(match_fields=(NAMED,))), [0, 2]),
        ({"zone": "a"}, (NodeSelectorTerm((ZONE_A,)), NodeSelectorTerm(match_fields=(NAMED,))), [0]),
        (None, (), []),
        (None, (NodeSelectorTerm(),), []),
    ],
)
def test_one_of_the_terms_is_enough(
    ledger: Ledger, selector: dict[str, str] | None, terms: tuple[NodeSelectorTerm, ...] | None, rows: list[int]
) -> None:
    """The selector must hold and one of the required terms; an affinity without terms matches no node."""
    required = None if terms is None else NodeSelector(terms)
    affinity = Affinity(node_affinity=NodeAffinity(required))
    pod_class = ledger.class_of(pod("p", node_selector=selector, affinity=affinity))
    assert rows == np.flatnonzero(meets_affinity(pod_class, ledger.cluster, ROWS)).tolist()


@pytest.mark.parametrize(
    ("tolerations", "rows"),
    [
        ((), [0, 2]),
        ((Toleration("gpu", "Exists"),), [0, 1, 2]),
        ((Toleration("gpu", "Exists", effect="PreferNoSchedule"),), [0, 2]),
    ],
)
def test_untolerated_taints_reject_pods(ledger: Ledger, tolerations: tuple[Toleration, ...], rows: list[int]) -> None:
    """NoSchedule and NoExecute reject, PreferNoSchedule never does."""
    pod_class = ledger.class_of(pod("p", tolerations=tolerations))
    assert rows == np.flatnonzero(tolerated(pod_class, ledger.cluster, ROWS)).tolist()


def test_evaluation_ends_with_the_first_label_that_no_node_has(ledger: Ledger) -> None:
    """A selector or term with ten thousand labels takes no longer than one with ten."""

    def asking(count: int) -> int:
        keys = [f"key{number}" for number in range(count)]
        labels = LabelMatcher.compile(LabelSelector(match_labels=dict.fromkeys(keys, "")), "")
        wanted = tuple(NodeSelectorRequirement(key, "Exists") for key in keys)
        term = NodeTermMatcher.compile(NodeSelectorTerm(match_expressions=wanted), "")

        def work() -> None:
            assert not selected(labels, ledger.cluster, ROWS).any()
            assert not term_holds(term, ledger.cluster, ROWS).any()

        return count_calls(work)

    assert asking(10_000) == asking(10)
