"""The search agrees with a slow, obvious model: what it finds is valid, and it finds something if anything is valid."""

import msgspec
from tests.engine.devices.allocation_model import AllocationModel, TooManyError
from tests.engine.devices.device_cases import random_case

from cpg_engine.devices.shapes import DeviceRequestError
from cpg_engine.testing.device_case import DeviceCase, allocate

CASES = 600


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
