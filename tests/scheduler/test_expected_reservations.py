"""Room for pods that do not exist yet: a leader is placed where its followers fit, and other pods do not fit there."""

import datetime as dt
import json
from typing import Any

import pytest
from msgspec.structs import replace

from cpg_api.core.pod import PodCondition
from cpg_api.scheduling.names import EXPECTED_PODS
from cpg_api.scheduling.podgroup import PodGroup
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.testing.builders import composite, node, pod, pod_group
from cpg_scheduler.debug.dump import dump, encoded, load
from cpg_scheduler.testing.stage import Stage

BEGAN = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC).timestamp()
NODES = [
    node(f"{rack}-{number}", labels={"rack": rack}) for rack, size in (("r1", 1), ("r2", 2)) for number in range(size)
]
"""A rack with room for one pod of 4 CPU, and one with room for two."""


def expecting(name: str, *entries: dict[str, Any], **fields: Any) -> PodGroup:
    """Return a PodGroup with a minimum of one pod that expects others, in one rack."""
    group = pod_group(name, key="rack", **fields)
    return replace(group, metadata=replace(group.metadata, annotations={EXPECTED_PODS: json.dumps(entries)}))


def stage_of(*objects: Any) -> Stage:
    """Return a stage at a fixed time."""
    stage = Stage(*objects)
    stage.cache.expected.wall = lambda: BEGAN + stage.now
    return stage


def led(*more: Any, count: int = 2) -> Stage:
    """Return a stage on which the leader of a group of so many pods has been placed."""
    stage = stage_of(*NODES, expecting("pg", {"count": count}), pod("leader", group="pg", cpu=4), *more)
    stage.settle()
    return stage


def confirm(stage: Stage, name: str, seconds: float = 0) -> None:
    """Let the API server show when a pod got its node."""
    time = dt.datetime.fromtimestamp(BEGAN + seconds, tz=dt.UTC).isoformat()
    found = stage.pod(name)
    condition = PodCondition(type="PodScheduled", status="True", last_transition_time=time)
    stage.put(replace(found, status=replace(found.status, conditions=(condition,))))


def reserved(stage: Stage) -> int:
    """Return for how many pods room is reserved."""
    return len(list(stage.cache.reservations.items()))


def restarted(stage: Stage) -> Stage:
    """Return a stage with a new scheduler for the same objects."""
    new = Stage(*stage.objects())
    new.now = stage.now
    new.cache.expected.wall = lambda: BEGAN + new.now
    new.cache.report_all()
    new.recover()
    return new


@pytest.mark.parametrize(("count", "rack"), [(1, None), (2, "r2"), (3, None)])
def test_a_leader_gets_a_domain_with_room_for_its_followers(count: int, rack: str | None) -> None:
    """A domain with room for the leader alone is not chosen; where none has room for all, the leader waits."""
    stage = led(count=count)
    if count == 3:
        assert stage.bound() == {}
        assert "3 pods" in stage.pod("leader").status.conditions[0].message  # type: ignore[index] # it has one
    else:
        assert rack is None or stage.bound()["leader"].startswith(rack)


def test_other_units_do_not_take_the_room_and_followers_do() -> None:
    """Between the bind of the leader and the arrival of a follower, an equal unit takes other room."""
    stage = led()
    stage.put(pod("other-1", cpu=4), pod("other-2", cpu=4))
    stage.settle()
    assert stage.bound()["other-1"] == "r1-0"
    assert "other-2" not in stage.bound()
    stage.put(pod("follower", group="pg", cpu=4))
    stage.settle()
    assert stage.bound()["follower"].startswith("r2")
    assert reserved(stage) == 0


def test_room_stays_reserved_for_the_followers_that_are_still_missing() -> None:
    """Each follower takes its share of the room."""
    stage = stage_of(*NODES, expecting("pg", {"count": 4}), pod("leader", group="pg", cpu=2))
    stage.settle()
    assert reserved(stage) == 3
    stage.put(pod("follower", group="pg", cpu=2), *(pod(f"other-{number}", cpu=2) for number in range(4)))
    stage.settle()
    assert reserved(stage) == 2
    assert sorted(set(stage.bound().values()) - {"r1-0"}) == ["r2-0", "r2-1"]
    assert sum(node.startswith("r2") for node in stage.bound().values()) == 2


def test_units_of_higher_priority_take_reserved_room() -> None:
    """Reserved room counts as little as the pods for which it is."""
    stage = led(pod("first", cpu=4))
    stage.put(pod("important", cpu=4, priority=1))
    stage.settle()
    assert stage.bound()["important"].startswith("r2")


def test_the_reservation_ends_with_the_leader() -> None:
    """Without a pod on a node, there is nothing to follow."""
    stage = led()
    stage.delete(stage.pod("leader"))
    stage.put(pod("other-1", cpu=4), pod("other-2", cpu=4), pod("other-3", cpu=4))
    stage.settle()
    assert len(stage.bound()) == 3


def test_the_reservation_ends_with_its_group() -> None:
    """The pods of a group without the annotation expect no others."""
    stage = led()
    stage.put(pod_group("pg", key="rack"))
    stage.settle()
    assert reserved(stage) == 0


