"""The nodes from which volumes can be reached."""

import numpy as np
import pytest

from cpg_api.core.affinity import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from cpg_api.core.volumes import PersistentVolume, PersistentVolumeSpec, StorageClass, VolumeNodeAffinity
from cpg_api.meta import ObjectMeta
from cpg_engine.cluster import volume_reach
from cpg_engine.cluster.axes import Rows
from cpg_engine.cluster.nodes import NodeColumns
from cpg_engine.cluster.volume_reach import VolumeReach
from cpg_engine.cluster.volumes import StorageClassInfo, VolumeInfo
from cpg_engine.testing import storage_builders
from cpg_engine.testing.builders import node
from cpg_engine.testing.storage_builders import DRIVER

ZONE, OLD_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"


@pytest.fixture
def cluster() -> NodeColumns:
    """Return four nodes: two in zone a, one in zone b, one without a zone."""
    columns = NodeColumns()
    columns.put(node("a1", labels={"zone": "a", "size": "1"}))
    columns.put(node("a2", labels={"zone": "a", "size": "2"}))
    columns.put(node("b1", labels={"zone": "b", "size": "3"}))
    columns.put(node("x"))
    return columns


def names(cluster: NodeColumns, rows: Rows) -> str:
    """Return the names of nodes."""
    return " ".join(sorted(cluster.name(row) for row in rows.tolist()))


def reaching(*terms: NodeSelectorTerm) -> VolumeInfo:
    """Return a volume with these terms of node affinity."""
    spec = PersistentVolumeSpec(node_affinity=VolumeNodeAffinity(required=NodeSelector(node_selector_terms=terms)))
    return VolumeInfo.compile(PersistentVolume(metadata=ObjectMeta(name="v"), spec=spec))


def where(*expressions: tuple[str, str, tuple[str, ...]]) -> NodeSelectorTerm:
    """Return a term over labels."""
    return NodeSelectorTerm(
        match_expressions=tuple(NodeSelectorRequirement(key, operator, values) for key, operator, values in expressions)
    )


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        (VolumeInfo.compile(storage_builders.volume("v")), "a1 a2 b1 x"),
        (VolumeInfo.compile(storage_builders.volume("v", at={"zone": ["a"]})), "a1 a2"),
        (VolumeInfo.compile(storage_builders.volume("v", at={"zone": ["b", "a", "nowhere"]})), "a1 a2 b1"),
        (VolumeInfo.compile(storage_builders.volume("v", at={"zone": ["nowhere"]})), ""),
        (VolumeInfo.compile(storage_builders.volume("v", at={"other": ["a"]})), ""),
        (VolumeInfo.compile(storage_builders.volume("v", at={})), ""),
        (reaching(), ""),
        (reaching(where(("zone", "In", ("a",)), ("size", "Gt", ("1",)))), "a2"),
        (reaching(where(("zone", "DoesNotExist", ())), where(("zone", "In", ("b",)))), "b1 x"),
        (reaching(where(("zone", "NotIn", ("a",)))), "b1 x"),
        (reaching(where(("zone", "Near", ("a",))), where(("zone", "In", ("b",)))), "b1"),
    ],
)
def test_the_nodes_that_reach_a_volume(cluster: NodeColumns, volume: VolumeInfo, expected: str) -> None:
    """They are those that one of the valid terms selects; without affinity, all."""
    reach = VolumeReach(cluster)
    assert names(cluster, reach.rows(volume)) == expected
    assert reach.rows(volume) is reach.rows(volume)


def test_fields_of_a_volumes_terms_are_ignored(cluster: NodeColumns) -> None:
    """kube-scheduler evaluates them for a node without a name, and then they hold."""
    field = NodeSelectorRequirement("metadata.name", "In", ("unknown",))
    term = NodeSelectorTerm(match_expressions=where(("zone", "In", ("a",))).match_expressions, match_fields=(field,))
    assert names(cluster, VolumeReach(cluster).rows(reaching(term))) == "a1 a2"


def test_a_relabelled_node_is_noticed(cluster: NodeColumns) -> None:
    """Rows are kept until a node comes, goes or changes its labels."""
    reach = VolumeReach(cluster)
    volume = VolumeInfo.compile(storage_builders.volume("v", at={"zone": ["a"]}))
    assert names(cluster, reach.rows(volume)) == "a1 a2"
    cluster.put(node("a1", labels={"zone": "b"}))
    assert names(cluster, reach.rows(volume)) == "a2"
    cluster.put(node("a3", labels={"zone": "a"}))
    cluster.remove("a2")
    assert names(cluster, reach.rows(volume)) == "a3"


