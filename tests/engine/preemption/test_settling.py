"""Reprieve and search together."""

from cpg_engine.gangs.search import SearchOptions
from cpg_engine.preemption.case import Attempt
from cpg_engine.preemption.settling import reprieved, settled
from cpg_engine.testing.preemption_case import PreemptionCase, names


def test_who_may_stay_stays_and_the_search_has_the_last_word() -> None:
    """Both are gone in the attempt; one is enough, and the seats are what the search then finds."""
    pods = [{"pod": "low=2x1 on a", "priority": 1}, "1x1@high"]
    arena = PreemptionCase(["a 2"], pods, {"high": {"gang": 1}})
    case, everybody = arena.case(1), arena.candidates()
    attempt = Attempt(everybody, case.trials.seats(everybody))
    found = settled(case, attempt)
    assert (names(found.gone), found.seats) == (["low-2"], case.trials.seats(found.gone))
    assert reprieved(case, found) is found


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
    arena = uneven(100)
    case, everybody = arena.case(2), arena.candidates()
    (small, large), (a, b) = arena.unit.nodes[0].pending, (0, 1)
    found = settled(case, Attempt(everybody, ((small, b), (large, a))))
    assert case.reaches(case.trials.seats(found.gone))
    assert names(found.gone)


def test_without_a_budget_the_search_is_not_asked_again() -> None:
    """Then all go that the attempt was made with."""
    arena = uneven(0)
    case, everybody = arena.case(2), arena.candidates()
    (small, large), (a, b) = arena.unit.nodes[0].pending, (0, 1)
    assert settled(case, Attempt(everybody, ((small, b), (large, a)))).gone
