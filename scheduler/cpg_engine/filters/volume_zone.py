"""Volumes that claims are bound to: whether the claims can be used, and where the volumes are.

This is what VolumeZone checks, and VolumeBinding for bound claims. It depends on the storage catalog and the nodes, on
no other pod, and no eviction changes it. So it is kept like static filters, until a node or the catalog changes.
"""

from collections.abc import Iterator

import numpy as np

from cpg_engine.cluster.axes import Flags, Rows
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.cluster.volume_reach import VolumeReach
from cpg_engine.cluster.volumes import VolumeInfo

AFFINITY = "node(s) didn't match PersistentVolume's node affinity"
ZONE = "node(s) had no available volume zone"


def checks(pod_class: PodClass, ledger: Ledger, rows: Rows) -> Iterator[tuple[str, Flags]]:
    """Yield the reasons for rejection, each with the nodes that pass."""
    if pod_class.volumes is None:
        return
    resolved = ledger.storage.resolve(pod_class.volumes)
    if resolved.problem:
        yield resolved.problem, np.zeros(len(rows), dtype=np.bool_)
    reach = ledger.volume_allocator.reach
    confined = [volume for volume in resolved.bound if volume.node_affinity is not None]
    if confined:
        yield AFFINITY, _reached(confined, reach, ledger.cluster.size)[rows]
    labelled = [volume for volume in resolved.bound if volume.zones]
    if labelled:
        yield ZONE, np.logical_and.reduce([reach.in_zones(volume, rows) for volume in labelled])


def _reached(volumes: list[VolumeInfo], reach: VolumeReach, size: int) -> Flags:
    """Return for every row whether it can reach all of the volumes."""
    reached = np.zeros(size, dtype=np.int64)
    for volume in volumes:
        reached[reach.rows(volume)] += 1
    answer: Flags = reached == len(volumes)
    return answer
