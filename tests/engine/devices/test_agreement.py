"""The search agrees with a slow, obvious model: what it finds is valid, and it finds something if anything is valid."""

from collections import Counter

import msgspec
import pytest
from tests.engine.devices.allocation_model import AllocationModel, TooManyError
from tests.engine.devices.device_cases import random_case
from tests.engine.devices.plain_search import EndedByError, EndedByLimitError, PlainSearch, random_problem

from cpg_engine.devices.search import DeviceSearch
from cpg_engine.devices.shapes import DeviceRequestError
from cpg_engine.devices.values import FREE
from cpg_engine.testing.device_case import DeviceCase, allocate

CASES = 600
PROBLEMS = 1500


def test_the_search_agrees_with_the_model() -> None:
    """On random cases, as far as all combinations can be tried; searches that end with an error are left out."""
    checked = {True: 0, False: 0}
    for seed in range(CASES):
        case = msgspec.convert(random_case(seed), DeviceCase)
        outcome = allocate(case)
        if outcome.reason or outcome.is_cut:
            continue
        try:
            model = AllocationModel(case)
            if outcome.results is None:
                assert not model.is_possible(), seed
            else:
                chosen = [
                    model.chosen(claim, result.devices.results or ())
                    for claim, result in zip(case.claims, outcome.results, strict=True)
                ]
                assert model.is_valid(chosen), seed
        except (TooManyError, DeviceRequestError):
            continue
        checked[outcome.results is not None] += 1
    assert min(checked.values()) > CASES / 10, checked


@pytest.mark.parametrize("max_results", [32, 4])
def test_the_shortcuts_of_the_search_change_nothing(monkeypatch: pytest.MonkeyPatch, max_results: int) -> None:
    """The picks are those of a search that tries every combination in upstream's order; an error counts as nothing.

    A search leaves nothing behind for the next one.
    """
    monkeypatch.setattr("cpg_engine.devices.search.MAX_RESULTS", max_results)
    found = Counter[str]()
    for seed in range(PROBLEMS):
        problem = random_problem(seed)
        plain = PlainSearch(problem, max_results)
        try:
            expected = plain.run()
        except EndedByError:
            expected = None
        except EndedByLimitError:
            found["ended by the limit"] += 1
            continue
        repeated = DeviceSearch(problem.shape, problem.views)
        results = [
            repeated.find(states, 100_000) for states in (problem.states, (FREE,) * len(problem.views), problem.states)
        ]
        assert (results[0].picks, results[0].is_cut) == (expected, False), seed
        assert results[2] == results[0], seed
        found["nothing" if expected is None else "picks"] += 1
    assert min(found["nothing"], found["picks"]) > PROBLEMS / 5, found
