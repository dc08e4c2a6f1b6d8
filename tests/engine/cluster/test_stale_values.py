"""What nodes and pods have named is dropped some time after the last of them has gone."""

import numpy as np
import pytest
from msgspec.structs import replace

from cpg_api.core.affinity import TopologySpreadConstraint
from cpg_api.core.node import ContainerImage, Taint
from cpg_api.core.pod import Pod
from cpg_api.meta import LabelSelector
from cpg_api.selectors import Expression
from cpg_engine.cluster.axes import UNOFFERED
from cpg_engine.cluster.images import MAX_STALE_NAMES
from cpg_engine.cluster.ledger import MAX_STALE_COLUMNS, MAX_STALE_LABELS, Ledger
from cpg_engine.cluster.nodes import MAX_STALE_CODES
from cpg_engine.testing.builders import metadata, node, pod


@pytest.fixture
def ledger() -> Ledger:
    """Return a ledger with one node that stays; it has a device, a label, a taint and an image of its own."""
    found = Ledger()
    stays = node("stays", more={"example.com/gpu": 4}, labels={"host": "stays"}, taints=[Taint("t", "stays")])
    images = (ContainerImage(names=("image:stays",), size_bytes=7),)
    found.put_node(replace(stays, status=replace(stays.status, images=images)))
    return found


def selecting(name: str, key: str, **labels: str) -> Pod:
    """Return a pod that spreads over the pods with a label."""
    constraint = TopologySpreadConstraint(
        topology_key="host",
        when_unsatisfiable="ScheduleAnyway",
        label_selector=LabelSelector(match_labels={key: "x"}),
    )
    return pod(name, meta=metadata(name, **labels), topology_spread_constraints=(constraint,))


def test_columns_of_resources_that_no_node_has_are_dropped(ledger: Ledger) -> None:
    """Autoscaled nodes may bring a resource of a new name each; pods that request one of these count as unoffered."""
    ledger.put_pod(pod("both", overhead={"example.com/gpu": 1, "example.com/d0": 2}), "stays")
    used, row = dict[int, list[int]](), ledger.cluster.row_of["stays"]
    for number in range(3 * MAX_STALE_COLUMNS):
        ledger.put_node(node(f"n{number}", more={f"example.com/d{number}": 2}))
        ledger.remove_node(f"n{number}")
        used[ledger.used.shape[1]] = ledger.used[row].tolist()
    assert max(used) <= UNOFFERED + 2 + 2 * MAX_STALE_COLUMNS
    assert ledger.used[row, UNOFFERED:].tolist() == [1, 1, *[0] * (ledger.used.shape[1] - UNOFFERED - 2)]
    names = ledger.classes.axis.names
    assert ledger.allocatable[row, names.index("example.com/gpu")] == 4
    ledger.put_node(node("again", more={"example.com/d0": 2}))
    assert ledger.used[row, ledger.classes.axis.names.index("example.com/d0")] == 2
    assert ledger.used[row, UNOFFERED] == 0
    ledger.remove_pod(pod("both").metadata.uid)
    assert not ledger.used.any()


def test_labels_that_no_class_asks_for_are_dropped(ledger: Ledger) -> None:
    """A label that the selector of a pod asks for distinguishes classes as long as the pod is known, and no longer."""
    waiting = ledger.class_of(selecting("waiting", "kept"))
    for number in range(3 * MAX_STALE_LABELS):
        name = f"p{number}"
        ledger.put_pod(selecting(name, f"key-{number}", kept="x", **{f"key-{number}": "x"}), "stays")
        ledger.remove_pod(metadata(name).uid)
    assert len(ledger.asked_labels) <= 2 * MAX_STALE_LABELS
    assert ledger.class_of(selecting("waiting", "kept")) is waiting
    assert ledger.class_of(pod("p", meta=metadata("p", kept="x"))).labels == {"kept": "x"}


def test_a_label_that_is_asked_for_again_distinguishes_pods_again(ledger: Ledger) -> None:
    """A pod that came in between has a class without the label until then."""
    ledger.class_of(selecting("first", "app"))
    for number in range(MAX_STALE_LABELS + 1):
        ledger.class_of(selecting("p", f"key-{number}"))
    ledger.put_pod(pod("running", meta=metadata("running", app="x")), "stays")
    assert ledger.location_of(metadata("running").uid)[0].labels == {}  # type: ignore[index]
    ledger.class_of(selecting("again", "app"))
    assert ledger.location_of(metadata("running").uid)[0].labels == {"app": "x"}  # type: ignore[index]


def test_values_of_labels_are_dropped(ledger: Ledger) -> None:
    """Each node has a host name of its own."""
    rows, sizes = np.array([ledger.cluster.row_of["stays"]]), set[int]()
    expression = Expression("host", "In", frozenset({"stays"}))
    for number in range(3 * MAX_STALE_CODES):
        ledger.put_node(node(f"n{number}", labels={"host": f"n{number}"}))
        column = ledger.cluster.label("host")
        assert column.holds(expression, rows).all()
        assert column.values[column.codes[ledger.cluster.row_of[f"n{number}"]]] == f"n{number}"
        sizes.add(len(column.values))
        ledger.remove_node(f"n{number}")
    assert max(sizes) <= MAX_STALE_CODES + 5


def test_sets_of_taints_are_dropped(ledger: Ledger) -> None:
    """Taints may have a value for each node."""
    cluster = ledger.cluster
    for number in range(5 * MAX_STALE_CODES):
        ledger.put_node(node("n", taints=[Taint("t", str(number))]))
        assert cluster.taint_sets[cluster.taint_codes[cluster.row_of["n"]]][0].value == str(number)
        assert cluster.taint_sets[cluster.taint_codes[cluster.row_of["stays"]]][0].value == "stays"
    assert len(cluster.taint_sets) <= 2 * 2 + MAX_STALE_CODES + 1


def test_names_of_images_are_dropped(ledger: Ledger) -> None:
    """Each build of an image has a name of its own."""
    cluster, row = ledger.cluster, ledger.cluster.row_of["stays"]
    for number in range(3 * MAX_STALE_NAMES):
        images = (ContainerImage(names=(f"image:{number}",), size_bytes=number),)
        found = node("n")
        ledger.put_node(replace(found, status=replace(found.status, images=images)))
        if number % 100 == 99:
            assert cluster.image_sizes(f"image:{number}")[cluster.row_of["n"]] == number
            assert cluster.image_sizes("image:stays")[row] == 7
    assert not cluster.image_sizes("image:0").any()
    assert len(cluster._images._code_of) <= MAX_STALE_NAMES + 4
