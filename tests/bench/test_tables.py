"""What the benchmark beside kube-scheduler says of its figures."""

from dataclasses import replace

import pytest
from backlogs import CASES, Case
from racing import OURS, PEER, Outcome
from tables import shortfalls

CASE = next(case for case in CASES if case.name == "small-gangs")
LIMIT = 1000.0


def outcome(contender: str, seconds: float, bound: int = 3000) -> Outcome:
    """Return a run of 3,000 pods."""
    return Outcome(contender, pods=3000, bound=bound, seconds=seconds)


@pytest.mark.parametrize(
    ("case", "ours", "peer", "says"),
    [
        (CASE, outcome(OURS, 4), outcome(PEER, 16), []),
        (CASE, outcome(OURS, 4), outcome(PEER, 15), ["small-gangs: 3.75x, and the goal is 4x"]),
        (CASE, outcome(OURS, 4), outcome(PEER, 15, 100), ["small-gangs: at least 3.75x, and the goal is 4x"]),
        (CASE, outcome(OURS, 6), outcome(PEER, 24), ["small-gangs: 50% of the limit of binds, and the goal is 60%"]),
        (replace(CASE, share=0.0), outcome(OURS, 6), outcome(PEER, 24), []),
        (
            replace(CASE, share=0.0),
            outcome(OURS, 4, 17),
            outcome(PEER, 99),
            ["small-gangs: given up with 17 of 3000 pods bound"],
        ),
    ],
)
def test_what_falls_short_is_named_with_its_goal(case: Case, ours: Outcome, peer: Outcome, says: list[str]) -> None:
    """A ratio, a share of what the API server can bind, or a run that was not done; nothing else."""
    assert list(shortfalls(case, [ours, peer], LIMIT)) == says


def test_medians_are_held_to_the_goal() -> None:
    """One odd run of three decides nothing."""
    runs = [outcome(OURS, seconds) for seconds in (4, 4, 40)] + [outcome(PEER, seconds) for seconds in (1, 16, 16)]
    assert list(shortfalls(CASE, runs, LIMIT)) == []


def test_half_a_comparison_is_none() -> None:
    """Who measured one of the two has not shown that a goal is reached."""
    assert list(shortfalls(CASE, [outcome(OURS, 1)], LIMIT)) == [
        "small-gangs: no ratio, since both have to be measured"
    ]


def test_gangs_are_held_to_the_limit_of_binds() -> None:
    """All that are placed together, and neither plain pods nor those that wait for evictions."""
    assert {case.name for case in CASES if case.share} == {
        "small-gangs",
        "large-gangs",
        "rack-gangs",
        "large-rack-gangs",
        "trees",
    }
