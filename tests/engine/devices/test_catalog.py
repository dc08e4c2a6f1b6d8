"""The catalog of devices: what is a change, and what is kept."""

import pytest
from msgspec.structs import replace

from cpg_api.core.devices import DeviceTaint, DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector
from cpg_api.meta import ObjectMeta
from cpg_engine.devices.catalog import DeviceCatalog
from cpg_engine.devices.values import PoolId
from cpg_engine.testing.device_builders import (
    GPU_DRIVER,
    claim_spec,
    device_claim,
    device_class,
    device_request,
    device_slice,
)

RULE = DeviceTaintRule(
    ObjectMeta(name="rule"), DeviceTaintRuleSpec(DeviceTaintSelector(), DeviceTaint("k", "", "NoSchedule"))
)
POOL = PoolId(GPU_DRIVER, "n0")


@pytest.fixture
def catalog() -> DeviceCatalog:
    """Return a catalog with one object of each kind."""
    found = DeviceCatalog()
    found.put_class(device_class())
    found.put_slice(device_slice("gpu-0"))
    found.put_taint_rule(RULE)
    found.put_claim(device_claim("c"))
    return found


def test_what_says_nothing_new_is_no_change(catalog: DeviceCatalog) -> None:
    """The same object again, or one with other metadata, is not."""
    version, classes = catalog.version, catalog.class_version
    catalog.changed_pools.clear()
    catalog.put_class(replace(device_class(), metadata=ObjectMeta(name="gpu", resource_version="7")))
    catalog.put_slice(device_slice("gpu-0"))
    catalog.put_taint_rule(RULE)
    catalog.put_claim(device_claim("c"))
    catalog.remove_claim("default", "other")
    for remove in (catalog.remove_class, catalog.remove_slice, catalog.remove_taint_rule):
        remove("other")
    assert (catalog.version, catalog.class_version, catalog.changed_pools) == (version, classes, set())


def test_changes_say_what_they_concern(catalog: DeviceCatalog) -> None:
    """Slices and taint rules concern pools, classes everything, and a claim itself alone."""
    catalog.changed_pools.clear()
    catalog.put_slice(device_slice("gpu-0", "gpu-1"))
    assert catalog.changed_pools == {POOL}
    catalog.put_slice(replace(device_slice("gpu-0", pool="new"), metadata=ObjectMeta(name=f"{GPU_DRIVER}-n0")))
    assert catalog.changed_pools == {POOL, PoolId(GPU_DRIVER, "new")}
    assert set(catalog.slices_of) == {PoolId(GPU_DRIVER, "new")}
    catalog.changed_pools.clear()
    catalog.remove_taint_rule("rule")
    assert catalog.changed_pools == {PoolId(GPU_DRIVER, "new")}
    classes = catalog.class_version
    catalog.remove_class("gpu")
    assert catalog.class_version == classes + 1
    catalog.remove_slice(f"{GPU_DRIVER}-n0")
    assert catalog.slices_of == {}


def test_specs_are_kept_for_as_long_as_a_claim_has_them(catalog: DeviceCatalog) -> None:
    """Equal claims share one; a claim that was made again may ask for something else."""
    catalog.put_claim(device_claim("d"))
    assert catalog.spec_of["default/c"] == catalog.spec_of["default/d"]
    other = device_claim("d", claim_spec(device_request(count=2)))
    catalog.put_claim(replace(other, metadata=replace(other.metadata, uid="new")))
    assert len(catalog.specs) == 2
    catalog.remove_claim("default", "d")
    catalog.remove_claim("default", "c")
    assert (catalog.specs, catalog.spec_of) == ({}, {})


def test_several_slices_make_one_pool(catalog: DeviceCatalog) -> None:
    """A pool is there until its last slice is gone."""
    catalog.put_slice(device_slice("gpu-1", name="second"))
    catalog.remove_slice("second")
    assert set(catalog.slices_of) == {POOL}
