"""Whom news help, by an index and one by one."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cpg_api.core.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from cpg_api.core.node import Taint
from cpg_api.core.pod import Toleration
from cpg_engine.snapshot import Snapshot, new_snapshot
from cpg_engine.testing.builders import node, pod
from cpg_scheduler.queueing.hint_index import HintIndex, fulfilled
from cpg_scheduler.queueing.hints import ANYTHING, RequeueHint


def affinity(*terms: NodeSelectorTerm) -> dict[str, Any]:
    """Return what a pod says that wants one of these terms."""
    selector = NodeSelector(node_selector_terms=terms)
    return {
        "affinity": Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector))
    }


def wants(key: str, *values: str, operator: str = "In") -> NodeSelectorTerm:
    """Return a term over a label."""
    return NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key=key, operator=operator, values=values),))


NAMED = NodeSelectorRequirement(key="metadata.name", operator="In", values=("n1",))
LOOKS: tuple[dict[str, Any], ...] = (
    {},
    {"node_selector": {"rack": "a"}},
    {"node_selector": {"rack": "b", "zone": "z"}},
    {"tolerations": (Toleration(key="mine", operator="Exists"),)},
    affinity(wants("rack", "a"), wants("zone", "z", "y")),
    affinity(wants("rack", "a"), wants("rack", "b", operator="NotIn")),
    affinity(NodeSelectorTerm(match_fields=(NAMED,))),
    affinity(),
)
ROOM = st.tuples(st.sampled_from(LOOKS), st.integers(0, 4), st.sampled_from(["1Gi", "8Gi", None]))
HOPE = st.tuples(st.lists(ROOM, max_size=3), st.sampled_from(["", "", "", "n0", "gone"]), st.integers(0, 9))
NODES = st.lists(
    st.tuples(st.integers(-1, 4), st.sampled_from(["", "a", "b"]), st.booleans(), st.booleans()), min_size=1, max_size=4
)


def world_of(nodes: list[tuple[int, str, bool, bool]]) -> Snapshot:
    """Return nodes with so much CPU free, or overdrawn by one; some in a rack, in the zone, tainted."""
    snapshot = new_snapshot()
    for number, (cpu, rack, zoned, tainted) in enumerate(nodes):
        labels = ({"rack": rack} if rack else {}) | ({"zone": "z"} if zoned else {})
        taints = (Taint(key="mine", effect="NoSchedule"),) if tainted else ()
        snapshot.ledger.put_node(node(f"n{number}", cpu=max(cpu, 0), memory="4Gi", labels=labels, taints=taints))
        if cpu < 0:
            snapshot.ledger.put_pod(pod(f"over{number}", cpu=1, node_name=f"n{number}"), f"n{number}")
    return snapshot


@settings(max_examples=200, deadline=None)
@given(nodes=NODES, hopes=st.lists(HOPE, max_size=20), eased=st.sets(st.sampled_from(["n0", "n1", "n2", "n3", "gone"])))
def test_the_index_finds_just_those_who_are_helped_when_asked_one_by_one(
    nodes: list[tuple[int, str, bool, bool]], hopes: list[Any], eased: set[str]
) -> None:
    """Whoever came before, has another hope by now, or has left."""
    snapshot, index, known = world_of(nodes), HintIndex(), dict[int, RequeueHint]()
    for number, (rooms, home, key) in enumerate(hopes):
        pods = [pod(f"p{number}", cpu=cpu, memory=memory, **look) for look, cpu, memory in rooms]
        known[key] = RequeueHint(tuple(map(snapshot.ledger.class_of, pods)), frozenset({home} if home else ()))
        index.put(key, ANYTHING if key == 9 else known[key])
        if number % 4 == 3:
            index.drop(key)
            del known[key]
    expected = {key for key, hope in known.items() if key == 9 or fulfilled(snapshot, hope, eased)}
    assert (set(index.helped(snapshot, eased)), set(index)) == (expected, set(known))
    assert index.for_anything == [key for key in known if key == 9]
    for key in known:
        index.drop(key)
    assert (len(index), index._kinds, index._by_pair, index._homes) == (0, {}, {}, {})


def test_who_is_not_there_cannot_leave() -> None:
    """It is no mistake to say so."""
    index = HintIndex()
    index.drop("nobody")
    index.put("a", ANYTHING)
    assert index["a"] is ANYTHING


def test_many_of_a_kind_are_asked_at_once() -> None:
    """The table grows, places are used again, and another resource may be asked for later."""
    snapshot, index = world_of([(4, "", False, False)]), HintIndex()
    for number in range(100):
        made = snapshot.ledger.class_of(pod(f"p{number}", cpu=f"{3951 + number}m"))
        index.put(number, RequeueHint((made,)))
    index.drop(7)
    made = snapshot.ledger.class_of(pod("other", cpu=1, memory="9Gi"))
    index.put("other", RequeueHint((made,)))
    assert sorted(map(str, index.helped(snapshot, ["n0"]))) == sorted(
        str(number) for number in range(50) if number != 7
    )
