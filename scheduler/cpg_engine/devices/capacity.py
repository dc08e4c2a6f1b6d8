"""How much of a device's capacity a request consumes, by the device's policy.

Amounts are in nanos. Ranges with steps are rounded in thousandths where all of their numbers are whole thousandths, and
in whole units otherwise, as in Kubernetes with DRAFractionalCapacityRange.
"""

from collections.abc import Mapping
from typing import Final

from cpg_api.core.devices import CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity
from cpg_api.quantity import INT64_MAX, NANO, Quantity, format_quantity, nano_value
from cpg_engine.devices.values import Amounts

_MILLI: Final = NANO // 1000


class CapacityError(Exception):
    """An amount that no device can give: it is negative, or too large or too fine for the device's steps."""


def consumption(requested: Mapping[str, int], capacity: Mapping[str, DeviceCapacity]) -> Amounts | None:
    """Return what a request consumes of each capacity of a device, or None if the device cannot satisfy it.

    Raises ``CapacityError`` for a request that upstream refuses for any device.
    """
    if not requested.keys() <= capacity.keys():
        return None
    amounts = tuple((name, _consumed(name, requested.get(name), one)) for name, one in sorted(capacity.items()))
    for name, amount in amounts:
        one = capacity[name]
        if amount > nano_value(one.value) or _violates(amount, one.request_policy):
            return None
    return amounts


def format_amount(amount: int) -> Quantity:
    """Return the quantity of an amount in nanos, in a short spelling."""
    whole, rest = divmod(amount, NANO)
    if not rest:
        return format_quantity("memory", whole)
    milli, rest = divmod(amount, _MILLI)
    return f"{amount}n" if rest else f"{milli}m"


def _consumed(name: str, requested: int | None, capacity: DeviceCapacity) -> int:
    """Return the amount that is consumed of one capacity: by default the policy's default, or all of it."""
    policy = capacity.request_policy or CapacityRequestPolicy()
    if requested is None:
        amount = nano_value(capacity.value if policy.default is None else policy.default)
    elif policy.valid_range is not None and policy.valid_range.min is not None:
        amount = _round_up(name, requested, policy.valid_range)
    else:
        amount = min((one for one in map(nano_value, policy.valid_values or ()) if one >= requested), default=requested)
    if amount < 0:
        raise CapacityError(f"the amount of {name} is negative")
    return amount


def _round_up(name: str, requested: int, valid: CapacityRequestPolicyRange) -> int:
    """Return the smallest amount of the range that is not less than the request."""
    lowest = _nanos(valid.min)
    if requested < lowest or valid.step is None:
        return max(requested, lowest)
    unit = _unit(valid)
    if unit == _MILLI and requested % unit:
        raise CapacityError(f"the request for {name} is too fine for the steps of the device")
    step, lowest = _step(valid.step, unit), _units(lowest, unit)
    rounded = lowest - (lowest - _units(requested, unit)) // step * step
    if rounded > INT64_MAX:
        raise CapacityError(f"the request for {name} is too large for the steps of the device")
    return rounded * unit


def _violates(amount: int, policy: CapacityRequestPolicy | None) -> bool:
    """Return whether the policy allows no request for this amount."""
    if policy is None or (policy.default is not None and amount == nano_value(policy.default)):
        return False
    if policy.valid_range is not None:
        return _is_outside(amount, policy.valid_range)
    valid = [nano_value(one) for one in policy.valid_values or ()]
    return bool(valid) and amount not in valid


def _is_outside(amount: int, valid: CapacityRequestPolicyRange) -> bool:
    if valid.max is not None and amount > nano_value(valid.max):
        return True
    if valid.step is None:
        return False
    unit = _unit(valid)
    if unit == _MILLI and amount % unit:
        return True
    return (_units(amount, unit) - _units(_nanos(valid.min), unit)) % _step(valid.step, unit) != 0


def _unit(valid: CapacityRequestPolicyRange) -> int:
    """Return the unit in which the range is rounded: thousandths where all of its numbers are exact in them."""
    numbers = [_nanos(one) for one in (valid.min, valid.max, valid.step) if one is not None]
    is_exact = all(one % _MILLI == 0 and abs(one) <= INT64_MAX * _MILLI for one in numbers)
    return _MILLI if is_exact and (valid.step is None or _nanos(valid.step) >= _MILLI) else NANO


def _nanos(quantity: Quantity | None) -> int:
    return 0 if quantity is None else nano_value(quantity)


def _units(nanos: int, unit: int) -> int:
    """Return the amount in this unit, rounded up."""
    return -(-nanos // unit)


def _step(step: Quantity, unit: int) -> int:
    return max(1, _units(nano_value(step), unit))
