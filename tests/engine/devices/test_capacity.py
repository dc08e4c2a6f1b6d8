"""What a request consumes of a device's capacity."""

import pytest

from cpg_api.core.devices import CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity
from cpg_api.quantity import Quantity, nano_value
from cpg_engine.devices.capacity import CapacityError, consumption, format_amount
from cpg_engine.testing.device_builders import policy

NO_POLICY = DeviceCapacity(value="10")
VALUES = policy("10", default="2", valid_values=("2", "4", "8"))
STEPS = policy("10", default="1", valid_range=CapacityRequestPolicyRange(min="1", max="9", step="2"))
TENTHS = policy("10", default="1", valid_range=CapacityRequestPolicyRange(min="100m", step="250m"))
FINE = policy("10", default="1", valid_range=CapacityRequestPolicyRange(min="1500u", max="9", step="1"))


def consumed(capacity: DeviceCapacity, requested: Quantity | None) -> int | float | None:
    """Return what is consumed of one capacity, in whole units."""
    amounts = consumption({} if requested is None else {"c": nano_value(requested)}, {"c": capacity})
    return None if amounts is None else amounts[0][1] / 10**9


@pytest.mark.parametrize(
    ("capacity", "requested", "expected"),
    [
        (NO_POLICY, None, 10),
        (NO_POLICY, "3", 3),
        (NO_POLICY, "11", None),
        (VALUES, None, 2),
        (VALUES, "3", 4),
        (VALUES, "9", None),
        (STEPS, None, 1),
        (STEPS, "500m", 1),
        (STEPS, "1", 1),
        (STEPS, "2", 3),
        (STEPS, "9500m", None),
        (TENTHS, "200m", 0.35),
        (TENTHS, "100m", 0.1),
        (FINE, "2", 2),
        (FINE, "1500u", 1),
        (FINE, "2500m", 3),
        (policy("10", default="3"), None, 3),
        (policy("10", default="3"), "4", 4),
        (policy("10", valid_range=CapacityRequestPolicyRange(min="1")), "0", 1),
        (policy("10", valid_range=CapacityRequestPolicyRange(min="1")), "2500m", 2.5),
        (policy("10", valid_range=CapacityRequestPolicyRange(min="1", step="3")), None, 10),
        (policy("9", valid_range=CapacityRequestPolicyRange(min="1", step="3")), None, None),
        (policy("9500u", valid_range=CapacityRequestPolicyRange(min="1m", step="1m")), None, None),
        (policy("10", valid_range=CapacityRequestPolicyRange(max="5")), "2", 2),
        (policy("10", valid_range=CapacityRequestPolicyRange(max="5")), "7", None),
        (policy("10", valid_values=("20",)), "2", None),
    ],
)
def test_the_amount_that_is_consumed(
    capacity: DeviceCapacity, requested: Quantity | None, expected: float | None
) -> None:
    """The request is rounded up to an amount that the policy allows; None where the device has no such amount."""
    assert consumed(capacity, requested) == expected


@pytest.mark.parametrize(
    ("capacity", "requested", "message"),
    [
        (DeviceCapacity(value="-1"), None, "the amount of c is negative"),
        (TENTHS, "100500u", "the request for c is too fine for the steps of the device"),
        (
            policy("10", valid_range=CapacityRequestPolicyRange(min="1500u", step="4")),
            2**63 - 1,
            "the request for c is too large for the steps of the device",
        ),
    ],
)
def test_amounts_that_no_device_can_give(capacity: DeviceCapacity, requested: Quantity | None, message: str) -> None:
    """They end the search, as upstream's."""
    with pytest.raises(CapacityError, match=message):
        consumed(capacity, requested)


def test_every_capacity_is_consumed() -> None:
    """In the order of names; a request for a capacity that the device does not have is not satisfied."""
    capacity = {"b": DeviceCapacity(value="2"), "a": DeviceCapacity(value="1", request_policy=CapacityRequestPolicy())}
    assert consumption({"b": 10**9}, capacity) == (("a", 10**9), ("b", 10**9))
    assert consumption({"x": 0}, capacity) is None


@pytest.mark.parametrize("quantity", ["80Gi", "1500", "250m", "1500n", "0", "2500u"])
def test_the_spelling_of_an_amount_is_exact(quantity: str) -> None:
    """It reads back as the same amount."""
    assert nano_value(format_amount(nano_value(quantity))) == nano_value(quantity)
