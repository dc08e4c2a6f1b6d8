"""Devices, the claims for them, and what was allocated (``resource.k8s.io/v1``, dynamic resource allocation)."""

from collections.abc import Iterator
from typing import Any

from msgspec import field

from cpg_api.core.affinity import NodeSelector
from cpg_api.meta import Condition, ObjectMeta
from cpg_api.quantity import Quantity
from cpg_api.structs import ApiStruct

EXACT_COUNT = "ExactCount"
ALL_DEVICES = "All"
MAX_RESULTS = 32
"""The most devices that can be allocated to one claim."""
MAX_RESERVED_FOR = 256
"""The most consumers of one claim."""
DELETE_PROTECTION = "resource.kubernetes.io/delete-protection"
"""The finalizer of a claim with an allocation."""
EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of a claim that the scheduler made for the extended resources of a pod."""
EXTENDED_RESOURCE_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Followed by the name of a class, this is an extended resource of its devices."""
ADMIN_NAMESPACE = "resource.kubernetes.io/admin-access"
"""The label of a namespace whose claims may ask for admin access."""


# What a driver offers.


class DeviceAttribute(ApiStruct, frozen=True):
    """The value of an attribute; one of the fields is set. Lists need a feature gate that is off by default."""

    int_value: int | None = field(name="int", default=None)
    bool_value: bool | None = field(name="bool", default=None)
    string: str | None = None
    version: str | None = None
    ints: tuple[int, ...] | None = None
    bools: tuple[bool, ...] | None = None
    strings: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None


class CapacityRequestPolicyRange(ApiStruct, frozen=True):
    """Which amounts may be consumed: from ``min`` in steps up to ``max``."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(ApiStruct, frozen=True):
    """How a request for a part of a capacity is rounded up, and which results are valid."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] | None = None
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(ApiStruct, frozen=True):
    """An amount that a device has."""

    value: Quantity = 0
    request_policy: CapacityRequestPolicy | None = None


class Counter(ApiStruct, frozen=True):
    """An amount of a shared counter."""

    value: Quantity = 0


class CounterSet(ApiStruct, frozen=True):
    """Counters that the devices of a pool share, such as the memory slices of a GPU with partitions."""

    name: str = ""
    counters: dict[str, Counter] | None = None


class DeviceCounterConsumption(ApiStruct, frozen=True):
    """What a device consumes of a counter set."""

    counter_set: str = ""
    counters: dict[str, Counter] | None = None
    compatibility_groups: tuple[str, ...] | None = None


class DeviceTaint(ApiStruct, frozen=True):
    """A taint of a device; a request has to tolerate it if its effect is NoSchedule or NoExecute."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Device(ApiStruct, frozen=True):
    """A device, with the name that its driver gives it."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    consumes_counters: tuple[DeviceCounterConsumption, ...] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] | None = None
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None
    allow_multiple_allocations: bool | None = None


class ResourcePool(ApiStruct, frozen=True):
    """The pool that a slice belongs to; only the slices of its newest generation count."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(ApiStruct, frozen=True):
    """Some devices of a pool, and the nodes that can use them."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: tuple[Device, ...] | None = None
    per_device_node_selection: bool | None = None
    shared_counters: tuple[CounterSet, ...] | None = None
    skip_node_operations: tuple[str, ...] | None = None


class ResourceSlice(ApiStruct, frozen=True):
    """Devices that a driver offers."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


class DeviceTaintSelector(ApiStruct, frozen=True):
    """The devices that a taint rule applies to; an empty selector applies to none, a missing field to all."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(ApiStruct, frozen=True):
    """A taint, and the devices that it is added to."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(ApiStruct, frozen=True):
    """Taints devices of any driver."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()


def slice_quantities(found: ResourceSlice) -> Iterator[Quantity]:
    """Yield all quantities of a slice."""
    for counters in found.spec.shared_counters or ():
        yield from (one.value for one in (counters.counters or {}).values())
    for device in found.spec.devices or ():
        for consumed in device.consumes_counters or ():
            yield from (one.value for one in (consumed.counters or {}).values())
        for capacity in (device.capacity or {}).values():
            policy = capacity.request_policy or CapacityRequestPolicy()
            limits = policy.valid_range or CapacityRequestPolicyRange()
            optional = (policy.default, limits.min, limits.max, limits.step, *(policy.valid_values or ()))
            yield from (capacity.value, *(one for one in optional if one is not None))


# What is asked for.


class CelSelector(ApiStruct, frozen=True):
    """A CEL expression about a device."""

    expression: str = ""


