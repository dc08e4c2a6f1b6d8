"""The PreBind plugin for volumes: carries out what was chosen for claims, and waits until all of them are bound.

An existing volume is reserved for its claim, and Kubernetes' own controller binds the two. For a volume that has to be
provisioned, the claim is annotated with the node; its provisioner makes the volume and binds it, or removes the
annotation to refuse.

What was begun stays when something else fails: it shows in the API, and the next attempt uses it. So does the next
leader, which finds claims with a node and without a volume, and waits for them like for its own.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias, TypeVar

from cpg_api.core.volumes import PersistentVolume, PersistentVolumeClaim
from cpg_api.parsing import Rejected, parse_object
from cpg_client.connection import Connection
from cpg_client.errors import ApiError, ClientError
from cpg_client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from cpg_client.retrying import WatchBackoff
from cpg_engine.cluster.volumes import NODE_ANNOTATION, ClaimInfo, VolumeInfo
from cpg_engine.decisions import DeviceAllocation, VolumeAllocation
from cpg_scheduler.binding.batch import BindBatch
from cpg_scheduler.binding.prebind import BACKOFF, PreBindError, first_of, is_final, watch_pods
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.cache.storage import claims_of
from cpg_scheduler.cache.versions import version_of

BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
"""The annotation of a volume that no user has reserved, so that the controller may release it with its claim."""
MAX_REQUESTS_IN_FLIGHT = 32
"""Requests about storage; they do not count among the binds in flight."""

T = TypeVar("T", PersistentVolume, PersistentVolumeClaim)
Patch: TypeAlias = dict[str, Any]


class VolumeBinder:
    """Binds claims to the volumes that were chosen for them."""

    name = "volumes"

    def __init__(
        self, connection: Connection, cache: ClusterCache, *, timeout: float, backoff: WatchBackoff = BACKOFF
    ) -> None:
        """Wait for the volumes of a batch at most ``timeout`` seconds."""
        self._connection = connection
        self._cache = cache
        self._catalogue = cache.snapshot.ledger.storage
        self._timeout = timeout
        self._backoff = backoff
        self._slots = asyncio.Semaphore(MAX_REQUESTS_IN_FLIGHT)

    def unready(self, batch: BindBatch) -> list[str]:
        """Return the claims of a batch that are not bound yet, by kind and name."""
        return list(map(_named, self._unbound(batch)))

    def _unbound(self, batch: BindBatch) -> list[str]:
        keys = {key for pod in batch.pods.values() if pod.spec.volumes for key in claims_of(pod)}
        return sorted(key for key in keys if (claim := self._catalogue.claims.get(key)) is None or not claim.is_bound)

    async def prebind(self, batch: BindBatch) -> str:
        """Return as soon as all claims of a batch are bound, or the problem that prevents it."""
        allocations = (one for several in batch.allocations.values() for one in several)
        chosen = {one.claim: one for one in allocations if isinstance(one, VolumeAllocation)}
        claims = self._unbound(batch)
        problem = ""
        if not claims:
            return problem
        try:
            async with asyncio.timeout(self._timeout), asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(watch_pods(self._cache, batch.pods))
                await asyncio.wait([tasks.create_task(self._bind_claim(key, chosen.get(key))) for key in claims])
                watching.cancel()
        except* PreBindError as group:
            problem = str(group.exceptions[0])
        except* TimeoutError:
            problem = f"{first_of(self.unready(batch))} not bound within {self._timeout:g} s"
        return problem

    async def release(self, batch: BindBatch, uids: Collection[str]) -> None:
        """Leave everything as it is: a volume that was begun is the same for the next attempt."""

    async def deallocate(self, claims: Sequence[DeviceAllocation], pods: Collection[str]) -> None:
        """Leave volumes as they are."""

    async def _bind_claim(self, key: str, allocation: VolumeAllocation | None) -> None:
        """Write what is allocated to a claim, if there is one, and wait until the claim is bound."""
        version = 0 if allocation is None else await self._write_allocation(allocation)
        volume = allocation.volume if allocation is not None else None
        with self._cache.versions.watching((key,) if volume is None else (key, volume)) as change:
            while not self._is_bound(key, volume, version):
                change.clear()
                await change.wait()

    def _is_bound(self, key: str, volume: str | None, version: int) -> bool:
        """Return whether a claim is bound; raise where it will not be.

        A state from before ``version``, which our write to the claim or its volume has made, says nothing.
        """
        claim = self._catalogue.claims.get(key)
        if claim is None or claim.is_deleting:
            raise PreBindError(f"{_named(key)} is gone or terminating")
        if claim.is_bound:
            return True
        is_current = self._cache.versions.is_seen(volume or key, version)
        if volume is None:
            if is_current and claim.selected_node is None and not claim.volume_name:
                raise PreBindError(f"no volume could be made for {_named(key)}: its events say why")
        elif (found := self._catalogue.volumes.get(volume)) is None or (is_current and not found.is_for(claim)):
            raise PreBindError(f"{_named(key)} has lost persistentvolume {volume!r}")
        return False

    async def _write_allocation(self, allocation: VolumeAllocation) -> int:
        """Write what is allocated to a claim; return the version of the written object."""
        claim = self._catalogue.claims.get(allocation.claim)
        if claim is None:
            raise PreBindError(f"{_named(allocation.claim)} is gone or terminating")
        if allocation.volume is not None:
            path = PERSISTENT_VOLUMES.path(name=allocation.volume)
            return await self._write(path, PersistentVolume, lambda volume: _reservation(volume, claim))
        path = PERSISTENT_VOLUME_CLAIMS.path(*allocation.claim.split("/"))
        return await self._write(
            path, PersistentVolumeClaim, lambda found: _node_annotation(found, claim, allocation.node)
        )

    async def _write(self, path: str, kind: type[T], patch_for: Callable[[T], Patch | None]) -> int:
        """Patch an object until that works or is not needed; return its version then."""
        failures = 0
        while True:
            try:
                async with self._slots:
                    found = _read(await self._connection.get(path), kind)
                    patch = patch_for(found)
                    if patch is not None:
                        patch["metadata"]["resourceVersion"] = found.metadata.resource_version
                        found = _read(await self._connection.patch(path, patch), kind)
                return version_of(found.metadata)
            except ClientError as error:
                if isinstance(error, ApiError) and is_final(error):
                    raise PreBindError(str(error)) from error
                failures += 1
                await self._connection.timing.sleep(self._backoff.wait(failures, error))


def _named(claim: str) -> str:
    return f'persistentvolumeclaim "{claim}"'


def _read(data: bytes, kind: type[T]) -> T:
    found = parse_object(data, kind)
    if isinstance(found, Rejected):
        raise PreBindError(f"{found.name} cannot be read: {found.problems[0]}")
    return found


def _reservation(found: PersistentVolume, claim: ClaimInfo) -> Patch | None:
    """Return the patch that reserves a volume for a claim, or None if it is reserved."""
    volume = VolumeInfo.compile(found)
    if volume.is_deleting or (volume.claim is not None and not volume.is_for(claim)):
        raise PreBindError(f"persistentvolume {volume.name!r} belongs to another claim or is being deleted")
    if volume.claim_uid:
        return None
    namespace, name = claim.key.split("/")
    reference = {
        "apiVersion": PERSISTENT_VOLUME_CLAIMS.api_version,
        "kind": PERSISTENT_VOLUME_CLAIMS.kind,
        "namespace": namespace,
        "name": name,
        "uid": claim.uid,
    }
    annotations = {BY_CONTROLLER: "yes"} if volume.claim is None else {}
    return {"metadata": {"annotations": annotations}, "spec": {"claimRef": reference}}


def _node_annotation(found: PersistentVolumeClaim, claim: ClaimInfo, node: str) -> Patch | None:
    """Return the patch that asks for a claim's volume at a node, or None if it is not needed (any more)."""
    now = ClaimInfo.compile(found)
    if now.uid != claim.uid or now.is_deleting:
        raise PreBindError(f"{_named(claim.key)} is gone or terminating")
    if now.volume_name or now.selected_node == node:
        return None
    if now.selected_node is not None:
        raise PreBindError(f"the volume of {_named(claim.key)} is being made at node {now.selected_node}")
    return {"metadata": {"annotations": {NODE_ANNOTATION: node}}}
