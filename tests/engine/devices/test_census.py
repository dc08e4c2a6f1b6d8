"""Why devices are not available."""

from collections import Counter
from typing import Any

from cpg_api.core.devices import Device, DeviceResult, DeviceTaint, ResourceSlice
from cpg_engine.cluster.device_selectors import selects
from cpg_engine.devices.census import Availability, DeviceCensus, take_census
from cpg_engine.devices.values import PoolId
from cpg_engine.testing.device_builders import (
    GPU_DRIVER,
    claim_spec,
    device,
    device_claim,
    device_class,
    device_request,
    device_slice,
    policy,
)
from cpg_engine.testing.device_case import DeviceCase, compile_case

BIG = f'device.attributes["{GPU_DRIVER}"].model == "big"'
IS_GPU = f'device.driver == "{GPU_DRIVER}"'
MODEL = {"model": "big"}


def taken(name: str, **fields: Any) -> DeviceResult:
    """Return a result for a device of the node's pool."""
    return DeviceResult(**{"driver": GPU_DRIVER, "pool": "n0", "device": name, **fields})


def census(*slices: ResourceSlice, allocated: tuple[DeviceResult, ...] = (), **asked: Any) -> DeviceCensus:
    """Return the census for one request of the class of GPUs for big models."""
    case = DeviceCase(
        slices=slices,
        claims=(device_claim("c", claim_spec(device_request("r", BIG, **asked))),),
        classes=(device_class("gpu", IS_GPU),),
        allocated=allocated,
    )
    found = compile_case(case)
    pools = [*zip(found.targets, found.states, strict=True)] * 2
    return take_census(found.shape, pools, selects)


def counts(*devices: Device, allocated: tuple[DeviceResult, ...] = (), **asked: Any) -> Counter[Availability]:
    """Return the counts for the devices of one slice."""
    return census(device_slice(*devices), allocated=allocated, **asked).alternatives[0]


def test_devices_are_counted_by_the_first_reason() -> None:
    """Each once, although the pool is seen from two nodes."""
    taint = DeviceTaint(key="k", effect="NoSchedule")
    devices = [
        device("a", MODEL, capacity={"memory": 8}),
        device("b", MODEL, capacity={"memory": 8}),
        device("c", {"model": "small"}),
        device("d"),
        device("e", MODEL, capacity={"memory": 2}),
        device("f", MODEL, capacity={"memory": 8}, taints=(taint,)),
    ]
    nic = device_slice("g", driver="nic.example.com")
    found = census(device_slice(*devices), nic, allocated=(taken("b"),), capacity={"memory": 4})
    assert found == DeviceCensus(
        alternatives=(
            Counter(
                {
                    Availability.FREE: 1,
                    Availability.TAKEN: 1,
                    Availability.UNMATCHED: 1,
                    Availability.FAILING: 1,
                    Availability.TOO_SMALL: 1,
                    Availability.TAINTED: 1,
                    Availability.OTHER_CLASS: 1,
                }
            ),
        ),
        failures=Counter({"no such key: model": 1}),
        problems={},
    )


def test_admin_access_minds_no_allocation() -> None:
    """The device is free for it."""
    assert counts(device("a", MODEL), allocated=(taken("a"),), admin_access=True) == {Availability.FREE: 1}


def test_shares_use_a_device_up() -> None:
    """A device that was taken as a whole is taken, whether or not it could be shared."""
    shared = device("a", MODEL, capacity={"memory": policy(4, default=2)}, allow_multiple_allocations=True)
    one, three = (taken("a", share_id="1", consumed_capacity={"memory": amount}) for amount in (1, 3))
    assert counts(shared) == {Availability.FREE: 1}
    assert counts(shared, allocated=(one,)) == {Availability.FREE: 1}
    assert counts(shared, allocated=(three,)) == {Availability.USED_UP: 1}
    assert counts(shared, allocated=(taken("a"),)) == {Availability.TAKEN: 1}
    assert counts(device("a", MODEL), allocated=(one,)) == {Availability.TAKEN: 1}


def test_devices_use_counters_up() -> None:
    """Those that are allocated, also to other nodes."""
    counters = {"s": {"slots": 1}}
    slices = [
        device_slice(
            *(device(name, MODEL, counters=counters) for name in "ab"), device("p", MODEL), name="s0", count=3
        ),
        device_slice(device("c", MODEL, counters=counters), node="n1", pool="n0", name="s1", count=3),
        device_slice(name="s2", count=3, counters={"s": {"slots": 2}}),
    ]
    assert census(*slices, allocated=(taken("c"),)).alternatives[0] == {Availability.FREE: 3}
    assert census(*slices, allocated=(taken("c"), taken("a"))).alternatives[0] == {
        Availability.FREE: 1,
        Availability.TAKEN: 1,
        Availability.USED_UP: 1,
    }


def test_pools_that_cannot_be_used_are_named() -> None:
    """With the reason."""
    problem = "is incomplete: its driver is updating it"
    assert census(device_slice("a", count=2)).problems == {PoolId(GPU_DRIVER, "n0"): problem}
