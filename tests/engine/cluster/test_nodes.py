"""The nodes as columns."""

from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace

from cpg_api.core.node import ContainerImage, Node, Taint
from cpg_api.selectors import Expression
from cpg_engine.cluster.nodes import ABSENT, NodeColumns
from cpg_engine.testing.builders import node

ALL = np.arange(3)


@pytest.fixture
def cluster() -> NodeColumns:
    """Three nodes: a in the north, b in the south, c without a label."""
    columns = NodeColumns()
    for name, labels in (("b", {"zone": "south", "n": "7"}), ("a", {"zone": "north", "n": "x"}), ("c", {})):
        columns.put(node(name, labels=labels))
    return columns


def with_images(found: Node, *names: str) -> Node:
    """Return the node with these images, of one byte each."""
    images = tuple(ContainerImage(names=(name,), size_bytes=1) for name in names)
    return replace(found, status=replace(found.status, images=images))


def test_rows_follow_arrival_and_ranks_follow_names(cluster: NodeColumns) -> None:
    """The row of a node depends on the order of arrival; its rank does not."""
    assert [cluster.row_of[name] for name in ("b", "a", "c")] == [0, 1, 2]
    assert cluster.ranks[ALL].tolist() == [1, 0, 2]
    assert [cluster.name(row) for row in range(4)] == ["b", "a", "c", ""]
    assert cluster.everything().tolist() == [0, 1, 2]
    assert cluster.size == len(cluster.alive) == 64


def test_ranks_change_with_the_nodes(cluster: NodeColumns) -> None:
    """A node that comes or goes moves the nodes behind it."""
    assert cluster.ranks[2] == 2
    cluster.remove("a")
    assert cluster.ranks[[0, 2]].tolist() == [0, 1]
    cluster.put(node("aa"))
    assert cluster.ranks[ALL].tolist() == [1, 0, 2]


def test_rows_are_reused(cluster: NodeColumns) -> None:
    """The row of a removed node belongs to the next node, and nothing of the old one is left."""
    zone = cluster.label("zone")
    old = with_images(node("a", labels={"zone": "north"}, taints=[Taint("t")], unschedulable=True), "i")
    cluster.put(old)
    assert cluster.remove("a") == 1
    assert (cluster.alive[1], zone.codes[1], cluster.image_sizes("i")[1]) == (False, ABSENT, 0)
    assert cluster.name(1) == ""
    assert cluster.put(node("d")) == 1
    assert (bool(cluster.unschedulable[1]), cluster.taint_sets[cluster.taint_codes[1]]) == (False, ())
    assert (zone.codes[1], cluster.image_sizes("i")[1]) == (ABSENT, 0)


def test_removing_an_unknown_node_changes_nothing(cluster: NodeColumns) -> None:
    """It has no row."""
    before = cluster.labels_version
    assert cluster.remove("unknown") is None
    assert before == cluster.labels_version


def test_columns_grow_together() -> None:
    """When the rows run out, all columns get longer, those of labels and images included."""
    cluster = NodeColumns()
    cluster.put(with_images(node("n00", labels={"zone": "z"}), "i"))
    zone, nowhere = cluster.label("zone"), cluster.label("nowhere")
    for number in range(1, 65):
        cluster.put(with_images(node(f"n{number:02}", labels={"zone": "z"}), "i"))
    assert 128 == len(nowhere.codes) == -nowhere.codes.sum()
    assert 128 == cluster.size == len(zone.codes) == len(cluster.image_sizes("i")) == len(cluster.taint_codes)
    assert 65 == np.count_nonzero(zone.codes != ABSENT) == np.count_nonzero(cluster.image_sizes("i"))
    assert list(range(65)) == cluster.everything().tolist() == cluster.ranks[:65].tolist()


def test_a_column_is_the_same_whenever_it_is_made(cluster: NodeColumns) -> None:
    """A label column made before most nodes come equals one made afterwards."""
    early = NodeColumns()
    columns = []
    for name in ("b", "a", "c"):
        found = cluster.nodes[cluster.row_of[name]]
        assert found is not None
        early.put(found)
        columns.append(early.label("zone"))
    late, column = cluster.label("zone"), columns[0]
    assert late.codes.tolist() == column.codes.tolist()
    assert late.values == column.values == ["south", "north"]
    assert early.label("zone") is column


def test_a_changed_label_changes_its_column(cluster: NodeColumns) -> None:
    """A relabelled node has its new value; without the label it has none."""
    zone = cluster.label("zone")
    cluster.put(node("a", labels={"zone": "south"}))
    cluster.put(node("b"))
    assert [ABSENT, zone.code_of("south"), ABSENT] == zone.codes[ALL].tolist()
    assert zone.code_of("west") is None


def test_labels_that_no_node_has_share_one_column(cluster: NodeColumns) -> None:
    """Asking for ten thousand of them takes no memory."""
    columns = {id(cluster.label(f"key{number}")) for number in range(10_000)}
    assert (len(columns), list(cluster._labels)) == (1, [])
    assert cluster.label("key1").codes.tolist() == [ABSENT] * 64
    assert cluster.label("key1").values == []


