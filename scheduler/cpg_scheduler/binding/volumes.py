"""Volumes before binds: what was chosen for claims is carried out, and nobody is bound until all of them are there.

A volume that exists is set aside for its claim, and Kubernetes' own controller binds the two; for a volume that is yet
to be made, the claim is told the node, and its provisioner makes it and binds it, or takes the node back to say no.

Whatever was begun stays when something else fails: it shows in the API, and the next attempt reckons with it. So does
the next leader, who finds claims that have a node and no volume yet and waits for them like for its own.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

from cpg_api.core.pod import Pod
from cpg_api.core.volumes import PersistentVolume, PersistentVolumeClaim
from cpg_api.parsing import Rejected, parse_object
from cpg_client.connection import Connection
from cpg_client.errors import ApiError, ClientError
from cpg_client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from cpg_client.retrying import WatchBackoff
from cpg_engine.cluster.volumes import NODE_ANNOTATION, Claim, Volume
from cpg_engine.decisions import VolumeAllocation
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.cache.storage import claims_of, version_of

BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
"""Says that no person has set a volume aside, so that the controller may let it go with its claim."""
BACKOFF = WatchBackoff()
AT_ONCE = 32
"""Requests about storage in flight; they do not take the places of binds."""

T = TypeVar("T", PersistentVolume, PersistentVolumeClaim)
Patch: TypeAlias = dict[str, Any]


class VolumeBindingError(Exception):
    """What was chosen for a claim cannot be had."""


class VolumeBinder:
    """Carries out choices, and waits for what comes of them."""

    def __init__(
        self, connection: Connection, state: ClusterCache, *, patience: float, backoff: WatchBackoff = BACKOFF
    ) -> None:
        """Give the volumes of an order so many seconds."""
        self._connection = connection
        self._state = state
        self._catalogue = state.snapshot.ledger.storage
        self._patience = patience
        self._backoff = backoff
        self._slots = asyncio.Semaphore(AT_ONCE)

    def unbound(self, pods: Iterable[Pod]) -> list[str]:
        """Return the claims of some pods that are not bound yet."""
        keys = {key for pod in pods if pod.spec.volumes for key in claims_of(pod)}
        return sorted(key for key in keys if (claim := self._catalogue.claims.get(key)) is None or not claim.bound)

    async def furnish(self, pods: Collection[Pod], choices: Iterable[VolumeAllocation]) -> str:
        """Return as soon as all claims of the pods are bound, or with what stands in the way of that."""
        chosen = {choice.claim: choice for choice in choices}
        claims = self.unbound(pods)
        problem = ""
        if not claims:
            return problem
        try:
            async with asyncio.timeout(self._patience), asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(self._watch([pod.metadata.uid for pod in pods]))
                await asyncio.wait([tasks.create_task(self._see_to(key, chosen.get(key))) for key in claims])
                watching.cancel()
        except* VolumeBindingError as group:
            problem = str(group.exceptions[0])
        except* TimeoutError:
            problem = f"{named(self.unbound(pods))} not bound within {self._patience:g} s"
        return problem

    async def _watch(self, uids: Sequence[str]) -> None:
        """Raise as soon as one of these pods is not to be bound any more."""
        with self._state.storage.watching(uids) as news:
            while all(uid in self._state.assumed for uid in uids):
                news.clear()
                await news.wait()
        raise VolumeBindingError("one of its pods is gone, or about to go")

    async def _see_to(self, key: str, choice: VolumeAllocation | None) -> None:
        """Carry out what was chosen for a claim, if anything, and wait until it is bound."""
        version = 0 if choice is None else await self._carry_out(choice)
        volume = choice.volume if choice is not None else None
        with self._state.storage.watching((key,) if volume is None else (key, volume)) as news:
            while not self._is_bound(key, volume, version):
                news.clear()
                await news.wait()

    def _is_bound(self, key: str, volume: str | None, version: int) -> bool:
        """Tell whether a claim is bound; raise where it will not be.

        What is known from before the version, at which we wrote to the claim or to its volume, says nothing.
        """
        claim = self._catalogue.claims.get(key)
        if claim is None or claim.leaving:
            raise VolumeBindingError(f"{named([key])} is gone, or about to go")
        if claim.bound:
            return True
        is_news = self._state.storage.is_seen(volume or key, version)
        if volume is None:
            if is_news and claim.selected_node is None and not claim.volume_name:
                raise VolumeBindingError(f"no volume could be made for {named([key])}: its events say why")
        elif (found := self._catalogue.volumes.get(volume)) is None or (is_news and not found.is_for(claim)):
            raise VolumeBindingError(f"{named([key])} has lost persistentvolume {volume!r}")
        return False

    async def _carry_out(self, choice: VolumeAllocation) -> int:
        """Write down what was chosen for a claim; return the version of what was written to."""
        claim = self._catalogue.claims.get(choice.claim)
        if claim is None:
            raise VolumeBindingError(f"{named([choice.claim])} is gone, or about to go")
        if choice.volume is not None:
            path = PERSISTENT_VOLUMES.path(name=choice.volume)
            return await self._write(path, PersistentVolume, lambda volume: _set_aside(volume, claim))
        path = PERSISTENT_VOLUME_CLAIMS.path(*choice.claim.split("/"))
        return await self._write(path, PersistentVolumeClaim, lambda found: _placed(found, claim, choice.node))

    async def _write(self, path: str, kind: type[T], patch_for: Callable[[T], Patch | None]) -> int:
        """Bring an object to where it has to be, for as long as it takes; return its version then."""
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
                    raise VolumeBindingError(str(error)) from error
                failures += 1
                await self._connection.timing.sleep(self._backoff.wait(failures, error))


def is_final(error: ApiError) -> bool:
    """Tell whether an answer would be the same if asked again: a refusal, and no conflict or trouble on the way."""
    return 400 <= error.status < 500 and error.status not in {408, 409, 429}


def named(claims: Sequence[str]) -> str:
    """Name some claims: the first, and how many more there are."""
    if not claims:
        return "no claim"
    more = f" and {len(claims) - 1} more" if len(claims) > 1 else ""
    return f'persistentvolumeclaim "{claims[0]}"{more}'


def _read(data: bytes, kind: type[T]) -> T:
    found = parse_object(data, kind)
    if isinstance(found, Rejected):
        raise VolumeBindingError(f"{found.name} cannot be read: {found.problems[0]}")
    return found


def _set_aside(found: PersistentVolume, claim: Claim) -> Patch | None:
    """Return what makes a volume a claim's, or None if it is."""
    volume = Volume.compile(found)
    if volume.leaving or (volume.claim is not None and not volume.is_for(claim)):
        raise VolumeBindingError(f"persistentvolume {volume.name!r} went to somebody else, or is about to go")
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


def _placed(found: PersistentVolumeClaim, claim: Claim, node: str) -> Patch | None:
    """Return what asks for a claim's volume at a node, or None if that has been done or needs no doing any more."""
    now = Claim.compile(found)
    if now.uid != claim.uid or now.leaving:
        raise VolumeBindingError(f"{named([claim.key])} is gone, or about to go")
    if now.volume_name or now.selected_node == node:
        return None
    if now.selected_node is not None:
        raise VolumeBindingError(f"the volume of {named([claim.key])} is being made at node {now.selected_node}")
    return {"metadata": {"annotations": {NODE_ANNOTATION: node}}}
