"""Allocations in upstream's form."""

from collections.abc import Sequence
from typing import Any

from cpg_api.core.affinity import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from cpg_api.core.devices import (
    AllocationResult,
    Device,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceClaimConfiguration,
    DeviceClass,
    DeviceClassConfiguration,
    DeviceResult,
    DeviceToleration,
    OpaqueDeviceConfiguration,
    ResourceClaimSpec,
    ResourceSlice,
)
from cpg_engine.devices.results import Taken, taken_by
from cpg_engine.devices.values import DeviceId
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
    labelled,
    policy,
)
from cpg_engine.testing.device_case import DeviceCase, allocate

ON_NODE = NodeSelector(
    node_selector_terms=(
        NodeSelectorTerm(match_fields=(NodeSelectorRequirement(key="metadata.name", operator="In", values=("n0",)),)),
    )
)


def allocated(
    slices: Sequence[ResourceSlice],
    spec: ResourceClaimSpec | None = None,
    classes: Sequence[DeviceClass] = (device_class(),),
) -> AllocationResult:
    """Return the allocation of one claim, by default for one device, on a node in zone a."""
    claims = (device_claim("c", spec),)
    case = DeviceCase(slices=tuple(slices), claims=claims, classes=tuple(classes), labels={"zone": "a", "rack": "r"})
    (result,) = allocate(case).results or ()
    return result


def opaque(text: str) -> OpaqueDeviceConfiguration:
    """Return a configuration for the driver."""
    return OpaqueDeviceConfiguration(driver=GPU_DRIVER, parameters={"of": text})


def configuration(spec: ResourceClaimSpec, **classes: str) -> list[tuple[str, tuple[str, ...] | None, Any]]:
    """Return source, requests and parameters of the configuration, with a text for each class."""
    found = allocated(
        [device_slice("a", "b", "c")],
        spec,
        [device_class(name, config=(DeviceClassConfiguration(opaque=opaque(of)),)) for name, of in classes.items()],
    )
    return [
        (one.source, one.requests, one.opaque and one.opaque.parameters["of"]) for one in found.devices.config or ()
    ]


def test_a_local_device() -> None:
    """With what drivers and the scheduler read of it; the allocation is for the node."""
    tolerations = (DeviceToleration(key="k", toleration_seconds=5),)
    found = allocated(
        [device_slice(Device(name="a", binding_conditions=("ready",), binding_failure_conditions=("broken",)))],
        claim_spec(device_request("r", tolerations=tolerations, admin_access=True)),
    )
    assert found == AllocationResult(
        devices=DeviceAllocationResult(
            results=(
                DeviceResult(
                    request="r",
                    driver=GPU_DRIVER,
                    pool="n0",
                    device="a",
                    admin_access=True,
                    tolerations=tolerations,
                    binding_conditions=("ready",),
                    binding_failure_conditions=("broken",),
                ),
            )
        ),
        node_selector=ON_NODE,
    )


def test_a_device_that_is_shared() -> None:
    """Each share has an identifier, which is the same for the same decision, and what it consumes."""
    shared = device("a", capacity={"memory": policy("10Gi", default="2Gi")}, allow_multiple_allocations=True)
    spec = claim_spec(device_request("r0"), device_request("r1", capacity={"memory": "1536Mi"}))
    results = allocated([device_slice(shared)], spec).devices.results or ()
    assert [one.consumed_capacity for one in results] == [{"memory": "2Gi"}, {"memory": "1.5Gi"}]
    identifiers = [one.share_id for one in results]
    assert identifiers == [one.share_id for one in allocated([device_slice(shared)], spec).devices.results or ()]
    assert len({*identifiers}) == 2
    assert [len(part) for part in str(identifiers[0]).split("-")] == [8, 4, 4, 4, 12]


