"""Views of pools: which alternatives each device is for, without names."""

from collections.abc import Callable, Iterable
from weakref import WeakKeyDictionary

from cpg_api.core.devices import Device, DeviceTaint, DeviceToleration
from cpg_api.quantity import nano_value
from cpg_engine.devices.capacity import CapacityError, consumption
from cpg_engine.devices.constraints import attribute_value, canonical
from cpg_engine.devices.pools import PoolDevice, PoolTarget
from cpg_engine.devices.shapes import Alternative, DeviceShape
from cpg_engine.devices.values import Amounts, DeviceView, PoolView

Matches = Callable[[str, str, Device], bool]
"""Whether a CEL expression selects a device of a driver; raises ``SelectorError`` where it cannot be evaluated."""

_BLOCKING = frozenset({"NoSchedule", "NoExecute"})
_UNUSABLE = PoolView(usable=False)


class SelectorError(Exception):
    """A selector that cannot be evaluated for a device, with the reason."""


class Viewer:
    """Makes the views of nodes for one shape. Views of pools that several nodes can use are kept."""

    def __init__(self, shape: DeviceShape, matches: Matches) -> None:
        """Start without views."""
        self._matches = matches
        self._constraints = tuple(constraint for claim in shape.claims for constraint in claim.constraints)
        self._alternatives = tuple(
            (index, one, one.class_selectors + one.selectors, one.count == 0)
            for index, one in enumerate(shape.alternatives)
        )
        self._shared: WeakKeyDictionary[PoolTarget, PoolView] = WeakKeyDictionary()
        self._last: tuple[tuple[PoolTarget, ...], tuple[PoolView, ...]] = ((), ())

    def views_of(self, targets: Iterable[PoolTarget]) -> tuple[PoolView, ...]:
        """Return the views of all pools of a node, in the order in which they are tried.

        Nodes without pools of their own have the same as the node before, if that has none either.
        """
        found = tuple(targets)
        if not self._constraints:
            return tuple([self.view_of(one) for one in found])
        if found != self._last[0]:
            self._last = (found, canonical([self.view_of(one) for one in found]))
        return self._last[1]

    def view_of(self, target: PoolTarget) -> PoolView:
        """Return the view of one pool, in which values of attributes are not numbered yet."""
        if target.pool.node_name is not None:
            return self._view_pool(target)
        found = self._shared.get(target)
        if found is None:
            found = self._shared[target] = self._view_pool(target)
        return found

    def _view_pool(self, target: PoolTarget) -> PoolView:
        if target.problem:
            return _UNUSABLE
        views = [self._view_device(one, target) for one in target.devices]
        devices = tuple(one for one in views if one.accepted or one.blocked or one.failing)
        if not any(one.counters for one in devices):
            return PoolView(devices)
        others = [one for one in views if one.counters and not (one.accepted or one.blocked or one.failing)]
        others += [DeviceView(one.position, counters=counters_of(one, target)) for one in target.others]
        return PoolView(devices, tuple(others), target.counters)

    def _view_device(self, device: PoolDevice, target: PoolTarget) -> DeviceView:
        accepted: list[int] = []
        amounts: list[Amounts] = []
        blocked: list[int] = []
        failing: list[tuple[int, str]] = []
        for index, alternative, selectors, takes_all in self._alternatives:
            try:
                consumed = self._consumption(device, alternative, selectors)
            except (SelectorError, CapacityError) as error:
                failing.append((index, str(error)))
                continue
            if consumed is None:
                continue
            if device.taints and not tolerates_all(alternative.tolerations, device.taints):
                blocked += (index,) if takes_all else ()
            elif takes_all or not self._constraints or self._has_attributes(device, index):
                accepted.append(index)
                amounts.append(consumed)
        is_shareable = bool(device.device.allow_multiple_allocations)
        return DeviceView(
            device.position,
            accepted=tuple(accepted),
            amounts=tuple(amounts) if is_shareable else (),
            blocked=tuple(blocked),
            failing=tuple(failing),
            attributes=self._attributes(device, accepted) if self._constraints else (),
            counters=counters_of(device, target) if device.device.consumes_counters else (),
            capacity=capacity_of(device) if is_shareable and accepted else (),
            is_shareable=is_shareable,
        )

    def _consumption(self, device: PoolDevice, alternative: Alternative, selectors: tuple[str, ...]) -> Amounts | None:
        """Return what the device would give, or None if it is not selected or cannot satisfy the request."""
        driver = device.id.driver
        for expression in selectors:
            if not self._matches(expression, driver, device.device):
                return None
        if device.is_plain and not alternative.capacity:
            return ()
        return consumption(dict(alternative.capacity), device.device.capacity or {})

    def _attributes(self, device: PoolDevice, accepted: list[int]) -> tuple[object, ...]:
        """Return the values that constraints compare, for those that concern the device."""
        return tuple(
            attribute_value(device.id.driver, device.device, one.attribute)
            if any(index in accepted for index in one.alternatives)
            else None
            for one in self._constraints
        )

    def _has_attributes(self, device: PoolDevice, alternative: int) -> bool:
        """Return whether the device has all attributes that constraints compare for the alternative."""
        return all(
            attribute_value(device.id.driver, device.device, one.attribute) is not None
            for one in self._constraints
            if alternative in one.alternatives
        )


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Return whether the toleration matches the taint; an empty effect or key matches all."""
    if toleration.effect not in {"", taint.effect} or toleration.key not in {"", taint.key}:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in {"", "Equal"} and toleration.value == taint.value


def tolerates_all(tolerations: tuple[DeviceToleration, ...], taints: tuple[DeviceTaint, ...]) -> bool:
    """Return whether all taints that prevent an allocation are tolerated."""
    return all(any(tolerates(one, taint) for one in tolerations) for taint in taints if taint.effect in _BLOCKING)


def counters_of(device: PoolDevice, target: PoolTarget) -> tuple[tuple[int, int], ...]:
    """Return what a device consumes of the counters of its pool, by their index."""
    return tuple(
        (target.counter_indexes[consumed.counter_set, name], nano_value(counter.value))
        for consumed in device.device.consumes_counters or ()
        for name, counter in sorted((consumed.counters or {}).items())
    )


def capacity_of(device: PoolDevice) -> Amounts:
    """Return the amounts that a device has."""
    return tuple((name, nano_value(one.value)) for name, one in sorted((device.device.capacity or {}).items()))
