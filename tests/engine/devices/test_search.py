"""The search for devices, from objects to results."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from cpg_api.core.devices import DeviceClass, DeviceConstraint, DeviceResult, ResourceClaimSpec, ResourceSlice
from cpg_engine.devices.search import after, search
from cpg_engine.devices.values import PoolState
from cpg_engine.testing.device_builders import (
    GPU_DRIVER,
    alternative,
    claim_spec,
    device,
    device_claim,
    device_class,
    device_request,
    device_slice,
    first_available,
    policy,
)
from cpg_engine.testing.device_case import DeviceCase, DeviceOutcome, allocate, compile_case

MODEL = f"{GPU_DRIVER}/model"
BIG = f'device.attributes["{GPU_DRIVER}"].model == "big"'
SAME_MODEL = DeviceConstraint(match_attribute=MODEL)
OTHER_MODEL = DeviceConstraint(distinct_attribute=MODEL)


def case(
    slices: Sequence[ResourceSlice],
    *specs: ResourceClaimSpec,
    classes: Sequence[DeviceClass] = (device_class(),),
    taken: Sequence[str] = (),
) -> DeviceCase:
    """Return a case with claims named c0, c1 and so on, and with devices of the node's pool that others have."""
    return DeviceCase(
        slices=tuple(slices),
        claims=tuple(device_claim(f"c{index}", one) for index, one in enumerate(specs)),
        classes=tuple(classes),
        allocated=tuple(DeviceResult(driver=GPU_DRIVER, pool="n0", device=one) for one in taken),
    )


def found(outcome: DeviceOutcome) -> list[list[str]] | None:
    """Return request and device of each result, by claim."""
    if outcome.results is None:
        return None
    return [[f"{one.request} {one.device}" for one in result.devices.results or ()] for result in outcome.results]


def models(*names: str) -> ResourceSlice:
    """Return a slice with devices d0, d1 and so on of these models; ``-`` has none."""
    return device_slice(
        *(device(f"d{index}", {} if name == "-" else {"model": name}) for index, name in enumerate(names))
    )


def test_the_first_free_devices_are_picked() -> None:
    """In the order of the slice, for one request after the other and one claim after the other."""
    slices = [device_slice("a", "b", "c", "d")]
    outcome = allocate(
        case(slices, claim_spec(device_request(), device_request("r1")), claim_spec(device_request()), taken=["b"])
    )
    assert found(outcome) == [["r0 a", "r1 c"], ["r0 d"]]


def test_too_few_devices() -> None:
    """Nothing is allocated, and the search knows it at once."""
    outcome = allocate(case([device_slice("a", "b")], claim_spec(device_request(count=3))))
    assert (outcome.results, outcome.reason, outcome.steps) == (None, "", 0)


def test_requests_share_the_devices() -> None:
    """Also if each of them alone could be satisfied."""
    requests = [device_request(f"r{index}", count=2) for index in range(3)]
    outcome = allocate(case([device_slice("a", "b", "c", "d", "e")], claim_spec(*requests)))
    assert (outcome.results, outcome.steps) == (None, 0)


def test_an_earlier_request_gives_way() -> None:
    """The first request takes the second device, because the second request accepts only the first."""
    outcome = allocate(case([models("big", "small")], claim_spec(device_request(), device_request("r1", BIG))))
    assert found(outcome) == [["r0 d1", "r1 d0"]]


def test_the_first_alternative_that_fits_is_chosen() -> None:
    """Results name request and alternative."""
    request = first_available("r0", alternative("two", BIG, count=2), alternative("one", count=1))
    assert found(allocate(case([models("big", "big")], claim_spec(request)))) == [["r0/two d0", "r0/two d1"]]
    assert found(allocate(case([models("big", "small")], claim_spec(request)))) == [["r0/one d0"]]


def test_all_devices() -> None:
    """Those that match, or none at all if one of them is taken, or if there are none."""
    spec = claim_spec(device_request("r0", BIG, allocation_mode="All"))
    assert found(allocate(case([models("big", "small", "big")], spec))) == [["r0 d0", "r0 d2"]]
    assert found(allocate(case([models("big", "small", "big")], spec, taken=["d2"]))) is None
    assert found(allocate(case([models("small")], spec))) is None


def test_all_devices_leave_nothing_behind_where_they_fail() -> None:
    """The devices that were taken before the failure are free for the next alternative."""
    request = first_available("r1", alternative("all", allocation_mode="All"), alternative("one", count=2))
    outcome = allocate(case([models("big", "small", "small")], claim_spec(device_request("r0", BIG), request)))
    assert found(outcome) == [["r0 d0", "r1/one d1", "r1/one d2"]]
    followed = claim_spec(request, device_request("r2", BIG))
    assert found(allocate(case([models("small", "small", "big")], followed))) == [["r1/one d0", "r1/one d1", "r2 d2"]]


