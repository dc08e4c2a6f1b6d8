"""Which volume each claim gets that is bound once its pod has a node, or where one is provisioned.

Kubernetes leaves this to the scheduler, one pod at a time. A gang is placed as a whole before anything is bound, so two
of its pods must not count on the same volume, and pods that share a claim have to share its allocation: placing the
first of them reserves it, the others follow it, and the ledger's journal undoes it with the placement that reserved it.
An allocation that was decided but does not show in the API yet is *assumed*: it stands until the API shows it, until
the catalog contradicts it, or until the scheduler forgets it.

The volumes that claims with the same requirements may have form a pool. It counts for every node how many of them are
free, so a thousand such claims read one array instead of testing a thousand volumes each.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np

from cpg_engine.cluster.axes import Flags, Rows, Scores
from cpg_engine.cluster.nodes import NodeColumns
from cpg_engine.cluster.pod_classes import PlacedPod, PodClass
from cpg_engine.cluster.storage import StorageCatalog
from cpg_engine.cluster.volume_reach import NO_ROWS, VolumeReach
from cpg_engine.cluster.volumes import MULTI_NODE_MODES, ClaimInfo, PodVolumes, VolumeInfo, VolumeRequirements
from cpg_engine.decisions import VolumeAllocation


class VolumePool:
    """The volumes for claims with the same requirements, the smallest first; ``free`` counts those left, by row.

    Volumes with the same node affinity form a group, so that a row refers to a few groups and not to all volumes.
    """

    def __init__(self, volumes: Iterable[VolumeInfo], reach: VolumeReach, taken: set[str], rows: int) -> None:
        """Count the volumes that are not taken."""
        self.free: Scores = np.zeros(rows, dtype=np.int64)
        self._reach = reach
        self._volumes: dict[str, VolumeInfo] = {}
        self._groups: dict[int, list[str]] = {}
        self._groups_at: dict[int, list[int]] = {}
        group_of: dict[object, int] = {}
        for volume in sorted(volumes, key=_size):
            self._volumes[volume.name] = volume
            group = group_of.setdefault(volume.node_affinity, len(group_of))
            if group not in self._groups:
                self._groups[group] = []
                for row in reach.rows(volume).tolist():
                    self._groups_at.setdefault(row, []).append(group)
            self._groups[group].append(volume.name)
            if volume.name not in taken:
                self.free[reach.rows(volume)] += 1

    def at(self, row: int) -> tuple[int, ...]:
        """Return the groups of a row: rows with the same groups can have the same volumes."""
        return tuple(self._groups_at.get(row, ()))

    def first(self, row: int, taken: set[str]) -> VolumeInfo | None:
        """Return the smallest free volume that a row can reach."""
        found = [
            self._volumes[name]
            for group in self._groups_at.get(row, ())
            if (name := next((name for name in self._groups[group] if name not in taken), None)) is not None
        ]
        return min(found, key=_size, default=None)

    def count(self, name: str, sign: int) -> None:
        """Count a volume in or out, if it is in the pool."""
        volume = self._volumes.get(name)
        if volume is not None:
            self.free[self._reach.rows(volume)] += sign


class VolumeAllocator:
    """Reserves volumes for the claims of pods, or where one is to be provisioned."""

    kinds = (VolumeAllocation,)

    def __init__(self, storage: StorageCatalog, cluster: NodeColumns) -> None:
        """Start without allocations."""
        self.reach = VolumeReach(cluster)
        self.allocated: dict[str, VolumeAllocation] = {}
        self._taken: set[str] = set()
        self._storage = storage
        self._cluster = cluster
        self._seen = (-1, -1)
        self._pools: dict[VolumeRequirements, VolumePool] = {}
        self._by_class: dict[str, list[VolumeInfo]] = {}
        self._reserved_volumes: dict[str, list[VolumeInfo]] = {}

    # Between cycles: decisions that are being carried out.

    def assume(self, allocations: Iterable[VolumeAllocation]) -> None:
        """Count allocations until the catalog shows or contradicts them; those assumed already change nothing."""
        self._refresh()
        for allocation in allocations:
            if allocation.claim not in self.allocated and self._is_pending(allocation):
                self._add(allocation)

    def forget(self, allocations: Iterable[VolumeAllocation]) -> None:
        """Stop counting allocations that were not carried out."""
        self._refresh()
        for allocation in allocations:
            if self.allocated.get(allocation.claim) == allocation:
                self._remove(allocation)

    # Within a cycle: simulation.

    def reserve(self, pod_class: PodClass, rows: Rows) -> tuple[VolumeAllocation, ...]:
        """Reserve for claims that have no allocation yet, for one pod at each row; return what is new."""
        volumes = pod_class.volumes
        if volumes is None or not self._storage.resolve(volumes).delayed:
            return ()
        made: list[VolumeAllocation] = []
        for row in rows.tolist():
            for allocation in self._proposed(volumes, row):
                self._add(allocation)
                made.append(allocation)
        return tuple(made)

    def unreserve(self, reserved: tuple[VolumeAllocation, ...]) -> None:
        """Undo reservations, the last first."""
        for allocation in reversed(reserved):
            self._remove(allocation)

    def allocations(self, placed: Iterable[PlacedPod]) -> Iterator[tuple[VolumeAllocation, ...]]:
        """Yield the allocations for the claims of each pod, those of shared claims included."""
        for pod in placed:
            yield self._allocations(pod.pod_class, pod.row)

    def _allocations(self, pod_class: PodClass, row: int) -> tuple[VolumeAllocation, ...]:
        """Return the allocations for the claims of a pod at a node, by claim."""
        if pod_class.volumes is None:
            return ()
        self._refresh()
        delayed = self._storage.resolve(pod_class.volumes).delayed
        standing = [self.allocated[claim.key] for claim in delayed if claim.key in self.allocated]
        return tuple(sorted([*standing, *self._proposed(pod_class.volumes, row)], key=lambda found: found.claim))

    def room_for(self, claims: Sequence[ClaimInfo]) -> Flags:
        """Return for every row whether all of these claims can be bound for a pod there."""
        self._refresh()
        answer = np.ones(self._cluster.size, dtype=np.bool_)
        for claim in claims:
            answer &= self._open_rows(claim)
        competing = sorted(
            (claim for claim in self._undecided(claims) if self._reserved_for(claim) is None),
            key=lambda claim: claim.requirements.storage_class,
        )
        for _, group in groupby(competing, key=lambda claim: claim.requirements.storage_class):
            self._reject_shared(tuple(group), answer)
        return answer

    def _reject_shared(self, competing: Sequence[ClaimInfo], answer: Flags) -> None:
        """Reject the rows where each of several claims of one pod finds a volume alone, but not all of them at once.

        For claims that differ in size alone it is enough to count, since what fits the larger claim fits the smaller.
        """
        if len(competing) < 2:
            return
        scarce = answer.copy()
        scarce[self._provisionable_rows(competing[0])] = False
        competing = sorted(competing, key=lambda claim: (claim.requirements.size, claim.key))
        if len({(claim.requirements.modes, claim.requirements.volume_mode) for claim in competing}) == 1:
            for number, claim in enumerate(reversed(competing), 1):
                answer &= ~scarce | (self._pool(claim.requirements).free >= number)
            return
        known: dict[tuple[tuple[int, ...], ...], bool] = {}
        for row in np.flatnonzero(scarce).tolist():
            key = tuple(self._pool(claim.requirements).at(row) for claim in competing)
            if key not in known:
                known[key] = len(self._propose(competing, row)) == len(competing)
            answer[row] = known[key]

    def _open_rows(self, claim: ClaimInfo) -> Flags:
        """Return for every row whether a claim can be bound, or is being bound, for a pod there."""
        answer = np.zeros(self._cluster.size, dtype=np.bool_)
        allocation = self.allocated.get(claim.key)
        if allocation is not None and allocation.volume is not None:
            answer[self.reach.rows(self._storage.volumes[allocation.volume])] = True
            return answer
        node = allocation.node if allocation is not None else claim.selected_node
        if node is not None:
            answer[self._rows_reaching(claim, node)] = True
            return answer
        reserved = self._reserved_for(claim)
        if reserved is not None:
            answer[self.reach.rows(reserved)] = True
        else:
            answer |= self._pool(claim.requirements).free > 0
        answer[self._provisionable_rows(claim)] = True
        return answer

    def _rows_reaching(self, claim: ClaimInfo, node: str) -> Rows:
        """Return the nodes that will reach a volume that is provisioned for a node.

        That is the node itself. If the claim may be used from several nodes, it is also those with the same values of
        the labels that the driver lists in CSINode.
        """
        row = self._cluster.row_of.get(node)
        provisioning = self._storage.classes.get(claim.requirements.storage_class)
        if row is None or provisioning is None or row not in self.reach.provisionable_rows(provisioning):
            return NO_ROWS
        driver = self._storage.drivers.get(node, {}).get(provisioning.provisioner)
        if driver is None or not claim.requirements.modes & MULTI_NODE_MODES:
            return np.array([row], dtype=np.intp)
        return self.reach.alike(row, driver.keys)

    def _undecided(self, claims: Iterable[ClaimInfo]) -> list[ClaimInfo]:
        return [claim for claim in claims if claim.key not in self.allocated and claim.selected_node is None]

    def _proposed(self, volumes: PodVolumes, row: int) -> list[VolumeAllocation]:
        self._refresh()
        return self._propose(self._undecided(self._storage.resolve(volumes).delayed), row)

    def _propose(self, claims: Sequence[ClaimInfo], row: int) -> list[VolumeAllocation]:
        """Return allocations for claims, the smallest first; a claim without a volume is left out."""
        node = self._cluster.name(row)
        taken = set(self._taken) if len(claims) > 1 else self._taken
        found = []
        for claim in claims:
            volume = self._volume_for(claim, row, taken)
            if volume is not None:
                found.append(VolumeAllocation(claim=claim.key, volume=volume.name, node=node))
                if len(claims) > 1:
                    taken.add(volume.name)
            elif row in self._provisionable_rows(claim):
                found.append(VolumeAllocation(claim=claim.key, volume=None, node=node))
        return found

    def _volume_for(self, claim: ClaimInfo, row: int, taken: set[str]) -> VolumeInfo | None:
        reserved = self._reserved_for(claim)
        if reserved is None:
            return self._pool(claim.requirements).first(row, taken)
        return reserved if row in self.reach.rows(reserved) else None

    def _provisionable_rows(self, claim: ClaimInfo) -> Rows:
        return self.reach.provisionable_rows(self._storage.classes.get(claim.requirements.storage_class))

    def _reserved_for(self, claim: ClaimInfo) -> VolumeInfo | None:
        """Return the volume that is reserved for a claim: the claim gets that one or a new one."""
        requirements = claim.requirements
        found = [
            volume
            for volume in self._reserved_volumes.get(claim.key, ())
            if volume.is_for(claim)
            and volume.holds(requirements)
            and volume.storage_class == requirements.storage_class
        ]
        return min(found, key=_size, default=None)

    def _pool(self, requirements: VolumeRequirements) -> VolumePool:
        found = self._pools.get(requirements)
        if found is None:
            fitting = (
                volume for volume in self._by_class.get(requirements.storage_class, ()) if volume.fits(requirements)
            )
            found = self._pools[requirements] = VolumePool(fitting, self.reach, self._taken, self._cluster.size)
        return found

    def _add(self, allocation: VolumeAllocation) -> None:
        self.allocated[allocation.claim] = allocation
        if allocation.volume is not None:
            self._taken.add(allocation.volume)
            for pool in self._pools.values():
                pool.count(allocation.volume, -1)

    def _remove(self, allocation: VolumeAllocation) -> None:
        del self.allocated[allocation.claim]
        if allocation.volume is not None:
            self._taken.discard(allocation.volume)
            for pool in self._pools.values():
                pool.count(allocation.volume, 1)

    def _refresh(self) -> None:
        """Rebuild the pools if the catalog or the nodes have changed, and drop allocations that they contradict."""
        now = (self._storage.version, self._cluster.labels_version)
        if self._seen == now:
            return
        self._seen = now
        self._pools.clear()
        self._by_class.clear()
        self._reserved_volumes.clear()
        for volume in self._storage.volumes.values():
            self._by_class.setdefault(volume.storage_class, []).append(volume)
            if volume.claim is not None:
                self._reserved_volumes.setdefault(volume.claim, []).append(volume)
        for allocation in [allocation for allocation in self.allocated.values() if not self._is_pending(allocation)]:
            self._remove(allocation)

    def _is_pending(self, allocation: VolumeAllocation) -> bool:
        """Return whether the catalog neither shows nor contradicts an allocation."""
        claim = self._storage.claims.get(allocation.claim)
        if claim is None or claim.volume_name:
            return False
        if allocation.volume is None:
            return claim.selected_node is None
        volume = self._storage.volumes.get(allocation.volume)
        return volume is not None and not volume.is_deleting and (volume.claim is None or volume.is_for(claim))


def _size(volume: VolumeInfo) -> tuple[int, str]:
    return volume.capacity, volume.name
