"""Room that is kept: for whom it counts, and for whom not."""

from cpg_api.scheduling.forest import GroupKey
from cpg_engine.testing.builders import node, pod
from cpg_scheduler.cache.cluster import SINGLE_POD
from cpg_scheduler.cache.reservations import Reservation
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.testing.stage import Stage


def alone(name: str) -> UnitKey:
    """Return the root of a single pod."""
    return UnitKey(SINGLE_POD, GroupKey("Pod", "default", name))


def nominate(stage: Stage, name: str, priority: int) -> None:
    """Keep room for a pod at the node."""
    stage.put(pod(name, cpu=1, priority=priority))
    stage.cache.reservations.put(stage.pod(name), Reservation("n1", alone(name), priority))


def used(stage: Stage) -> int:
    """Return how many pods the node has by the ledger."""
    ledger = stage.cache.snapshot.ledger
    return int(ledger.used[ledger.cluster.row_of["n1"]][ledger.classes.axis.names.index("pods")])


def test_a_ghost_takes_room_until_it_is_dropped() -> None:
    """And that there is room again is news."""
    stage = Stage(node("n1"))
    nominate(stage, "a", 5)
    assert (used(stage), "uid-default-a" in stage.cache.reservations) == (1, True)
    stage.cache.take_events()
    for _ in range(2):
        stage.cache.reservations.remove("uid-default-a")
    assert (used(stage), stage.cache.take_events().freed_nodes) == (0, {"n1"})


def test_who_outranks_a_ghost_passes_it_and_so_does_its_own_root() -> None:
    """Equals do not."""
    stage = Stage(node("n1"))
    nominate(stage, "a", 5)
    nominate(stage, "b", 7)
    passed = stage.cache.reservations.ignored_by
    assert passed(alone("c"), 5) == ()
    assert passed(alone("c"), 6) == ("nominated/uid-default-a",)
    assert passed(alone("b"), 0) == ("nominated/uid-default-b",)
    assert len(passed(alone("c"), 8)) == 2


def test_one_can_look_as_if_there_were_no_ghosts() -> None:
    """For a moment, and only at the nodes that matter."""
    stage = Stage(node("n1"))
    nominate(stage, "a", 5)
    with stage.cache.reservations.ignored(["n1", "gone"]):
        assert used(stage) == 0
    assert used(stage) == 1
    with stage.cache.reservations.ignored(["n2"]):
        assert used(stage) == 1


def test_a_pod_that_makes_no_sense_holds_no_room() -> None:
    """It will never be placed."""
    stage = Stage(node("n1"), pod("bad", cpu="much"))
    stage.cache.reservations.put(stage.pod("bad"), Reservation("n1", alone("bad"), 0))
    assert (used(stage), stage.cache.reservations.reserved_uids()) == (0, ())
