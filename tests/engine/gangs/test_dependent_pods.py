"""Pods that depend on each other, placed one after the other."""

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import given
from msgspec.structs import replace

from cpg_api.core.affinity import Affinity, PodAffinity, PodAffinityTerm
from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.meta import LabelSelector
from cpg_engine.gangs import placement
from cpg_engine.gangs.placement import depends_on_other_pods, place_pods
from cpg_engine.gangs.unit import PendingPod
from cpg_engine.snapshot import Snapshot, new_snapshot
from cpg_engine.testing.builders import metadata, node, pod
from cpg_engine.testing.filter_model import PlacedPods, affinity_rejection, ports_free, spread_rejection
from cpg_engine.testing.filter_strategies import FilterCase, filter_cases, with_affinity, with_ports, with_spread
from cpg_engine.testing.strategies import cases

Model = Callable[[PlacedPods, Pod, Node], bool]


def snapshot_of(case: FilterCase) -> Snapshot:
    """Return a snapshot with all pods placed except the incoming one, which only its class knows."""
    snapshot = new_snapshot()
    for name, labels in case.placed.namespaces.items():
        snapshot.ledger.pod_index.put_namespace(name, dict(labels))
    for found in case.placed.nodes:
        snapshot.ledger.put_node(found)
    for neighbour, home in case.placed.pods:
        snapshot.ledger.put_pod(neighbour, home.metadata.name)
    return snapshot


def check_step_by_step(case: FilterCase, count: int, fits: Model) -> None:
    """Place a few identical pods, and compare each step with the slow model; there is room for all of them."""
    snapshot = snapshot_of(case)
    pods = [pod(f"new{number}", meta=replace(case.incoming.metadata, uid=f"{number}")) for number in range(count)]
    pods = [replace(found, spec=case.incoming.spec) for found in pods]
    members = [PendingPod(uid=found.metadata.uid, pod_class=snapshot.ledger.class_of(found)) for found in pods]
    allowed = [found for found in case.placed.nodes if not found.spec.taints or case.incoming.spec.tolerations]
    allowed = [found for found in allowed if found.metadata.labels.get("disk") == "ssd" or not picky(case.incoming)]
    group = place_pods(snapshot, snapshot.ledger.cluster.everything(), members, count)
    placed = case.placed
    for member, row in group.assigned:
        home = next(found for found in placed.nodes if found.metadata.name == snapshot.ledger.cluster.name(row))
        incoming = pods[int(member.uid)]
        assert home in allowed
        assert fits(placed, incoming, home)
        placed = replace(placed, pods=(*placed.pods, (incoming, home)))
    if group.unplaced:
        assert not any(fits(placed, case.incoming, home) for home in allowed)


def picky(found: Pod) -> bool:
    """Return whether the pod requires nodes with a fast disk."""
    return bool(found.spec.node_selector or (found.spec.affinity and found.spec.affinity.node_affinity))


@given(filter_cases(with_ports()), st.integers(1, 4))
@cases(100)
def test_ports_are_taken_one_by_one(case: FilterCase, count: int) -> None:
    """Every pod finds free ports in what those before it have left, as long as there are any."""
    check_step_by_step(case, count, ports_free)


@given(filter_cases(with_affinity()), st.integers(1, 4))
@cases(200)
def test_affinity_includes_pods_just_placed(case: FilterCase, count: int) -> None:
    """The terms of a gang's first pods apply to its last, in both directions."""
    check_step_by_step(case, count, lambda placed, one, home: affinity_rejection(placed, one, home) is None)


@given(filter_cases(with_spread()), st.integers(1, 4))
@cases(200)
def test_spreading_includes_pods_just_placed(case: FilterCase, count: int) -> None:
    """No step of a gang exceeds the skew of its domains."""
    check_step_by_step(case, count, lambda placed, one, home: spread_rejection(placed, one, home) is None)


def test_a_class_that_no_term_selects_is_placed_in_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is so beside pods with affinity, too."""
    snapshot = new_snapshot()
    snapshot.ledger.put_node(node("a", labels={"zone": "z"}))
    term = PodAffinityTerm(label_selector=LabelSelector(match_labels={"app": "db"}), topology_key="zone")
    rival = Affinity(pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(term,)))
    snapshot.ledger.put_pod(pod("rival", affinity=rival), "a")
    monkeypatch.setattr(placement, "_one_by_one", None)
    plain, meant = (snapshot.ledger.class_of(pod("p", meta=metadata("p", app=name))) for name in ("web", "db"))
    assert [depends_on_other_pods(snapshot, pod_class) for pod_class in (plain, meant)] == [False, True]
    members = [PendingPod(uid=str(number), pod_class=plain) for number in range(3)]
    assert len(place_pods(snapshot, snapshot.ledger.cluster.everything(), members, 3).assigned) == 3