def test_a_heartbeat_keeps_the_rows(cluster: NodeColumns) -> None:
    """It does not evaluate every volume again."""
    before = cluster.labels_version
    cluster.put(node("a1", cpu=8, labels={"zone": "a", "size": "1"}))
    assert cluster.labels_version == before


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (storage_builders.storage_class(), ""),
        (storage_builders.storage_class(provisioner=""), ""),
        (storage_builders.storage_class(provisioner=DRIVER), "a1 a2 b1 x"),
        (storage_builders.storage_class(provisioner=DRIVER, at=[]), "a1 a2 b1 x"),
        (storage_builders.storage_class(provisioner=DRIVER, at=[{"zone": ["a"]}]), "a1 a2"),
        (storage_builders.storage_class(provisioner=DRIVER, at=[{"zone": ["a"], "size": ["2"]}]), "a2"),
        (storage_builders.storage_class(provisioner=DRIVER, at=[{"zone": ["b"]}, {"size": ["1"]}]), "a1 b1"),
        (storage_builders.storage_class(provisioner=DRIVER, at=[{}]), ""),
        (storage_builders.storage_class(provisioner=DRIVER, at=[{"zone": []}]), ""),
    ],
)
def test_where_volumes_are_provisioned(cluster: NodeColumns, found: StorageClass, expected: str) -> None:
    """One of the class's topologies has to match; an empty one never does."""
    reach, compiled = VolumeReach(cluster), StorageClassInfo.compile(found)
    assert names(cluster, reach.provisionable_rows(compiled)) == expected
    assert names(cluster, reach.provisionable_rows(compiled)) == expected


def test_a_missing_class_provisions_nothing(cluster: NodeColumns) -> None:
    """A storage class that is gone provisions no volumes."""
    assert names(cluster, VolumeReach(cluster).provisionable_rows(None)) == ""


@pytest.mark.parametrize(
    ("name", "keys", "expected"),
    [("a1", (), "a1 a2 b1 x"), ("a1", ("zone",), "a1 a2"), ("a1", ("zone", "size"), "a1"), ("x", ("zone",), "x")],
)
def test_nodes_of_the_same_driver_topology(
    cluster: NodeColumns, name: str, keys: tuple[str, ...], expected: str
) -> None:
    """They have the same values of all its labels; a node without one of them is like no other."""
    assert names(cluster, VolumeReach(cluster).alike(cluster.row_of[name], keys)) == expected


@pytest.mark.parametrize(
    ("labels", "here", "expected"),
    [
        ({ZONE: "a"}, {ZONE: "a"}, True),
        ({ZONE: "a"}, {ZONE: "b"}, False),
        ({ZONE: "a__b"}, {ZONE: "b"}, True),
        ({ZONE: "a"}, {}, True),
        ({ZONE: "a"}, {"topology.kubernetes.io/region": "r"}, False),
        ({OLD_ZONE: "a"}, {ZONE: "a"}, True),
        ({OLD_ZONE: "a"}, {ZONE: "b"}, False),
        ({OLD_ZONE: "a"}, {OLD_ZONE: "a", ZONE: "b"}, True),
        ({ZONE: "a"}, {OLD_ZONE: "a"}, False),
        ({ZONE: "a", "topology.kubernetes.io/region": "r"}, {ZONE: "a"}, False),
    ],
)
def test_the_zones_of_a_volume_select_nodes(labels: dict[str, str], here: dict[str, str], *, expected: bool) -> None:
    """An old label is met by a node's new one, too; a node without zone and region labels always passes."""
    columns = NodeColumns()
    row = columns.put(node("n", labels=here))
    volume = VolumeInfo.compile(storage_builders.volume("v", labels=labels))
    assert VolumeReach(columns).in_zones(volume, np.array([row])).tolist() == [expected]


def test_cached_affinities_are_bounded(cluster: NodeColumns, monkeypatch: pytest.MonkeyPatch) -> None:
    """Volumes may come and go while no node changes."""
    monkeypatch.setattr(volume_reach, "MAX_CACHED_AFFINITIES", 5)
    reach = VolumeReach(cluster)
    for number in range(20):
        assert not len(reach.rows(VolumeInfo.compile(storage_builders.volume("v", at={"zone": [f"z{number}"]}))))
        assert len(reach._rows) <= 5
