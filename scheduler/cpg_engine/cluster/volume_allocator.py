"""Claims that are bound when their pod has a node: which volume each is to have, or where one is to be made.

Kubernetes leaves this to the scheduler, one pod at a time. A gang is placed as a whole before anything is bound, so
its pods must not reckon with the same volume twice, and pods that share a claim have to reckon with one choice:
placing the first of them makes it, the others follow it, and the ledger's journal takes it back with the placement
that made it. Whatever was decided but does not show in the API yet is *assumed*: it stands until it shows, until the
catalogue contradicts it, or until it is given up.

The volumes that one shape of claim may have form a pool. It counts for every node how many of them are free, so a
thousand claims of one shape ask one array instead of looking at a thousand volumes each.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np

from cpg_engine.cluster.axes import Flags, Rows, Scores
from cpg_engine.cluster.nodes import NodeColumns
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.cluster.storage import StorageCatalog
from cpg_engine.cluster.volume_reach import NO_ROWS, VolumeReach
from cpg_engine.cluster.volumes import MULTI_NODE_MODES, ClaimInfo, PodVolumes, VolumeInfo, VolumeRequirements
from cpg_engine.decisions import VolumeAllocation


class VolumePool:
    """The volumes that claims of one shape may have, the smallest first; ``free`` counts by node those still to be had.

    Volumes with the same node affinity stand together, so that what is kept by node is a few groups, not all volumes.
    """

    def __init__(self, volumes: Iterable[VolumeInfo], reach: VolumeReach, taken: set[str], rows: int) -> None:
        """Count the volumes that nobody has taken."""
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
        """Return what tells nodes apart: those of which it is the same can have the same volumes."""
        return tuple(self._groups_at.get(row, ()))

    def first(self, row: int, taken: set[str]) -> VolumeInfo | None:
        """Return the smallest volume to be had at a node."""
        found = [
            self._volumes[name]
            for group in self._groups_at.get(row, ())
            if (name := next((name for name in self._groups[group] if name not in taken), None)) is not None
        ]
        return min(found, key=_size, default=None)

    def count(self, name: str, sign: int) -> None:
        """Count a volume in or out, if it is one of the pool's."""
        volume = self._volumes.get(name)
        if volume is not None:
            self.free[self._reach.rows(volume)] += sign


