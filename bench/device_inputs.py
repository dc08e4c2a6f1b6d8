"""Inputs of the engine's benchmark with devices: 8 GPUs on each node, and pods with a claim of their own."""

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from cpg_api.core.devices import DeviceClass, ResourceClaim, ResourceClaimStatus, ResourceSlice
from cpg_api.core.pod import Pod, PodResourceClaim, PodResourceClaimStatus
from cpg_api.meta import OwnerReference
from cpg_engine.decisions import Bind, DeviceAllocation
from cpg_engine.devices.catalog import DeviceCatalog
from cpg_lab import devices

DEVICES_PER_NODE = 8
ENTRY = "own"

T = TypeVar("T")


def put_devices(catalog: DeviceCatalog, nodes: Iterable[str]) -> None:
    """Offer the devices of these nodes, and one class for all of them."""
    catalog.put_class(_read(devices.device_class(), DeviceClass))
    for each in devices.slices_of_nodes(nodes, DEVICES_PER_NODE):
        catalog.put_slice(_read(each, ResourceSlice))


def with_claims(catalog: DeviceCatalog, pods: Iterable[Pod], *requests: Any, **claim: Any) -> list[Pod]:
    """Return the pods with a claim each, as made from a template with these requests."""
    plain = _read(devices.claim("", *requests, **claim), ResourceClaim)
    return [_with_claim(catalog, pod, plain) for pod in pods]


def keep_allocations(catalog: DeviceCatalog, binds: Iterable[Bind]) -> None:
    """Write the allocations of binds into their claims, as an API server does."""
    for bind in binds:
        for each in bind.allocations:
            if isinstance(each, DeviceAllocation):
                status = ResourceClaimStatus(allocation=each.result)
                catalog.put_claim(replace(catalog.claims[each.claim], status=status))


def _with_claim(catalog: DeviceCatalog, pod: Pod, claim: ResourceClaim) -> Pod:
    meta, name = pod.metadata, f"{pod.metadata.name}-{ENTRY}"
    owner = OwnerReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True)
    own = replace(claim.metadata, name=name, uid=name, namespace=meta.namespace, owner_references=(owner,))
    catalog.put_claim(replace(claim, metadata=own))
    entries = (PodResourceClaim(ENTRY, resource_claim_template_name="gpu"),)
    made = (PodResourceClaimStatus(ENTRY, name),)
    return replace(
        pod,
        spec=replace(pod.spec, resource_claims=entries),
        status=replace(pod.status, resource_claim_statuses=made),
    )


def _read(plain: dict[str, Any], kind: type[T]) -> T:
    return msgspec.convert(plain, kind, strict=False)