def test_devices_that_match_in_an_attribute() -> None:
    """The first value that enough free devices have."""
    spec = claim_spec(device_request(count=2), constraints=[SAME_MODEL])
    assert found(allocate(case([models("a", "b", "-", "b", "a")], spec))) == [["r0 d0", "r0 d4"]]
    assert found(allocate(case([models("a", "b", "-", "b", "a")], spec, taken=["d4"]))) == [["r0 d1", "r0 d3"]]
    assert found(allocate(case([models("a", "b")], spec))) is None


def test_devices_that_differ_in_an_attribute() -> None:
    """Each value once."""
    spec = claim_spec(device_request(count=2), constraints=[OTHER_MODEL])
    assert found(allocate(case([models("a", "a", "-", "b")], spec))) == [["r0 d0", "r0 d3"]]
    assert found(allocate(case([models("a", "a")], spec))) is None


def test_a_constraint_for_some_requests() -> None:
    """Others are free to take any device; the name of a request stands for all of its alternatives."""
    constraint = DeviceConstraint(match_attribute=MODEL, requests=("r0", "r2/x"))
    other = first_available("r2", alternative("x"))
    spec = claim_spec(device_request(), device_request("r1"), other, constraints=[constraint])
    assert found(allocate(case([models("a", "b", "a")], spec))) == [["r0 d0", "r1 d1", "r2/x d2"]]


def test_a_constraint_against_all_devices_is_an_error() -> None:
    """As upstream has it: no other alternative is tried."""
    request = first_available("r0", alternative("all", allocation_mode="All"), alternative("one"))
    outcome = allocate(case([models("a", "b")], claim_spec(request, constraints=[SAME_MODEL])))
    assert (outcome.results, outcome.reason) == (
        None,
        "all devices are requested, but a constraint excludes one of them",
    )


def test_equal_devices_are_not_tried_in_each_combination() -> None:
    """Upstream tries 10^14 combinations of 16 of 64 devices before it knows that two others cannot have one device."""
    slices = [models(*["small"] * 64, "big")]
    outcome = allocate(
        case(slices, claim_spec(device_request(count=16), *(device_request(n, BIG) for n in ("r1", "r2"))))
    )
    assert (outcome.results, outcome.is_cut) == (None, False)
    assert outcome.steps < 50
    spec = claim_spec(device_request("r0", count=16), device_request("r1", count=16), constraints=[SAME_MODEL])
    outcome = allocate(case([models(*["a", "b", "c"] * 12)], spec))
    assert (outcome.results, outcome.is_cut) == (None, False)
    assert outcome.steps < 200


def test_the_search_ends_with_its_steps() -> None:
    """It then says that it does not know."""
    outcome = allocate(case([models("a", "b", "a")], claim_spec(device_request(count=3))), max_steps=2)
    assert (outcome.results, outcome.is_cut) == (None, True)


def test_a_selector_that_fails_ends_the_search() -> None:
    """If it is reached: a device before it is picked without it, as upstream does."""
    spec = claim_spec(device_request("r0", BIG))
    assert found(allocate(case([models("big", "-")], spec))) == [["r0 d0"]]
    outcome = allocate(case([models("small", "-", "big")], spec))
    assert (outcome.results, outcome.reason) == (None, "no such key: model")
    everything = claim_spec(device_request("r0", BIG, allocation_mode="All"))
    assert allocate(case([models("big", "-")], everything)).reason == "no such key: model"


def test_no_more_than_32_results() -> None:
    """A claim takes a smaller alternative, but a request for more is refused."""
    slices = [device_slice(*(f"d{index}" for index in range(40)))]
    many, few = alternative("many", count=20), alternative("few", count=1)
    outcome = allocate(case(slices, claim_spec(first_available("r0", many, few), device_request("r1", count=20))))
    assert [len(one) for one in found(outcome) or ()] == [21]
    refused = allocate(case(slices, claim_spec(device_request(count=20), device_request("r1", count=20))))
    assert refused.reason == "a claim asks for 40 devices, but can have at most 32"
    assert allocate(case(slices, claim_spec(device_request(allocation_mode="All")))).results is None


def test_other_devices_do_not_help_against_too_many_results() -> None:
    """The next alternative is tried at once, although there are many combinations of devices for the first."""
    slices = [models(*(f"m{index % 20}" for index in range(40)))]
    request = first_available("r0", alternative("many", count=20), alternative("few"))
    constraint = DeviceConstraint(match_attribute=MODEL, requests=("r2",))
    spec = claim_spec(request, device_request("r1", count=13), device_request("r2"), constraints=[constraint])
    outcome = allocate(case(slices, spec))
    assert [len(one) for one in found(outcome) or ()] == [15]
    assert outcome.steps < 50


def test_admin_access() -> None:
    """It has devices that are allocated already, takes none, and counts each device once in a claim."""
    slices = [device_slice("a", "b")]
    admin = claim_spec(device_request("r0", admin_access=True, allocation_mode="All"))
    assert found(allocate(case(slices, admin, taken=["a"]))) == [["r0 a", "r0 b"]]
    two = claim_spec(device_request("r0", admin_access=True), device_request("r1", admin_access=True))
    assert found(allocate(case(slices, two, taken=["a", "b"]))) == [["r0 a", "r1 b"]]
    mixed = claim_spec(device_request("r0", admin_access=True), device_request("r1", count=2))
    assert found(allocate(case(slices, mixed))) is None


