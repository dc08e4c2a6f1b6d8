"""What nodes lack of devices: counted for explanations, after a search has found no place."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from cpg_engine.cluster.axes import Rows
from cpg_engine.cluster.device_needs import PodDevices
from cpg_engine.cluster.device_room import DeviceRoom
from cpg_engine.cluster.device_selectors import selects
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.devices.census import Availability, DeviceCensus, take_census
from cpg_engine.devices.pools import PoolTarget
from cpg_engine.filters.dynamic_resources import NOT_HERE, REASON
from cpg_engine.gangs.needs import Needs
from cpg_engine.snapshot import Snapshot
from cpg_engine.verdicts import (
    CandidateDomain,
    ClaimElsewhere,
    DeviceFinding,
    DeviceSupply,
    Domain,
    FilterReason,
    GroupReport,
)

T = TypeVar("T")
Reasons = tuple[FilterReason, ...]

MAX_NODES = 1_000
"""Nodes whose devices are counted, which takes some 25 milliseconds; of more nodes it is every so many."""


class DeviceSurvey:
    """What the reports of one attempt say about devices; equal requests on the same nodes are counted once."""

    def __init__(self, snapshot: Snapshot, needs: Needs) -> None:
        """Count nothing yet."""
        self._snapshot = snapshot
        self._ledger = snapshot.ledger
        self._allocator = snapshot.ledger.device_allocator
        self._needs = needs
        self._claims_devices = any(found.devices is not None for found in needs.classes.values())
        self._rejected: dict[tuple[int, Reasons], tuple[PodClass, Rows]] = {}
        self._known: dict[tuple[PodDevices, bytes, int], DeviceFinding | None] = {}

    def note(self, index: int, reasons: Reasons, pod_class: PodClass, rows: Rows) -> None:
        """Note for which pods of a leaf, on which nodes, the reasons in its report are."""
        if pod_class.devices is not None:
            self._rejected[index, reasons] = pod_class, rows

    def added(self, index: int, report: GroupReport, domains: Mapping[tuple[int, Domain], Rows]) -> GroupReport:
        """Return a report with what is missing of devices in the closest domain, or else on the nodes of a leaf.

        ``domains`` are the nodes of the domains. What the unit itself has reserved in an attempt is free again.
        """
        if not self._claims_devices:
            return report
        if report.candidates:
            closest, *others = report.candidates
            found = self._in_domain(index, closest, domains[index, closest.domain])
            return replace(report, candidates=(replace(closest, devices=found), *others))
        rejected = self._rejected.get((index, report.reasons))
        if rejected is None:
            return report
        pod_class, rows = rejected
        pods = self._needs.least[index][pod_class.index]
        return replace(report, devices=self._find(pod_class, rows, report.reasons, pods))

    def _in_domain(self, index: int, domain: CandidateDomain, rows: Rows) -> DeviceFinding | None:
        """Return what a domain lacks for the first class of pods to which devices are missing."""
        reasons = domain.reasons
        for place, pods in self._needs.least[index].items():
            found = self._find(self._needs.classes[place], rows, reasons, pods)
            if found is not None:
                return found
            reasons = ()
        return None

    def _find(self, pod_class: PodClass, rows: Rows, reasons: Reasons, pods: int) -> DeviceFinding | None:
        """Return what nodes lack that are to take so many pods and are rejected for these reasons; None for nothing.

        Nodes that the pods cannot use for another reason do not count.
        """
        devices = pod_class.devices
        if devices is None or self._allocator.problem(devices):
            return None
        rows = rows[self._snapshot.score_cache.of(pod_class).feasible[rows]]
        if not len(rows):
            return None
        texts = {reason.text for reason in reasons}
        if not texts & {REASON, NOT_HERE} and not self._is_scarce(devices, rows, pods):
            return None
        key = (devices, rows.tobytes(), pods)
        if key not in self._known:
            self._known[key] = self._elsewhere(devices, rows) or self._supply(devices, rows, pods)
        return self._known[key]

    def _is_scarce(self, devices: PodDevices, rows: Rows, pods: int) -> bool:
        """Return whether nodes that each could take one pod more have devices for fewer pods than that."""
        room = self._allocator.room(devices)
        return room is not None and not room.is_coupled() and int(room.slots(rows).sum()) < pods

    def _elsewhere(self, devices: PodDevices, rows: Rows) -> ClaimElsewhere | None:
        """Return the first claim whose devices none of the nodes can use."""
        for claim, reach in self._allocator.claims_with_devices(devices):
            if not reach[rows].any():
                found = np.flatnonzero(reach)
                first = min((self._ledger.cluster.name(row) for row in found.tolist()), default="")
                return ClaimElsewhere(claim, first, len(found))
        return None

    def _supply(self, devices: PodDevices, rows: Rows, pods: int) -> DeviceSupply | None:
        """Return what the nodes have of the devices of the request that comes least close to being satisfied."""
        found = self._allocator.requested(devices, rows)
        if found is None:
            return None
        step = -(-len(rows) // MAX_NODES)
        counts = _DeviceCounts(found.room, self._ledger, rows[::step])
        chosen = min(counts.best_alternatives(), key=counts.closeness, default=None)
        if chosen is None:
            return None
        return counts.supply(chosen, found.names[chosen], pods, counted=len(rows[::step]) if step > 1 else 0)


class _DeviceCounts:
    """The devices of some nodes, for each alternative of a room's shape."""

    def __init__(self, room: DeviceRoom, ledger: Ledger, rows: Rows) -> None:
        self._shape = room.shape
        self._stock = ledger.device_allocator.stock
        targets = [room.targets(row) for row in rows.tolist()]
        own = {target: self._census([target]) for found in targets for target in found}
        shared = self._census([target for target in own if target.pool.node_name is None])
        parts = [shared, *(census for target, census in own.items() if target.pool.node_name is not None)]
        indexes = range(len(self._shape.alternatives))
        self._totals = [_total(part.alternatives[index] for part in parts) for index in indexes]
        self._failures = _total(part.failures for part in parts)
        self._problems = {pool: problem for part in parts for pool, problem in part.problems.items()}
        self._most = [
            max(sum(own[target].alternatives[index][Availability.FREE] for target in found) for found in targets)
            for index in indexes
        ]

    def _census(self, targets: Sequence[PoolTarget]) -> DeviceCensus:
        return take_census(self._shape, [(one, self._stock.state(one.pool.id)) for one in targets], selects)

    def best_alternatives(self) -> Iterator[int]:
        """Yield for each request the alternative that comes closest to being satisfied."""
        for claim in self._shape.claims:
            for request in claim.requests:
                yield max(request, key=self.closeness)

    def closeness(self, index: int) -> tuple[int, int]:
        """Return how many devices the best node is short of, as a negative number, and how many pods all could have."""
        needed = max(self._needed(index), 1)
        return min(self._most[index] - needed, 0), self._totals[index][Availability.FREE] // needed

    def supply(self, index: int, request: str, pods: int, *, counted: int) -> DeviceSupply:
        """Return the counts for an alternative."""
        asked, total, needed = self._shape.alternatives[index], self._totals[index], self._needed(index)
        return DeviceSupply(
            request=request,
            device_class=asked.device_class,
            pods=pods,
            needed=needed,
            most=self._most[index],
            free=total[Availability.FREE],
            taken=total[Availability.TAKEN],
            used_up=total[Availability.USED_UP],
            tainted=total[Availability.TAINTED],
            too_small=total[Availability.TOO_SMALL],
            unmatched=total[Availability.UNMATCHED],
            failing=total[Availability.FAILING],
            selector=" && ".join(asked.selectors),
            problem=self._problem(),
            constraint=self._constraint(index) if self._most[index] >= needed else "",
            counted=counted,
        )

    def _needed(self, index: int) -> int:
        """Return how many devices a pod needs that are like those of an alternative."""
        asked = self._shape.alternatives[index]
        return sum(one.count for one in self._shape.alternatives if one == asked)

    def _problem(self) -> str:
        """Return the most frequent failure of a selector, else the problem of the first pool that has one."""
        if self._failures:
            return min(self._failures, key=lambda text: (-self._failures[text], text))
        found = min(self._problems.items(), default=None)
        return f"pool {found[0].driver}/{found[0].pool} {found[1]}" if found is not None else ""

    def _constraint(self, index: int) -> str:
        found = (one for claim in self._shape.claims for one in claim.constraints if index in one.alternatives)
        return next((f"{'differ' if one.is_distinct else 'agree'} in {one.attribute}" for one in found), "")


def _total(counts: Iterable[Counter[T]]) -> Counter[T]:
    total = Counter[T]()
    for found in counts:
        total.update(found)
    return total
