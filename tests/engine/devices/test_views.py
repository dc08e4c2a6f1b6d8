"""Views of pools for shapes."""

import pytest

from cpg_api.core.devices import (
    Device,
    DeviceConstraint,
    DeviceTaint,
    DeviceToleration,
    ResourceClaimSpec,
    ResourceSlice,
)
from cpg_engine.cluster.device_selectors import selects
from cpg_engine.devices.pools import build_pool, target
from cpg_engine.devices.shapes import compile_shape
from cpg_engine.devices.values import UNIQUE, DeviceView, PoolView
from cpg_engine.devices.views import Viewer, tolerates
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
from cpg_engine.testing.device_case import DeviceCase, compile_case

NANO = 10**9
A100 = f'device.attributes["{GPU_DRIVER}"].model == "a100"'
TAINT = DeviceTaint(key="k", value="x", effect="NoSchedule")


def case(slices: list[ResourceSlice], spec: ResourceClaimSpec) -> DeviceCase:
    """Return a case with one claim."""
    return DeviceCase(slices=tuple(slices), claims=(device_claim("c", spec),), classes=(device_class("gpu", "true"),))


def viewed(*devices: Device, spec: ResourceClaimSpec) -> PoolView:
    """Return the view of a pool of one slice."""
    (view,) = compile_case(case([device_slice(*devices)], spec)).views
    return view


def test_only_what_matters_is_seen() -> None:
    """Neither names nor attributes that no constraint compares; devices that match nothing are left out."""
    view = viewed(
        device("x", {"model": "h100"}),
        device("y", {"model": "a100", "uuid": "1"}),
        spec=claim_spec(device_request("r", A100)),
    )
    assert view == PoolView((DeviceView(1, accepted=(0,)),))


def test_alternatives_are_judged_one_by_one() -> None:
    """Each has its selectors, tolerations and amounts."""
    toleration = DeviceToleration(operator="Exists")
    request = first_available(
        "r",
        alternative("a", A100),
        alternative("b", tolerations=(toleration,)),
        alternative("c", allocation_mode="All"),
        alternative("d", tolerations=(toleration,), capacity={"memory": 50}),
        alternative("e", "unknown"),
    )
    tainted = device("x", {"model": "h100"}, capacity={"memory": 40}, taints=(TAINT,))
    assert viewed(tainted, spec=claim_spec(request)) == PoolView(
        (DeviceView(0, accepted=(1,), blocked=(2,), failing=((4, "undeclared reference to 'unknown'"),)),)
    )


def test_a_device_that_is_shared_has_amounts() -> None:
    """For each alternative that accepts it."""
    request = first_available("r", alternative("a", capacity={"memory": 3}), alternative("b"))
    shared = device("x", capacity={"memory": policy(10, default="1")}, allow_multiple_allocations=True)
    assert viewed(shared, spec=claim_spec(request)) == PoolView(
        (
            DeviceView(
                0,
                accepted=(0, 1),
                amounts=((("memory", 3 * NANO),), (("memory", NANO),)),
                capacity=(("memory", 10 * NANO),),
                is_shareable=True,
            ),
        )
    )


def test_constraints_compare_the_devices_that_they_concern() -> None:
    """A device without the attribute cannot be picked, but a request for all devices includes it."""
    requests = [
        device_request("r0", A100),
        first_available("r1", alternative("x"), alternative("all", allocation_mode="All")),
    ]
    constraints = [DeviceConstraint(match_attribute=f"{GPU_DRIVER}/uuid", requests=("r1",))]
    view = viewed(
        device("x", {"model": "a100", "uuid": "1"}),
        device("y", {"model": "a100"}),
        spec=claim_spec(*requests, constraints=constraints),
    )
    assert view.devices == (
        DeviceView(0, accepted=(0, 1, 2), attributes=(UNIQUE,)),
        DeviceView(1, accepted=(0, 2), attributes=(None,)),
    )


