"""Over-committed nodes: each is reported once for as long as it lasts, if pods of ours are on it."""

import structlog
from msgspec.structs import replace

from cpg_api.core.pod import PodStatus
from cpg_api.core.resources import ResourceList
from cpg_api.scheduling.forest import GroupKey
from cpg_client.stores import Added, Change, Deleted, Modified, Synced
from cpg_engine.gangs.unit import POD
from cpg_engine.testing.builders import node, pod
from cpg_scheduler.cache.cluster import SINGLE_POD
from cpg_scheduler.cache.reservations import Reservation
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.observability.overcommit import OvercommittedNode, OvercommitWatch
from cpg_scheduler.testing.stage import KubeObject, Stage


class WatchedStage:
    """A stage with checked changes, and the over-committed nodes that were found."""

    def __init__(self, *things: KubeObject) -> None:
        self.stage = Stage(*things)
        self.log = structlog.testing.CapturingLogger()
        self.watch = OvercommitWatch(self.stage.cache, structlog.wrap_logger(self.log, processors=[]))
        self.found: list[OvercommittedNode] = []

    def put(self, *things: KubeObject) -> None:
        """Create or change objects, and check them."""
        for thing in things:
            self.stage.put(thing)
            self.check(Added(thing.metadata.key, thing))

    def change(self, old: KubeObject, new: KubeObject) -> None:
        """Change an object, and check it."""
        self.stage.put(new)
        self.check(Modified(new.metadata.key, old, new))

    def delete(self, thing: KubeObject) -> None:
        """Delete an object, and check it."""
        self.stage.delete(thing)
        self.check(Deleted(thing.metadata.key, thing))

    def check(self, change: Change[KubeObject]) -> None:
        """Check a change."""
        found = self.watch.check(change)  # type: ignore[arg-type]
        if found is not None:
            self.found.append(found)


def test_an_overcommitted_node_is_reported_once() -> None:
    """With the excess of each resource and our pods, in the log too; and again when it is over-committed again."""
    watched = WatchedStage(node("n1", cpu=2))
    pods = [pod(f"p{number}", cpu=1, node_name="n1") for number in range(5)]
    watched.put(*pods[:2])
    assert (watched.found, watched.watch.count()) == ([], 0)
    watched.put(*pods[2:])
    first = OvercommittedNode("n1", {"cpu": 1000}, ("default/p0", "default/p1", "default/p2"))
    assert (watched.found, watched.watch.count()) == ([first], 1)
    assert [call.kwargs["lacking"] for call in watched.log.calls] == [{"cpu": 1000}]
    for found in pods[2:]:
        watched.delete(found)
    assert watched.watch.count() == 0
    watched.put(pods[2])
    assert (watched.found, watched.watch.count()) == ([first, first], 1)


def test_resources_that_no_node_offers_are_named() -> None:
    """A pod of ours is beside one that is bound to a node without its resources; reservations do not count."""
    watched = WatchedStage(node("n1", cpu=9), pod("ours", node_name="n1", overhead={"example.com/c": 0}))
    reservation = Reservation("n1", UnitKey(SINGLE_POD, GroupKey(POD, "default", "next")), 5)
    watched.stage.cache.reservations.put(pod("next", overhead={"example.com/b": 7}), reservation)
    watched.put(pod("plain", cpu=1, node_name="n1"))
    assert watched.found == []
    lacking: ResourceList = {"example.com/b": 2, "example.com/a": 3}
    watched.put(pod("odd", node_name="n1", overhead=lacking))
    assert [found.excess for found in watched.found] == [lacking]


def test_nodes_that_were_overcommitted_before_are_found_by_checking_all() -> None:
    """A new leader checks all nodes once."""
    watched = WatchedStage(node("n1", cpu=1), node("n2", cpu=9))
    watched.stage.put(*(pod(f"p{number}", cpu=1, node_name=f"n{1 + number % 2}") for number in range(4)))
    assert [found.name for found in watched.watch.check_all()] == ["n1"]
    assert list(watched.watch.check_all()) == []


def test_a_node_that_shrinks_becomes_overcommitted() -> None:
    """A change of a pod that changes no placement is not checked."""
    large, pending, placed = node("n1", cpu=2), pod("p0", cpu=2), pod("p0", cpu=2, node_name="n1")
    watched = WatchedStage(large, pending)
    watched.change(pending, placed)
    watched.change(large, node("n1", cpu=1))
    assert [found.name for found in watched.found] == ["n1"]
    watched.change(placed, replace(placed, status=PodStatus(phase="Running")))
    assert watched.watch.count() == 1
    watched.change(node("n1", cpu=1), large)
    assert (len(watched.found), watched.watch.count()) == (1, 0)


def test_nodes_without_pods_of_ours_are_not_reported() -> None:
    """Nor nodes that do not exist, nor pods without a node."""
    watched = WatchedStage(node("n1", cpu=1), pod("finished", cpu=1, node_name="n1"))
    made = [pod(f"p{number}", cpu=1, node_name="n1") for number in range(2)]
    foreign = [replace(one, spec=replace(one.spec, scheduler_name="other")) for one in made]
    watched.delete(pod("finished", cpu=1, node_name="n1"))
    watched.put(*foreign, pod("pending", cpu=9), pod("lost", cpu=9, node_name="gone"))
    watched.check(Synced())
    watched.check(Modified("default/p0", foreign[0], foreign[0]))
    assert (watched.found, watched.watch.count()) == ([], 0)


def test_reservations_do_not_overcommit_a_node() -> None:
    """The victims are still there, and the nominated pod is not."""
    watched = WatchedStage(node("n1", cpu=1))
    reservation = Reservation("n1", UnitKey(SINGLE_POD, GroupKey(POD, "default", "urgent")), 5)
    watched.stage.cache.reservations.put(pod("urgent", cpu=1), reservation)
    watched.put(pod("victim", cpu=1, node_name="n1"))
    assert watched.found == []
    watched.put(pod("more", cpu=1, node_name="n1"))
    assert [(found.name, found.excess) for found in watched.found] == [("n1", {"cpu": 1000})]
