"""Reprieve."""

from collections.abc import Sequence

import pytest

from cpg_api.scheduling.forest import GroupKey
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.preemption.reprieve import AssignedRoom, reprieve, reprieve_until_stable, reprieved, restore_in_batches
from cpg_engine.preemption.simulation import Assignments, PreemptionCandidate, preempted
from cpg_engine.preemption.values import VictimUnit
from cpg_engine.preemption.victims import PotentialVictim
from cpg_engine.testing.preemption_case import PreemptionCase, names

KEY = GroupKey("Pod", "ns", "p")


@pytest.fixture
def case() -> PreemptionCase:
    """Return two nodes, on which lesser pods run, and a gang of two."""
    pods = [
        {"pod": "big=2 on a", "priority": 2},
        {"pod": "small=1 on a", "priority": 1},
        {"pod": "else=1 on b", "priority": 1},
        "2x1@high",
    ]
    return PreemptionCase(["a 3", "b 1"], pods, {"high": {"gang": 2}})


def seats(case: PreemptionCase, *nodes: str) -> Assignments:
    """Return the pods that wait at these nodes."""
    pending = case.unit.nodes[0].pending
    rows = case.simulator.snapshot.ledger.cluster.row_of
    return tuple((member, rows[name]) for member, name in zip(pending, nodes, strict=False))


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [(("a",), ["big", "else"]), (("a", "a"), ["small", "else"]), (("b",), ["big", "small"]), ((), None)],
)
def test_who_is_asked_first_stays_first(
    case: PreemptionCase, nodes: tuple[str, ...], expected: list[str] | None
) -> None:
    """Whoever fits beside the seats stays where he is; who is on a node that is not needed, anyway."""
    everybody = case.potential_victims()
    found = reprieved(case.simulator.snapshot, seats(case, *nodes), everybody)
    assert sorted(names(found)) == sorted(expected or names(everybody))
    assert case.simulator.snapshot.ledger.mark() == 0


def test_batches_are_halved_where_they_do_not_fit() -> None:
    """The order stays that in which they are asked."""
    asked = []

    some = [PotentialVictim(VictimUnit(key=KEY, priority=number, since="", pods=()), (), ()) for number in (1, 2, 3, 4)]

    def fit(batch: Sequence[PotentialVictim]) -> bool:
        asked.append([found.unit.priority for found in batch])
        return some[2] not in batch

    assert restore_in_batches(some, fit) == [some[0], some[1], some[3]]
    assert asked == [[1, 2, 3, 4], [1, 2], [3, 4], [3], [4]]
    assert restore_in_batches([], fit) == []


def test_room_tells_what_is_short(case: PreemptionCase) -> None:
    """The first node by name and the first resource, of those that somebody asks for there."""
    snapshot, everybody = case.simulator.snapshot, case.potential_victims()
    by_name: dict[str, PotentialVictim] = dict(zip(names(everybody), everybody, strict=True))
    with preempted(snapshot, seats(case, "a", "b"), everybody):
        room = AssignedRoom(snapshot, seats(case, "a", "b"))
        assert room.shortage(by_name["big"]) is None
        assert room.take([by_name["big"]])
        assert room.shortage(by_name["small"]) == (snapshot.ledger.cluster.row_of["a"], "cpu", 1000)
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
    case = PreemptionCase(["a 4"], pods, {"high": {"gang": 1}})
    everybody = case.potential_victims()
    assert names(reprieved(case.simulator.snapshot, seats(case, "a"), everybody)) == ["mate"]


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
    case = PreemptionCase(["a 4 zone=x", "b 4 zone=y"], pods, {"high": {"gang": 3}})
    found = reprieved(case.simulator.snapshot, seats(case, "a", "a", "a"), case.potential_victims())
    assert names(found) == ["low"]


def test_who_may_stay_stays_and_the_search_has_the_last_word() -> None:
    """Both are gone in the attempt; one is enough, and the seats are what the search then finds."""
    pods = [{"pod": "low=2x1 on a", "priority": 1}, "1x1@high"]
    case = PreemptionCase(["a 2"], pods, {"high": {"gang": 1}})
    problem, everybody = case.problem(1), case.potential_victims()
    attempt = PreemptionCandidate(everybody, problem.simulation.assign(everybody))
    found = reprieve_until_stable(problem, attempt)
    assert (names(found.victims), found.assignments) == (["low-2"], problem.simulation.assign(found.victims))
    assert reprieve(problem, found) is found


def uneven(budget: int) -> PreemptionCase:
    """Return a gang of two shapes that the search places only where it is not led astray.

    With everybody gone the large pod goes to the large node. With ``left`` there, that is only as large as the other,
    and the small pod, which comes first, would take the room of the large one.
    """
    pods = [
        {"pod": "left=1 on a", "priority": 2},
        {"pod": "right=1 on b", "priority": 1},
        {"pod": "small=1@high"},
        {"pod": "large=2@high"},
    ]
    return PreemptionCase(["a 3", "b 2"], pods, {"high": {"gang": 2}}, options=SearchOptions(budget=budget))


def test_where_the_search_would_miss_it_is_asked_for_every_reprieve() -> None:
    """Whoever is put back, the next cycle still finds a place; nobody is evicted who need not be by that."""
    case = uneven(100)
    problem, everybody = case.problem(2), case.potential_victims()
    (small, large), (a, b) = case.unit.nodes[0].pending, (0, 1)
    found = reprieve_until_stable(problem, PreemptionCandidate(everybody, ((small, b), (large, a))))
    assert problem.is_solved_by(problem.simulation.assign(found.victims))
    assert names(found.victims)


def test_without_a_budget_the_search_is_not_asked_again() -> None:
    """Then all go that the attempt was made with."""
    case = uneven(0)
    problem, everybody = case.problem(2), case.potential_victims()
    (small, large), (a, b) = case.unit.nodes[0].pending, (0, 1)
    assert reprieve_until_stable(problem, PreemptionCandidate(everybody, ((small, b), (large, a)))).victims
