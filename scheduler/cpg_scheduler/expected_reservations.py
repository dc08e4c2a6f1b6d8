"""Reservations for pods that do not exist yet: when they are made, reviewed and ended.

Between two attempts at a unit nothing has to be computed: the pods that arrive are pending, and the attempt at them
ignores the reservations of their own unit and replaces them.
"""

from collections.abc import Collection, Iterable

from cpg_engine.cycle import decide
from cpg_engine.decisions import ReservedRoom
from cpg_engine.gangs.search import SearchOptions
from cpg_scheduler.attempt import Attempt
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.units import SchedulableUnit, build_unit, groups_expecting


class ExpectedReservations:
    """Keeps the reservations up to date."""

    def __init__(self, cache: ClusterCache, options: SearchOptions) -> None:
        """Reserve room in a cache."""
        self._cache = cache
        self._options = options

    def reserve(self, attempt: Attempt) -> None:
        """Reserve the room that an attempt has found, in place of what was reserved for the unit before."""
        key, expected, room = attempt.key, attempt.unit.expected, self._cache.expected_room
        if expected.until is not None:
            room.reserve(key, attempt.unit.priority, expected.pods, attempt.decision.reserved, expected.until)
        elif key in room:
            room.release(key)

    def review(self, units: Collection[UnitKey]) -> None:
        """Give up the room for groups without a placed pod, and that of units that are part of another one by now."""
        cache, room = self._cache, self._cache.expected_room
        for key in room.changed(units):
            if cache.current_unit(key) != key:
                room.release(key)
                continue
            groups = {name for name, group in groups_expecting(cache, key).items() if group.is_placed}
            room.release(key, [uid for uid, pod in room.pods(key).items() if cache.group_of(pod) not in groups])

    def expire(self) -> None:
        """Give up the room of which the time is over."""
        self._cache.expected_room.expire(self._cache.expected.wall())

    def seconds_left(self) -> float | None:
        """Return in how many seconds the time of the next unit is over."""
        end = self._cache.expected_room.next_end()
        return None if end is None else max(end - self._cache.expected.wall(), 0.0)

    def units(self) -> Iterable[UnitKey]:
        """Return the units that expect pods."""
        stores = self._cache.stores
        found = (UnitKey(flavour, stores[flavour].anchor(key)) for flavour, key in self._cache.expected.groups())
        return dict.fromkeys(found)

    def recover(self, key: UnitKey) -> None:
        """Reserve room for the expected pods of a unit of which a pod is placed, and for those that are pending.

        Otherwise units of the same priority could take the room before the pending pods are attempted.
        """
        unit = build_unit(self._cache, key)
        if not isinstance(unit, SchedulableUnit) or unit.expected.until is None:
            return
        placed = {name for name, group in groups_expecting(self._cache, key).items() if group.is_placed}
        ignored = self._cache.reservations.ignored_by(key, unit.priority)
        found = decide(self._cache.snapshot, unit.unit, self._options, ignored=ignored)
        pods = {**unit.expected.pods, **unit.pods}
        room = (*found.reserved, *(ReservedRoom(bind.uid, bind.node) for bind in found.binds))
        places = [place for place in room if self._cache.group_of(pods[place.uid]) in placed]
        self._cache.expected_room.reserve(key, unit.priority, pods, places, unit.expected.until)