class DeviceSelector(ApiStruct, frozen=True):
    """A condition that a device has to meet; without ``cel`` it is of a kind that is not known yet."""

    cel: CelSelector | None = None


class DeviceToleration(ApiStruct, frozen=True):
    """A toleration of device taints; an empty key with Exists matches every taint."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityRequirements(ApiStruct, frozen=True):
    """How much of a device's capacities is requested."""

    requests: dict[str, Quantity] | None = None


class ExactDeviceRequest(ApiStruct, frozen=True):
    """A request for devices of one class."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] | None = None
    allocation_mode: str = EXACT_COUNT
    count: int = 1
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] | None = None
    capacity: CapacityRequirements | None = None


class DeviceSubRequest(ApiStruct, frozen=True):
    """One of several alternatives; the first that can be allocated is."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] | None = None
    allocation_mode: str = EXACT_COUNT
    count: int = 1
    tolerations: tuple[DeviceToleration, ...] | None = None
    capacity: CapacityRequirements | None = None


class DeviceRequest(ApiStruct, frozen=True):
    """A request of a claim: exactly one kind of devices, or the first available of several."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] | None = None


class DeviceConstraint(ApiStruct, frozen=True):
    """An attribute that the devices of some requests (of all, where none is named) share, or that tells them apart."""

    requests: tuple[str, ...] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class OpaqueDeviceConfiguration(ApiStruct, frozen=True):
    """Parameters for a driver, handed on as they are."""

    driver: str = ""
    parameters: Any = None


class DeviceClaimConfiguration(ApiStruct, frozen=True):
    """Parameters for the devices of some requests, or of all where none is named."""

    requests: tuple[str, ...] | None = None
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(ApiStruct, frozen=True):
    """The devices that are requested together."""

    requests: tuple[DeviceRequest, ...] | None = None
    constraints: tuple[DeviceConstraint, ...] | None = None
    config: tuple[DeviceClaimConfiguration, ...] | None = None


class ResourceClaimSpec(ApiStruct, frozen=True):
    """What a claim asks for; it never changes."""

    devices: DeviceClaim = DeviceClaim()


class DeviceClassConfiguration(ApiStruct, frozen=True):
    """Parameters for every device that is allocated through a class."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(ApiStruct, frozen=True):
    """The devices of a class: those that all selectors accept."""

    selectors: tuple[DeviceSelector, ...] | None = None
    config: tuple[DeviceClassConfiguration, ...] | None = None
    extended_resource_name: str | None = None


class DeviceClass(ApiStruct, frozen=True):
    """A kind of devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


# What was allocated.


class DeviceResult(ApiStruct, frozen=True):
    """A device that is allocated to a request."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None
    share_id: str | None = field(name="shareID", default=None)
    consumed_capacity: dict[str, Quantity] | None = None
    skip_node_operations: tuple[str, ...] | None = None


class DeviceAllocationConfiguration(ApiStruct, frozen=True):
    """Parameters from a class or a claim, for some requests, or for all where none is named."""

    source: str = ""
    requests: tuple[str, ...] | None = None
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(ApiStruct, frozen=True):
    """The devices of a claim, with the parameters for their drivers."""

    results: tuple[DeviceResult, ...] | None = None
    config: tuple[DeviceAllocationConfiguration, ...] | None = None


class AllocationResult(ApiStruct, frozen=True):
    """What is allocated to a claim, and the nodes that can use it; None stands for all nodes."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ConsumerReference(ApiStruct, frozen=True):
    """A consumer of a claim: a pod, or a native PodGroup."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class AllocatedDeviceStatus(ApiStruct, frozen=True):
    """What a driver says of an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = field(name="shareID", default=None)
    conditions: tuple[Condition, ...] | None = None


class ResourceClaimStatus(ApiStruct, frozen=True):
    """The allocation of a claim, and its consumers."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ConsumerReference, ...] | None = None
    devices: tuple[AllocatedDeviceStatus, ...] | None = None


class ResourceClaim(ApiStruct, frozen=True):
    """A claim for devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


def claim_quantities(found: ResourceClaim) -> Iterator[Quantity]:
    """Yield all quantities of a claim."""
    for request in found.spec.devices.requests or ():
        for one in (request.exactly, *(request.first_available or ())):
            if one is not None and one.capacity is not None:
                yield from (one.capacity.requests or {}).values()
    allocation = found.status.allocation or AllocationResult()
    for result in allocation.devices.results or ():
        yield from (result.consumed_capacity or {}).values()


class ResourceClaimTemplateSpec(ApiStruct, frozen=True):
    """The claims that are made from a template."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(ApiStruct, frozen=True):
    """What the claim of each pod that names the template asks for."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()
