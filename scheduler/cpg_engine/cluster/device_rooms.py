"""The shapes of claims, and the nodes as pods of each shape see them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from cpg_api.core.devices import ResourceClaimSpec
from cpg_api.decoding import decode
from cpg_engine.cluster.axes import Flags, Rows
from cpg_engine.cluster.device_needs import ClaimNeed, PodDevices
from cpg_engine.cluster.device_nominations import NominatedDevices
from cpg_engine.cluster.device_room import Changes, DeviceRoom, SearchEffort
from cpg_engine.cluster.device_stock import DeviceStock
from cpg_engine.cluster.device_variants import MixedRoom, Room, RoomPart
from cpg_engine.devices.catalog import DeviceCatalog
from cpg_engine.devices.extended import ExtendedNeed, extended_spec
from cpg_engine.devices.shapes import DeviceRequestError, DeviceShape, compile_shape, request_names
from cpg_engine.devices.values import PoolState

Codes = tuple[str, ...]
"""The specs of the claims that are to be allocated for one pod, by their codes in the catalog.

The code of a claim for extended resources is its spec as JSON: there is no such claim yet.
"""
GONE = "a ResourceClaim is gone"
MAX_CACHED_SHAPES = 1_000
MAX_CACHED_ROOMS = 64
"""Shapes whose room is kept; each takes some hundred bytes for every node."""


Offers = Callable[[str], Flags | None]
"""Returns which rows have a node that offers a resource itself, or None if no node does."""


class RequestedDevices(NamedTuple):
    """The nodes as pods see them, and the name of the request of each alternative."""

    room: DeviceRoom
    names: tuple[str, ...]


class DeviceRooms:
    """What is kept about shapes."""

    def __init__(self, catalog: DeviceCatalog, stock: DeviceStock, changes: Changes, offers: Offers) -> None:
        """Keep nothing yet."""
        self.nominated = NominatedDevices(stock)
        self.effort = SearchEffort()
        self._catalog = catalog
        self._stock = stock
        self._changes = changes
        self._offers = offers
        self._shapes: dict[Codes, DeviceShape | str] = {}
        self._rooms: dict[tuple[Codes, frozenset[str]], DeviceRoom] = {}

    def clear(self) -> None:
        """Forget everything: device classes have changed."""
        self._shapes.clear()
        self._rooms.clear()

    def problem(self, needs: Iterable[ClaimNeed]) -> str:
        """Return why claims can be allocated nowhere; empty if nothing is wrong."""
        shape = self._shape(codes_for(needs))
        return shape if isinstance(shape, str) else ""

    def of(self, needs: Sequence[ClaimNeed], devices: PodDevices) -> Room | None:
        """Return the nodes as a pod sees them that has to be given devices for these claims of its needs.

        Without such claims, and for requests that make no sense, there is None.
        """
        codes = codes_for(needs)
        if not devices.extended or isinstance(self._shape(codes), str):
            return self.of_codes(codes, self.nominated.shared_with(needs))
        parts = [self._part(devices, needs, *part) for part in self._variants(devices)]
        return parts[0].room or MixedRoom(parts) if len(parts) == 1 else MixedRoom(parts)

    def requested(self, needs: Sequence[ClaimNeed], devices: PodDevices, rows: Rows) -> RequestedDevices | None:
        """Return what pods request for these claims, and for extended resources that most of some nodes lack.

        A request for an extended resource is named by that.
        """
        _, lacking = max(self._variants(devices), key=lambda variant: np.count_nonzero(variant[0][rows]))
        codes = codes_for(needs, lacking)
        room = self.of_codes(codes, self.nominated.shared_with(needs))
        if room is None:
            return None
        resource_of = {request.name: need.resource for need in lacking for request in need.requests}
        extended = tuple(resource_of[name] for name in request_names(extended_spec(lacking)))
        names = tuple(name for need in needs for name in request_names(self._spec(need.spec)))
        return RequestedDevices(room, names + extended)

    def lacking_at(self, devices: PodDevices, row: int) -> tuple[ExtendedNeed, ...]:
        """Return the extended resources that a pod needs as devices at a row: its node does not offer them."""
        return tuple(
            need for need in devices.extended if (offered := self._offers(need.resource)) is None or not offered[row]
        )

    def of_codes(self, codes: Codes, shared: frozenset[str] = frozenset()) -> DeviceRoom | None:
        """Return the same, for the codes of the claims' specs.

        Devices that nominated pods wait for are free where these are for claims that are ``shared`` with them.
        """
        if not codes:
            return None
        found = self._rooms.get((codes, shared))
        if found is None:
            shape = self._shape(codes)
            if isinstance(shape, str):
                return None
            if len(self._rooms) >= MAX_CACHED_ROOMS:
                self._rooms.clear()
            states_at = partial(self._states_at, shared)
            found = self._rooms[codes, shared] = DeviceRoom(shape, self._stock, self._changes, states_at, self.effort)
        return found

    def _states_at(self, shared: frozenset[str], row: int) -> tuple[PoolState, ...]:
        """Return what is taken of the pools of a node, by nominated pods too, without claims that are shared."""
        states = self._stock.states(row)
        for codes in sorted(self._nominated_at(row, shared)):
            room = self.of_codes(codes)
            if room is not None:
                states = room.states_after(row, states)
        return states

    def _nominated_at(self, row: int, shared: frozenset[str]) -> Iterator[Codes]:
        """Yield what is to be allocated for nominated pods at a row; a claim that several pods may use counts once."""
        for one in self.nominated.at(row):
            private = (need for need in one.needs if need.claim is None)
            yield codes_for(private, self.lacking_at(one, row))
        yield from ((spec,) for claim, spec in self.nominated.shared_at(row).items() if claim not in shared)

    def _variants(self, devices: PodDevices) -> Iterator[tuple[Flags, tuple[ExtendedNeed, ...]]]:
        """Yield the sets of nodes on which a pod needs devices for the same extended resources, each with these."""
        offered = [self._offers(need.resource) for need in devices.extended]
        kind_of = np.zeros(self._stock.rows, dtype=np.intp)
        for found in offered:
            if found is not None:
                _, kind_of = np.unique(2 * kind_of + found, return_inverse=True)
        for kind in range(int(kind_of.max(initial=-1)) + 1):
            rows = kind_of == kind
            yield rows, self.lacking_at(devices, int(rows.argmax()))

    def _part(
        self, devices: PodDevices, needs: Sequence[ClaimNeed], rows: Flags, lacking: Sequence[ExtendedNeed]
    ) -> RoomPart:
        """Return the room of nodes that lack some extended resources; where the claims make no sense, there is none."""
        if devices.must_extend and not lacking:
            return RoomPart(rows, None, 0)
        codes = codes_for(needs, lacking)
        shared = self.nominated.shared_with(needs)
        return RoomPart(rows, self.of_codes(codes, shared), 0) if codes else RoomPart(rows, None)

    def _shape(self, codes: Codes) -> DeviceShape | str:
        """Return the shape of the claims with these codes, or why there is none."""
        found = self._shapes.get(codes)
        if found is None:
            if any(not code.startswith("{") and code not in self._catalog.specs for code in codes):
                return GONE
            if len(self._shapes) >= MAX_CACHED_SHAPES:
                self._shapes.clear()
            found = self._shapes[codes] = self._compile(codes)
        return found

    def _compile(self, codes: Codes) -> DeviceShape | str:
        try:
            return compile_shape([self._spec(code) for code in codes], self._catalog.classes)
        except DeviceRequestError as error:
            return str(error)

    def _spec(self, code: str) -> ResourceClaimSpec:
        known = self._catalog.specs.get(code)
        return known if known is not None else decode(code, ResourceClaimSpec)


def codes_for(needs: Iterable[ClaimNeed], lacking: Sequence[ExtendedNeed] = ()) -> Codes:
    """Return the codes of the claims that a pod is allocated at a node that lacks some extended resources."""
    extended = (msgspec.json.encode(extended_spec(lacking)).decode(),) if lacking else ()
    return (*(need.spec for need in needs), *extended)