def test_a_label_has_a_column_for_as_long_as_a_node_has_the_label(cluster: NodeColumns) -> None:
    """The column comes with the first node that has the label and goes with the last; then it may come again."""
    assert cluster.label_keys == {"zone": 2, "n": 2}
    cluster.put(node("c", labels={"new": "1"}))
    assert cluster.label("new").codes[ALL].tolist() == [ABSENT, ABSENT, 0]
    cluster.put(node("d", labels={"new": "2"}))
    cluster.put(node("c"))
    assert cluster.label("new").codes[:4].tolist() == [ABSENT, ABSENT, ABSENT, 1]
    cluster.remove("d")
    assert (cluster.label_keys, list(cluster._labels)) == ({"zone": 2, "n": 2}, [])
    assert cluster.label("new").codes[:4].tolist() == [ABSENT] * 4
    cluster.put(node("a", labels={"new": "3"}))
    assert (cluster.label("new").values, cluster.label_keys) == (["3"], {"zone": 1, "n": 1, "new": 1})


@pytest.mark.parametrize(
    ("expression", "rows"),
    [
        (Expression("zone", "In", frozenset({"south", "west"})), [0]),
        (Expression("zone", "In", frozenset({"west"})), []),
        (Expression("zone", "NotIn", frozenset({"south"})), [1, 2]),
        (Expression("zone", "NotIn", frozenset({"west"})), [0, 1, 2]),
        (Expression("zone", "Exists"), [0, 1]),
        (Expression("zone", "DoesNotExist"), [2]),
        (Expression("n", "Gt", bound=6), [0]),
        (Expression("n", "Gt", bound=7), []),
        (Expression("n", "Lt", bound=8), [0]),
        (Expression("nowhere", "DoesNotExist"), [0, 1, 2]),
        (Expression("nowhere", "Lt", bound=8), []),
    ],
)
def test_expressions_match_as_they_do_node_by_node(
    cluster: NodeColumns, expression: Expression, rows: list[int]
) -> None:
    """A column evaluates an expression like each node's labels do, absent labels included."""
    assert rows == np.flatnonzero(cluster.label(expression.key).holds(expression, ALL)).tolist()
    labels = [found.metadata.labels for found in cluster.nodes[:3] if found is not None]
    assert rows == [row for row in range(3) if expression.matches(labels[row])]


def test_each_set_of_taints_is_evaluated_once(cluster: NodeColumns) -> None:
    """Nodes with the same taints share an answer; sets that no node has any more are not evaluated."""
    for name in ("a", "b", "c"):
        cluster.put(node(name, taints=[Taint("x"), Taint("y")]))
    asked: list[tuple[Taint, ...]] = []

    def ask(taints: tuple[Taint, ...]) -> int:
        asked.append(taints)
        return len(taints)

    assert cluster.by_taints(np.array([2, 0]), ask).tolist() == [2, 2]
    assert [(Taint("x"), Taint("y"))] == asked
    assert cluster.by_taints(np.array([], dtype=np.intp), ask).tolist() == []


def test_labels_version_changes_with_labels_alone(cluster: NodeColumns) -> None:
    """It changes when a node comes, goes or is relabelled, and with nothing else."""
    versions = [cluster.labels_version]
    changes: tuple[Callable[[], object], ...] = (
        lambda: cluster.put(node("a", labels={"zone": "north", "n": "x"}, cpu=9, taints=[Taint("t")])),
        lambda: cluster.put(node("a", labels={"zone": "north"})),
        lambda: cluster.put(node("d")),
        lambda: cluster.remove("d"),
    )
    for change in changes:
        change()
        versions.append(cluster.labels_version)
    assert (np.array(versions[1:]) - versions[0]).tolist() == [0, 1, 2, 3]


def test_a_heartbeat_changes_nothing(cluster: NodeColumns) -> None:
    """A node that differs in nothing that matters to scheduling replaces the old object, so that it can be freed."""
    old = node("a", labels={"zone": "north", "n": "x"})
    beat = replace(old, metadata=replace(old.metadata, resource_version="2"))
    assert cluster.is_unchanged(beat)
    assert beat is cluster.nodes[1]


@pytest.mark.parametrize(
    "changed",
    [
        node("a", labels={"zone": "west", "n": "x"}),
        node("a", labels={"zone": "north", "n": "x"}, cpu=5),
        node("a", labels={"zone": "north", "n": "x"}, unschedulable=True),
        with_images(node("a", labels={"zone": "north", "n": "x"}), "i"),
        node("stranger"),
    ],
)
def test_labels_spec_amounts_and_images_are_changes(cluster: NodeColumns, changed: Node) -> None:
    """Everything that scheduling reads is a change, and so is a new node."""
    assert not cluster.is_unchanged(changed)
