"""What has to be written to a claim for devices, decided from its present state alone.

1. The finalizer is written before the allocation: without it, kube-controller-manager never deallocates the claim.
2. The allocation and its consumers are one update of the status.
3. Every write names the version from which it was decided, so that two schedulers cannot allocate one claim. After a
   conflict, and after a write whose answer was lost, the claim is read and decided about again.
4. The patches are strategic merges: consumers are merged by UID, and fields that a newer API server has stay.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cpg_api.conditions import find_condition
from cpg_api.core.devices import (
    DELETE_PROTECTION,
    MAX_RESERVED_FOR,
    AllocationResult,
    ConsumerReference,
    DeviceResult,
    ResourceClaim,
)
from cpg_api.core.pod import Pod
from cpg_api.meta import Condition
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.policies import PodGroupResourceClaim
from cpg_client.resources import NATIVE_GROUP, NATIVE_POD_GROUPS, PODS, STATUS
from cpg_engine.cluster.device_needs import claim_names
from cpg_engine.decisions import DeviceAllocation
from cpg_scheduler.binding.prebind import PreBindError


class ClaimWrite(NamedTuple):
    """A strategic merge patch of a claim or of a subresource."""

    subresource: str | None
    body: dict[str, Any]


class ClaimUser(NamedTuple):
    """A pod that uses a claim, and the consumer that stands for it: the pod, or its native PodGroup."""

    pod: Pod
    consumer: ConsumerReference


class ClaimRelease(Struct, frozen=True):
    """A claim that these consumers, by UID, do not use after all; with other devices by now, it is left alone.

    If no consumer is left, ``deallocates`` says whether its devices are free again.
    """

    allocation: DeviceAllocation
    consumers: frozenset[str] = frozenset()
    deallocates: bool = True


def named(claim: str) -> str:
    """Return the kind and the name of a claim."""
    return f'resourceclaim "{claim}"'


def allocation_write(
    claim: ResourceClaim, allocation: DeviceAllocation, users: Sequence[ClaimUser], now: str
) -> ClaimWrite | None:
    """Return the next write that allocates a claim and reserves it for its users, or None if nothing is left."""
    if is_gone(claim, allocation):
        raise PreBindError(f"{named(allocation.claim)} is gone or terminating")
    status: dict[str, Any] = {}
    if claim.status.allocation is None:
        if not allocation.is_new:
            raise PreBindError(f"{named(allocation.claim)} has lost its devices")
        if DELETE_PROTECTION not in claim.metadata.finalizers:
            return _write(claim, {"finalizers": [DELETE_PROTECTION]}, None)
        status["allocation"] = msgspec.to_builtins(replace(allocation.result, allocation_timestamp=now))
    elif not has_devices(claim, allocation):
        raise PreBindError(f"{named(allocation.claim)} was allocated other devices meanwhile")
    missing = dict.fromkeys(user.consumer for user in users if not is_reserved(claim, user.pod))
    number = len(claim.status.reserved_for or ()) + len(missing)
    if number > MAX_RESERVED_FOR:
        raise PreBindError(f"{named(allocation.claim)} would have {number} users, more than {MAX_RESERVED_FOR}")
    if missing:
        status["reservedFor"] = [msgspec.to_builtins(consumer) for consumer in missing]
    return _write(claim, {}, status) if status else None


def carried_out(claim: ResourceClaim, allocation: DeviceAllocation, pod: Pod) -> ResourceClaim:
    """Return a claim once all is written for a pod."""
    users = claim.status.reserved_for or ()
    if not is_reserved(claim, pod):
        users = (*users, consumer_of(pod))
    return replace(claim, status=replace(claim.status, allocation=allocation.result, reserved_for=users))


def is_gone(claim: ResourceClaim | None, allocation: DeviceAllocation) -> bool:
    """Return whether the claim that was decided about does not exist any more, or is being deleted."""
    return claim is None or claim.metadata.uid != allocation.uid or claim.metadata.deletion_timestamp is not None


def has_devices(claim: ResourceClaim, allocation: DeviceAllocation) -> bool:
    """Return whether a claim has the devices that were chosen for it."""
    return claim.status.allocation is not None and _devices(claim.status.allocation) == _devices(allocation.result)


def release_write(claim: ResourceClaim, release: ClaimRelease) -> ClaimWrite | None:
    """Return the write that releases a claim, or None if there is nothing to release."""
    if claim.metadata.uid != release.allocation.uid or not has_devices(claim, release.allocation):
        return None
    users = [found.uid for found in claim.status.reserved_for or ()]
    if release.deallocates and release.consumers.issuperset(users):
        return _write(claim, {}, {"allocation": None, "reservedFor": None, "devices": None})
    removed = [{"$patch": "delete", "uid": uid} for uid in users if uid in release.consumers]
    return _write(claim, {}, {"reservedFor": removed}) if removed else None


def is_reserved(claim: ResourceClaim, pod: Pod) -> bool:
    """Return whether a claim is reserved for a pod, or for the native PodGroup that the pod names."""
    group = pod.spec.scheduling_group.pod_group_name if pod.spec.scheduling_group else None
    return any(
        user.uid == pod.metadata.uid
        or (group and (user.api_group, user.resource, user.name) == (NATIVE_GROUP, NATIVE_POD_GROUPS.plural, group))
        for user in claim.status.reserved_for or ()
    )


class DeviceStates(NamedTuple):
    """What the drivers say of devices with binding conditions: those that are not ready, and failures, in words."""

    unready: Sequence[DeviceResult]
    failures: Sequence[str]


def device_states(claim: ResourceClaim) -> DeviceStates:
    """Return which devices of a claim are not ready for a pod to be bound, and which never will be."""
    results = (claim.status.allocation.devices.results or ()) if claim.status.allocation else ()
    unready, failures = [], []
    for device in (found for found in results if found.binding_conditions):
        conditions = _conditions_of(claim, device)
        for kind in device.binding_failure_conditions or ():
            if _is_true(conditions, kind):
                message = next(found.message for found in conditions if found.type == kind)
                failures.append(f"{device.driver}/{device.pool}/{device.device}: {kind}: {message}")
        if not all(_is_true(conditions, kind) for kind in device.binding_conditions or ()):
            unready.append(device)
    return DeviceStates(tuple(unready), tuple(failures))


def _conditions_of(claim: ResourceClaim, device: DeviceResult) -> Sequence[Condition]:
    """Return the conditions of a device, or of its share where the driver tells shares apart."""
    name = (device.driver, device.pool, device.device)
    found = {one.share_id: one for one in claim.status.devices or () if (one.driver, one.pool, one.device) == name}
    status = found.get(device.share_id) or found.get(None)
    return (status.conditions or ()) if status is not None else ()


def _is_true(conditions: Sequence[Condition], kind: str) -> bool:
    found = find_condition(conditions, kind)
    return found is not None and found.status == "True"


def consumer_of(pod: Pod, key: str = "", group: PodGroup | None = None) -> ConsumerReference:
    """Return the consumer that stands for a pod with a claim; it is the native group if that has the pod's entry."""
    entries = {(one.name, one.resource_claim_name, one.resource_claim_template_name) for one in _claims_of(group)}
    for entry, name in claim_names(pod) if entries else ():
        shared = (entry.name, entry.resource_claim_name, entry.resource_claim_template_name) in entries
        if shared and group is not None and key == f"{pod.metadata.namespace}/{name}":
            return ConsumerReference(NATIVE_GROUP, NATIVE_POD_GROUPS.plural, group.metadata.name, group.metadata.uid)
    return ConsumerReference(resource=PODS.plural, name=pod.metadata.name, uid=pod.metadata.uid)


def _claims_of(group: PodGroup | None) -> Sequence[PodGroupResourceClaim]:
    return (group.spec.resource_claims or ()) if group is not None else ()


def _write(claim: ResourceClaim, metadata: dict[str, Any], status: dict[str, Any] | None) -> ClaimWrite:
    """Return a write that succeeds only if the claim has still its version."""
    identity = {"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version}
    if status is None:
        return ClaimWrite(None, {"metadata": identity | metadata})
    return ClaimWrite(STATUS, {"metadata": identity, "status": status})


def _devices(result: AllocationResult) -> Sequence[tuple[str | None, ...]]:
    """Return which devices a result allocates to which requests."""
    return [(one.request, one.driver, one.pool, one.device, one.share_id) for one in result.devices.results or ()]
