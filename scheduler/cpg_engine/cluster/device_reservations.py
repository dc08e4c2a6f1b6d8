"""The devices that a simulation has given to pods."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cpg_engine.cluster.device_needs import ClaimNeed, PodDevices
from cpg_engine.cluster.device_rooms import Codes, DeviceRooms, codes_for
from cpg_engine.cluster.device_solver import Picks
from cpg_engine.cluster.device_stock import DeviceStock
from cpg_engine.devices.extended import ExtendedNeed


class DeviceReservation(Struct, frozen=True):
    """Devices for one pod of a class at a row, for claims with these codes; None where there were none.

    ``used`` are the claims of the pod that other pods may use, ``shared`` those of them that are allocated with it.
    ``extended`` are the extended resources for which the pod is given devices; the last of the codes is for them.
    ``moved`` are the earlier reservations that were given other devices for it, as they were before.
    """

    number: int
    pod_class: int
    row: int
    codes: Codes
    picks: Picks | None = None
    used: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    extended: tuple[ExtendedNeed, ...] = ()
    moved: tuple["DeviceReservation", ...] = ()


class DeviceReservations:
    """The reservations by class and row, in the order in which they were made."""

    def __init__(self, rooms: DeviceRooms, stock: DeviceStock) -> None:
        """Start without any."""
        self._rooms = rooms
        self._stock = stock
        self._found: dict[tuple[int, int], dict[int, DeviceReservation]] = defaultdict(dict)
        self.uses: Counter[str] = Counter()
        """How many pods use each claim that several may use."""
        self._made = 0

    def place(self, place: tuple[int, int]) -> list[DeviceReservation]:
        """Return the reservations for a class at a row."""
        return list(self._found[place].values()) if place in self._found else []

    def add(self, pod_class: int, row: int, needs: Sequence[ClaimNeed], devices: PodDevices) -> DeviceReservation:
        """Reserve the first devices that fit; where there are none, try to give other ones to pods that are alike."""
        self._made += 1
        used = tuple(need.claim for need in devices.needs if need.claim is not None)
        extended = self._rooms.lacking_at(devices, row)
        codes = codes_for(needs, extended)
        found = DeviceReservation(self._made, pod_class, row, codes, used=used, extended=extended)
        room = self._rooms.of_codes(codes, self._rooms.nominated.shared_with(needs))
        if room is not None:
            picks = room.solve(row).picks
            found = replace(found, picks=picks) if picks is not None else self._with_others_moved(found)
        self.uses.update(used)
        return self._put(found)

    def replace(self, found: DeviceReservation) -> None:
        """Replace a reservation of the same number; its devices stay the same."""
        self._found[found.pod_class, found.row][found.number] = found

    def remove(self, found: DeviceReservation) -> None:
        """Undo the last reservation that stands."""
        place = found.pod_class, found.row
        found = self._found[place].pop(found.number)
        if not self._found[place]:
            del self._found[place]
        self._stock.release(found.number)
        self.uses.subtract(found.used)
        for one in found.moved:
            self._stock.release(one.number)
        for one in found.moved:
            self._put(one)

    def choose_again(self, row: int) -> bool:
        """Give all pods at a row devices that are free as it is now; return whether that was possible, or undo it.

        Devices of claims that several pods use stay what they are.
        """
        found = [one for (_, at), some in self._found.items() if at == row for one in some.values()]
        movable = sorted((one for one in found if not one.shared and one.picks), key=lambda one: one.number)
        self._release(movable)
        if all(self._choose(one) for one in movable) and not self._stock.is_overcommitted(row):
            return True
        self._release(movable)
        for one in movable:
            self._put(one)
        return False

    def _choose(self, found: DeviceReservation) -> bool:
        """Reserve the first devices that fit; return whether there are any."""
        room = self._rooms.of_codes(found.codes)
        picks = None if room is None else room.solve(found.row).picks
        if picks is None:
            return False
        self._put(replace(found, picks=picks))
        return True

    def _with_others_moved(self, found: DeviceReservation) -> DeviceReservation:
        """Search devices for a pod together with those of its class that are at its row already."""
        others = [one for one in self.place((found.pod_class, found.row)) if one.picks and not one.shared]
        room = self._rooms.of_codes(found.codes)
        if room is None or not others or found.used:
            return found
        self._release(others)
        together = room.solve_together(found.row, len(others) + 1)
        for number, one in enumerate(others):
            self._put(one if together is None else replace(one, picks=together[number]))
        return found if together is None else replace(found, picks=together[-1], moved=tuple(others))

    def _release(self, found: Iterable[DeviceReservation]) -> None:
        for one in found:
            self._stock.release(one.number)

    def _put(self, found: DeviceReservation) -> DeviceReservation:
        """Hold the devices of a reservation."""
        room = self._rooms.of_codes(found.codes)
        if room is not None and found.picks is not None:
            self._stock.hold(found.number, room.taken(found.row, found.picks))
        self._found[found.pod_class, found.row][found.number] = found
        return found
