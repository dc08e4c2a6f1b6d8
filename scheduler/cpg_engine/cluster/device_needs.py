"""What a pod needs of devices: the claims that it names, in the order of its spec, and its extended resources.

A claim that was made from a template for one pod is private. Pods with equal private claims are alike, so a thousand
workers stay one class of pods. A claim that several pods may use, or that has devices already, tells its pods from
others.

The claim for extended resources that device classes back is made with the decision, because what it asks for depends on
the node. One that exists already was left by an attempt that ended before the bind; it is deleted first.
"""

from collections.abc import Iterator

from msgspec import Struct

from cpg_api.core.devices import ResourceClaim
from cpg_api.core.pod import Pod, PodResourceClaim
from cpg_engine.devices.catalog import DeviceCatalog, owner_key
from cpg_engine.devices.extended import ExtendedNeed, extended_needs

GROUP_KIND = "PodGroup"
"""The owner of a claim that was made for all pods of a native group."""


class ClaimNeed(Struct, frozen=True):
    """One claim of a pod: the code of its spec, and its key where it is not private."""

    spec: str
    claim: str | None = None


class PodDevices(Struct, frozen=True):
    """What the pods of a class need of devices; ``problem`` says why they have to wait, whatever is free.

    ``extended`` are the needs for resources that a node may offer itself: there, pods have no devices for them. Pods
    that ``must_extend`` need some of them as devices: the status of such a pod names a claim, which the API server
    keeps for good, and the kubelet does not start the pod without a claim.
    """

    needs: tuple[ClaimNeed, ...] = ()
    problem: str = ""
    extended: tuple[ExtendedNeed, ...] = ()
    must_extend: bool = False

    @property
    def are_private(self) -> bool:
        """Return whether no other pod can matter to the claims, but for the devices that it takes."""
        return all(need.claim is None for need in self.needs)


def claim_names(pod: Pod) -> Iterator[tuple[PodResourceClaim, str | None]]:
    """Yield the entries of a pod's claims, each with the name of its claim, None where it is not known yet.

    An entry for which no claim is needed is left out.
    """
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses or ()}
    for entry in pod.spec.resource_claims or ():
        if entry.resource_claim_name is not None:
            yield entry, entry.resource_claim_name
        elif entry.name not in made or made[entry.name] is not None:
            yield entry, made.get(entry.name)


def claim_keys(pod: Pod) -> tuple[str, ...]:
    """Return the claims of a pod that are known by name, as ``namespace/name``, each once."""
    if not pod.spec.resource_claims:
        return ()
    namespace = pod.metadata.namespace
    return tuple(dict.fromkeys(f"{namespace}/{name}" for _, name in claim_names(pod) if name is not None))


def used_claims(pod: Pod) -> tuple[str, ...]:
    """Return the claims of a pod that are known by name, with the one for its extended resources."""
    made = pod.status.extended_resource_claim_status
    return claim_keys(pod) + ((f"{pod.metadata.namespace}/{made.resource_claim_name}",) if made is not None else ())


def pod_devices(pod: Pod, uid: str, catalog: DeviceCatalog) -> PodDevices | None:
    """Return what a pod with a UID needs of devices, or None where it needs none."""
    extended = extended_needs(pod, catalog.backing) if catalog.backing else ()
    must_extend = pod.status.extended_resource_claim_status is not None
    if problem := _extended_problem(pod, uid, catalog, is_backed=bool(extended)):
        return PodDevices(problem=problem)
    if not pod.spec.resource_claims:
        return PodDevices(extended=extended, must_extend=must_extend) if extended else None
    needs = dict[str, ClaimNeed]()
    for entry, name in claim_names(pod):
        if name is None:
            return PodDevices(problem=f'waiting for the ResourceClaim of "{entry.name}" to be created')
        key = f"{pod.metadata.namespace}/{name}"
        claim = catalog.claims.get(key)
        problem = _problem(name, claim, uid, is_own=entry.resource_claim_name is None)
        if claim is None or problem:
            return PodDevices(problem=problem)
        is_private = _is_owned(claim, uid) and entry.resource_claim_name is None and claim.status.allocation is None
        needs.setdefault(key, ClaimNeed(catalog.spec_of[key], None if is_private else key))
    return PodDevices(tuple(needs.values()), extended=extended, must_extend=must_extend) if needs or extended else None


def _extended_problem(pod: Pod, uid: str, catalog: DeviceCatalog, *, is_backed: bool) -> str:
    """Return why a pod can have no claim for extended resources, or none yet."""
    if owner_key(pod.metadata.namespace, uid) in catalog.extended_claims:
        return "waiting for the ResourceClaim of an earlier attempt to be deleted"
    if pod.status.extended_resource_claim_status is not None and not is_backed:
        return "has a ResourceClaim for extended resources that no device class backs any more"
    overhead = sorted(catalog.backing.keys() & (pod.spec.overhead or {}))
    return f"no devices are given for {overhead[0]} in the overhead of a pod" if overhead else ""


def _problem(name: str, claim: ResourceClaim | None, uid: str, *, is_own: bool) -> str:
    """Return why a pod cannot use a claim, in kube-scheduler's words."""
    if claim is None:
        return f'resourceclaim "{name}" not found'
    if claim.metadata.deletion_timestamp is not None:
        return f'resourceclaim "{name}" is being deleted'
    if is_own and not _is_owned(claim, uid) and not _is_of_group(claim):
        return f"ResourceClaim {claim.metadata.key} was not created for the pod (pod is not owner)"
    return ""


def _is_owned(claim: ResourceClaim, uid: str) -> bool:
    return any(owner.controller and owner.uid == uid for owner in claim.metadata.owner_references)


def _is_of_group(claim: ResourceClaim) -> bool:
    return any(owner.controller and owner.kind == GROUP_KIND for owner in claim.metadata.owner_references)
