"""The kinds of dynamic resource allocation that a server has."""

from typing import TYPE_CHECKING

import pytest

from cpg_api.core.devices import DeviceTaintRule
from cpg_client import resources
from cpg_client.connection import Connection
from cpg_client.device_kinds import REQUIRED, DeviceKinds, backs_extended_resources, served_device_kinds
from cpg_client.resources import Resource

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer

RULES = resources.DEVICE_TAINT_RULES, resources.DEVICE_TAINT_RULES_BETA


@pytest.mark.parametrize(
    ("served", "found"),
    [
        ((), {}),
        (REQUIRED.values(), REQUIRED),
        ((*REQUIRED.values(), *RULES), REQUIRED | {DeviceTaintRule: RULES[0]}),
        ((*REQUIRED.values(), RULES[1]), REQUIRED | {DeviceTaintRule: RULES[1]}),
        ((resources.RESOURCE_CLAIMS, *RULES), {}),
    ],
    ids=["nothing", "no taint rules", "taint rules", "taint rules in beta", "no slices"],
)
async def test_the_kinds_are_found_that_are_served(
    server: "FakeServer", connection: Connection, served: list[Resource], found: DeviceKinds
) -> None:
    """Taint rules in their newest version, or none; without one of the other kinds there are no devices."""
    for version in ("v1", "v1beta2"):
        listed = [
            {"name": one.plural, "kind": one.kind, "namespaced": one.namespaced}
            for one in served
            if one.version == version
        ]
        if listed:
            server.answers("GET", f"/apis/resource.k8s.io/{version}", {"resources": listed})
    assert await served_device_kinds(connection) == found


@pytest.mark.parametrize(
    ("major", "minor", "backs"),
    [("1", "36", True), ("1", "37+", True), ("1", "35", False), ("2", "0", True), ("1", "", False)],
)
async def test_devices_stand_for_extended_resources_since_release_1_36(
    server: "FakeServer", connection: Connection, major: str, minor: str, *, backs: bool
) -> None:
    """Before, the feature is off unless it is switched on."""
    server.answers("GET", "/version", {"major": major, "minor": minor, "gitVersion": "v"})
    assert await backs_extended_resources(connection) is backs
