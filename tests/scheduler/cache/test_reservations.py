"""Reservations: the room of nominated pods, which only their own unit and more important ones ignore."""

from cpg_engine.testing.builders import node, pod
from cpg_scheduler.cache.reservations import Reservation
from cpg_scheduler.testing.cache import pod_unit, used_on
from cpg_scheduler.testing.stage import Stage


def reserve(stage: Stage, name: str, priority: int) -> None:
    """Reserve room at the node for a new pod."""
    stage.put(pod(name, cpu=1, priority=priority))
    stage.cache.reservations.put(stage.pod(name), Reservation("n1", pod_unit(name), priority))


def test_a_reservation_takes_room_until_it_is_removed() -> None:
    """Its end frees the node, once."""
    stage = Stage(node("n1"))
    reserve(stage, "a", 5)
    assert (used_on(stage)["pods"], "uid-default-a" in stage.cache.reservations) == (1, True)
    stage.cache.take_events()
    for _ in range(2):
        stage.cache.reservations.remove("uid-default-a")
    assert (used_on(stage), stage.cache.take_events().freed_nodes) == ({}, {"n1"})


def test_a_unit_ignores_its_own_and_less_important_reservations() -> None:
    """Not those of equal priority."""
    stage = Stage(node("n1"))
    reserve(stage, "a", 5)
    reserve(stage, "b", 7)
    ignored_by = stage.cache.reservations.ignored_by
    assert ignored_by(pod_unit("c"), 5) == ()
    assert ignored_by(pod_unit("c"), 6) == ("nominated/uid-default-a",)
    assert ignored_by(pod_unit("b"), 0) == ("nominated/uid-default-b",)
    assert len(ignored_by(pod_unit("c"), 8)) == 2


def test_reservations_at_some_nodes_can_be_ignored_for_a_moment() -> None:
    """Those at other nodes stay."""
    stage = Stage(node("n1"))
    reserve(stage, "a", 5)
    with stage.cache.reservations.ignored(["n1", "gone"]):
        assert used_on(stage) == {}
    assert used_on(stage)["pods"] == 1
    with stage.cache.reservations.ignored(["n2"]):
        assert used_on(stage)["pods"] == 1


def test_a_pod_with_invalid_requests_has_no_reservation() -> None:
    """It will never be placed."""
    stage = Stage(node("n1"), pod("bad", cpu="much"))
    stage.cache.reservations.put(stage.pod("bad"), Reservation("n1", pod_unit("bad"), 0))
    assert (used_on(stage), stage.cache.reservations.reserved_uids()) == ({}, ())
