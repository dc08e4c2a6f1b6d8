"""The index of hints finds the same units as asking every hint."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cpg_api.core.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from cpg_api.core.node import Taint
from cpg_api.core.pod import Toleration
from cpg_api.core.resources import ResourceList
from cpg_engine.snapshot import Snapshot, new_snapshot
from cpg_engine.testing.builders import node, pod
from cpg_engine.testing.call_counts import count_calls
from cpg_scheduler.queueing.hint_index import HintIndex, may_help
from cpg_scheduler.queueing.hints import ANY_CHANGE, RequeueHint


def affinity(*terms: NodeSelectorTerm) -> dict[str, Any]:
    """Return the part of a pod's spec that requires one of these terms."""
    selector = NodeSelector(node_selector_terms=terms)
    return {
        "affinity": Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector))
    }


def term(key: str, *values: str, operator: str = "In") -> NodeSelectorTerm:
    """Return a term over a label."""
    return NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key=key, operator=operator, values=values),))


NAMED = NodeSelectorRequirement(key="metadata.name", operator="In", values=("n1",))
SPECS: tuple[dict[str, Any], ...] = (
    {},
    {"node_selector": {"rack": "a"}},
    {"node_selector": {"rack": "b", "zone": "z"}},
    {"tolerations": (Toleration(key="mine", operator="Exists"),)},
    {"tolerations": (Toleration(key="node.kubernetes.io/unschedulable", operator="Exists"),)},
    {"tolerations": (Toleration(operator="Exists"),), "node_selector": {"rack": "a"}},
    affinity(term("rack", "a"), term("zone", "z", "y")),
    affinity(term("rack", "a"), term("rack", "b", operator="NotIn")),
    affinity(NodeSelectorTerm(match_fields=(NAMED,))),
    affinity(NodeSelectorTerm(match_fields=(replace(NAMED, operator="NotIn"),)), term("rack", operator="DoesNotExist")),
    {**affinity(term("rack", operator="Exists")), "node_selector": {"zone": "z"}},
    affinity(term("size", "1", operator="Gt")),
    affinity(term("size", "2", operator="Lt"), term("zone", "y")),
    {"node_name": "n0"},
    affinity(),
)
GPU = "example.com/gpu"
CLASSES = st.tuples(
    st.sampled_from((*SPECS, {"overhead": {GPU: 1}}, {"node_selector": {"zone": "z"}, "overhead": {GPU: 2}})),
    st.integers(0, 4),
    st.sampled_from(["1Gi", "8Gi", None]),
)
HINTS = st.tuples(st.lists(CLASSES, max_size=3), st.sampled_from(["", "", "", "n0", "gone"]), st.integers(0, 9))
NODES = st.lists(
    st.tuples(
        st.integers(-1, 4), st.sampled_from(["", "a", "b"]), st.booleans(), st.sampled_from(["", "", "taint", "cordon"])
    ),
    min_size=1,
    max_size=4,
)


def snapshot_of(nodes: list[tuple[int, str, bool, str]]) -> Snapshot:
    """Return nodes with so much CPU free, or overdrawn by one; some in a rack, in the zone, tainted, cordoned."""
    snapshot = new_snapshot()
    for number, (cpu, rack, zoned, fault) in enumerate(nodes):
        labels = ({"rack": rack} if rack else {}) | ({"zone": "z"} if zoned else {}) | {"size": str(number)}
        soft = Taint(key="soft", effect="PreferNoSchedule")
        taints = (Taint(key="mine", effect="NoSchedule"), soft) if fault == "taint" else ()
        more: ResourceList = {GPU: 1 + (rack == "a")} if zoned else {}
        found = node(f"n{number}", cpu=max(cpu, 0), memory="4Gi", labels=labels, taints=taints, more=more)
        snapshot.ledger.put_node(replace(found, spec=replace(found.spec, unschedulable=fault == "cordon")))
        if cpu < 0:
            snapshot.ledger.put_pod(pod(f"over{number}", cpu=1, node_name=f"n{number}"), f"n{number}")
    return snapshot


@settings(max_examples=200)
@given(
    nodes=NODES, hints=st.lists(HINTS, max_size=20), freed=st.sets(st.sampled_from(["n0", "n1", "n2", "n3", "gone"]))
)
def test_the_index_finds_the_hints_that_each_by_itself_would_match(
    nodes: list[tuple[int, str, bool, str]], hints: list[Any], freed: set[str]
) -> None:
    """Whatever was put, replaced and removed before."""
    snapshot, index, known = snapshot_of(nodes), HintIndex(), dict[int, RequeueHint]()
    for number, (classes, member_node, key) in enumerate(hints):
        pods = [pod(f"p{number}", cpu=cpu, memory=memory, **spec) for spec, cpu, memory in classes]
        member_nodes = frozenset({member_node} if member_node else ())
        known[key] = RequeueHint(tuple(map(snapshot.ledger.class_of, pods)), member_nodes)
        index.put(key, ANY_CHANGE if key == 9 else known[key])
        if number % 4 == 3:
            index.remove(key)
            del known[key]
    expected = {key for key, hint in known.items() if key == 9 or may_help(snapshot, hint, freed)}
    assert (set(index.helped_by(snapshot, freed)), set(index)) == (expected, set(known))
    assert index.for_any_change == [key for key in known if key == 9]
    for key in known:
        index.remove(key)
    assert (len(index), index._tables, index._by_resource, index._by_member_node) == (0, {}, {}, {})
    assert (index._tolerations._number_of, len(index._selections)) == ({}, 0)


