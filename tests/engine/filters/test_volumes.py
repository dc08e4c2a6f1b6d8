"""Volumes that are there already, as a board sees them."""

import pytest

from cpg_engine.boards import Board
from cpg_engine.gangs.placing import reasons
from cpg_engine.gangs.world import World, new_world
from cpg_engine.testing import storing
from cpg_engine.testing.builders import node, pod
from cpg_engine.testing.storing import claim, stock, using, volume
from cpg_engine.weights import Weights

ZONE = "topology.kubernetes.io/zone"


@pytest.fixture
def world() -> World:
    """Return a node in each of two zones, and one in none."""
    world = new_world()
    for name, zone in (("n1", "a"), ("n2", "b")):
        world.ledger.put_node(node(name, labels={ZONE: zone}))
    world.ledger.put_node(node("n3"))
    return world


def feasible(world: World, *claims: str) -> str:
    """Return the nodes on the board of a pod that uses these claims."""
    board = world.boards.of(world.ledger.class_of(pod("p", volumes=using(*claims))))
    return " ".join(sorted(world.ledger.cluster.name(row) for row in board.feasible.nonzero()[0].tolist()))


def told(world: World, *claims: str) -> dict[str, int]:
    """Return the reasons for which nodes are out, with their numbers."""
    pod_class = world.ledger.class_of(pod("p", volumes=using(*claims)))
    found = reasons(world, pod_class, world.ledger.cluster.everything())
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
    world: World, objects: tuple[storing.Stored, ...], expected: str, why: dict[str, int]
) -> None:
    """Each node that is out is counted with the first reason."""
    stock(world.ledger.storage, *objects)
    assert feasible(world, "c") == expected
    assert told(world, "c") == why


def test_two_volumes_have_to_be_reached_from_one_node(world: World) -> None:
    """Volumes in two zones leave no node, or the one that tells no zone."""
    stock(world.ledger.storage, claim("c", bound_to="v"), claim("d", bound_to="w"))
    stock(world.ledger.storage, volume("v", at={ZONE: ["a"]}), volume("w", at={ZONE: ["a", "b"]}))
    assert feasible(world, "c", "d") == "n1"
    stock(world.ledger.storage, volume("v", labels={ZONE: "a"}), volume("w", labels={ZONE: "b"}))
    assert feasible(world, "c", "d") == "n3"


def test_a_board_notices_what_becomes_of_its_claims(world: World) -> None:
    """Between two cycles a claim may be made, bound, and lost."""
    storage = world.ledger.storage
    assert feasible(world, "c") == ""
    stock(storage, claim("c", bound_to="v"), volume("v"))
    assert feasible(world, "c") == "n1 n2 n3"
    stock(storage, claim("c", bound_to="v", phase="Lost"))
    assert feasible(world, "c") == ""


def test_pods_without_volumes_do_not_mind_the_catalogue(world: World) -> None:
    """Their boards are looked at once, whatever happens to claims."""
    board = Board(world.ledger.class_of(pod("p")), world.ledger, Weights())
    keys = board.keys
    stock(world.ledger.storage, claim("c"))
    board.refresh()
    assert board.keys is keys


def test_classes_with_bound_claims_go_as_one_batch(world: World) -> None:
    """What does not depend on other pods takes nobody off the fast path."""
    stock(world.ledger.storage, claim("c", bound_to="v"), volume("v", at={ZONE: ["a"]}))
    pod_class = world.ledger.class_of(pod("p", volumes=using("c")))
    assert [dynamic for dynamic in world.dynamic if dynamic.view(pod_class) is not None] == []
