"""Which devices the claims of a pod get.

Placing a pod reserves devices for those of its claims that have none yet, all at once and in the order of the pod's
spec, as upstream does for single pods. A claim that several pods use is allocated with the first of them; the others
go where its devices can be used. What a decision has allocated is assumed until the API shows it.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from cpg_api.core.affinity import NodeSelector
from cpg_api.core.devices import MAX_RESERVED_FOR, AllocationResult, ResourceClaim
from cpg_api.meta import ObjectMeta
from cpg_api.selectors import NodeMatcher
from cpg_engine.cluster.axes import Flags, Rows
from cpg_engine.cluster.device_claims import DeviceClaims
from cpg_engine.cluster.device_needs import ClaimNeed, PodDevices
from cpg_engine.cluster.device_reservations import DeviceReservation, DeviceReservations
from cpg_engine.cluster.device_rooms import DeviceRooms, RequestedDevices
from cpg_engine.cluster.device_stock import DeviceStock
from cpg_engine.cluster.device_variants import Room
from cpg_engine.cluster.node_selection import term_holds
from cpg_engine.cluster.nodes import NodeColumns
from cpg_engine.cluster.pod_classes import PlacedPod, PodClass
from cpg_engine.decisions import DeviceAllocation, ExtendedAllocation
from cpg_engine.devices.catalog import DeviceCatalog, owner_key
from cpg_engine.devices.extended import extended_spec
from cpg_engine.devices.results import allocation_results

MAX_CACHED_SELECTORS = 10_000
"""Node selectors of allocations that are kept."""


class DeviceAllocator:
    """Reserves devices for the claims of pods."""

    kinds = (DeviceAllocation, ExtendedAllocation)

    def __init__(self, catalog: DeviceCatalog, cluster: NodeColumns, rooms: DeviceRooms, stock: DeviceStock) -> None:
        """Start without reservations."""
        self.catalog = catalog
        self.stock = stock
        self.claims = DeviceClaims(catalog, stock)
        self.rooms = rooms
        self._reservations = DeviceReservations(self.rooms, stock)
        self._cluster = cluster
        self._reaches: dict[NodeSelector, Flags] = {}
        self._seen = (-1, -1)

    # Between cycles.

    def assume(self, allocations: Iterable[DeviceAllocation | ExtendedAllocation]) -> None:
        """Count allocations until the API shows or contradicts them."""
        self.claims.assume(allocations)

    def forget(self, allocations: Iterable[DeviceAllocation | ExtendedAllocation]) -> None:
        """Stop counting allocations that were not carried out."""
        self.claims.forget(allocations)

    def refresh(self) -> None:
        """Bring everything up to date with the catalog and the nodes."""
        self.claims.refresh()
        now = (self.catalog.class_version, self._cluster.labels_version)
        if self._seen != now:
            if self._seen[0] != now[0]:
                self.rooms.clear()
            self._reaches.clear()
            self._seen = now

    @property
    def version(self) -> int:
        """Return a number that grows with every change that is not noted at the rows that it concerns."""
        return self.catalog.class_version + self.stock.version

    # What pods need.

    def problem(self, devices: PodDevices) -> str:
        """Return why pods have to wait or can never be given devices, whatever is free; empty if nothing is wrong."""
        self.refresh()
        return devices.problem or self.rooms.problem(self._open(devices))

    def is_columnar(self, devices: PodDevices) -> bool:
        """Return whether only the devices that a node has left matter, and only whether there are enough."""
        if not devices.are_private:
            return False
        room = self.room(devices)
        return room is not None and not room.is_coupled() and not room.has_alternatives()

    def room(self, devices: PodDevices) -> Room | None:
        """Return the nodes as pods see them that need devices for the claims that have none yet."""
        self.refresh()
        return self.rooms.of(self._open(devices), devices)

    def reachable(self, devices: PodDevices) -> Flags | None:
        """Return the rows where all claims that have devices can be used; None where there are no such claims."""
        self.refresh()
        found = None
        for _, reach in self.claims_with_devices(devices):
            found = reach if found is None else found & reach
        return found

    def claims_with_devices(self, devices: PodDevices) -> Iterator[tuple[str, Flags]]:
        """Yield the claims that have devices, each with the rows where these can be used."""
        for need in devices.needs:
            result = None if need.claim is None else self.claims.result_of(need.claim)
            if need.claim is not None and result is not None:
                yield need.claim, self._reach(result)

    def requested(self, devices: PodDevices, rows: Rows) -> RequestedDevices | None:
        """Return what pods request that they do not have yet, as they do on most of some nodes."""
        self.refresh()
        return self.rooms.requested(self._open(devices), devices, rows)

    def reaches(self, devices: PodDevices, rows: Rows) -> list[Rows]:
        """Return the sets of nodes that could use what pods would be given, each with the first node that gives it.

        Devices of one node can be used there alone.
        """
        room = self.room(devices)
        if room is None:
            return []
        found: dict[object, list[int]] = {}
        for row in rows[room.fits(rows)].tolist():
            found.setdefault(room.reach_key(row), []).append(row)
        return [np.array(alike, dtype=np.intp) for alike in found.values()]

    def has_room_for_consumers(self, devices: PodDevices) -> bool:
        """Return whether every claim can be reserved for one more pod."""
        return all(
            self.claims.is_reserved_for_group(need.claim)
            or self.claims.consumers(need.claim) + self._reservations.uses[need.claim] < MAX_RESERVED_FOR
            for need in devices.needs
            if need.claim is not None
        )

    # Within a cycle: simulation.

    def reserve(self, pod_class: PodClass, rows: Rows) -> tuple[DeviceReservation, ...]:
        """Reserve devices for one pod at each row."""
        devices = pod_class.devices
        if devices is None:
            return ()
        return tuple(self._reserve(pod_class, devices, row) for row in rows.tolist())

    def unreserve(self, reserved: tuple[DeviceReservation, ...]) -> None:
        """Undo what one call of ``reserve`` has returned, the last first."""
        for found in reversed(reserved):
            self._reservations.remove(found)
            for key in found.shared:
                del self.claims.simulated[key]

    def allocations(self, placed: Sequence[PlacedPod]) -> Iterator[tuple[DeviceAllocation | ExtendedAllocation, ...]]:
        """Yield the allocations of each pod, while the ledger holds the placement of all of them."""
        left: dict[tuple[int, int], deque[DeviceReservation]] = {}
        for pod in placed:
            devices = pod.pod_class.devices
            if devices is None:
                yield ()
                continue
            place = (pod.pod_class.index, pod.row)
            if place not in left:
                left[place] = deque(self._reservations.place(place))
            yield tuple(self._allocations(pod, devices, left[place].popleft()))

    def could_stay(self, row: int) -> bool:
        """Return whether all pods that are placed at a row can have devices there as it is now; if so, they get those.

        Devices of claims that several pods use stay what they are.
        """
        return self._reservations.choose_again(row)

    # Inside.

    def _open(self, devices: PodDevices) -> list[ClaimNeed]:
        """Return the needs for which nothing is allocated yet."""
        return [need for need in devices.needs if need.claim is None or self.claims.result_of(need.claim) is None]

    def _reserve(self, pod_class: PodClass, devices: PodDevices, row: int) -> DeviceReservation:
        needs = self._open(devices)
        found = self._reservations.add(pod_class.index, row, needs, devices)
        if found.used and found.picks is not None:
            results = self._results(found, [self._claim(need) for need in needs])[: len(needs)]
            shared = {need.claim: one for need, one in zip(needs, results, strict=True) if need.claim is not None}
            self.claims.simulated.update(shared)
            found = replace(found, shared=tuple(shared))
            self._reservations.replace(found)
        return found

    def _claim(self, need: ClaimNeed) -> ResourceClaim:
        """Return the claim of a need; a private claim is not known here, and its name does not matter."""
        if need.claim is None:
            return ResourceClaim(spec=self.catalog.specs[need.spec])
        return self.catalog.claims[need.claim]

    def _results(
        self, found: DeviceReservation, claims: Sequence[ResourceClaim], uid: str = ""
    ) -> tuple[AllocationResult, ...]:
        """Return what each of the claims of a reservation gets, the one for extended resources of a pod last."""
        room = self.rooms.of_codes(found.codes)
        if room is None or found.picks is None:
            return ()
        if found.extended:
            claims = [*claims, ResourceClaim(metadata=ObjectMeta(uid=uid), spec=extended_spec(found.extended))]
        return allocation_results(
            claims,
            room.shape,
            room.targets(found.row),
            found.picks,
            node_name=self._cluster.name(found.row),
            classes=self.catalog.classes,
        )

    def _allocations(
        self, pod: PlacedPod, devices: PodDevices, found: DeviceReservation
    ) -> Iterator[DeviceAllocation | ExtendedAllocation]:
        """Yield the allocation of each claim of a pod, and of the claim that is to be made for it."""
        named = tuple(zip(devices.needs, pod.claims, strict=True))
        opened = [key for need, key in named if need.claim is None or key in found.shared]
        results = self._results(found, [self.catalog.claims[key] for key in opened], pod.uid)
        new = dict(zip(opened, results[: len(opened)], strict=True))
        for key in pod.claims:
            held = self.claims.held.get(key)
            result = held.result if held is not None else new.get(key) or self.claims.simulated[key]
            is_new = held is None or held.assumed is not None
            yield DeviceAllocation(key, self.catalog.claims[key].metadata.uid, result, is_new)
        if found.extended:
            mappings = tuple(one for need in found.extended for one in need.mappings)
            owner = owner_key(pod.pod_class.namespace, pod.uid)
            yield ExtendedAllocation(owner, extended_spec(found.extended), results[-1], mappings)

    def _reach(self, result: AllocationResult) -> Flags:
        """Return the rows where devices can be used."""
        selector = result.node_selector
        if selector is None:
            return self._cluster.alive
        found = self._reaches.get(selector)
        if found is None:
            if len(self._reaches) >= MAX_CACHED_SELECTORS:
                self._reaches.clear()
            found = self._reaches[selector] = self._selected(selector)
        return found

    def _selected(self, selector: NodeSelector) -> Flags:
        every = np.arange(self._cluster.size)
        answer = np.zeros(len(every), dtype=np.bool_)
        for term in NodeMatcher.compile(selector).terms:
            answer |= term_holds(term, self._cluster, every)
        return answer & self._cluster.alive
