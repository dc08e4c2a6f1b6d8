"""Devices as plain objects; that the API server accepts them is tested in ``e2e/devices``."""

from typing import Any

import msgspec
import pytest

from cpg_api.core.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from cpg_lab import devices

KINDS = {
    one.__name__: one for one in (DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice)
}


def read(plain: dict[str, Any]) -> Any:  # noqa: ANN401  # one of the kinds above
    """Return the object as our programs read it."""
    return msgspec.convert(plain, KINDS[plain["kind"]], strict=False)


def test_gpus_can_be_told_apart() -> None:
    """By index and uuid; half of them are on each NUMA node."""
    (made,) = devices.slices_of_nodes(["n1"], 4)
    found = read(made).spec
    assert (found.node_name, found.pool.name, found.all_nodes) == ("n1", "n1", None)
    attributes = [each.attributes for each in found.devices]
    assert [each["index"].int_value for each in attributes] == [0, 1, 2, 3]
    assert [each["numa"].int_value for each in attributes] == [0, 0, 1, 1]
    assert len({each["uuid"].string for each in attributes}) == 4


@pytest.mark.parametrize(
    ("where", "field"),
    [
        ({"node": "n1"}, "nodeName"),
        ({"selector": {"rack": "r1"}}, "nodeSelector"),
        ({}, "allNodes"),
        ({"perDeviceNodeSelection": True}, "perDeviceNodeSelection"),
    ],
)
def test_a_slice_has_one_way_to_name_its_nodes(where: dict[str, Any], field: str) -> None:
    """The API server refuses two."""
    spec = devices.resource_slice("s", devices.gpus(1), **where)["spec"]
    assert spec.keys() - {"driver", "pool", "devices"} == {field}


def test_attributes_have_the_type_of_their_value() -> None:
    """A boolean is no number, and a version is given in full."""
    values: dict[str, devices.Value] = {"a": True, "b": 1, "c": "x", "d": {"version": "1.2.0"}}
    found = devices.device("d", values, {"memory": "1Gi", "slots": {"value": "2"}})
    assert found["attributes"] == {
        "a": {"bool": True},
        "b": {"int": 1},
        "c": {"string": "x"},
        "d": {"version": "1.2.0"},
    }
    assert found["capacity"] == {"memory": {"value": "1Gi"}, "slots": {"value": "2"}}


def test_claims_are_for_one_gpu_by_default() -> None:
    """Also those of a template."""
    for made in (devices.claim("c"), devices.claim_template("c")):
        found = read(made).spec
        (request,) = getattr(found, "spec", found).devices.requests
        assert (request.exactly.device_class_name, request.exactly.count) == ("gpu", 1)


def test_requests_have_all_forms() -> None:
    """A number of devices, all of them, and alternatives."""
    some = devices.request("some", count=2, select=["true"], capacity={"memory": "1Gi"})
    every = devices.request("all", all_devices=True, adminAccess=True)
    either = devices.request("either", first_available=[{"name": "a"}, {"name": "b", "count": 2}])
    found = read(devices.claim("c", some, every, either, constraints=[{"matchAttribute": "x/y"}])).spec.devices
    exactly = [each.exactly for each in found.requests]
    assert (exactly[0].count, exactly[0].selectors[0].cel.expression) == (2, "true")
    assert (exactly[1].allocation_mode, exactly[1].admin_access) == ("All", True)
    assert [(each.name, each.count) for each in found.requests[2].first_available] == [("a", 1), ("b", 2)]
    assert found.constraints[0].match_attribute == "x/y"


def test_objects_are_created_in_their_collection() -> None:
    """Claims and templates have a namespace."""
    rule = devices.taint_rule("r", {"key": "k", "effect": "NoSchedule"}, pool="p")
    assert read(rule).spec.device_selector.pool == "p"
    root = "/apis/resource.k8s.io/v1"
    assert devices.create_request(rule) == (f"{root}/devicetaintrules", rule)
    made = devices.claim("c", namespace="n")
    assert devices.create_request(made) == (f"{root}/namespaces/n/resourceclaims", made)
    assert devices.create_request(devices.device_class())[0] == f"{root}/deviceclasses"


def test_pods_name_their_claims() -> None:
    """By name, or by a template."""
    assert devices.pod_claims("a", template="t") == {
        "resourceClaims": [
            {"name": "a", "resourceClaimName": "a"},
            {"name": "own", "resourceClaimTemplateName": "t"},
        ]
    }
