"""Pools: what a node can use of the slices of a driver."""

from collections.abc import Sequence

import pytest

from cpg_api.core.devices import (
    Device,
    DeviceCounterConsumption,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    ResourceSlice,
)
from cpg_engine.devices.pools import PoolTarget, build_pool, in_order, target
from cpg_engine.testing.device_builders import GPU_DRIVER, device, device_slice, labelled

ZONE_A = {"zone": "a"}


def usable(slices: Sequence[ResourceSlice], node: str = "n0", zone: str = "a") -> list[str] | None:
    """Return the names of the devices that a node can use of a pool."""
    found = target(build_pool(slices), node, {"zone": zone})
    return None if found is None else [one.id.device for one in found.devices]


def problem(*slices: ResourceSlice) -> str:
    """Return why a pool cannot be used on the first node."""
    found = target(build_pool(slices), "n0", ZONE_A)
    assert found is not None
    return found.problem


def test_a_local_pool() -> None:
    """Only its node can use it; slices are in the order of their names."""
    slices = [device_slice("c", name="s1", count=2), device_slice("a", "b", name="s0", count=2)]
    assert usable(slices) == ["a", "b", "c"]
    assert usable(slices, node="n1") is None
    pool = build_pool(slices)
    found = target(pool, "n0", {})
    assert found is not None
    assert (pool.node_name, pool.positions, found.positions) == ("n0", {"a": 0, "b": 1, "c": 2}, (0, 1, 2))


def test_slices_for_some_nodes_and_for_all() -> None:
    """A pool can have several; a node sees those that are for it."""
    slices = [
        device_slice("a", node=None, pool="p", name="s0", count=3, node_selector=labelled("zone", "a")),
        device_slice("b", node=None, pool="p", name="s1", count=3, all_nodes=True),
        device_slice("c", node="n1", pool="p", name="s2", count=3),
    ]
    assert usable(slices) == ["a", "b"]
    assert usable(slices, zone="b") == ["b"]
    assert usable(slices, node="n1") == ["a", "b", "c"]
    assert build_pool(slices).node_name is None


def test_devices_that_select_nodes() -> None:
    """Each for itself; a slice of which a node can use no device does not concern it."""
    devices = [
        Device(name="a", node_name="n0"),
        Device(name="b", node_selector=labelled("zone", "b")),
        Device(name="c", all_nodes=True),
        Device(name="d"),
    ]
    slices = [device_slice(*devices, node=None, pool="p", per_device_node_selection=True)]
    assert usable(slices) == ["a", "c"]
    assert usable(slices, node="n1", zone="b") == ["b", "c"]
    assert usable([device_slice(*devices[:2], node=None, pool="p", per_device_node_selection=True)], node="n1") is None


def test_a_slice_that_selects_nodes_in_an_unknown_way() -> None:
    """It is not used."""
    assert usable([device_slice("a", node=None, pool="p")]) is None


def test_nodes_that_use_the_same_devices_share_a_target() -> None:
    """So its view is made once."""
    pool = build_pool([device_slice("a", node=None, pool="p", all_nodes=True)])
    assert target(pool, "n0", {}) is target(pool, "n1", {})
    devices = [Device(name="a", node_name="n0"), Device(name="b", all_nodes=True)]
    pool = build_pool([device_slice(*devices, node=None, pool="p", per_device_node_selection=True)])
    assert target(pool, "n0", {}) is not target(pool, "n1", {})
    assert target(pool, "n1", {}) is target(pool, "n2", {})


def test_only_the_newest_generation_counts() -> None:
    """Unless it is for other nodes alone, and the old one is complete, as upstream has it."""
    slices = [device_slice("a", generation=1, name="s0"), device_slice("b", generation=2, name="s1")]
    assert usable(slices) == ["b"]
    elsewhere = device_slice("b", node="n1", pool="n0", generation=2, name="s1")
    assert usable([slices[0], elsewhere]) == ["a"]
    assert usable([device_slice("a", count=2, name="s0"), elsewhere]) is None


