"""The shapes of claims, and the nodes as pods of each shape see them."""

from collections.abc import Iterable

from cpg_engine.cluster.device_needs import ClaimNeed
from cpg_engine.cluster.device_nominations import Codes, NominatedDevices
from cpg_engine.cluster.device_room import Changes, DeviceRoom, SearchEffort
from cpg_engine.cluster.device_stock import DeviceStock
from cpg_engine.devices.catalog import DeviceCatalog
from cpg_engine.devices.shapes import DeviceRequestError, DeviceShape, compile_shape
from cpg_engine.devices.values import PoolState

GONE = "a ResourceClaim is gone"
MAX_CACHED_SHAPES = 1_000
MAX_CACHED_ROOMS = 64
"""Shapes whose room is kept; each takes some hundred bytes for every node."""


class DeviceRooms:
    """What is kept about shapes."""

    def __init__(self, catalog: DeviceCatalog, stock: DeviceStock, changes: Changes) -> None:
        """Keep nothing yet."""
        self.nominated = NominatedDevices()
        self.effort = SearchEffort()
        self._catalog = catalog
        self._stock = stock
        self._changes = changes
        self._shapes: dict[Codes, DeviceShape | str] = {}
        self._rooms: dict[Codes, DeviceRoom] = {}

    def clear(self) -> None:
        """Forget everything: device classes have changed."""
        self._shapes.clear()
        self._rooms.clear()

    def problem(self, needs: Iterable[ClaimNeed]) -> str:
        """Return why claims can be allocated nowhere; empty if nothing is wrong."""
        shape = self._shape(codes_of(needs))
        return shape if isinstance(shape, str) else ""

    def of(self, needs: Iterable[ClaimNeed]) -> DeviceRoom | None:
        """Return the nodes as a pod sees them that has to be given devices for some claims.

        Without such claims, and for requests that make no sense, there is None.
        """
        return self.of_codes(codes_of(needs))

    def of_codes(self, codes: Codes) -> DeviceRoom | None:
        """Return the same, for the codes of the claims' specs."""
        if not codes:
            return None
        found = self._rooms.get(codes)
        if found is None:
            shape = self._shape(codes)
            if isinstance(shape, str):
                return None
            if len(self._rooms) >= MAX_CACHED_ROOMS:
                self._rooms.clear()
            found = self._rooms[codes] = DeviceRoom(shape, self._stock, self._changes, self._states_at, self.effort)
        return found

    def _states_at(self, row: int) -> tuple[PoolState, ...]:
        """Return what is taken of the pools of a node, by nominated pods too."""
        states = self._stock.states(row)
        for codes in self.nominated.at(row):
            room = self.of_codes(codes)
            if room is not None:
                states = room.states_after(row, states)
        return states

    def _shape(self, codes: Codes) -> DeviceShape | str:
        """Return the shape of the claims with these codes, or why there is none."""
        found = self._shapes.get(codes)
        if found is None:
            if any(code not in self._catalog.specs for code in codes):
                return GONE
            if len(self._shapes) >= MAX_CACHED_SHAPES:
                self._shapes.clear()
            found = self._shapes[codes] = self._compile(codes)
        return found

    def _compile(self, codes: Codes) -> DeviceShape | str:
        try:
            return compile_shape([self._catalog.specs[code] for code in codes], self._catalog.classes)
        except DeviceRequestError as error:
            return str(error)


def codes_of(needs: Iterable[ClaimNeed]) -> Codes:
    """Return the codes of the specs of claims."""
    return tuple(need.spec for need in needs)
