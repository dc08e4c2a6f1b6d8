"""Why devices are not available: for explanations, after a search found none."""

from collections import Counter
from collections.abc import Iterable
from enum import Enum

from msgspec import Struct

from cpg_engine.devices.capacity import CapacityError, consumption
from cpg_engine.devices.pools import PoolDevice, PoolTarget
from cpg_engine.devices.shapes import Alternative, DeviceShape
from cpg_engine.devices.values import Amounts, DeviceId, PoolId, PoolState, add_amounts, fits_capacity
from cpg_engine.devices.views import Matches, SelectorError, capacity_of, counters_of, tolerates_all


class Availability(Enum):
    """What holds for a device and a request: the first of these."""

    OTHER_CLASS = "is of another class"
    FAILING = "cannot be judged, because a selector fails"
    UNMATCHED = "does not match the request"
    TOO_SMALL = "has too little capacity"
    TAINTED = "has a taint that the request does not tolerate"
    TAKEN = "is allocated"
    USED_UP = "has too little left of its capacity, or its pool of the counters"
    FREE = "is free"


class DeviceCensus(Struct, frozen=True):
    """The devices by availability, for each alternative of a shape.

    ``failures`` are the reasons why selectors fail. ``problems`` are those of pools from which nothing is allocated.
    """

    alternatives: tuple[Counter[Availability], ...]
    failures: Counter[str]
    problems: dict[PoolId, str]


def take_census(shape: DeviceShape, pools: Iterable[tuple[PoolTarget, PoolState]], matches: Matches) -> DeviceCensus:
    """Count the devices of some nodes; a device that several of them can use is counted once."""
    found = DeviceCensus(tuple(Counter() for _ in shape.alternatives), Counter(), {})
    seen: set[DeviceId] = set()
    for target, state in pools:
        if target.problem:
            found.problems[target.pool.id] = target.problem
        judge = _Judge(target, state, matches)
        for device in target.devices:
            if device.id not in seen:
                seen.add(device.id)
                for alternative, counts in zip(shape.alternatives, found.alternatives, strict=True):
                    try:
                        counts[judge.availability(device, alternative)] += 1
                    except (SelectorError, CapacityError) as error:
                        counts[Availability.FAILING] += 1
                        found.failures[str(error)] += 1
    return found


class _Judge:
    """Judges the devices of one pool, with what is taken of them."""

    def __init__(self, target: PoolTarget, state: PoolState, matches: Matches) -> None:
        self._target = target
        self._taken = state.taken
        self._consumed = dict(state.consumed)
        self._matches = matches
        self._counters = list(target.counters)
        for device in (*target.devices, *target.others):
            if self._is_counted(device):
                for counter, amount in counters_of(device, target):
                    self._counters[counter] -= amount

    def availability(self, device: PoolDevice, alternative: Alternative) -> Availability:
        """Return what holds for the device; raise where this cannot be judged."""
        if not self._is_selected(device, alternative.class_selectors):
            return Availability.OTHER_CLASS
        if not self._is_selected(device, alternative.selectors):
            return Availability.UNMATCHED
        amounts = consumption(dict(alternative.capacity), device.device.capacity or {})
        if amounts is None:
            return Availability.TOO_SMALL
        if not tolerates_all(alternative.tolerations, device.taints):
            return Availability.TAINTED
        if self._is_taken(device) and not alternative.is_admin:
            return Availability.TAKEN
        return Availability.FREE if self._suffices(device, amounts) else Availability.USED_UP

    def _is_selected(self, device: PoolDevice, expressions: tuple[str, ...]) -> bool:
        return all(self._matches(one, device.id.driver, device.device) for one in expressions)

    def _is_counted(self, device: PoolDevice) -> bool:
        return bool(self._taken >> device.position & 1) or device.position in self._consumed

    def _is_taken(self, device: PoolDevice) -> bool:
        is_shared = device.device.allow_multiple_allocations and not self._taken >> device.position & 1
        return self._is_counted(device) and not is_shared

    def _suffices(self, device: PoolDevice, amounts: Amounts) -> bool:
        """Return whether enough is left of the device's capacity and of its pool's counters."""
        if device.device.allow_multiple_allocations:
            consumed = self._consumed.get(device.position)
            if not fits_capacity(add_amounts(consumed or (), amounts), capacity_of(device)):
                return False
            if consumed is not None:
                return True
        counters = counters_of(device, self._target)
        left = list(self._counters)
        for counter, amount in counters:
            left[counter] -= amount
        return not counters or min(left) >= 0