def test_an_incomplete_pool() -> None:
    """Slices for other nodes count, those of other generations do not."""
    assert problem(device_slice("a", count=2)) == "is incomplete: its driver is updating it"
    old = device_slice("b", name="s1", count=2, generation=0)
    assert problem(device_slice("a", count=2), old) == "is incomplete: its driver is updating it"
    other = device_slice("b", node="n1", pool="n0", name="s1", count=2)
    assert problem(device_slice("a", count=2), other) == ""


def test_a_slice_with_compatibility_groups_is_ignored() -> None:
    """The feature is off; so the pool is incomplete."""
    consumed = (DeviceCounterConsumption(counter_set="s", compatibility_groups=("g",)),)
    ignored = device_slice(Device(name="b", consumes_counters=consumed), name="s1", count=2, generation=2)
    assert problem(device_slice("a", count=2, generation=2), ignored) == "is incomplete: its driver is updating it"
    assert usable([ignored]) is None


def test_pools_that_contradict_themselves() -> None:
    """Nothing of them can be used."""
    assert problem(device_slice("a", "a")) == "has two devices named a"
    consumer = device("a", counters={"s": {"slots": 1}})
    assert problem(device_slice(consumer)) == "has no counter set s"
    other = device_slice(name="s1", count=2, counters={"s": {"memory": 1}})
    assert problem(device_slice(consumer, count=2), other) == "has no counter slots in counter set s"
    counters = {"s": {"slots": 1}}
    twice = [device_slice(name=name, count=2, counters=counters) for name in ("s0", "s1")]
    assert problem(*twice) == "has two counter sets named s"


def test_counters_of_devices_that_the_node_cannot_use() -> None:
    """They count as well: those of slices for other nodes, and of devices for other nodes."""
    mine, other = device("a", counters={"s": {"slots": 1}}), device("b", counters={"s": {"slots": 1}})
    slices = [
        device_slice(mine, "plain", count=3, name="s0"),
        device_slice(other, "more", node="n1", pool="n0", count=3, name="s1"),
        device_slice(count=3, name="s2", counters={"s": {"slots": 4, "memory": 2}}),
    ]
    found = target(build_pool(slices), "n0", {})
    assert found is not None
    assert [one.id.device for one in found.others] == ["b"]
    assert found.counter_indexes == {("s", "memory"): 0, ("s", "slots"): 1}
    assert found.counters == (2 * 10**9, 4 * 10**9)


def test_a_name_in_two_slices_has_one_position() -> None:
    """Allocations are by name, so a device of one node can hold that of another."""
    slices = [device_slice("a", "b", count=2, name="s0"), device_slice("b", node="n1", pool="n0", count=2, name="s1")]
    pool = build_pool(slices)
    found = target(pool, "n1", {})
    assert found is not None
    assert (pool.positions, found.positions) == ({"a": 0, "b": 1}, (1,))


@pytest.mark.parametrize(
    ("selector", "tainted"),
    [
        (None, []),
        (DeviceTaintSelector(), ["a", "b"]),
        (DeviceTaintSelector(driver=GPU_DRIVER, pool="n0"), ["a", "b"]),
        (DeviceTaintSelector(device="b"), ["b"]),
        (DeviceTaintSelector(driver="other"), []),
        (DeviceTaintSelector(pool="other"), []),
    ],
)
def test_taint_rules(selector: DeviceTaintSelector | None, tainted: list[str]) -> None:
    """They taint the devices that they select; without a selector they select none."""
    taint = DeviceTaint(key="k", effect="NoSchedule")
    rule = DeviceTaintRule(spec=DeviceTaintRuleSpec(device_selector=selector, taint=taint))
    pool = build_pool([device_slice("a", "b")], [rule])
    assert [one.id.device for one in pool.devices if one.taints] == tainted


def test_the_order_of_pools() -> None:
    """By driver and name; those whose devices have binding conditions come last, even if these are empty."""

    def found(name: str, driver: str, device: Device) -> PoolTarget:
        one = target(build_pool([device_slice(device, pool=name, driver=driver)]), "n0", {})
        assert one is not None
        return one

    targets = [
        found("a", "a.example.com", Device(name="d", binding_conditions=())),
        found("b", "b.example.com", Device(name="d")),
        found("c", "a.example.com", Device(name="d")),
    ]
    assert [one.pool.id.pool for one in in_order(targets)] == ["c", "b", "a"]
