"""The goals of the comparison with kube-scheduler."""

from dataclasses import replace

import pytest
from backlogs import CASES, Case
from tables import shortfalls
from timed_runs import OURS, PEER, RunResult

CASE = next(case for case in CASES if case.name == "small-gangs")
LIMIT = 1000.0


def result(contender: str, seconds: float, bound: int = 3000) -> RunResult:
    """Return a run of 3,000 pods."""
    return RunResult(contender, pods=3000, bound=bound, seconds=seconds)


@pytest.mark.parametrize(
    ("case", "ours", "peer", "says"),
    [
        (CASE, result(OURS, 4), result(PEER, 16), []),
        (CASE, result(OURS, 4), result(PEER, 15), ["small-gangs: 3.75x, and the goal is 4x"]),
        (CASE, result(OURS, 4), result(PEER, 15, 100), ["small-gangs: at least 3.75x, and the goal is 4x"]),
        (CASE, result(OURS, 6), result(PEER, 24), ["small-gangs: 50% of the limit of binds, and the goal is 60%"]),
        (replace(CASE, share=0.0), result(OURS, 6), result(PEER, 24), []),
        (
            replace(CASE, share=0.0),
            result(OURS, 4, 17),
            result(PEER, 99),
            ["small-gangs: given up with 17 of 3000 pods bound"],
        ),
    ],
)
def test_missed_goals_are_named(case: Case, ours: RunResult, peer: RunResult, says: list[str]) -> None:
    """A ratio, a share of the API server's limit, or a stopped run; nothing else."""
    assert list(shortfalls(case, [ours, peer], LIMIT)) == says


def test_medians_are_compared_with_the_goal() -> None:
    """One outlier of three runs decides nothing."""
    runs = [result(OURS, seconds) for seconds in (4, 4, 40)] + [result(PEER, seconds) for seconds in (1, 16, 16)]
    assert list(shortfalls(CASE, runs, LIMIT)) == []


def test_a_goal_without_both_schedulers_is_missed() -> None:
    """Without both there is no ratio."""
    assert list(shortfalls(CASE, [result(OURS, 1)], LIMIT)) == ["small-gangs: no ratio, since both have to be measured"]


def test_gangs_and_trees_have_a_goal_for_the_limit_of_binds() -> None:
    """Plain pods and preemption have none."""
    assert {case.name for case in CASES if case.share} == {
        "small-gangs",
        "large-gangs",
        "rack-gangs",
        "large-rack-gangs",
        "trees",
    }