def test_the_configuration_of_classes() -> None:
    """Once for each class, with the requests that use it; without names if these are all."""
    spec = claim_spec(device_request("r0"), device_request("r1", device_class_name="nic"), device_request("r2"))
    assert configuration(spec, gpu="g", nic="n") == [("FromClass", ("r0", "r2"), "g"), ("FromClass", ("r1",), "n")]
    assert configuration(claim_spec(device_request("r0"), device_request("r1")), gpu="g") == [("FromClass", None, "g")]


def test_the_configuration_of_claims() -> None:
    """For the requests that it names, or for the alternatives that were chosen."""
    config = tuple(
        DeviceClaimConfiguration(requests=requests, opaque=opaque("/".join(requests or ("all",))))
        for requests in (None, ("r0",), ("r1/x",), ("r1/y",), ("r1/y", "r0"), ("r1",))
    )
    choice = first_available("r1", alternative("x", count=9), alternative("y"))
    spec = claim_spec(device_request("r0"), choice, config=config)
    found = allocated([device_slice("a", "b")], spec).devices.config
    assert found == tuple(
        DeviceAllocationConfiguration(source="FromClaim", requests=requests, opaque=opaque(of))
        for requests, of in (
            (None, "all"),
            (("r0",), "r0"),
            (("r1/y",), "r1/y"),
            (None, "r1/y/r0"),
            (("r1",), "r1"),
        )
    )


def test_the_nodes_of_an_allocation() -> None:
    """The terms of all devices are merged; a device for all nodes adds none."""

    def shared(name: str, **fields: Any) -> ResourceSlice:
        return device_slice(name, node=None, pool=name, **fields)

    spec = claim_spec(device_request(count=3))
    zone, rack = labelled("zone", "a", "b"), labelled("rack", "r")
    same = labelled("zone", "b", "a")
    slices = [shared("a", node_selector=zone), shared("b", node_selector=same), shared("c", node_selector=rack)]
    merged = (*(zone.node_selector_terms or ()), *(rack.node_selector_terms or ()))
    assert allocated(slices, spec).node_selector == NodeSelector(
        node_selector_terms=(
            NodeSelectorTerm(match_expressions=tuple(one for term in merged for one in term.match_expressions or ())),
        )
    )
    assert allocated([shared("a", node_selector=ON_NODE)]).node_selector == ON_NODE
    assert allocated([shared("a", all_nodes=True)]).node_selector is None


def test_devices_that_belong_to_a_node() -> None:
    """One of them is enough: local by its slice or by itself, or bound to the node that uses it."""
    spec = claim_spec(device_request(count=2))
    everywhere = device_slice("a", node=None, pool="a", all_nodes=True)
    own = device_slice(Device(name="b", node_name="n0"), node=None, pool="b", per_device_node_selection=True)
    bound = device_slice(Device(name="b", binds_to_node=True), node=None, pool="b", all_nodes=True)
    for other in (device_slice("b"), own, bound):
        assert allocated([everywhere, other], spec).node_selector == ON_NODE
    free = device_slice(Device(name="b", all_nodes=True), node=None, pool="b", per_device_node_selection=True)
    assert allocated([everywhere, free], spec).node_selector is None


def test_what_an_allocation_takes() -> None:
    """A device as a whole, a share of it, or nothing."""
    results = (
        DeviceResult(driver="d", pool="p", device="a"),
        DeviceResult(driver="d", pool="p", device="b", share_id="1", consumed_capacity={"y": "1", "x": "2m"}),
        DeviceResult(driver="d", pool="p", device="c", share_id="2", admin_access=True),
    )
    assert taken_by(AllocationResult(devices=DeviceAllocationResult(results=results))) == (
        Taken(DeviceId("d", "p", "a"), None, is_admin=False),
        Taken(DeviceId("d", "p", "b"), (("x", 2 * 10**6), ("y", 10**9)), is_admin=False),
        Taken(DeviceId("d", "p", "c"), (), is_admin=True),
    )
    assert taken_by(AllocationResult()) == ()
