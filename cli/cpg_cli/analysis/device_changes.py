"""Devices and claims that come and go with nodes and pods: further nodes have devices, and further pods have claims."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from cpg_api.core.devices import EXTENDED_RESOURCE_CLAIM, ResourceClaim, ResourceClaimStatus, ResourceSlice
from cpg_api.core.pod import Pod, PodResourceClaimStatus
from cpg_api.meta import OwnerReference

Slices = Mapping[str, Sequence[ResourceSlice]]
"""The slices of each node that nothing else can use, by the name of the node."""


def slices_by_node(slices: Iterable[ResourceSlice]) -> Slices:
    """Return the slices of each node."""
    found: dict[str, list[ResourceSlice]] = defaultdict(list)
    for one in slices:
        if one.spec.node_name:
            found[one.spec.node_name].append(one)
    return found


def slices_like(slices: Iterable[ResourceSlice], node: str) -> Iterator[ResourceSlice]:
    """Yield the slices of a further node, like those of another, in pools of its own."""
    for one in slices:
        pool = replace(one.spec.pool, name=f"{one.spec.pool.name}-{node}")
        meta = replace(one.metadata, name=f"{one.metadata.name}-{node}", uid=f"{one.metadata.name}-{node}")
        yield replace(one, metadata=meta, spec=replace(one.spec, node_name=node, pool=pool))


def device_counts(slices: Iterable[ResourceSlice]) -> tuple[tuple[str, int], ...]:
    """Return how many devices slices have, by driver."""
    found: dict[str, int] = defaultdict(int)
    for one in slices:
        found[one.spec.driver] += len(one.spec.devices or ())
    return tuple(sorted(found.items()))


def with_claims_like(pod: Pod, model: Pod, claims: Mapping[str, ResourceClaim]) -> tuple[Pod, list[ResourceClaim]]:
    """Return a further pod with claims of its own, for those that were made for the pod that it is like."""
    meta, made, statuses = pod.metadata, [], []
    owner = OwnerReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True)
    for status in model.status.resource_claim_statuses or ():
        found = claims.get(f"{meta.namespace}/{status.resource_claim_name}")
        if found is None or all(one.uid != model.metadata.uid for one in found.metadata.owner_references):
            statuses.append(status)
            continue
        name = f"{meta.name}-{status.name}"
        own = replace(found.metadata, name=name, uid=f"{meta.namespace}/{name}", owner_references=(owner,))
        made.append(replace(found, metadata=own, status=ResourceClaimStatus()))
        statuses.append(PodResourceClaimStatus(status.name, name))
    return replace(pod, status=replace(pod.status, resource_claim_statuses=tuple(statuses) or None)), made


def claims_without(claims: Iterable[ResourceClaim], uids: Collection[str]) -> Iterator[ResourceClaim]:
    """Yield the claims that are left when some pods are made anew: those for extended resources are made anew too."""
    for claim in claims:
        is_extended = EXTENDED_RESOURCE_CLAIM in claim.metadata.annotations
        if not (is_extended and any(owner.uid in uids for owner in claim.metadata.owner_references)):
            yield without_consumers(claim, uids)


def without_consumers(claim: ResourceClaim, uids: Collection[str]) -> ResourceClaim:
    """Return a claim as kube-controller-manager leaves it when some of its consumers are gone."""
    before = claim.status.reserved_for or ()
    users = tuple(user for user in before if user.uid not in uids)
    if len(users) == len(before):
        return claim
    return replace(claim, status=replace(claim.status, reserved_for=users) if users else ResourceClaimStatus())
