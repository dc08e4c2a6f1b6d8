"""Makes the claims for extended resources that are devices, names them in the status of pods, and deletes them.

1. The name of a claim has upstream's form, but follows from the pod and its devices. So a creation whose answer was
   lost is repeated, and never makes a second claim.
2. The status of a pod names its claim before the bind. An API server that does not keep that field has no such claims:
   the pod is not bound, and devices stand for no resources any more until this process ends.
3. A claim of a pod that is not bound is deleted, with our finalizer, by the attempt that made it. If that has ended
   before, the claim is found by its owner: see ``delete_left``. The claims of pods that are gone are garbage.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from cpg_api.core.devices import DELETE_PROTECTION, EXTENDED_RESOURCE_CLAIM, ResourceClaim
from cpg_api.core.pod import Pod, PodExtendedResourceClaimStatus
from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_api.parsing import Rejected, parse_object
from cpg_client.connection import MERGE_PATCH, Connection
from cpg_client.errors import ApiError, ClientError
from cpg_client.patching import merge_status
from cpg_client.resources import PODS, RESOURCE_CLAIMS
from cpg_client.retrying import WatchBackoff
from cpg_engine.decisions import DeviceAllocation, ExtendedAllocation
from cpg_engine.devices.catalog import extended_owner
from cpg_scheduler.binding.claim_writer import MAX_REQUESTS_IN_FLIGHT, ignore_error, read_claim
from cpg_scheduler.binding.claim_writes import carried_out, named
from cpg_scheduler.binding.prebind import BACKOFF, PreBindError, is_final
from cpg_scheduler.cache.cluster import ClusterCache

T = TypeVar("T")
MAX_BASE_CHARACTERS = 58
SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX_CHARACTERS = 5
"""What the API server makes names of that it generates."""
MAX_SECONDS_TO_DELETE = 30.0
"""Seconds after which the deletion of the claims of an attempt is left to the next sweep."""
NOT_KEPT = "the API server does not keep extendedResourceClaimStatus, so devices stand for no extended resources"


class ExtendedClaims:
    """Writes the claims for extended resources."""

    def __init__(
        self, connection: Connection, cache: ClusterCache, *, log: FilteringBoundLogger, backoff: WatchBackoff = BACKOFF
    ) -> None:
        """Start with nothing made."""
        self._connection = connection
        self._cache = cache
        self._log = log
        self._backoff = backoff
        self._slots = asyncio.Semaphore(MAX_REQUESTS_IN_FLIGHT)
        self._creations: dict[str, asyncio.Future[bytes]] = {}
        """The creations that the watch may not have shown, by the UID of the pod; some are under way."""

    async def create(self, pod: Pod, allocation: ExtendedAllocation) -> DeviceAllocation:
        """Create the claim of a pod, and wait until the watch shows it; return what is to be allocated to it."""
        key = key_for(pod, allocation)
        claim = await self._repeat(lambda: self._create(key, pod, allocation))
        uid, claims = claim.metadata.uid, self._cache.devices.claims
        with self._cache.versions.watching((uid,)) as change:
            while key not in claims or claims[key].metadata.uid != uid:
                change.clear()
                await change.wait()
        self._creations.pop(pod.metadata.uid, None)
        return DeviceAllocation(key, uid, allocation.result)

    async def publish(self, pod: Pod, allocation: ExtendedAllocation) -> None:
        """Name the claim of a pod in its status."""
        wanted = claim_status(pod, allocation)
        status = {"extendedResourceClaimStatus": msgspec.to_builtins(wanted)}
        answer = await self._repeat(lambda: merge_status(self._connection, PODS, pod.metadata, status=status))
        found = parse_object(answer, Pod)
        if isinstance(found, Rejected) or found.status.extended_resource_claim_status != wanted:
            self._cache.devices.back_resources(backs=False)
            raise PreBindError(NOT_KEPT)

    async def delete(self, pod: Pod, allocation: ExtendedAllocation) -> None:
        """Delete the claim of a pod if it may have been created."""
        key = key_for(pod, allocation)
        if (creation := self._creations.pop(pod.metadata.uid, None)) is not None:
            await asyncio.wait({creation})
        if creation is not None or key in self._cache.devices.claims:
            await self._delete(key, allocation.owner)

    async def delete_left(self) -> None:
        """Delete the claims of pods that wait for a node: the attempts that made them have ended."""
        found = self._cache.devices.catalog.extended_claims.items()
        await asyncio.gather(*(self._delete(key, owner) for owner, key in found if self._is_left(owner)))

    def _is_left(self, owner: str) -> bool:
        """Return whether a pod, as ``namespace/uid``, waits for a node."""
        namespace, uid = owner.split("/")
        pod = self._cache.pods.get(uid)
        return pod is not None and pod.metadata.namespace == namespace and self._cache.is_pending(pod)

    async def _create(self, key: str, pod: Pod, allocation: ExtendedAllocation) -> ResourceClaim:
        namespace, name = key.split("/")
        body = msgspec.to_builtins(made_claim(pod, allocation))
        body["metadata"]["generateName"] = _base(pod)
        sending = asyncio.ensure_future(self._connection.post(RESOURCE_CLAIMS.path(namespace), body))
        sending.add_done_callback(ignore_error)
        self._creations[pod.metadata.uid] = sending
        try:
            # A request that is cancelled may still have its effect, after a deletion that has not seen it.
            answer = await asyncio.shield(sending)
        except ApiError as error:
            if not error.is_already_exists:
                raise
            answer = await self._connection.get(RESOURCE_CLAIMS.path(namespace, name))
        claim = read_claim(key, answer)
        if extended_owner(claim) != allocation.owner or claim.metadata.deletion_timestamp is not None:
            raise PreBindError(f"{named(key)} is not of its pod, or is being deleted")
        return claim

    async def _delete(self, key: str, owner: str) -> None:
        try:
            async with asyncio.timeout(MAX_SECONDS_TO_DELETE):
                await self._repeat(lambda: self._delete_now(key, owner))
        except (PreBindError, TimeoutError) as error:
            self._log.warning("claim not deleted", claim=key, why=str(error))

    async def _delete_now(self, key: str, owner: str) -> None:
        """Delete a claim if it is the one of its owner: it has no finalizer of ours then."""
        path = RESOURCE_CLAIMS.path(*key.split("/"))
        try:
            claim = read_claim(key, await self._connection.get(path))
            if extended_owner(claim) != owner:
                return
            identity = {"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version}
            if DELETE_PROTECTION in claim.metadata.finalizers:
                kept = [found for found in claim.metadata.finalizers if found != DELETE_PROTECTION]
                body = {"metadata": identity | {"finalizers": kept or None}}
                await self._connection.patch(path, body, MERGE_PATCH)
            await self._connection.delete(path, {"preconditions": {"uid": claim.metadata.uid}})
        except ApiError as error:
            if not error.is_not_found:
                raise

    async def _repeat(self, send: Callable[[], Awaitable[T]]) -> T:
        """Send requests until they are answered; raise what is wrong if they are refused."""
        failures = 0
        while True:
            try:
                async with self._slots:
                    return await send()
            except ClientError as error:
                if isinstance(error, ApiError) and is_final(error):
                    raise PreBindError(str(error)) from error
                failures += 1
                await self._connection.timing.sleep(self._backoff.wait(failures, error))


def key_for(pod: Pod, allocation: ExtendedAllocation) -> str:
    """Return the key of the claim of a pod; its name is as long as one that the API server generates."""
    seed = msgspec.json.encode((pod.metadata.uid, allocation.spec, allocation.result))
    number = int.from_bytes(hashlib.sha256(seed).digest())
    letters = (SUFFIX_ALPHABET[number // 27**place % 27] for place in range(SUFFIX_CHARACTERS))
    return f"{pod.metadata.namespace}/{_base(pod)[:MAX_BASE_CHARACTERS]}{''.join(letters)}"


def made_claim(pod: Pod, allocation: ExtendedAllocation) -> ResourceClaim:
    """Return the claim of a pod as it is created."""
    meta, key = pod.metadata, key_for(pod, allocation)
    owner = OwnerReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True)
    made = ObjectMeta(
        name=key.split("/")[1],
        namespace=meta.namespace,
        annotations={EXTENDED_RESOURCE_CLAIM: "true"},
        owner_references=(owner,),
    )
    return ResourceClaim(metadata=made, spec=allocation.spec)


def claim_status(pod: Pod, allocation: ExtendedAllocation) -> PodExtendedResourceClaimStatus:
    """Return what the status of a pod says about its claim."""
    return PodExtendedResourceClaimStatus(allocation.mappings, key_for(pod, allocation).split("/")[1])


def carried_out_for(pod: Pod, allocation: ExtendedAllocation) -> tuple[Pod, ResourceClaim]:
    """Return a pod and its claim once all is written."""
    made, key = made_claim(pod, allocation), key_for(pod, allocation)
    claim = replace(made, metadata=replace(made.metadata, uid=key))
    status = replace(pod.status, extended_resource_claim_status=claim_status(pod, allocation))
    return replace(pod, status=status), carried_out(claim, DeviceAllocation(key, key, allocation.result), pod)


def _base(pod: Pod) -> str:
    return f"{pod.metadata.name}-extended-resources-"
