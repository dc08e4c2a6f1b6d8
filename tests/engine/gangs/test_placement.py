"""Placing the pods of one group on the nodes of one scope, and why they do not fit."""

import numpy as np
import pytest

from cpg_api.core.affinity import TopologySpreadConstraint
from cpg_api.core.node import Taint
from cpg_api.core.pod import Container, ContainerPort, Pod
from cpg_api.core.volumes import ClaimVolumeSource, PodVolume
from cpg_api.meta import LabelSelector
from cpg_engine.gangs.placement import depends_on_other_pods, filter_reasons, is_unresolvable, place_pods
from cpg_engine.gangs.unit import PendingPod
from cpg_engine.snapshot import Snapshot, new_snapshot
from cpg_engine.testing.builders import metadata, node, pod

Seats = list[tuple[str, str]]


def snapshot_of(*cpus: int, pods: int = 110) -> Snapshot:
    """Return a snapshot of nodes a, b, ... with so many CPUs."""
    snapshot = new_snapshot()
    for number, cpu in enumerate(cpus):
        snapshot.ledger.put_node(node(chr(ord("a") + number), cpu=cpu, pods=pods))
    return snapshot


def pending(snapshot: Snapshot, *pods: Pod) -> list[PendingPod]:
    """Return the pods as the search has them."""
    return [PendingPod(uid=one.metadata.name, pod_class=snapshot.ledger.class_of(one)) for one in pods]


def sized(sizes: str) -> list[Pod]:
    """Return pods of so many CPUs, one for each digit, named by position and size."""
    return [pod(f"{place}:{size}", cpu=int(size)) for place, size in enumerate(sizes)]


def with_port(name: str, port: int) -> Pod:
    """Return a pod with a host port."""
    return pod(name, containers=(Container(name="c", ports=(ContainerPort(host_port=port),)),))


@pytest.mark.parametrize(
    ("cpus", "sizes", "limit", "seats", "left"),
    [
        ([4, 4], "111", 3, [("0:1", "a"), ("1:1", "b"), ("2:1", "a")], []),
        ([4, 4], "111", 1, [("0:1", "a")], ["1:1", "2:1"]),  # no more than asked for
        ([4, 4], "111", 0, [], ["0:1", "1:1", "2:1"]),
        ([2, 1], "121", 3, [("0:1", "a"), ("2:1", "a")], ["1:2"]),  # in order, the others go on
        ([2, 1], "2122", 4, [("0:2", "a"), ("1:1", "b")], ["2:2", "3:2"]),  # a kind that is full is not asked again
        ([], "1", 1, [], ["0:1"]),
    ],
)
def test_pods_are_placed_in_order(cpus: list[int], sizes: str, limit: int, seats: Seats, left: list[str]) -> None:
    """Each pod gets the best node for it in what those before it have left; the ledger holds them."""
    snapshot = snapshot_of(*cpus)
    placed = place_pods(snapshot, snapshot.ledger.cluster.everything(), pending(snapshot, *sized(sizes)), limit)
    assert seats == [(member.uid, snapshot.ledger.cluster.name(row)) for member, row in placed.assigned]
    assert left == [member.uid for member in placed.unplaced]
    assert len(seats) == snapshot.ledger.used[:, 3].sum()
    snapshot.ledger.rollback(0)
    assert snapshot.ledger.used.sum() == 0


def test_rows_are_plain_numbers() -> None:
    """The search returns no elements of arrays."""
    snapshot = snapshot_of(1)
    (seat,) = place_pods(snapshot, np.array([0]), pending(snapshot, pod("p")), 1).assigned
    assert int is type(seat[1])


def test_dependent_pods_are_placed_one_by_one() -> None:
    """Two pods with one host port never share a node, and the third finds none."""
    snapshot = snapshot_of(4, 4)
    group = pending(snapshot, *(with_port(name, 80) for name in "pqr"))
    placed = place_pods(snapshot, np.array([0, 1]), group, 3)
    assert [(member.uid, row) for member, row in placed.assigned] == [("p", 0), ("q", 1)]
    assert [member.uid for member in placed.unplaced] == ["r"]


def test_dependent_pods_stop_at_the_limit() -> None:
    """The limit counts for them as for others."""
    snapshot = snapshot_of(4, 4, 4)
    group = pending(snapshot, *(with_port(name, 80) for name in "pqr"))
    placed = place_pods(snapshot, np.arange(3), group, 2)
    assert [(member.uid, row) for member, row in placed.assigned] == [("p", 0), ("q", 1)]


