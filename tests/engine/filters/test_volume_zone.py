"""Volumes that claims are bound to, as the scores of a class see them."""

import pytest

from cpg_engine.gangs.placement import filter_reasons
from cpg_engine.score_cache import ClassScores
from cpg_engine.snapshot import Snapshot, new_snapshot
from cpg_engine.testing import storage_builders
from cpg_engine.testing.builders import node, pod
from cpg_engine.testing.storage_builders import claim, stock, using, volume
from cpg_engine.weights import Weights

ZONE = "topology.kubernetes.io/zone"


@pytest.fixture
def snapshot() -> Snapshot:
    """Return a node in each of two zones, and one without a zone."""
    snapshot = new_snapshot()
    for name, zone in (("n1", "a"), ("n2", "b")):
        snapshot.ledger.put_node(node(name, labels={ZONE: zone}))
    snapshot.ledger.put_node(node("n3"))
    return snapshot


def feasible(snapshot: Snapshot, *claims: str) -> str:
    """Return the feasible nodes of a pod that uses these claims."""
    scores = snapshot.score_cache.of(snapshot.ledger.class_of(pod("p", volumes=using(*claims))))
    return " ".join(sorted(snapshot.ledger.cluster.name(row) for row in scores.feasible.nonzero()[0].tolist()))


def reasons_of(snapshot: Snapshot, *claims: str) -> dict[str, int]:
    """Return the reasons for rejection, with their numbers of nodes."""
    pod_class = snapshot.ledger.class_of(pod("p", volumes=using(*claims)))
    found = filter_reasons(snapshot, pod_class, snapshot.ledger.cluster.everything())
    return {reason.text: reason.nodes for reason in found}


@pytest.mark.parametrize(
    ("objects", "expected", "why"),
    [
        ((claim("c", bound_to="v"), volume("v")), "n1 n2 n3", {}),
        (
            (claim("c", bound_to="v"), volume("v", at={ZONE: ["a"]})),
            "n1",
            {"node(s) didn't match PersistentVolume's node affinity": 2},
        ),
        (
            (claim("c", bound_to="v"), volume("v", labels={ZONE: "a"})),
            "n1 n3",
            {"node(s) had no available volume zone": 1},
        ),
        (
            (claim("c", bound_to="v"), volume("v", labels={ZONE: "a"}, at={ZONE: ["a", "b"]})),
            "n1",
            {
                "node(s) didn't match PersistentVolume's node affinity": 1,
                "node(s) had no available volume zone": 1,
            },
        ),
        ((), "", {'persistentvolumeclaim "c" not found': 3}),
        ((claim("c"),), "", {"pod has unbound immediate PersistentVolumeClaims": 3}),
    ],
)
def test_nodes_where_a_pods_volumes_are(
    snapshot: Snapshot, objects: tuple[storage_builders.Stored, ...], expected: str, why: dict[str, int]
) -> None:
    """Each rejected node is counted with the first reason."""
    stock(snapshot.ledger.storage, *objects)
    assert feasible(snapshot, "c") == expected
    assert reasons_of(snapshot, "c") == why


def test_two_volumes_have_to_be_reached_from_one_node(snapshot: Snapshot) -> None:
    """Volumes in two zones leave no node, or only the one without zone labels."""
    stock(snapshot.ledger.storage, claim("c", bound_to="v"), claim("d", bound_to="w"))
    stock(snapshot.ledger.storage, volume("v", at={ZONE: ["a"]}), volume("w", at={ZONE: ["a", "b"]}))
    assert feasible(snapshot, "c", "d") == "n1"
    stock(snapshot.ledger.storage, volume("v", labels={ZONE: "a"}), volume("w", labels={ZONE: "b"}))
    assert feasible(snapshot, "c", "d") == "n3"


def test_scores_follow_the_claims(snapshot: Snapshot) -> None:
    """Between two cycles a claim may be provisioned, bound and lost."""
    storage = snapshot.ledger.storage
    assert feasible(snapshot, "c") == ""
    stock(storage, claim("c", bound_to="v"), volume("v"))
    assert feasible(snapshot, "c") == "n1 n2 n3"
    stock(storage, claim("c", bound_to="v", phase="Lost"))
    assert feasible(snapshot, "c") == ""


def test_pods_without_volumes_ignore_the_catalog(snapshot: Snapshot) -> None:
    """Their nodes are scored once, whatever happens to claims."""
    scores = ClassScores(snapshot.ledger.class_of(pod("p")), snapshot.ledger, Weights())
    keys = scores.keys
    stock(snapshot.ledger.storage, claim("c"))
    scores.refresh()
    assert scores.keys is keys


def test_classes_with_bound_claims_are_placed_in_batches(snapshot: Snapshot) -> None:
    """What does not depend on other pods keeps them together."""
    stock(snapshot.ledger.storage, claim("c", bound_to="v"), volume("v", at={ZONE: ["a"]}))
    pod_class = snapshot.ledger.class_of(pod("p", volumes=using("c")))
    assert [dynamic for dynamic in snapshot.dynamic_filters if dynamic.pre_filter(pod_class) is not None] == []
