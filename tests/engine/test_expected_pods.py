"""Room for pods that do not exist yet, against the oracle: a group is placed if and only if all of its pods fit."""

import hypothesis.strategies as st
from hypothesis import assume, given
from msgspec.structs import replace

from cpg_api.scheduling.forest import Forest
from cpg_engine.cycle import decide
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.gangs.unit import GroupPods, tree_unit
from cpg_engine.snapshot import new_snapshot
from cpg_engine.testing.builders import leaf_policy
from cpg_engine.testing.oracle import Situation, contradicts, find, violations
from cpg_engine.testing.strategies import cases, situations
from cpg_engine.verdicts import Finding


def demanding(situation: Situation, minimum: int) -> Situation:
    """Return the situation with a gang of that minimum."""
    (node,) = situation.tree.nodes
    group = replace(node.group, spec=replace(node.group.spec, scheduling_policy=leaf_policy(minimum)))
    return replace(situation, tree=next(iter(Forest.of([group]).trees())))


@cases(150)
@given(situations(alike=True), st.integers(1, 3))
def test_a_leader_is_placed_where_all_expected_pods_fit(situation: Situation, born: int) -> None:
    """The model is a gang in which the expected pods exist, and its minimum is all of its pods."""
    snapshot = new_snapshot()
    for node in situation.nodes:
        snapshot.ledger.put_node(node)
    members = situation.members(0)
    for pod in situation.pods:
        if pod.spec.node_name and pod not in members:
            snapshot.ledger.put_pod(pod, pod.spec.node_name)
    pending = [pod for pod in members if not pod.spec.node_name]
    assume(pending)
    strangers = tuple(pod for pod in situation.pods if pod not in members)
    model = demanding(replace(situation, pods=(*pending, *strangers)), len(pending))
    pods = GroupPods(pending[:born], (), pending[born:], len(pending))
    unit = tree_unit(demanding(situation, 1).tree, {model.tree.nodes[0].key: pods}, snapshot.ledger)
    decision = decide(snapshot, unit, SearchOptions())
    places = {bind.uid: bind.node for bind in decision.binds}
    places |= {place.uid: place.node for place in decision.reserved}
    assert violations(model, places) == []
    assert {place.uid for place in decision.reserved}.isdisjoint(pod.metadata.uid for pod in pending[:born])
    assert len(decision.binds) in {0, len(pending[:born])}
    assert (decision.explanation.finding is Finding.PLACED) == (find(model) is not None)
    assert not contradicts(model)
