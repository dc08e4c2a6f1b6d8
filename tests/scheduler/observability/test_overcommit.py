"""A node that holds more than it has is spoken of once, if pods of ours are among those that crowd it."""

import structlog
from msgspec.structs import replace

from cpg_api.core.pod import PodStatus
from cpg_api.scheduling.forest import GroupKey
from cpg_client.stores import Added, Change, Deleted, Modified, Synced
from cpg_engine.gangs.unit import POD
from cpg_engine.testing.builders import node, pod
from cpg_scheduler.cache.cluster import SINGLE_POD
from cpg_scheduler.cache.reservations import Reservation
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.observability.overcommit import OvercommitWatch
from cpg_scheduler.testing.stage import Stage, Thing


class Crowd:
    """A stage with somebody who looks at its nodes."""

    def __init__(self, *things: Thing) -> None:
        self.stage = Stage(*things)
        self.log = structlog.testing.CapturingLogger()
        self.told: list[tuple[str, str]] = []
        self.counts: list[int] = []
        self.crowds = OvercommitWatch(
            self.stage.cache,
            tell=lambda name, message: self.told.append((name, message)),
            count=self.counts.append,
            log=structlog.wrap_logger(self.log, processors=[]),
        )

    def put(self, *things: Thing) -> None:
        """Create or change objects, and look."""
        for thing in things:
            self.stage.put(thing)
            self.crowds.saw(Added(thing.metadata.key, thing))  # type: ignore[arg-type]

    def change(self, old: Thing, new: Thing) -> None:
        """Change an object, and look."""
        self.stage.put(new)
        self.crowds.saw(Modified(new.metadata.key, old, new))  # type: ignore[arg-type]

    def delete(self, thing: Thing) -> None:
        """Delete an object, and look."""
        self.stage.delete(thing)
        self.crowds.saw(Deleted(thing.metadata.key, thing))  # type: ignore[arg-type]


def test_a_crowded_node_is_spoken_of_once() -> None:
    """By resource and amount, with the names of ours; again when it is so again."""
    crowd = Crowd(node("n1", cpu=2))
    ours = [pod(f"p{number}", cpu=1, node_name="n1") for number in range(5)]
    crowd.put(*ours[:2])
    assert (crowd.told, crowd.counts) == ([], [])
    crowd.put(*ours[2:])
    words = "over-committed: cpu by 1000 (in base units), with default/p0, default/p1, default/p2 of cpg-scheduler"
    assert (crowd.told, crowd.counts) == ([("n1", words)], [1])
    assert [call.kwargs["lacking"] for call in crowd.log.calls] == [{"cpu": 1000}]
    for found in ours[2:]:
        crowd.delete(found)
    assert crowd.counts == [1, 0]
    crowd.put(ours[2])
    assert crowd.counts == [1, 0, 1]
    assert len(crowd.told) == 2


def test_more_than_three_are_counted() -> None:
    """A node may hold a hundred, and shrink."""
    crowd = Crowd(node("n1", cpu=4), *(pod(f"p{number}", cpu=1, node_name="n1") for number in range(4)))
    crowd.put(node("n1", cpu=1))
    assert crowd.told[0][1].endswith("default/p0, default/p1, default/p2 and 1 more of cpg-scheduler")


def test_a_node_that_shrinks_and_grows_again_is_looked_at() -> None:
    """And so is one where a pod has come by a bind; what only says something is not."""
    large, waiting, placed = node("n1", cpu=2), pod("p0", cpu=2), pod("p0", cpu=2, node_name="n1")
    crowd = Crowd(large, waiting)
    crowd.change(waiting, placed)
    crowd.change(large, node("n1", cpu=1))
    assert [name for name, _ in crowd.told] == ["n1"]
    crowd.change(placed, replace(placed, status=PodStatus(phase="Running")))
    crowd.change(node("n1", cpu=1), large)
    assert crowd.counts == [1, 0]


def test_the_crowds_of_others_are_theirs() -> None:
    """Neither a node without pods of ours, nor one that is not there, nor a pod without a node is worth a word."""
    crowd = Crowd(node("n1", cpu=1), pod("finished", cpu=1, node_name="n1"))
    found = [pod(f"p{number}", cpu=1, node_name="n1") for number in range(2)]
    others = [replace(one, spec=replace(one.spec, scheduler_name="other")) for one in found]
    crowd.delete(pod("finished", cpu=1, node_name="n1"))
    crowd.put(*others, pod("waits", cpu=9), pod("lost", cpu=9, node_name="gone"))
    silent: Change[Thing] = Synced()
    crowd.crowds.saw(silent)  # type: ignore[arg-type]
    crowd.crowds.saw(Modified("default/p0", others[0], others[0]))
    assert (crowd.told, crowd.counts) == ([], [])


def test_room_that_is_kept_for_a_nominated_pod_crowds_nobody() -> None:
    """Its victims are there still, and it is not there yet."""
    crowd = Crowd(node("n1", cpu=1))
    nominated = Reservation("n1", UnitKey(SINGLE_POD, GroupKey(POD, "default", "urgent")), 5)
    crowd.stage.cache.reservations.put(pod("urgent", cpu=1), nominated)
    crowd.put(pod("victim", cpu=1, node_name="n1"))
    assert crowd.told == []
    crowd.put(pod("more", cpu=1, node_name="n1"))
    assert [name for name, _ in crowd.told] == ["n1"]
    assert "cpu by 1000 " in crowd.told[0][1]
