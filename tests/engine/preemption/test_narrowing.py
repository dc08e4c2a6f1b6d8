"""As few nodes as possible."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpg_engine.preemption.narrowing import narrowed, smallest
from cpg_engine.testing.preemption_case import PreemptionCase, names
from cpg_engine.testing.strategies import cases


@cases(200)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 60))
def test_the_smallest_success_is_found(most: int, threshold: int, least: int) -> None:
    """Nothing below what is known to be the least is tried, nothing twice, and all in all not much."""
    asked = []

    def attempt(number: int) -> int | None:
        asked.append(number)
        return number if number >= threshold else None

    least = min(least, threshold)
    assert smallest(attempt, least, most) == (threshold if threshold <= most else None)
    assert all(least <= number <= most for number in asked)
    assert len(asked) == len(set(asked)) <= 14


def test_of_nothing_nothing_is_asked() -> None:
    """There is no number to try."""
    assert smallest(lambda _: pytest.fail("asked"), 1, 0) is None


def test_only_the_nodes_that_are_needed_are_cleared() -> None:
    """Room that is there counts; of the nodes those are cleared that give most for least."""
    pods = [
        {"pod": "cheap=2 on b", "priority": 1},
        {"pod": "dear=2x1 on c", "priority": 1},
        {"pod": "useless=1 on d", "priority": 1},
        "strong=3 on d",
        "3x1@high",
    ]
    arena = PreemptionCase(["a 1", "b 2", "c 2", "d 4"], pods, {"high": {"gang": 3}})
    found = narrowed(arena.case(3), arena.candidates())
    assert found is not None
    assert names(found.gone) == ["cheap"]
    assert len(found.seats) == 3


def test_clearing_everything_may_not_be_enough() -> None:
    """Then there is no attempt."""
    arena = PreemptionCase(["a 1"], [{"pod": "low=1 on a", "priority": 1}, "3x1@high"], {"high": {"gang": 1}})
    assert narrowed(arena.case(2), arena.candidates()) is None


def test_a_group_that_goes_as_a_whole_is_one_however_many_nodes_it_frees() -> None:
    """It goes rather than three others where three nodes are needed, and stays where one is."""
    pods = [
        *({"pod": f"w{place}=1@whole on a{place}", "priority": 1} for place in (1, 2, 3)),
        *({"pod": f"s{place}=1 on b{place}", "priority": 1} for place in (1, 2, 3)),
        "3x1@high",
    ]
    groups = {"high": {"gang": 1}, "whole": {"gang": 3, "whole": True, "priority": 1}}
    arena = PreemptionCase([f"{side}{place} 1" for side in "ab" for place in (1, 2, 3)], pods, groups)
    all_three, one = narrowed(arena.case(3), arena.candidates()), narrowed(arena.case(1), arena.candidates())
    assert all_three is not None
    assert one is not None
    assert (names(all_three.gone), names(one.gone)) == (["whole"], ["s3"])


@cases(100)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 14))
def test_who_is_tired_ends_with_a_success_if_there_is_one(most: int, threshold: int, patience: int) -> None:
    """It need not be the smallest any more, and at most one more number is asked for, which is the most."""
    asked: list[int] = []

    def attempt(number: int) -> int | None:
        asked.append(number)
        return number if number >= threshold else None

    found = smallest(attempt, 1, most, tired=lambda: len(asked) > patience)
    assert (found is None) == (threshold > most)
    assert found is None or threshold <= found <= most
    assert len(asked) <= max(patience, 1) + 2
