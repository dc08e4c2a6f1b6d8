"""Extended resources that are devices: the requests that stand for them where a node does not offer the resource.

A claim for the extended resources of a pod has one request per container and resource, named as upstream names them.
Init containers that end use the devices of containers that start later. What they need beyond those is one request per
resource, as large as the largest of them needs.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from cpg_api.core.devices import (
    EXTENDED_RESOURCE_PREFIX,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaimSpec,
)
from cpg_api.core.pod import Container, ContainerExtendedResourceRequest, Pod
from cpg_api.quantity import QuantityError, amount


class ExtendedNeed(Struct, frozen=True):
    """The devices that a pod needs on nodes that do not offer an extended resource, and which container uses which."""

    resource: str
    requests: tuple[DeviceRequest, ...]
    mappings: tuple[ContainerExtendedResourceRequest, ...]


def backed_resources(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """Return the class of each extended resource that is backed by one: the newest of several, then the first by name.

    The name that a class has without being given one is never that of another class.
    """
    ranked = sorted(classes, key=lambda one: one.metadata.name, reverse=True)
    ranked.sort(key=lambda one: one.metadata.creation_timestamp or "")
    named = {one.spec.extended_resource_name: one.metadata.name for one in ranked if one.spec.extended_resource_name}
    return named | {f"{EXTENDED_RESOURCE_PREFIX}{one.metadata.name}": one.metadata.name for one in ranked}


def extended_needs(pod: Pod, backing: Mapping[str, str]) -> tuple[ExtendedNeed, ...]:
    """Return what a pod needs of the resources that classes back, in the order of their names."""
    containers = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    asked = {name for one in containers for name in one.resources.requests or ()}
    found = asked & backing.keys()
    return tuple(
        need
        for resource in sorted(found)
        if (need := _need(resource, backing[resource], containers, len(pod.spec.init_containers or ()))).requests
    )


def extended_spec(needs: Iterable[ExtendedNeed]) -> ResourceClaimSpec:
    """Return the spec of the claim for some needs of a pod."""
    requests = sorted((request for need in needs for request in need.requests), key=lambda request: request.name)
    return ResourceClaimSpec(DeviceClaim(requests=tuple(requests)))


def _need(resource: str, device_class: str, containers: Sequence[Container], init_containers: int) -> ExtendedNeed:
    counts = {index: found for index, one in enumerate(containers) if (found := _count(one, resource))}
    ending = {index for index in counts if index < init_containers and containers[index].restart_policy != "Always"}
    requested = {index: count for index, count in counts.items() if index not in ending}
    uses = [(index, index) for index in requested]
    extra: dict[int, int] = {}
    for index in sorted(ending):
        for later in (place for place in requested if place > index):
            if counts[index] > 0:
                uses.append((index, later))
                counts[index] -= requested[later]
        if counts[index] > 0:
            uses.append((index, index))
            extra[index] = counts[index]
    largest = max(extra, key=extra.__getitem__, default=-1)
    names = {index: _name(containers[index], index, resource) for index in (*requested, largest) if index >= 0}
    requested |= {index: extra[index] for index in extra if index == largest}
    return ExtendedNeed(
        resource,
        tuple(
            DeviceRequest(names[index], exactly=ExactDeviceRequest(device_class, count=count))
            for index, count in requested.items()
        ),
        tuple(
            ContainerExtendedResourceRequest(containers[user].name, resource, names[largest if at in extra else at])
            for user, at in uses
        ),
    )


def _name(container: Container, index: int, resource: str) -> str:
    """Return the name of a request: the place of its container, and that of the resource among the sorted requests."""
    return f"container-{index}-request-{sorted(container.resources.requests or ()).index(resource)}"


def _count(container: Container, resource: str) -> int:
    """Return how many devices a container requests; what is no amount is refused with the pod."""
    try:
        return max(amount(resource, (container.resources.requests or {}).get(resource, 0)), 0)
    except QuantityError:
        return 0
