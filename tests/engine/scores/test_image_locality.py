"""Images that a node has already."""

import numpy as np
import pytest
from msgspec.structs import replace

from cpg_api.core.node import ContainerImage, Node
from cpg_api.core.pod import Container
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.scores import image_locality
from cpg_engine.testing.builders import node, pod

MB = 2**20


def having(name: str, **sizes: int) -> Node:
    """Return a node with these images, in their latest version and of so many MB."""
    found = node(name)
    listed = tuple(ContainerImage((f"{image}:latest",), size * MB) for image, size in sizes.items())
    return replace(found, status=replace(found.status, images=listed))


@pytest.mark.parametrize(
    ("nodes", "wanted", "scores"),
    [
        ([{"a": 500}, {}], ["a"], [23, 0]),  # on half of the nodes: 250 MB, (250-23) / (1000-23)
        ([{"a": 500}, {"a": 500}], ["a"], [48, 48]),  # (500-23) / (1000-23)
        ([{"a": 40, "b": 300}, {"a": 40, "b": 300}], ["a", "b"], [16, 16]),  # (340-23) / (2000-23)
        ([{"a": 40, "b": 300}, {"a": 40, "b": 300}], ["b", "b"], [29, 29]),  # (600-23) / (2000-23)
        ([{"a": 4000}, {"a": 4000}], ["a"], [100, 100]),  # no more than all of it
        ([{"a": 10}, {"a": 10}], ["a"], [0, 0]),  # too small to matter
        ([{"a": 500}, {"a": 100}], ["a"], [48, 7]),  # each with its own size
        ([{"a": 500}, {}], ["c"], [0, 0]),
        ([{"a": 500}, {}], [], [0, 0]),
    ],
)
def test_bytes_that_need_not_be_pulled(nodes: list[dict[str, int]], wanted: list[str], scores: list[int]) -> None:
    """Sizes scaled by the share of nodes that have the image, from 23 MB to 1000 MB per container."""
    ledger = Ledger()
    for number, sizes in enumerate(nodes):
        ledger.put_node(having(f"n{number}", **sizes))
    containers = tuple(Container(name=str(number), image=image) for number, image in enumerate(wanted))
    pod_class = ledger.class_of(pod("p", containers=containers))
    assert scores == image_locality.raw(pod_class, ledger.cluster, np.arange(len(nodes))).tolist()


def test_scores_have_the_order_of_the_rows() -> None:
    """The share of nodes is that of all nodes."""
    ledger = Ledger()
    for number in range(2):
        ledger.put_node(having(f"n{number}", **({"a": 500} if number else {})))
    pod_class = ledger.class_of(pod("p", containers=(Container(image="a"),)))
    assert image_locality.raw(pod_class, ledger.cluster, np.array([1, 0])).tolist() == [23, 0]
    assert image_locality.raw(pod_class, ledger.cluster, np.array([1])).tolist() == [23]


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("busybox", "busybox:latest"),
        ("busybox:1", "busybox:1"),
        ("host:5000/busybox", "host:5000/busybox:latest"),
        ("host:5000/busybox:1", "host:5000/busybox:1"),
        ("busybox@sha256:0", "busybox@sha256:0"),
        ("", ":latest"),
    ],
)
def test_no_tag_means_latest(image: str, name: str) -> None:
    """The port of a registry is no tag."""
    assert name == image_locality.normalized_image_name(image)
