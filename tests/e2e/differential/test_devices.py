"""Our allocator of devices and that of Kubernetes give the same answers to random cases.

The suite compares 1,000 cases. ``make fuzz-devices`` compares ``DEVICE_CASES`` from ``DEVICE_SEED`` on, and writes a
result file.
"""

import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import result_files
from tests.engine.devices.device_cases import random_case

from cpg_api.core.devices import AllocationResult
from cpg_api.decoding import decode
from cpg_api.quantity import nano_value
from cpg_engine.testing.device_case import DeviceCase, DeviceOutcome, allocate, compile_case
from cpg_lab import building
from cpg_lab.device_allocation import DeviceAnswer, Dracheck

pytestmark = pytest.mark.e2e

CASES = int(os.environ.get("DEVICE_CASES", "1000"))
FIRST_SEED = int(os.environ.get("DEVICE_SEED", "0"))
RESULTS = os.environ.get("DEVICE_RESULTS", "")
"""The folder for the result file; empty if the results are not kept."""
CASES_AT_ONCE = 500
FAILED_SELECTOR = re.compile(r"on device ([^/]+)/([^/]+)/([^:]+): CEL runtime error")

Differences = dict[int, tuple[object, object]]


def comparable(results: Sequence[AllocationResult] | None) -> object:
    """Return allocations without what may differ: identifiers of shares, spelling of quantities, empty lists."""
    if results is None:
        return None
    found: list[Any] = msgspec.to_builtins(results)
    for result in found:
        for device in result["devices"].get("results", ()):
            device["shareID"] = "shareID" in device
            amounts = device.get("consumedCapacity", {})
            device["consumedCapacity"] = {name: nano_value(amount) for name, amount in amounts.items()}
    return without_empty(found)


def without_empty(found: object) -> object:
    """Return the value without empty lists and maps, which upstream writes in places."""
    if isinstance(found, dict):
        return {key: kept for key, value in found.items() if (kept := without_empty(value)) not in ({}, [], None)}
    return [without_empty(one) for one in found] if isinstance(found, list | tuple) else found


def differs_on_purpose(case: DeviceCase, answer: DeviceAnswer) -> bool:
    """Return whether upstream does what ours does not.

    It evaluates selectors for devices that the node cannot use, and fails if they fail. It gives a device away as a
    whole that has shares, but cannot be shared any more.
    """
    problem = compile_case(case)
    failed = FAILED_SELECTOR.search(answer.error)
    if failed is not None:
        return failed.groups() not in {device.id for target in problem.targets for device in target.devices}
    return any(
        device.position in dict(state.consumed) and not device.device.allow_multiple_allocations
        for target, state in zip(problem.targets, problem.states, strict=True)
        for device in target.devices
    )


def compare(seeds: range, dracheck: Dracheck, verdicts: Counter[str]) -> Differences:
    """Return the cases in which the answers differ, by seed; count what upstream answers."""
    cases = [random_case(seed) for seed in seeds]
    differences: Differences = {}
    for seed, plain, answer in zip(seeds, cases, dracheck.solve(cases), strict=True):
        case = decode(msgspec.json.encode(plain), DeviceCase)
        outcome: DeviceOutcome = allocate(case)
        if answer.late or outcome.is_cut:
            verdicts["broken off"] += 1
            continue
        verdicts["allocated" if answer.results is not None else "error" if answer.error else "nothing"] += 1
        ours, theirs = comparable(outcome.results), comparable(answer.results)
        if ours != theirs and not differs_on_purpose(case, answer):
            differences[seed] = (outcome.reason or ours, answer.error or theirs)
    return differences


def test_both_allocate_the_same_devices() -> None:
    """Or nothing: a request that upstream answers with an error is not allocated by ours either."""
    measured = result_files.measured_code()
    dracheck = Dracheck(building.ensure(["dracheck"])["dracheck"])
    verdicts: Counter[str] = Counter()
    differences: Differences = {}
    for first in range(FIRST_SEED, FIRST_SEED + CASES, CASES_AT_ONCE):
        seeds = range(first, min(first + CASES_AT_ONCE, FIRST_SEED + CASES))
        differences |= compare(seeds, dracheck, verdicts)
    if RESULTS:
        figures = {"cases": CASES, "first_seed": FIRST_SEED, "upstream": verdicts, "differences": [*differences]}
        result_files.write_result("devices", figures, measured=measured)
    assert differences == {}
    assert verdicts["allocated"] > CASES / 5
    assert verdicts["broken off"] < CASES / 100 + 1