@pytest.mark.parametrize("count", [0, 1])
def test_a_claim_without_requests(count: int) -> None:
    """It is allocated without devices."""
    specs = [claim_spec()] * count
    assert found(allocate(case([device_slice("a")], *specs, claim_spec(device_request())))) == [*[[]] * count, ["r0 a"]]
    assert found(allocate(case([], *specs))) == [[]] * count


def test_shares_of_a_device() -> None:
    """As long as its capacity suffices, for the same claim as well, and with what others have of it."""
    shared = device("a", capacity={"memory": policy(10, default=4)}, allow_multiple_allocations=True)
    requests = [device_request(f"r{index}") for index in range(3)]
    assert found(allocate(case([device_slice(shared)], claim_spec(*requests[:2])))) == [["r0 a", "r1 a"]]
    assert found(allocate(case([device_slice(shared)], claim_spec(*requests)))) is None
    both = case([device_slice(shared)], claim_spec(*requests[:2]))
    share = DeviceResult(driver=GPU_DRIVER, pool="n0", device="a", share_id="1", consumed_capacity={"memory": 3})
    assert found(allocate(replace(both, allocated=(share,)))) is None
    assert found(allocate(replace(both, allocated=(replace(share, admin_access=True),)))) == [["r0 a", "r1 a"]]
    assert found(allocate(case([device_slice(shared)], claim_spec(requests[0]), taken=["a"]))) is None


def test_a_device_with_shares_is_not_taken_as_a_whole() -> None:
    """Its driver may have stopped offering it to several claims; upstream gives it away twice."""
    share = DeviceResult(driver=GPU_DRIVER, pool="n0", device="a", share_id="1")
    assert found(allocate(replace(case([device_slice("a")], claim_spec(device_request())), allocated=(share,)))) is None


def test_counters_of_a_pool() -> None:
    """A device is picked while all counters of its pool suffice; devices that are allocated have theirs."""
    devices = [device(f"d{index}", counters={"s": {"slots": 1 + index % 2}}) for index in range(4)]
    slices = [device_slice(*devices, count=2, name="a"), device_slice(count=2, name="b", counters={"s": {"slots": 4}})]
    spec = claim_spec(device_request(count=3))
    assert found(allocate(case(slices, spec))) == [["r0 d0", "r0 d1", "r0 d2"]]
    assert found(allocate(case(slices, spec, taken=["d1"]))) is None
    two = claim_spec(device_request(count=2))
    assert found(allocate(case(slices, two, taken=["d1"]))) == [["r0 d0", "r0 d2"]]


def test_all_shares_of_a_device_have_its_counters_once() -> None:
    """The first share takes them."""
    shared = device("a", counters={"s": {"slots": 2}}, allow_multiple_allocations=True)
    slices = [
        device_slice(shared, device("b", {"model": "big"}, counters={"s": {"slots": 1}}), count=2, name="a"),
        device_slice(count=2, name="b", counters={"s": {"slots": 2}}),
    ]
    spec = claim_spec(device_request("r0"), device_request("r1"))
    assert found(allocate(case(slices, spec))) == [["r0 a", "r1 a"]]
    share = DeviceResult(driver=GPU_DRIVER, pool="n0", device="a", share_id="1")
    assert found(allocate(replace(case(slices, spec), allocated=(share,)))) == [["r0 a", "r1 a"]]


def test_the_states_after_a_search() -> None:
    """Devices are taken, shared ones consumed, and admin access takes nothing."""
    shared = device("b", {"model": "big"}, capacity={"memory": 4}, allow_multiple_allocations=True)
    requests = [
        device_request("r0"),
        device_request("r1", BIG, capacity={"memory": 1}),
        device_request("r2", BIG, capacity={"memory": 2}),
        device_request("r3", f'device.attributes["{GPU_DRIVER}"].model == "small"', admin_access=True),
    ]
    devices = [device("a", {"model": "any"}), shared, device("c", {"model": "small"})]
    problem = compile_case(case([device_slice(*devices)], claim_spec(*requests)))
    result = search(problem.shape, problem.views, problem.states, 100)
    assert after(problem.shape, problem.views, problem.states, result.picks or ()) == (
        PoolState(taken=0b001, consumed=((1, (("memory", 3 * 10**9),)),)),
    )


def test_results_of_pools_that_are_gone_take_nothing() -> None:
    """Nor do those of devices that are not offered any more."""
    gone = DeviceResult(driver=GPU_DRIVER, pool="n1", device="a")
    one = replace(case([device_slice("a")], claim_spec(device_request()), taken=["gone"]), allocated=(gone,))
    assert found(allocate(one)) == [["r0 a"]]
