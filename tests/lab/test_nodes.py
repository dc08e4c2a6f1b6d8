"""Descriptions of nodes: their meaning, and their errors."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpg_lab.errors import DescriptionError
from cpg_lab.nodes import LEVELS, MAX_NODES, NodePool, NodeTaint, check_names, manifest

counts = st.lists(st.integers(1, 6), min_size=1, max_size=3)


def describe(pool: NodePool) -> str:
    """Return the description of a pool."""
    levels = LEVELS[-len(pool.counts) :]
    parts = [" x ".join(f"{count} {level}s" for count, level in zip(pool.counts, levels, strict=True))]
    parts += [f"{key}={value}" for key, value in pool.capacity]
    parts += [f"label {key}={value}" for key, value in pool.labels]
    parts += [f"taint {taint.key}={taint.value}:{taint.effect}" for taint in pool.taints]
    return ", ".join([*parts, f"name={pool.prefix}"])


def test_the_description_of_the_readme() -> None:
    """Blocks, racks and nodes, with the properties of each node."""
    pool = NodePool.parse("2 blocks x 2 racks x 4 nodes, cpu=8, memory=16Gi, pods=110")
    assert pool.counts == (2, 2, 4)
    assert dict(pool.capacity) == {"cpu": "8", "memory": "16Gi", "pods": "110"}
    assert len(pool) == len(pool.names()) == 16
    assert pool.names()[:2] == ["node-1-1-1", "node-1-1-2"]
    assert pool.names()[-1] == "node-2-2-4"


def test_all_parts_of_a_description() -> None:
    """Other resources, labels, taints with and without a value, and another name."""
    pool = NodePool.parse(
        "1 rack x 2 nodes, nvidia.com/gpu=8, label zone=a, label a.b/c=, "
        "taint dedicated=ml:NoSchedule, taint x:NoExecute, name=gpu"
    )
    assert dict(pool.capacity)["nvidia.com/gpu"] == "8"
    assert dict(pool.capacity)["cpu"] == "4"
    assert pool.labels == (("zone", "a"), ("a.b/c", ""))
    assert pool.taints == (NodeTaint("dedicated", "ml", "NoSchedule"), NodeTaint("x", "", "NoExecute"))
    assert pool.names() == ["gpu-1-1", "gpu-1-2"]


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("1 node", {"kubernetes.io/hostname": "node-1"}),
        ("1 rack x 1 node", {"kubernetes.io/hostname": "node-1-1", "topology.cpg.dev/rack": "rack-1"}),
        (
            "1 block x 1 rack x 1 node",
            {
                "kubernetes.io/hostname": "node-1-1-1",
                "topology.cpg.dev/block": "block-1",
                "topology.cpg.dev/rack": "rack-1-1",
            },
        ),
    ],
)
def test_labels_name_the_position(text: str, labels: dict[str, str]) -> None:
    """A node has a label for each level of its pool, and no other."""
    pool = NodePool.parse(text)
    assert pool.labels_at(next(pool.positions())) == labels


def test_labels_of_the_third_node_of_the_second_rack() -> None:
    """The name of a rack contains its block."""
    labels = NodePool.parse("1 block x 2 racks x 3 nodes").labels_at((1, 2, 3))
    assert labels["topology.cpg.dev/rack"] == "rack-1-2"
    assert labels["kubernetes.io/hostname"] == "node-1-2-3"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", '"" is not a count'),
        ("4", '"4" is not a count'),
        ("2 rows x 4 nodes", '"2 rows" is not a count like'),
        ("2 racks", "not in the order blocks x racks x nodes"),
        ("2 nodes x 2 racks", "not in the order"),
        ("2 blocks x 4 nodes", "not in the order"),
        ("0 nodes", "at least one of each level"),
        ("1000 blocks x 1000 racks x 1000 nodes", "more than the 100000"),
        ("2 nodes, cpu", '"cpu" is not KEY=VALUE'),
        ("2 nodes, cpu=four", '"four" cannot be a quantity'),
        ("2 nodes, cpu=-1", '"-1" cannot be a quantity'),
        ("2 nodes, =4", '"" cannot be the name of a resource'),
        ("2 nodes,", '"" is not KEY=VALUE'),
        ("2 nodes, name=Big", '"Big" cannot be the beginning'),
        ("2 nodes, label a", 'the label "a" is not KEY=VALUE'),
        ("2 nodes, label a=b c", '"b c" cannot be the value of a label'),
        ("2 nodes, label /a=b", '"/a" cannot be the key of a label'),
        ("2 nodes, taint a=b", 'the taint "a=b" is not KEY=VALUE:EFFECT'),
        ("2 nodes, taint a=b:Never", "with one of NoSchedule, PreferNoSchedule, NoExecute"),
        ("2 nodes, taint a b:NoSchedule", '"a b" cannot be the key of a taint'),
    ],
)
def test_an_invalid_description_is_explained(text: str, complaint: str) -> None:
    """The error names the invalid part, and a valid one."""
    with pytest.raises(DescriptionError, match=complaint.replace("[", r"\[")):
        NodePool.parse(text)


def test_levels_are_three_at_most() -> None:
    """Also for a pool made in code."""
    with pytest.raises(DescriptionError, match="at most 3 levels, not 4"):
        NodePool(counts=(1, 1, 1, 1))
    with pytest.raises(DescriptionError, match="at most"):
        NodePool(counts=())
    assert MAX_NODES >= 5000


@given(counts)
def test_names_and_positions_are_unique(numbers: list[int]) -> None:
    """And there are as many nodes as described."""
    pool = NodePool(counts=tuple(numbers))
    assert len(set(pool.names())) == len(set(pool.positions())) == len(pool)


@given(
    counts,
    st.dictionaries(st.sampled_from(["cpu", "memory", "pods", "x.dev/y"]), st.sampled_from(["1", "500m", "2Gi"])),
    st.lists(st.sampled_from([("a", "b"), ("x.y/z", "1")]), max_size=2),
    st.lists(st.builds(NodeTaint, st.just("k"), st.sampled_from(["", "v"]), st.just("NoExecute")), max_size=2),
)
def test_descriptions_round_trip(
    numbers: list[int], capacity: dict[str, str], labels: list[tuple[str, str]], taints: list[NodeTaint]
) -> None:
    """Any pool can be described, and parsing its description returns an equal pool."""
    pool = NodePool(
        counts=tuple(numbers),
        capacity=tuple(({"cpu": "4", "memory": "16Gi", "pods": "110"} | capacity).items()),
        labels=tuple(labels),
        taints=tuple(taints),
    )
    assert NodePool.parse(describe(pool)) == pool


@given(st.text(max_size=40))
def test_any_text_is_a_pool_or_an_error_of_ours(text: str) -> None:
    """Any input gives a pool or an error with a reason."""
    with contextlib.suppress(DescriptionError):
        NodePool.parse(text)


def test_pools_must_not_share_names() -> None:
    """Two pools of the same name are rejected, with the name of a node; another name solves it."""
    pool = NodePool.parse("2 nodes")
    with pytest.raises(DescriptionError, match="two nodes would be called node-1"):
        check_names([pool, pool])
    check_names([pool, NodePool.parse("2 nodes, name=gpu")])


def test_the_object_is_ready_from_the_start() -> None:
    """The Node has its capacity, is ready, has kwok's annotation and its taints."""
    pool = NodePool.parse("1 node, cpu=2, taint a=b:NoSchedule")
    node = manifest(pool, (1,), now="2026-11-18T12:00:00Z")
    assert node["metadata"] == {
        "name": "node-1",
        "labels": {"kubernetes.io/hostname": "node-1"},
        "annotations": {"kwok.x-k8s.io/node": "fake"},
    }
    assert node["spec"] == {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}
    status = node["status"]
    assert isinstance(status, dict)
    assert status["allocatable"] == status["capacity"] == {"cpu": "2", "memory": "16Gi", "pods": "110"}
    assert [(condition["type"], condition["status"]) for condition in status["conditions"]] == [("Ready", "True")]