def test_removing_an_unknown_key_changes_nothing() -> None:
    """The hints of other keys stay."""
    index = HintIndex()
    index.remove("unknown")
    index.put("a", ANY_CHANGE)
    assert index["a"] is ANY_CHANGE


def test_hints_for_the_same_nodes_share_a_table() -> None:
    """It grows, positions are used again, and a later hint may request another resource."""
    snapshot, index = snapshot_of([(4, "", False, "")]), HintIndex()
    for number in range(100):
        pod_class = snapshot.ledger.class_of(pod(f"p{number}", cpu=f"{3951 + number}m"))
        index.put(number, RequeueHint((pod_class,)))
    index.remove(7)
    index.put("other", RequeueHint((snapshot.ledger.class_of(pod("other", cpu=1, memory="9Gi")),)))
    assert len(index._tables) == 1
    assert sorted(map(str, index.helped_by(snapshot, ["n0"]))) == sorted(
        str(number) for number in range(50) if number != 7
    )


def test_a_node_that_offers_a_missing_resource_helps() -> None:
    """The pods that request it are found once a node has enough of everything that they request."""
    snapshot, index = snapshot_of([(4, "", False, "")]), HintIndex()
    requests: dict[str, ResourceList] = {"gpu": {GPU: 2}, "both": {GPU: 1, "example.com/nic": 1}, "none": {}}
    for name, amounts in requests.items():
        index.put(name, RequeueHint((snapshot.ledger.class_of(pod(name, cpu=1, overhead=amounts)),)))
    assert index.helped_by(snapshot, ["n0"]) == ["none"]
    snapshot.ledger.put_node(node("n1", cpu=4, more={GPU: 1}))
    assert index.helped_by(snapshot, ["n1"]) == ["none"]
    snapshot.ledger.put_node(node("n1", cpu=4, more={GPU: 2}))
    assert sorted(map(str, index.helped_by(snapshot, ["n1"]))) == ["gpu", "none"]
    snapshot.ledger.put_node(node("n1", cpu=4, more={GPU: 2, "example.com/nic": 1}))
    assert sorted(map(str, index.helped_by(snapshot, ["n1"]))) == ["both", "gpu", "none"]


def test_a_pod_with_invented_resources_takes_room_of_its_own_hint_alone() -> None:
    """The other hints have no column for any of its thousand names, and a node is not compared with them."""
    snapshot, index = snapshot_of([(4, "", False, "")]), HintIndex()
    invented: ResourceList = {f"example.com/r{number}": 1 for number in range(1000)}
    index.put("odd", RequeueHint((snapshot.ledger.class_of(pod("odd", overhead=invented)),)))
    index.put("plain", RequeueHint((snapshot.ledger.class_of(pod("plain", cpu=1)),)))
    rows = np.array([0], dtype=np.intp)
    (table,) = index._tables_for(snapshot, rows)
    assert set(table.requests) == {"cpu", "pods"}


def test_hints_with_distinct_tolerations_share_a_table() -> None:
    """Ten thousand of them cost one comparison per node, and their tolerations are compared once with each taint."""
    snapshot = new_snapshot()
    snapshot.ledger.put_node(node("clean", cpu=1))
    snapshot.ledger.put_node(node("tainted", cpu=1, taints=(Taint(key="k7", effect="NoSchedule"),)))
    index = HintIndex()
    for number in range(500):
        tolerations = (Toleration(key=f"k{number}", operator="Exists"),)
        found = snapshot.ledger.class_of(pod(f"p{number}", cpu=1, tolerations=tolerations))
        index.put(number, RequeueHint((found,)))
    assert len(index._tables) == 1
    assert len(index.helped_by(snapshot, ["clean"])) == 500
    assert index.helped_by(snapshot, ["tainted"]) == [7]
    calls = count_calls(lambda: index.helped_by(snapshot, ["clean", "tainted"]))
    assert calls < 3 * 500


def test_hints_with_distinct_affinity_share_a_table() -> None:
    """A node is compared with all of them at once, whatever the operators are."""
    operators = ("NotIn", "Gt", "DoesNotExist", "Exists")

    def calls(hints: int) -> int:
        snapshot, index = new_snapshot(), HintIndex()
        snapshot.ledger.put_node(node("n0", cpu=1, labels={"size": "7", "a": "b"}))
        for number in range(hints):
            operator = operators[number % 4]
            values = (str(number),) if operator in {"NotIn", "Gt"} else ()
            required = affinity(term("size" if operator == "Gt" else f"a{number}", *values, operator=operator))
            found = snapshot.ledger.class_of(pod(f"p{number}", cpu=2, **required))
            index.put(number, RequeueHint((found,)))
        assert len(index._tables) == 1
        assert index.helped_by(snapshot, ["n0"]) == []
        return count_calls(lambda: index.helped_by(snapshot, ["n0"]))

    assert calls(400) == calls(100)
