"""Where the devices of a claim that several pods of a unit share can be used.

The first of the pods chooses the devices, and the others have to follow: to one node, or to the nodes that can use a
device over the network. So the lowest group above all of them is offered each such *reach* like a domain, and the
search can go back and take another one.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from cpg_engine.cluster.axes import Rows
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.gangs.needs import Needs
from cpg_engine.snapshot import Snapshot
from cpg_engine.topology.domains import Scope


class ClaimReach:
    """The claims without devices that several pods of one unit share."""

    def __init__(self, snapshot: Snapshot, needs: Needs) -> None:
        """Find for each such claim the lowest group above all of its pods."""
        self._snapshot = snapshot
        self._needs = needs
        self._class_at: dict[int, PodClass] = {}
        if all(found.devices is None for found in needs.classes.values()):
            return
        users: dict[str, list[tuple[int, PodClass]]] = {}
        for index, node in enumerate(needs.unit.nodes):
            for pod in node.pending:
                for need in pod.pod_class.devices.needs if pod.pod_class.devices is not None else ():
                    if need.claim is not None:
                        users.setdefault(need.claim, []).append((index, pod.pod_class))
        allocator = snapshot.ledger.device_allocator
        if users:
            allocator.refresh()
        for claim, found in users.items():
            if len(found) > 1 and allocator.claims.result_of(claim) is None:
                self._class_at.setdefault(self._above(found[0][0], found[-1][0]), found[0][1])

    def scopes(self, index: int, scope: Scope) -> Iterator[Scope]:
        """Yield the parts of a scope that a group can be placed in, best first; mostly just the scope.

        Where there is none it is the scope as well: the search there says why.
        """
        pod_class = self._class_at.get(index)
        devices = pod_class.devices if pod_class is not None else None
        if pod_class is None or devices is None:
            yield scope
            return
        slots = self._slots(index)
        rows = scope.rows[slots[pod_class.index][scope.rows] > 0]
        reaches = self._snapshot.ledger.device_allocator.reaches(devices, rows)
        ranked = self._ranked(index, slots, reaches) or [scope.rows]
        yield from (Scope(scope.chain, found) for found in ranked)

    def _ranked(self, index: int, slots: Mapping[int, NDArray[np.int64]], reaches: list[Rows]) -> list[Rows]:
        """Return the reaches with room for the minimum: those with room for all pods first, then the smallest."""
        least, most = self._needs.least[index], self._needs.most[index]
        ranked = []
        for number, rows in enumerate(reaches):
            room = {found: int(column[rows].sum()) for found, column in slots.items()}
            if all(room[found] >= least[found] for found in room):
                missing = sum(max(most[found] - room[found], 0) for found in room)
                ranked.append((missing, sum(room.values()), number))
        return [reaches[number] for *_, number in sorted(ranked)]

    def _slots(self, index: int) -> Mapping[int, NDArray[np.int64]]:
        cache = self._snapshot.score_cache
        return {found: cache.of(self._needs.classes[found]).slots() for found in self._needs.most[index]}

    def _above(self, first: int, last: int) -> int:
        """Return the lowest group above, or at, two positions."""
        nodes = self._needs.unit.nodes
        return max(index for index in range(first + 1) if last < nodes[index].end)
