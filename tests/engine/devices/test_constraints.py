"""The attribute values that constraints compare."""

import pytest

from cpg_api.core.devices import Device, DeviceAttribute
from cpg_engine.devices.constraints import attribute_value, can_add, canonical
from cpg_engine.devices.shapes import Constraint
from cpg_engine.devices.values import UNIQUE, UNKNOWN, DeviceView, PoolView
from cpg_engine.testing.device_builders import GPU_DRIVER, device

SAME = Constraint(attribute="a", is_distinct=False, alternatives=(0,))
DISTINCT = Constraint(attribute="a", is_distinct=True, alternatives=(0,))


@pytest.mark.parametrize(
    ("attributes", "name", "expected"),
    [
        ({"a": "x"}, f"{GPU_DRIVER}/a", ("string", "x")),
        ({f"{GPU_DRIVER}/a": 1, "a": 2}, f"{GPU_DRIVER}/a", ("int", 1)),
        ({"a": True}, f"{GPU_DRIVER}/a", ("bool", True)),
        ({"a": "v1.2.3"}, f"{GPU_DRIVER}/a", ("version", "1.2.3")),
        ({"a": "x"}, "other/a", None),
        ({"a": "x"}, GPU_DRIVER, None),
        ({}, f"{GPU_DRIVER}/a", None),
    ],
)
def test_the_value_of_an_attribute(attributes: dict[str, object], name: str, expected: object) -> None:
    """A name without a domain belongs to the driver; the type is a part of the value."""
    assert attribute_value(GPU_DRIVER, device("d", attributes), name) == expected


def test_lists_cannot_be_compared() -> None:
    """The feature is off."""
    found = Device(attributes={"a": DeviceAttribute(ints=(1,))})
    assert attribute_value(GPU_DRIVER, found, f"{GPU_DRIVER}/a") == UNKNOWN


def attributes(*values: tuple[object, ...], shareable: bool = False) -> PoolView:
    """Return a pool of devices with these values."""
    return PoolView(
        tuple(DeviceView(index, attributes=one, is_shareable=shareable) for index, one in enumerate(values))
    )


def numbered(*views: PoolView) -> list[list[tuple[object, ...]]]:
    """Return the canonical values."""
    return [[one.attributes for one in view.devices] for view in canonical(views)]


def test_values_are_numbered_over_all_pools() -> None:
    """By first appearance, for each constraint; so nodes with other values have equal views."""
    first = [attributes(("x", "x"), ("y", None)), attributes(("y", "z"), ("x", UNKNOWN))]
    second = [attributes((1, 1), (2, None)), attributes((2, 3), (1, UNKNOWN))]
    assert numbered(*first) == [[(0, UNIQUE), (2, None)], [(2, UNIQUE), (0, UNKNOWN)]]
    assert canonical(first) == canonical(second)


def test_a_device_that_can_be_allocated_twice_equals_itself() -> None:
    """So its value is not unique, even if no other device has it."""
    assert numbered(attributes(("x",), shareable=True)) == [[(0,)]]


def test_views_without_values_stay() -> None:
    """There is nothing to number."""
    view = attributes((None,), ())
    assert canonical([view])[0] is view


@pytest.mark.parametrize(
    ("value", "chosen", "same", "distinct"),
    [
        (None, [], False, False),
        (1, [], True, True),
        (1, [1], True, False),
        (1, [2], False, True),
        (UNIQUE, [UNIQUE], False, True),
        (UNKNOWN, [], True, True),
        (UNKNOWN, [UNKNOWN], False, False),
        (1, [UNKNOWN], False, True),
        (UNKNOWN, [1], False, False),
    ],
)
def test_whether_a_value_can_join_others(value: object, chosen: list[object], *, same: bool, distinct: bool) -> None:
    """A device without the attribute never can; the first one can with any value."""
    assert can_add(SAME, value, chosen) == same
    assert can_add(DISTINCT, value, chosen) == distinct
