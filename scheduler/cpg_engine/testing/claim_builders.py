"""Claims in a cluster: what nodes offer, pods that use claims, and claims that have devices."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from cpg_api.core.affinity import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from cpg_api.core.devices import (
    EXTENDED_RESOURCE_CLAIM,
    AllocationResult,
    ConsumerReference,
    Device,
    DeviceAllocationResult,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceResult,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
)
from cpg_api.core.pod import (
    Container,
    Pod,
    PodExtendedResourceClaimStatus,
    PodResourceClaim,
    PodResourceClaimStatus,
)
from cpg_api.core.resources import ResourceList, ResourceRequirements
from cpg_api.meta import OwnerReference
from cpg_engine.devices.catalog import DeviceCatalog
from cpg_engine.testing.builders import NAMESPACE, pod
from cpg_engine.testing.device_builders import (
    GPU_CLASS,
    GPU_DRIVER,
    claim_spec,
    device_claim,
    device_request,
    device_slice,
    labelled,
)

Stocked = ResourceSlice | DeviceClass | ResourceClaim


def offer(catalog: DeviceCatalog, *objects: Stocked) -> DeviceCatalog:
    """Put objects of any kind into a catalog."""
    for found in objects:
        match found:
            case ResourceSlice():
                catalog.put_slice(found)
            case DeviceClass():
                catalog.put_class(found)
            case _:
                catalog.put_claim(found)
    return catalog


def zone_slice(zone: str, *devices: Device | str) -> ResourceSlice:
    """Return devices that the nodes of a zone can use over the network."""
    return device_slice(*devices, node=None, pool=f"pool-{zone}", node_selector=labelled("zone", zone))


def own_claim(owner: str, *requests: DeviceRequest, match: str | None = None) -> ResourceClaim:
    """Return the claim that was made for a pod from a template; its devices match in an attribute of the driver."""
    constraints = [DeviceConstraint(match_attribute=f"{GPU_DRIVER}/{match}")] if match else []
    found = device_claim(f"{owner}-gpu", claim_spec(*(requests or (device_request(),)), constraints=constraints))
    reference = OwnerReference(kind="Pod", name=owner, uid=f"uid-{NAMESPACE}-{owner}", controller=True)
    return replace(found, metadata=replace(found.metadata, owner_references=(reference,)))


def allocated(claim: ResourceClaim, node: str, *devices: str, users: Sequence[str] = ()) -> ResourceClaim:
    """Return a claim that has devices of a node, reserved for some pods."""
    results = tuple(DeviceResult(request="r0", driver=GPU_DRIVER, pool=node, device=one) for one in devices)
    term = NodeSelectorTerm(match_fields=(NodeSelectorRequirement("metadata.name", "In", (node,)),))
    consumers = tuple(ConsumerReference("", "pods", user, f"uid-{NAMESPACE}-{user}") for user in users)
    result = AllocationResult(DeviceAllocationResult(results), NodeSelector((term,)))
    return replace(claim, status=ResourceClaimStatus(result, consumers or None))


def claiming(name: str, *claims: str, made: Mapping[str, str | None] | None = None, **spec: Any) -> Pod:
    """Return a pod that uses claims by name, and those that were made for it from templates, by entry."""
    entries = [PodResourceClaim(one, resource_claim_name=one) for one in claims]
    entries += [PodResourceClaim(one, resource_claim_template_name="template") for one in made or {}]
    found = pod(name, resource_claims=tuple(entries), **spec)
    statuses = tuple(PodResourceClaimStatus(one, claim) for one, claim in (made or {}).items())
    return replace(found, status=replace(found.status, resource_claim_statuses=statuses or None))


def worker(catalog: DeviceCatalog, name: str, *requests: DeviceRequest, match: str | None = None, **spec: Any) -> Pod:
    """Return a pod with a claim of its own, which is put into the catalog."""
    claim = own_claim(name, *requests, match=match)
    catalog.put_claim(claim)
    return claiming(name, made={GPU_CLASS: claim.metadata.name}, **spec)


def container(name: str = "main", *, restart_policy: str | None = None, **requests: int) -> Container:
    """Return a container with these requests; without a slash, a resource is one of ``example.com``."""
    amounts: ResourceList = {key if key == "cpu" else f"example.com/{key}": amount for key, amount in requests.items()}
    return Container(name=name, resources=ResourceRequirements(requests=amounts or None), restart_policy=restart_policy)


def asking(name: str, *, cpu: int = 1, spec: Mapping[str, Any] | None = None, **requests: Any) -> Pod:
    """Return a pod with one container that requests extended resources of ``example.com``."""
    return pod(name, containers=(container(cpu=cpu, **requests),), **(spec or {}))


def extended_claim(owner: str, *requests: DeviceRequest) -> ResourceClaim:
    """Return the claim that was made for the extended resources of a pod."""
    found = own_claim(owner, *requests)
    meta = replace(found.metadata, name=f"{owner}-extended-resources-x", annotations={EXTENDED_RESOURCE_CLAIM: "true"})
    return replace(found, metadata=meta)


def with_extended(found: Pod) -> Pod:
    """Return a pod whose status names the claim for its extended resources."""
    made = PodExtendedResourceClaimStatus(resource_claim_name=f"{found.metadata.name}-extended-resources-x")
    return replace(found, status=replace(found.status, extended_resource_claim_status=made))