def test_scores_that_depend_on_other_pods_are_added() -> None:
    """A soft spread constraint sends the second pod to the other zone, although its node is less empty."""
    snapshot = new_snapshot()
    snapshot.ledger.put_node(node("a", cpu=9, labels={"zone": "1"}))
    snapshot.ledger.put_node(node("b", cpu=4, labels={"zone": "2"}))
    constraint = TopologySpreadConstraint(1, "zone", "ScheduleAnyway", LabelSelector({"app": "a"}))
    pods = [
        pod(name, cpu=1, topology_spread_constraints=(constraint,), meta=metadata(name, app="a")) for name in ("p", "q")
    ]
    placed = place_pods(snapshot, np.array([0, 1]), pending(snapshot, *pods), 2)
    assert [row for _, row in placed.assigned] == [0, 1]


def test_only_some_pods_depend_on_other_pods() -> None:
    """A host port makes a pod depend on others, plain resources do not."""
    snapshot = snapshot_of(4)
    plain, port = (snapshot.ledger.class_of(one) for one in (pod("p", cpu=1), with_port("q", 80)))
    assert (depends_on_other_pods(snapshot, plain), depends_on_other_pods(snapshot, port)) == (False, True)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (pod("p", cpu=4), False),  # the node is full now, but would have room
        (pod("p", cpu=5), True),
        (pod("p", node_selector={"x": "y"}), True),
        (with_port("p", 80), False),  # the pod with the port could be evicted
    ],
)
def test_unresolvable_pods_are_those_that_no_eviction_helps(one: Pod, *, expected: bool) -> None:
    """They are too large for any empty node, or rejected for a reason that no pod can change."""
    snapshot = snapshot_of(4, 2)
    snapshot.ledger.put_pod(pod("x", cpu=3), "a")
    for name in "ab":
        snapshot.ledger.put_pod(with_port(f"port-{name}", 80), name)
    assert expected is is_unresolvable(snapshot, snapshot.ledger.class_of(one), np.array([0, 1]))
    assert is_unresolvable(snapshot, snapshot.ledger.class_of(one), np.array([], dtype=np.intp))


def full_cluster() -> Snapshot:
    """Return a snapshot of five nodes: open, cordoned, tainted, full with a disk, and with a disk and a used port."""
    snapshot = new_snapshot()
    disk = {"disk": "ssd"}
    snapshot.ledger.put_node(node("a", pods=9))
    snapshot.ledger.put_node(node("b", labels=disk, unschedulable=True))
    snapshot.ledger.put_node(node("c", labels=disk, taints=[Taint("t", "", "NoSchedule")]))
    snapshot.ledger.put_node(node("d", cpu=1, pods=1, labels=disk))
    snapshot.ledger.put_node(node("e", labels=disk))
    snapshot.ledger.put_pod(pod("x", cpu=1), "d")
    snapshot.ledger.put_pod(with_port("y", 80), "e")
    return snapshot


def test_each_node_counts_under_the_first_filter_that_rejects_it() -> None:
    """Counts by reason, the most frequent first; one node may be short of several resources."""
    snapshot = full_cluster()
    container = with_port("p", 80).spec.containers
    one = pod("p", containers=container, overhead={"cpu": 2}, node_selector={"disk": "ssd"})
    assert [(why.text, why.nodes) for why in filter_reasons(snapshot, snapshot.ledger.class_of(one), np.arange(5))] == [
        ("Insufficient cpu", 1),
        ("Too many pods", 1),
        ("node(s) didn't have free ports for the requested pod ports", 1),
        ("node(s) didn't match Pod's node affinity/selector", 1),
        ("node(s) had untolerated taint(s)", 1),
        ("node(s) were unschedulable", 1),
    ]


def test_frequent_reasons_come_first() -> None:
    """Equal counts are sorted by text, so that two runs agree."""
    snapshot = snapshot_of(1, 1, 4)
    found = filter_reasons(snapshot, snapshot.ledger.class_of(pod("p", cpu=2, memory="1Gi")), np.arange(3))
    assert [(why.text, why.nodes) for why in found] == [("Insufficient memory", 3), ("Insufficient cpu", 2)]


def test_storage_has_reasons_of_its_own() -> None:
    """A claim that does not exist rejects every node that is left."""
    snapshot = snapshot_of(4, 4)
    volumes = (PodVolume("v", persistent_volume_claim=ClaimVolumeSource("missing")),)
    (why,) = filter_reasons(snapshot, snapshot.ledger.class_of(pod("p", volumes=volumes)), np.arange(2))
    assert why.nodes == 2
    assert "missing" in why.text or "claim" in why.text


def test_a_pod_that_fits_has_no_reasons() -> None:
    """It passes every node."""
    snapshot = snapshot_of(4, 4)
    assert filter_reasons(snapshot, snapshot.ledger.class_of(pod("p", cpu=1)), np.arange(2)) == ()
