"""Pods that keep apart from their own kind: how many of them a domain takes."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cpg_engine.cluster.ledger import Ledger
from cpg_engine.gangs.apart import keeps_apart, thinned
from cpg_engine.testing.builders import node
from cpg_engine.testing.decision_case import DecisionCase, NamedDecision
from cpg_engine.verdicts import Finding


def avoiding(key: str, **labels: str) -> dict[str, Any]:
    """Return an affinity that keeps away from pods with some labels."""
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def told(nodes: list[str], root: dict[str, Any], *pods: dict[str, Any]) -> NamedDecision:
    """Return what is decided about a tree whose root is called so."""
    return DecisionCase(nodes, {"root": root}, pods).decide()


def test_pods_keep_apart_where_their_terms_mean_their_own_kind() -> None:
    """Once for each label, whatever else the terms mean; who avoids others alone does not."""
    own, others = avoiding("host", app="a"), avoiding("host", app="b")
    own["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] *= 2
    form = {"pod": "1@root", "labels": {"app": "a"}}
    trial = DecisionCase([], {"root": None}, [{**form, "affinity": own}, {**form, "affinity": others}])
    first, second = (member.pod_class for member in trial.unit.nodes[0].pending)
    assert keeps_apart(first, trial.snapshot.ledger) == ("host",)
    assert keeps_apart(second, trial.snapshot.ledger) == ()


@given(
    st.lists(st.tuples(st.sampled_from(["", "a", "b", "c"]), st.integers(0, 3)), min_size=1, max_size=8),
    st.data(),
)
def test_each_domain_gives_one_place_in_each_scope(nodes: list[tuple[str, int]], data: st.DataObject) -> None:
    """Summed over a scope it is one for each value with any room, and all room of the nodes without the label."""
    ledger = Ledger()
    for number, (value, _) in enumerate(nodes):
        ledger.put_node(node(f"n{number}", labels={"key": value} if value else {}))
    slots = np.array([room for _, room in nodes])
    cuts = sorted(data.draw(st.sets(st.integers(1, len(nodes) - 1)))) if len(nodes) > 1 else []
    found = thinned(slots, np.arange(len(nodes)), np.array([0, *cuts]), ("key",), ledger)
    for start, end in zip([0, *cuts], [*cuts, len(nodes)], strict=True):
        some = nodes[start:end]
        values = {value for value, room in some if value and room}
        assert found[start:end].sum() == len(values) + sum(room for value, room in some if not value)
    assert (found <= slots).all()


def test_a_domain_that_takes_too_few_of_them_is_not_tried() -> None:
    """Nothing fits on one host together with its own kind; the proof is in the bound, and is told of the domain."""
    kind = {"labels": {"app": "a"}, "affinity": avoiding("host", app="a")}
    nodes = [f"n{number} 9 host=n{number} rack=r{number // 3}" for number in range(6)]
    found = told(nodes, {"gang": 2, "key": "host"}, {"pod": "4x1@root", **kind})
    assert (found.finding, found.decision.placements.infeasible) == (Finding.IMPOSSIBLE, 0)
    (candidate,) = found.report("root").candidates
    assert (candidate.fits, candidate.wanted, candidate.short) == (1, 4, 1)
    assert len(told(nodes, {"gang": 3, "key": "rack"}, {"pod": "3x1@root", **kind}).binds) == 3
    assert told(nodes, {"gang": 4, "key": "rack"}, {"pod": "4x1@root", **kind}).finding is Finding.IMPOSSIBLE