def test_counters_are_seen_where_a_device_consumes_some() -> None:
    """With all devices that consume them, also those for other requests and nodes."""
    counters = {"s": {"slots": 1}}
    slices = [
        device_slice(
            device("x", {"model": "a100"}, counters=counters),
            device("y", {"model": "h100"}, counters=counters),
            name="s0",
            count=3,
        ),
        device_slice(device("z", counters=counters), node="n1", pool="n0", name="s1", count=3),
        device_slice(name="s2", count=3, counters={"s": {"slots": 2}}),
    ]
    (view,) = compile_case(case(slices, claim_spec(device_request("r", A100)))).views
    assert view == PoolView(
        devices=(DeviceView(0, accepted=(0,), counters=((0, NANO),)),),
        others=(DeviceView(1, counters=((0, NANO),)), DeviceView(2, counters=((0, NANO),))),
        counters=(2 * NANO,),
    )


def test_counters_are_not_seen_where_no_matching_device_consumes_some() -> None:
    """So nodes that differ in them alone have equal views."""
    consumer = device("y", {"model": "h100"}, counters={"s": {"slots": 1}})
    slices = [
        device_slice(device("x", {"model": "a100"}), consumer, name="s0", count=2),
        device_slice(name="s1", count=2, counters={"s": {"slots": 2}}),
    ]
    (view,) = compile_case(case(slices, claim_spec(device_request("r", A100)))).views
    assert view == PoolView((DeviceView(0, accepted=(0,)),))


def test_a_pool_that_cannot_be_used() -> None:
    """Its devices are not seen."""
    assert viewed(device("x"), device("x"), spec=claim_spec(device_request())) == PoolView(usable=False)


def test_nodes_that_differ_in_what_no_claim_asks_for_have_equal_views() -> None:
    """Values that constraints compare only have to be equal, or different, in the same places."""
    slices = [
        device_slice(device("x", {"uuid": name, "numa": 0}), device("y", {"uuid": f"{name}y", "numa": 0}), pool=name)
        for name in ("p", "q")
    ]
    constraints = [
        DeviceConstraint(match_attribute=f"{GPU_DRIVER}/numa"),
        DeviceConstraint(distinct_attribute=f"{GPU_DRIVER}/uuid"),
    ]
    found = compile_case(case(slices, claim_spec(device_request(count=2), constraints=constraints)))
    viewer = Viewer(found.shape, selects)
    first, second = (viewer.views_of([one]) for one in found.targets)
    assert (first, hash(first)) == (second, hash(second))


def test_the_view_of_a_pool_for_all_nodes_is_made_once() -> None:
    """For all nodes that use the same devices."""
    pool = build_pool([device_slice("a", node=None, pool="p", all_nodes=True)])
    targets = [target(pool, name, {}) for name in ("n0", "n1")]
    spec = claim_spec(device_request(), constraints=[DeviceConstraint(match_attribute=f"{GPU_DRIVER}/numa")])
    for one in (spec, claim_spec(device_request())):
        viewer = Viewer(compile_shape([one], {"gpu": device_class()}), selects)
        first, second = (viewer.views_of([found]) for found in targets if found is not None)
        assert first[0] is second[0]


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (DeviceToleration(operator="Exists"), True),
        (DeviceToleration(key="k", value="x"), True),
        (DeviceToleration(key="k", value="x", operator=""), True),
        (DeviceToleration(key="k", value="y"), False),
        (DeviceToleration(key="o", operator="Exists"), False),
        (DeviceToleration(key="k", operator="Exists", effect="NoExecute"), False),
        (DeviceToleration(key="k", operator="Exists", effect="NoSchedule"), True),
        (DeviceToleration(key="k", operator="In", value="x"), False),
    ],
)
def test_tolerations(toleration: DeviceToleration, *, expected: bool) -> None:
    """An empty key or effect matches all."""
    assert tolerates(toleration, TAINT) == expected