class VolumeAllocator:
    """Reserves volumes for the claims of pods, or where one is to be provisioned."""

    def __init__(self, storage: StorageCatalog, cluster: NodeColumns) -> None:
        """Start with no choice made."""
        self.reach = VolumeReach(cluster)
        self.chosen: dict[str, VolumeAllocation] = {}
        self._taken: set[str] = set()
        self._storage = storage
        self._cluster = cluster
        self._seen = (-1, -1)
        self._pools: dict[VolumeRequirements, VolumePool] = {}
        self._by_class: dict[str, list[VolumeInfo]] = {}
        self._aside: dict[str, list[VolumeInfo]] = {}

    kind = VolumeAllocation

    # Between cycles: decisions that are being carried out.

    def assume(self, allocations: Iterable[VolumeAllocation]) -> None:
        """Count allocations until the catalogue shows or contradicts them; those assumed already change nothing."""
        self._refresh()
        for allocation in allocations:
            if allocation.claim not in self.chosen and self._stands(allocation):
                self._take(allocation)

    def forget(self, allocations: Iterable[VolumeAllocation]) -> None:
        """Stop counting allocations that were not carried out."""
        self._refresh()
        for allocation in allocations:
            if self.chosen.get(allocation.claim) == allocation:
                self._drop(allocation)

    # Within a cycle: simulation.

    def reserve(self, pod_class: PodClass, rows: Rows) -> tuple[VolumeAllocation, ...]:
        """Reserve for claims that have no allocation yet, for one pod at each row; return what is new."""
        volumes = pod_class.volumes
        if volumes is None or not self._storage.resolve(volumes).delayed:
            return ()
        made: list[VolumeAllocation] = []
        for row in rows.tolist():
            for allocation in self._proposed(volumes, row):
                self._take(allocation)
                made.append(allocation)
        return tuple(made)

    def unreserve(self, reserved: tuple[VolumeAllocation, ...]) -> None:
        """Undo reservations, the last first."""
        for allocation in reversed(reserved):
            self._drop(allocation)

    def allocations(self, pod_class: PodClass, row: int) -> tuple[VolumeAllocation, ...]:
        """Return the allocations for the claims of a pod at a node, by claim; pods that share a claim share its own."""
        if pod_class.volumes is None:
            return ()
        self._refresh()
        late = self._storage.resolve(pod_class.volumes).delayed
        standing = [self.chosen[claim.key] for claim in late if claim.key in self.chosen]
        return tuple(sorted([*standing, *self._proposed(pod_class.volumes, row)], key=lambda found: found.claim))

    def room_for(self, claims: Sequence[ClaimInfo]) -> Flags:
        """Tell for every row whether all of these claims can be bound for a pod there."""
        self._refresh()
        answer = np.ones(self._cluster.size, dtype=np.bool_)
        for claim in claims:
            answer &= self._open_to(claim)
        rivals = sorted(
            (claim for claim in self._undecided(claims) if self._own(claim) is None),
            key=lambda claim: claim.shape.storage_class,
        )
        for _, group in groupby(rivals, key=lambda claim: claim.shape.storage_class):
            self._share_out(tuple(group), answer)
        return answer

    def _share_out(self, rivals: Sequence[ClaimInfo], answer: Flags) -> None:
        """Take out the rows where claims of one pod, each of which has a volume by itself, have not one each.

        Claims that differ in size alone are easy: what fits the larger fits the smaller, so it is enough to count.
        """
        if len(rivals) < 2:
            return
        scarce = answer.copy()
        scarce[self._made_at(rivals[0])] = False
        rivals = sorted(rivals, key=lambda claim: (claim.shape.size, claim.key))
        if len({(claim.shape.modes, claim.shape.volume_mode) for claim in rivals}) == 1:
            for number, claim in enumerate(reversed(rivals), 1):
                answer &= ~scarce | (self._pool(claim.shape).free >= number)
            return
        known: dict[tuple[tuple[int, ...], ...], bool] = {}
        for row in np.flatnonzero(scarce).tolist():
            key = tuple(self._pool(claim.shape).at(row) for claim in rivals)
            if key not in known:
                known[key] = len(self._propose(rivals, row)) == len(rivals)
            answer[row] = known[key]

    def _open_to(self, claim: ClaimInfo) -> Flags:
        """Tell for every row whether a claim can be bound, or is going to be, for a pod there."""
        answer = np.zeros(self._cluster.size, dtype=np.bool_)
        choice = self.chosen.get(claim.key)
        if choice is not None and choice.volume is not None:
            answer[self.reach.rows(self._storage.volumes[choice.volume])] = True
            return answer
        node = choice.node if choice is not None else claim.selected_node
        if node is not None:
            answer[self._around(claim, node)] = True
            return answer
        own = self._own(claim)
        if own is not None:
            answer[self.reach.rows(own)] = True
        else:
            answer |= self._pool(claim.shape).free > 0
        answer[self._made_at(claim)] = True
        return answer

    def _around(self, claim: ClaimInfo, node: str) -> Rows:
        """Return the nodes that will reach a volume made for a pod at a node.

        That is the node itself; and where the claim may be used from several, those that the driver cannot tell from
        it, which is what the labels are for that it lists in CSINode.
        """
        row = self._cluster.row_of.get(node)
        provisioning = self._storage.classes.get(claim.shape.storage_class)
        if row is None or provisioning is None or row not in self.reach.provisionable_rows(provisioning):
            return NO_ROWS
        driver = self._storage.drivers.get(node, {}).get(provisioning.provisioner)
        if driver is None or not claim.shape.modes & MULTI_NODE_MODES:
            return np.array([row], dtype=np.intp)
        return self.reach.alike(row, driver.keys)

    def _undecided(self, claims: Iterable[ClaimInfo]) -> list[ClaimInfo]:
        return [claim for claim in claims if claim.key not in self.chosen and claim.selected_node is None]

    def _proposed(self, volumes: PodVolumes, row: int) -> list[VolumeAllocation]:
        self._refresh()
        return self._propose(self._undecided(self._storage.resolve(volumes).delayed), row)

    def _propose(self, claims: Sequence[ClaimInfo], row: int) -> list[VolumeAllocation]:
        """Return choices for claims, the smallest first; a claim for which there is none is left out."""
        node = self._cluster.name(row)
        taken = set(self._taken) if len(claims) > 1 else self._taken
        found = []
        for claim in claims:
            volume = self._volume_for(claim, row, taken)
            if volume is not None:
                found.append(VolumeAllocation(claim=claim.key, volume=volume.name, node=node))
                if len(claims) > 1:
                    taken.add(volume.name)
            elif row in self._made_at(claim):
                found.append(VolumeAllocation(claim=claim.key, volume=None, node=node))
        return found

    def _volume_for(self, claim: ClaimInfo, row: int, taken: set[str]) -> VolumeInfo | None:
        own = self._own(claim)
        if own is None:
            return self._pool(claim.shape).first(row, taken)
        return own if row in self.reach.rows(own) else None

    def _made_at(self, claim: ClaimInfo) -> Rows:
        return self.reach.provisionable_rows(self._storage.classes.get(claim.shape.storage_class))

    def _own(self, claim: ClaimInfo) -> VolumeInfo | None:
        """Return the volume that was set aside for a claim: it has that one or a new one."""
        shape = claim.shape
        found = [
            volume
            for volume in self._aside.get(claim.key, ())
            if volume.is_for(claim) and volume.holds(shape) and volume.storage_class == shape.storage_class
        ]
        return min(found, key=_size, default=None)

    def _pool(self, shape: VolumeRequirements) -> VolumePool:
        found = self._pools.get(shape)
        if found is None:
            fitting = (volume for volume in self._by_class.get(shape.storage_class, ()) if volume.fits(shape))
            found = self._pools[shape] = VolumePool(fitting, self.reach, self._taken, self._cluster.size)
        return found

    def _take(self, choice: VolumeAllocation) -> None:
        self.chosen[choice.claim] = choice
        if choice.volume is not None:
            self._taken.add(choice.volume)
            for pool in self._pools.values():
                pool.count(choice.volume, -1)

    def _drop(self, choice: VolumeAllocation) -> None:
        del self.chosen[choice.claim]
        if choice.volume is not None:
            self._taken.discard(choice.volume)
            for pool in self._pools.values():
                pool.count(choice.volume, 1)

    def _refresh(self) -> None:
        """Start anew where the catalogue or the nodes have changed; choices that they contradict are dropped."""
        now = (self._storage.version, self._cluster.labels_version)
        if self._seen == now:
            return
        self._seen = now
        self._pools.clear()
        self._by_class.clear()
        self._aside.clear()
        for volume in self._storage.volumes.values():
            self._by_class.setdefault(volume.storage_class, []).append(volume)
            if volume.claim is not None:
                self._aside.setdefault(volume.claim, []).append(volume)
        for choice in [choice for choice in self.chosen.values() if not self._stands(choice)]:
            self._drop(choice)

    def _stands(self, choice: VolumeAllocation) -> bool:
        """Tell whether the catalogue leaves room for a choice and does not say the same already."""
        claim = self._storage.claims.get(choice.claim)
        if claim is None or claim.volume_name:
            return False
        if choice.volume is None:
            return claim.selected_node is None
        volume = self._storage.volumes.get(choice.volume)
        return volume is not None and not volume.is_deleting and (volume.claim is None or volume.is_for(claim))


def _size(volume: VolumeInfo) -> tuple[int, str]:
    return volume.capacity, volume.name
