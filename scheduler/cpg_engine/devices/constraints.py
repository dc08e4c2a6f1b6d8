"""The attribute values that constraints compare."""

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from cpg_api.core.devices import Device
from cpg_engine.devices.shapes import Constraint
from cpg_engine.devices.values import UNIQUE, UNKNOWN, PoolView


def attribute_value(driver: str, device: Device, name: str) -> object:
    """Return the value of an attribute with its type, None where the device has none.

    An attribute without a domain is in the domain of the driver.
    """
    attributes = device.attributes or {}
    found = attributes.get(name)
    if found is None:
        domain, _, rest = name.partition("/")
        found = attributes.get(rest) if rest and domain == driver else None
    if found is None:
        return None
    if found.string is not None:
        return ("string", found.string)
    if found.int_value is not None:
        return ("int", found.int_value)
    if found.bool_value is not None:
        return ("bool", found.bool_value)
    return UNKNOWN if found.version is None else ("version", found.version)


def canonical(views: Sequence[PoolView]) -> tuple[PoolView, ...]:
    """Return the views of a node with attribute values numbered by first appearance.

    Constraints only ask whether values are equal. So nodes whose devices have other values, such as addresses, but are
    equal and different in the same places get equal views. A value that no other device has becomes ``UNIQUE``, unless
    the device can be allocated twice.
    """
    counts: Counter[tuple[int, object]] = Counter()
    for view in views:
        for device in view.devices:
            for key in enumerate(device.attributes):
                if key[1] is not None:
                    counts[key] += 2 if device.is_shareable else 1
    if not counts:
        return tuple(views)
    numbers: dict[tuple[int, object], object] = {}
    for key, count in counts.items():
        numbers[key] = UNKNOWN if key[1] == UNKNOWN else UNIQUE if count == 1 else len(numbers)
    return tuple(
        replace(
            view,
            devices=tuple(
                replace(device, attributes=tuple(numbers.get(key) for key in enumerate(device.attributes)))
                for device in view.devices
            ),
        )
        for view in views
    )


def can_add(constraint: Constraint, value: object, chosen: list[object]) -> bool:
    """Return whether a device with this value can join those that were chosen already, as upstream compares them."""
    if value is None:
        return False
    if not chosen:
        return True
    if constraint.is_distinct:
        return value != UNKNOWN and (value == UNIQUE or value not in chosen)
    return value == chosen[0] and value not in (UNIQUE, UNKNOWN)
