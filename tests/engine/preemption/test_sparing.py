"""Reprieve."""

from collections.abc import Sequence

import pytest

from cpg_api.scheduling.forest import GroupKey
from cpg_engine.preemption.candidates import PotentialVictim
from cpg_engine.preemption.sparing import Room, put_back, seated, spared
from cpg_engine.preemption.trying import Seats
from cpg_engine.preemption.values import VictimUnit
from cpg_engine.testing.preemption_case import PreemptionCase, names

KEY = GroupKey("Pod", "ns", "p")


@pytest.fixture
def arena() -> PreemptionCase:
    """Return two nodes, on which lesser pods run, and a gang of two."""
    pods = [
        {"pod": "big=2 on a", "priority": 2},
        {"pod": "small=1 on a", "priority": 1},
        {"pod": "else=1 on b", "priority": 1},
        "2x1@high",
    ]
    return PreemptionCase(["a 3", "b 1"], pods, {"high": {"gang": 2}})


def seats(arena: PreemptionCase, *nodes: str) -> Seats:
    """Return the pods that wait at these nodes."""
    pending = arena.unit.nodes[0].pending
    rows = arena.stage.snapshot.ledger.cluster.row_of
    return tuple((member, rows[name]) for member, name in zip(pending, nodes, strict=False))


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [(("a",), ["big", "else"]), (("a", "a"), ["small", "else"]), (("b",), ["big", "small"]), ((), None)],
)
def test_who_is_asked_first_stays_first(
    arena: PreemptionCase, nodes: tuple[str, ...], expected: list[str] | None
) -> None:
    """Whoever fits beside the seats stays where he is; who is on a node that is not needed, anyway."""
    everybody = arena.candidates()
    found = spared(arena.stage.snapshot, seats(arena, *nodes), everybody)
    assert sorted(names(found)) == sorted(expected or names(everybody))
    assert arena.stage.snapshot.ledger.mark() == 0


def test_batches_are_halved_where_they_do_not_fit() -> None:
    """The order stays that in which they are asked."""
    asked = []

    some = [PotentialVictim(VictimUnit(key=KEY, priority=number, since="", pods=()), (), ()) for number in (1, 2, 3, 4)]

    def fit(batch: Sequence[PotentialVictim]) -> bool:
        asked.append([found.unit.priority for found in batch])
        return some[2] not in batch

    assert put_back(some, fit) == [some[0], some[1], some[3]]
    assert asked == [[1, 2, 3, 4], [1, 2], [3, 4], [3], [4]]
    assert put_back([], fit) == []


def test_room_tells_what_is_short(arena: PreemptionCase) -> None:
    """The first node by name and the first resource, of those that somebody asks for there."""
    snapshot, everybody = arena.stage.snapshot, arena.candidates()
    by_name: dict[str, PotentialVictim] = dict(zip(names(everybody), everybody, strict=True))
    with seated(snapshot, seats(arena, "a", "b"), everybody):
        room = Room(snapshot, seats(arena, "a", "b"))
        assert room.short(by_name["big"]) is None
        assert room.take([by_name["big"]])
        assert room.short(by_name["small"]) == (snapshot.ledger.cluster.row_of["a"], "cpu", 1000)
        assert not room.take([by_name["small"]])
        room.give_back([by_name["big"]])
        assert room.take([by_name["small"]])


PORT = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}, "ports": [{"hostPort": 80}]}]}


def test_who_is_in_the_way_goes_whatever_the_room() -> None:
    """Of two with room for both beside the newcomer, the one with its host port goes."""
    pods = [
        {"pod": "rival= on a", "priority": 2, **PORT},
        {"pod": "mate=1 on a", "priority": 1},
        {"pod": "1x@high", **PORT},
    ]
    arena = PreemptionCase(["a 4"], pods, {"high": {"gang": 1}})
    everybody = arena.candidates()
    assert names(spared(arena.stage.snapshot, seats(arena, "a"), everybody)) == ["mate"]


def test_the_gang_itself_keeps_nobody_from_staying() -> None:
    """A pod that its own mates would not let in any more is not held against those who have nothing to do with it."""
    spread = [
        {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"a": "b"}}}
    ]
    pods = [
        {"pod": "low=1 on a", "priority": 1},
        {"pod": "first=1@high", "labels": {"a": "b"}, "topologySpreadConstraints": spread},
        {"pod": "2x1@high", "labels": {"a": "b"}},
    ]
    arena = PreemptionCase(["a 4 zone=x", "b 4 zone=y"], pods, {"high": {"gang": 3}})
    found = spared(arena.stage.snapshot, seats(arena, "a", "a", "a"), arena.candidates())
    assert names(found) == ["low"]
