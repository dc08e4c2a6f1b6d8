"""Which victims may stay."""

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
    """Return two nodes with running pods of lower priority, and a gang of two."""
    pods = [
        {"pod": "big=2 on a", "priority": 2},
        {"pod": "small=1 on a", "priority": 1},
        {"pod": "else=1 on b", "priority": 1},
        "2x1@high",
    ]
    return PreemptionCase(["a 3", "b 1"], pods, {"high": {"gang": 2}})


def assigned(case: PreemptionCase, *nodes: str) -> Assignments:
    """Return the pending pods on these nodes."""
    pending = case.unit.nodes[0].pending
    rows = case.simulator.snapshot.ledger.cluster.row_of
    return tuple((member, rows[name]) for member, name in zip(pending, nodes, strict=False))


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [(("a",), ["big", "else"]), (("a", "a"), ["small", "else"]), (("b",), ["big", "small"]), ((), None)],
)
def test_the_first_in_order_stays(case: PreemptionCase, nodes: tuple[str, ...], expected: list[str] | None) -> None:
    """A unit that fits beside the assignments stays; so does every unit on a node that is not needed."""
    everybody = case.potential_victims()
    found = reprieved(case.simulator.snapshot, assigned(case, *nodes), everybody)
    assert sorted(names(found)) == sorted(expected or names(everybody))
    assert case.simulator.snapshot.ledger.mark() == 0


def test_batches_are_halved_where_they_do_not_fit() -> None:
    """The order is kept."""
    asked = []

    some = [PotentialVictim(VictimUnit(key=KEY, priority=number, since="", pods=()), (), ()) for number in (1, 2, 3, 4)]

    def fit(batch: Sequence[PotentialVictim]) -> bool:
        asked.append([found.unit.priority for found in batch])
        return some[2] not in batch

    assert restore_in_batches(some, fit) == [some[0], some[1], some[3]]
    assert asked == [[1, 2, 3, 4], [1, 2], [3, 4], [3], [4]]
    assert restore_in_batches([], fit) == []


def test_room_reports_the_shortage(case: PreemptionCase) -> None:
    """It is the first node by name and the first resource, of those requested there."""
    snapshot, everybody = case.simulator.snapshot, case.potential_victims()
    by_name: dict[str, PotentialVictim] = dict(zip(names(everybody), everybody, strict=True))
    with preempted(snapshot, assigned(case, "a", "b"), everybody):
        room = AssignedRoom(snapshot, assigned(case, "a", "b"))
        assert room.shortage(by_name["big"]) is None
        assert room.take([by_name["big"]])
        assert room.shortage(by_name["small"]) == (snapshot.ledger.cluster.row_of["a"], "cpu", 1000)
        assert not room.take([by_name["small"]])
        room.give_back([by_name["big"]])
        assert room.take([by_name["small"]])


PORT = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}, "ports": [{"hostPort": 80}]}]}


def test_a_conflicting_pod_is_evicted_whatever_the_room() -> None:
    """There is room for both beside the preemptor, but one uses its host port."""
    pods = [
        {"pod": "rival= on a", "priority": 2, **PORT},
        {"pod": "mate=1 on a", "priority": 1},
        {"pod": "1x@high", **PORT},
    ]
    case = PreemptionCase(["a 4"], pods, {"high": {"gang": 1}})
    everybody = case.potential_victims()
    assert names(reprieved(case.simulator.snapshot, assigned(case, "a"), everybody)) == ["mate"]


def test_the_gang_itself_prevents_no_reprieve() -> None:
    """A filter that the gang's own pods fail already is not held against unrelated units."""
    spread = [
        {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"a": "b"}}}
    ]
    pods = [
        {"pod": "low=1 on a", "priority": 1},
        {"pod": "first=1@high", "labels": {"a": "b"}, "topologySpreadConstraints": spread},
        {"pod": "2x1@high", "labels": {"a": "b"}},
    ]
    case = PreemptionCase(["a 4 zone=x", "b 4 zone=y"], pods, {"high": {"gang": 3}})
    found = reprieved(case.simulator.snapshot, assigned(case, "a", "a", "a"), case.potential_victims())
    assert names(found) == ["low"]


def test_a_reprieve_is_confirmed_by_the_search() -> None:
    """The candidate evicts both units; one is enough, and the assignments are those of the search without it."""
    pods = [{"pod": "low=2x1 on a", "priority": 1}, "1x1@high"]
    case = PreemptionCase(["a 2"], pods, {"high": {"gang": 1}})
    problem, everybody = case.problem(1), case.potential_victims()
    attempt = PreemptionCandidate(everybody, problem.simulation.assign(everybody))
    found = reprieve_until_stable(problem, attempt)
    assert (names(found.victims), found.assignments) == (["low-2"], problem.simulation.assign(found.victims))
    assert reprieve(problem, found) is found


def uneven(budget: int) -> PreemptionCase:
    """Return a gang of two shapes that the search places only in the emptier cluster.

    With ``left`` on its node, both nodes have equal room. Then each gets one of the large pods, and the last small pod
    finds no room, though all small pods would fit on the one node and both large ones on the other.
    """
    pods = [
        {"pod": "left=2 on a", "priority": 2},
        {"pod": "right=1 on b", "priority": 1},
        {"pod": "large=2x3@high"},
        {"pod": "small=3x2@high"},
    ]
    return PreemptionCase(["a 8", "b 6"], pods, {"high": {"gang": 5}}, options=SearchOptions(budget=budget))


def smalls_on_a(case: PreemptionCase) -> Assignments:
    """Return the assignments with which ``left`` may stay."""
    return tuple((pod, int(pod.uid.startswith("uid-default-large"))) for pod in case.unit.nodes[0].pending)


def test_a_search_that_misses_is_run_for_every_batch() -> None:
    """Whatever is put back, the next cycle still finds a placement; every unit that it shows to be unneeded stays."""
    case = uneven(100)
    problem, victims = case.problem(5), case.potential_victims()
    assert not problem.is_solved_by(problem.simulation.assign(victims[1:]))
    found = reprieve_until_stable(problem, PreemptionCandidate(victims, smalls_on_a(case)))
    assert problem.is_solved_by(problem.simulation.assign(found.victims))
    assert names(found.victims)


def test_without_a_budget_the_search_is_not_run_again() -> None:
    """Then the candidate keeps its victims."""
    case = uneven(0)
    problem, victims = case.problem(5), case.potential_victims()
    assert reprieve_until_stable(problem, PreemptionCandidate(victims, smalls_on_a(case))).victims == victims