def test_the_reservation_ends_after_a_time() -> None:
    """Units that wait for the room are attempted then."""
    stage = led()
    confirm(stage, "leader")
    stage.put(pod("other-1", cpu=4), pod("other-2", cpu=4))
    stage.settle(299)
    assert len(stage.bound()) == 2
    stage.settle(1)
    assert len(stage.bound()) == 3
    stage.put(pod("follower", group="pg", cpu=4))
    stage.settle(60)
    assert "follower" not in stage.bound()


def test_a_new_leader_finds_the_reservations() -> None:
    """They follow from what the API server has, with the time that is left."""
    stage = led()
    confirm(stage, "leader")
    stage.now = 200
    stage = restarted(stage)
    stage.put(pod("other-1", cpu=4), pod("other-2", cpu=4))
    stage.settle()
    assert len(stage.bound()) == 2
    stage.settle(100)
    assert len(stage.bound()) == 3
    assert reserved(restarted(stage)) == 0


def test_a_new_leader_keeps_the_room_of_pending_followers() -> None:
    """A unit that is older does not take the room before the follower is attempted."""
    stage = led(pod("other-1", cpu=4))
    old = pod("other-2", cpu=4)
    stage.put(
        pod("follower", group="pg", cpu=4), replace(old, metadata=replace(old.metadata, creation_timestamp="1999"))
    )
    stage = restarted(stage)
    stage.settle()
    assert "follower" in stage.bound()
    assert "other-2" not in stage.bound()


def test_followers_of_another_shape_have_room() -> None:
    """The annotation gives what a follower asks for, where it is not what the leader asks for."""
    small = (
        {"count": 1},
        {"count": 2, "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": 3}}}]}},
    )
    stage = stage_of(*NODES, expecting("pg", *small), pod("leader", group="pg", cpu=1))
    stage.settle()
    assert stage.bound()["leader"].startswith("r2")
    stage.put(*(pod(f"other-{number}", cpu=1) for number in range(9)))
    stage.settle()
    assert len(stage.bound()) == 1 + 4 + 1


def test_groups_without_pods_have_room_beside_their_siblings() -> None:
    """The leader of a replica waits for room for all subgroups, of which the others have no pod yet."""
    spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": 4}}}]}
    groups = [expecting(f"sub-{number}", {"count": 2, "spec": spec}, parent="replica") for number in range(2)]
    leader = pod("leader", group="sub-0", cpu=4)
    stage = stage_of(*NODES, composite("replica"), *groups, leader)
    stage.settle()
    assert stage.bound() == {}
    stage.put(*(node(f"r3-{number}", labels={"rack": "r3"}) for number in range(2)))
    stage.settle()
    assert "leader" in stage.bound()
    stage.put(*(pod(f"other-{number}", cpu=4) for number in range(3)))
    stage.settle()
    assert len(stage.bound()) == 2
    stage.put(pod("w0", group="sub-0", cpu=4), *(pod(f"w{number}", group="sub-1", cpu=4) for number in (1, 2)))
    stage.settle()
    assert {"w0", "w1", "w2"} <= stage.bound().keys()


def test_evictions_make_room_for_the_followers_as_well() -> None:
    """Room that victims leave for followers is reserved from the plan on."""
    low = [pod(f"low-{one.metadata.name}", cpu=4, node_name=one.metadata.name, priority=-1) for one in NODES]
    stage = stage_of(*NODES, *low)
    stage.victims_linger = True
    stage.put(expecting("pg", {"count": 2}), pod("leader", group="pg", cpu=4))
    stage.settle()
    assert sorted(stage.evicted) == ["low-r2-0", "low-r2-1"]
    assert reserved(stage) == 2
    stage.delete(low[1])
    stage.put(pod("other", cpu=4, preemption_policy="Never"))
    stage.settle()
    assert "other" not in stage.bound()
    stage.delete(low[2])
    stage.settle()
    assert stage.bound()["leader"].startswith("r2")
    assert "other" not in stage.bound()
    assert reserved(stage) == 1


def test_a_malformed_annotation_holds_the_tree() -> None:
    """A tree that would be placed without room for its followers is not placed."""
    group = expecting("pg", {"count": -1})
    stage = stage_of(*NODES, group, pod("leader", group="pg", cpu=4))
    stage.settle()
    assert stage.bound() == {}


def test_no_limit_means_no_expectation() -> None:
    """With a time of 0, groups expect no pods."""
    stage = stage_of(*NODES[1:])
    stage.cache.expected.timeout = 0
    stage.put(expecting("pg", {"count": 3}), pod("leader", group="pg", cpu=4))
    stage.settle()
    assert "leader" in stage.bound()
    assert reserved(stage) == 0


def test_a_dump_has_the_reservations() -> None:
    """A replay sees the same room as taken, though the pods do not exist."""
    stage = led()
    stage.put(pod("other-1", cpu=4), pod("other-2", cpu=4))
    document = b"".join(encoded(dump(stage.cache, SearchOptions(), (), stage.now, taken=BEGAN)))
    cache = load(document).cache
    assert dict(cache.reservations.items()) == dict(stage.cache.reservations.items())
    assert cache.expected.wall() == BEGAN
