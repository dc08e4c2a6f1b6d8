"""The catalog of storage: claims, volumes, storage classes, and what CSI drivers say of nodes.

It changes between cycles only. ``version`` is incremented with every change that matters to scheduling; what is derived
from the catalog compares it with its own.
"""

from typing import TypeVar

from msgspec import Struct

from cpg_api.core.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from cpg_engine.cluster.volumes import (
    READ_WRITE_ONCE_POD,
    ClaimInfo,
    ClaimUse,
    PodVolumes,
    StorageClassInfo,
    VolumeHandle,
    VolumeInfo,
    claim_key,
)

NO_LIMIT = 2**31
"""More volumes than any node attaches; larger limits are reduced to it."""
MAX_CACHED_VOLUMES = 10_000
"""Pods' volumes that are kept resolved: pods may name claims that never exist, and then the catalog never changes."""


Compiled = TypeVar("Compiled")


class NodeDriver(Struct, frozen=True):
    """A CSI driver on a node: how many volumes it attaches, and the labels that say where its volumes are."""

    limit: int
    keys: tuple[str, ...]


class ResolvedVolumes(Struct, frozen=True):
    """The volumes of a pod, resolved with the catalog.

    Either ``problem`` says why the pod has to wait, or its claims are ``bound`` to these volumes or ``delayed``: to be
    bound once the pod has a node, the smallest first. ``exclusive`` are the claims that only one pod may use.
    """

    problem: str = ""
    bound: tuple[VolumeInfo, ...] = ()
    delayed: tuple[ClaimInfo, ...] = ()
    exclusive: tuple[str, ...] = ()
    handles: frozenset[VolumeHandle] = frozenset()


class StorageCatalog:
    """All objects of storage, by name."""

    def __init__(self) -> None:
        """Start empty."""
        self.version = 0
        self.claims: dict[str, ClaimInfo] = {}
        self.volumes: dict[str, VolumeInfo] = {}
        self.classes: dict[str, StorageClassInfo] = {}
        self.drivers: dict[str, dict[str, NodeDriver]] = {}
        self._resolved: dict[PodVolumes, ResolvedVolumes] = {}

    def put_claim(self, claim: PersistentVolumeClaim) -> None:
        """Add a claim or its new state."""
        compiled = ClaimInfo.compile(claim)
        self._put(self.claims, compiled.key, compiled)

    def remove_claim(self, namespace: str, name: str) -> None:
        """Remove a claim."""
        self._remove(self.claims, claim_key(namespace, name))

    def put_volume(self, volume: PersistentVolume) -> None:
        """Add a volume or its new state."""
        self._put(self.volumes, volume.metadata.name, VolumeInfo.compile(volume))

    def remove_volume(self, name: str) -> None:
        """Remove a volume."""
        self._remove(self.volumes, name)

    def put_class(self, found: StorageClass) -> None:
        """Add a storage class or its new state."""
        self._put(self.classes, found.metadata.name, StorageClassInfo.compile(found))

    def remove_class(self, name: str) -> None:
        """Remove a storage class."""
        self._remove(self.classes, name)

    def put_csi_node(self, found: CSINode) -> None:
        """Set what the CSI drivers say of a node."""
        drivers = {}
        for driver in found.spec.drivers or ():
            count = driver.allocatable.count if driver.allocatable else None
            limit = NO_LIMIT if count is None else max(min(count, NO_LIMIT), -1)
            drivers[driver.name] = NodeDriver(limit=limit, keys=tuple(sorted(set(driver.topology_keys or ()))))
        self._put(self.drivers, found.metadata.name, drivers)

    def remove_csi_node(self, name: str) -> None:
        """Remove what the CSI drivers said of a node."""
        self._remove(self.drivers, name)

    def resolve(self, volumes: PodVolumes) -> ResolvedVolumes:
        """Return the volumes of a pod as the catalog has them at present."""
        found = self._resolved.get(volumes)
        if found is None:
            if len(self._resolved) >= MAX_CACHED_VOLUMES:
                self._resolved.clear()
            found = self._resolved[volumes] = self._resolve(volumes)
        return found

    def handle_of(self, key: str) -> VolumeHandle | None:
        """Return the volume that a claim attaches to the node of its pod, or None where no CSI driver is involved.

        A volume that does not exist yet counts with the driver that would provision it.
        """
        claim = self.claims.get(key)
        if claim is None:
            return None
        volume = self.volumes.get(claim.volume_name)
        if volume is not None:
            return volume.handle
        found = self.classes.get(claim.requirements.storage_class)
        return VolumeHandle(found.provisioner, key, made=False) if found is not None and found.provisioner else None

    def _put(self, table: dict[str, Compiled], key: str, found: Compiled) -> None:
        if table.get(key) != found:
            table[key] = found
            self._changed()

    def _remove(self, table: dict[str, Compiled], key: str) -> None:
        if table.pop(key, None) is not None:
            self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._resolved.clear()

    def _resolve(self, volumes: PodVolumes) -> ResolvedVolumes:
        problems = [self._problem(volumes.namespace, use) for use in volumes.claims]
        problem = next((found for found in problems if found), "")
        if problem:
            return ResolvedVolumes(problem=problem)
        claims = {key: self.claims[key] for key in sorted(volumes.keys)}
        open_claims = [claim for claim in claims.values() if not claim.is_bound]
        if not all(self._waits(claim) for claim in open_claims):
            return ResolvedVolumes(problem="pod has unbound immediate PersistentVolumeClaims")
        bound = [claim.volume_name for claim in claims.values() if claim.is_bound]
        for name in bound:
            if name not in self.volumes:
                return ResolvedVolumes(problem=f'persistentvolume "{name}" not found')
        handles = (self.handle_of(key) for key in claims)
        return ResolvedVolumes(
            bound=tuple(self.volumes[name] for name in bound),
            delayed=tuple(sorted(open_claims, key=lambda claim: (claim.requirements.size, claim.key))),
            exclusive=tuple(key for key, claim in claims.items() if READ_WRITE_ONCE_POD in claim.requirements.modes),
            handles=frozenset(handle for handle in handles if handle is not None),
        )

    def _waits(self, claim: ClaimInfo) -> bool:
        """Return whether an unbound claim is to be bound once its pod has a node."""
        found = self.classes.get(claim.requirements.storage_class)
        return found is not None and found.is_delayed and not claim.volume_name

    def _problem(self, namespace: str, use: ClaimUse) -> str:
        """Return why a pod cannot use a claim, in kube-scheduler's words."""
        claim = self.claims.get(claim_key(namespace, use.name))
        named = f'persistentvolumeclaim "{use.name}"'
        if claim is None:
            if use.owner is not None:
                return f"waiting for ephemeral volume controller to create the {named}"
            return f"{named} not found"
        if claim.is_lost:
            return f'{named} bound to non-existent persistentvolume "{claim.volume_name}"'
        if claim.is_deleting:
            return f"{named} is being deleted"
        if use.owner is not None and use.owner not in claim.controllers:
            return f"PVC {claim.key} was not created for the pod (pod is not owner)"
        return ""
