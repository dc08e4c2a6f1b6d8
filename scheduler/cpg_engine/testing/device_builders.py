"""Devices, slices, classes and claims with good defaults."""

from collections.abc import Mapping, Sequence
from typing import Any

from cpg_api.core.affinity import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from cpg_api.core.devices import (
    CapacityRequestPolicy,
    CapacityRequirements,
    CelSelector,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceConstraint,
    DeviceCounterConsumption,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from cpg_api.meta import ObjectMeta
from cpg_api.quantity import Quantity
from cpg_engine.testing.builders import NAMESPACE

GPU_DRIVER = "gpu.example.com"
GPU_CLASS = "gpu"
"""The class of requests unless another is named; it selects every device."""


def attribute(value: object) -> DeviceAttribute:
    """Return an attribute of the type of its value; a text that begins with ``v`` and a digit is a version."""
    if isinstance(value, bool):
        return DeviceAttribute(bool_value=value)
    if isinstance(value, int):
        return DeviceAttribute(int_value=value)
    text = str(value)
    return (
        DeviceAttribute(version=text[1:]) if text[:1] == "v" and text[1:2].isdigit() else DeviceAttribute(string=text)
    )


def device(
    name: str,
    attributes: Mapping[str, object] | None = None,
    *,
    capacity: Mapping[str, Quantity | DeviceCapacity] | None = None,
    counters: Mapping[str, Mapping[str, Quantity]] | None = None,
    **fields: Any,
) -> Device:
    """Return a device; ``counters`` are what it consumes, by counter set."""
    return Device(
        name=name,
        attributes={key: attribute(value) for key, value in (attributes or {}).items()} or None,
        capacity={
            key: value if isinstance(value, DeviceCapacity) else DeviceCapacity(value=value)
            for key, value in (capacity or {}).items()
        }
        or None,
        consumes_counters=tuple(
            DeviceCounterConsumption(counter_set=key, counters=_counters(value))
            for key, value in (counters or {}).items()
        )
        or None,
        **fields,
    )


def policy(value: Quantity, **fields: Any) -> DeviceCapacity:
    """Return a capacity with a request policy."""
    return DeviceCapacity(value=value, request_policy=CapacityRequestPolicy(**fields))


def device_slice(
    *devices: Device | str,
    node: str | None = "n0",
    name: str = "",
    pool: str = "",
    driver: str = GPU_DRIVER,
    count: int = 1,
    generation: int = 1,
    counters: Mapping[str, Mapping[str, Quantity]] | None = None,
    **fields: Any,
) -> ResourceSlice:
    """Return a slice of the node's pool; devices that are only named have no attributes."""
    pool = pool or node or "shared"
    return ResourceSlice(
        metadata=ObjectMeta(name=name or f"{driver}-{pool}"),
        spec=ResourceSliceSpec(
            driver=driver,
            pool=ResourcePool(name=pool, generation=generation, resource_slice_count=count),
            node_name=node,
            devices=tuple(device(one) if isinstance(one, str) else one for one in devices) or None,
            shared_counters=tuple(
                CounterSet(name=key, counters=_counters(one)) for key, one in (counters or {}).items()
            )
            or None,
            **fields,
        ),
    )


def labelled(key: str, *values: str) -> NodeSelector:
    """Return a selector of nodes by one label."""
    requirement = NodeSelectorRequirement(key=key, operator="In", values=values)
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(requirement,)),))


def device_class(name: str = GPU_CLASS, *expressions: str, **fields: Any) -> DeviceClass:
    """Return a class whose devices match all expressions."""
    return DeviceClass(
        metadata=ObjectMeta(name=name), spec=DeviceClassSpec(selectors=selectors(*expressions), **fields)
    )


def selectors(*expressions: str) -> tuple[DeviceSelector, ...] | None:
    """Return selectors of CEL expressions."""
    return tuple(DeviceSelector(cel=CelSelector(expression=one)) for one in expressions) or None


def device_request(name: str = "r0", *expressions: str, **fields: Any) -> DeviceRequest:
    """Return a request for devices of the class that match all expressions, by default for one."""
    return DeviceRequest(name=name, exactly=ExactDeviceRequest(**_asked(expressions, fields)))


def alternative(name: str, *expressions: str, **fields: Any) -> DeviceSubRequest:
    """Return one of the alternatives of a request."""
    return DeviceSubRequest(name=name, **_asked(expressions, fields))


def first_available(name: str, *alternatives: DeviceSubRequest) -> DeviceRequest:
    """Return a request for the first of the alternatives that can be allocated."""
    return DeviceRequest(name=name, first_available=alternatives)


def claim_spec(
    *requests: DeviceRequest, constraints: Sequence[DeviceConstraint] = (), **fields: Any
) -> ResourceClaimSpec:
    """Return what a claim asks for."""
    return ResourceClaimSpec(devices=DeviceClaim(requests=requests, constraints=tuple(constraints) or None, **fields))


def device_claim(name: str, spec: ResourceClaimSpec | None = None) -> ResourceClaim:
    """Return a claim, by default for one device."""
    metadata = ObjectMeta(name=name, namespace=NAMESPACE, uid=f"uid-{name}")
    return ResourceClaim(metadata=metadata, spec=spec or claim_spec(device_request()))


def _asked(expressions: Sequence[str], fields: Mapping[str, Any]) -> dict[str, Any]:
    asked: dict[str, Any] = {"device_class_name": GPU_CLASS, "selectors": selectors(*expressions), **fields}
    if "capacity" in asked:
        asked["capacity"] = CapacityRequirements(requests=asked["capacity"])
    return asked


def _counters(amounts: Mapping[str, Quantity]) -> dict[str, Counter]:
    return {name: Counter(value=amount) for name, amount in amounts.items()}
