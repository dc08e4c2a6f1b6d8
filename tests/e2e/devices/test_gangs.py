"""Gangs and trees whose pods claim devices, in both flavours: a gang is placed with all its devices, or not at all."""

from typing import TYPE_CHECKING

import pytest

from cpg_client.resources import PODS, PRIORITY_CLASSES
from cpg_lab import devices

if TYPE_CHECKING:
    from tests.e2e.devices.device_testbed import DeviceTestbed

pytestmark = pytest.mark.e2e

RACK = "topology.cpg.dev/rack"
READY, FAILED = "test.example.com/ready", "test.example.com/failed"
"""Conditions that the driver reports before a device is bound."""
EXTENDED, IMPLICIT = "example.com/gpu", f"deviceclass.resource.kubernetes.io/{devices.CLASS}"


async def test_a_gang_gets_a_device_for_each_pod(bed: "DeviceTestbed") -> None:
    """Eight pods with a claim each fill two nodes of four devices."""
    await bed.offer("3 nodes, cpu=4", node_1=4, node_3=4)
    await bed.create(*bed.gang("gang", 8))
    await bed.wait_until_bound(8)
    assert await bed.pods_per_node() == {"node-1": 4, "node-3": 4}
    assert len(set(await bed.devices_of())) == 8
    assert await bed.device_problems() == []


async def test_a_tree_goes_where_all_its_devices_are(bed: "DeviceTestbed") -> None:
    """Both gangs need a rack each in one block; the first rack of each block has enough CPU but too few devices."""
    nodes = "2 blocks x 2 racks x 2 nodes, cpu=4"
    counts = {"node_1_1_1": 3, "node_1_2_1": 4, "node_2_1_1": 2, "node_2_1_2": 2, "node_2_2_1": 1, "node_2_2_2": 3}
    await bed.offer(nodes, **counts)
    leaves = [bed.gang(f"tree-{number}", 4, parent="tree", key=RACK, cpu="1") for number in range(2)]
    await bed.create(
        bed.composite("tree", 2, key="topology.cpg.dev/block"),
        *(leaf[0] for leaf in leaves),
        *(one for leaf in leaves for one in leaf[1:]),
    )
    await bed.wait_until_bound(8)
    await bed.wait_until_complete()
    assert await bed.pods_per_node() == {"node-2-1-1": 2, "node-2-1-2": 2, "node-2-2-1": 1, "node-2-2-2": 3}
    assert await bed.device_problems() == []


async def test_a_gang_that_does_not_fit_has_no_device(bed: "DeviceTestbed") -> None:
    """Nine pods and eight devices: no claim is allocated or reserved, until there is a ninth."""
    await bed.offer("2 nodes, cpu=4", 4)
    await bed.create(*bed.gang("gang", 9))
    await bed.wait_for_pod_conditions()
    claims = await bed.claims()
    assert len(claims) == 9
    assert [claim for claim in claims.values() if claim.get("status") or claim["metadata"].get("finalizers")] == []
    await bed.offer("1 node, cpu=4, name=late", 1)
    await bed.wait_until_bound(9)
    assert await bed.device_problems() == []


async def test_competing_gangs_share_no_device(bed: "DeviceTestbed") -> None:
    """Of three gangs of four, created at once, two get the eight devices, and the third gets none."""
    await bed.offer("2 nodes, cpu=4", 4)
    async with bed.claims_watched() as problems:
        gangs = [bed.gang(f"gang{number}", 4) for number in range(3)]
        await bed.create(*(gang[0] for gang in gangs), *(one for gang in gangs for one in gang[1:]))
        await bed.wait_until_bound(8)
        await bed.wait_for_pod_conditions()
        assert problems == []
    found = [len(await bed.devices_of(f"gang{number}")) for number in range(3)]
    assert sorted(found) == [0, 4, 4]
    assert await bed.device_problems() == []


async def test_a_gang_waits_until_devices_are_released(bed: "DeviceTestbed") -> None:
    """The claims of deleted pods go with them, and a gang that waits gets their devices."""
    await bed.offer("2 nodes, cpu=4", 4)
    await bed.create(*bed.gang("first", 6))
    await bed.wait_until_bound(6)
    await bed.create(*bed.gang("second", 5))
    await bed.wait_for_pod_conditions()
    assert await bed.devices_of("second") == []
    for number in range(3):
        await bed.delete(PODS, f"first-{number}")
    await bed.wait_until_bound(8)
    assert len(await bed.devices_of("second")) == 5
    assert await bed.device_problems() == []


async def test_constraints_hold_for_each_claim_of_a_gang(bed: "DeviceTestbed") -> None:
    """Two devices of one NUMA node each: three nodes of five devices have room for five such claims, not for seven."""
    await bed.offer("3 nodes, cpu=4", 5)
    pair = bed.template("pair", devices.request(count=2), constraints=[{"matchAttribute": f"{devices.DRIVER}/numa"}])
    await bed.create(devices.create_request(pair), *bed.gang("fits", 6, template="pair"))
    await bed.wait_until_bound(6)
    for claim in await bed.claims():
        chosen = {(node, int(name.removeprefix("gpu-")) < 3) for _, node, name in await bed.devices_of(claim)}
        assert len(chosen) == 1, claim
    await bed.create(*bed.gang("more", 1, template="pair"))
    await bed.wait_for_pod_conditions()
    assert await bed.devices_of("more") == []
    assert await bed.device_problems() == []


async def test_a_gang_shares_a_network_attached_device(bed: "DeviceTestbed") -> None:
    """A claim by name pins all pods to the reach of its device, of which the first has too few nodes."""
    await bed.offer("2 racks x 2 nodes, cpu=1, name=a")
    await bed.offer("1 rack x 4 nodes, cpu=1, name=b, label side=b")
    slices = [
        devices.resource_slice("a-fabric", devices.gpus(1), selector={"kubernetes.io/hostname": "a-1-1"}, pool="a"),
        devices.resource_slice("b-fabric", devices.gpus(1), selector={"side": "b"}, pool="b"),
    ]
    shared = devices.claim("shared", namespace=bed.namespace)
    await bed.create(*map(devices.create_request, (*slices, shared)))
    await bed.create(*bed.gang("gang", 4, claims=["shared"], cpu="1"))
    await bed.wait_until_bound(4)
    assert await bed.pods_per_node() == {f"b-1-{number}": 1 for number in range(1, 5)}
    assert await bed.devices_of("shared") == [(devices.DRIVER, "b", "gpu-0")]
    assert len((await bed.claims())["shared"]["status"]["reservedFor"]) == 4
    assert await bed.device_problems() == []


async def test_a_gang_shares_a_device_of_a_node(bed: "DeviceTestbed") -> None:
    """All pods have to be on its node: the first with a device has too little room."""
    await bed.offer("1 node, cpu=2, name=a", 1)
    await bed.offer("1 node, cpu=4, name=b", 1)
    await bed.offer("1 node, cpu=8, name=c")
    shared = devices.claim("shared", namespace=bed.namespace)
    await bed.create(devices.create_request(shared), *bed.gang("gang", 4, claims=["shared"], cpu="1"))
    await bed.wait_until_bound(4)
    assert await bed.pods_per_node() == {"b-1": 4}
    assert await bed.device_problems() == []


async def test_pods_share_a_claim_and_have_one_each(bed: "DeviceTestbed") -> None:
    """On the node whose devices suffice for both; a member that is deleted and created again joins the others there."""
    await bed.offer("3 nodes, cpu=4", node_1=4, node_2=5, node_3=3)
    await bed.create(devices.create_request(devices.claim("shared", namespace=bed.namespace)))
    await bed.create(*bed.gang("gang", 4, claims=["shared"], template="gpu"))
    await bed.wait_until_bound(4)
    assert await bed.pods_per_node() == {"node-2": 4}
    assert len(set(await bed.devices_of())) == 5
    before = await bed.devices_of("shared")
    await bed.delete(PODS, "gang-1")
    await bed.wait_for_devices("", 4)
    await bed.create(bed.worker("gang-1", "gang", claims=["shared"], template="gpu"))
    await bed.wait_until_bound(4)
    assert await bed.pods_per_node() == {"node-2": 4}
    assert await bed.devices_of("shared") == before
    assert await bed.device_problems() == []


async def test_a_tree_shares_a_claim(bed: "DeviceTestbed") -> None:
    """The device is for the nodes of one block, so both gangs of the tree, in a rack each, have to be there."""
    await bed.offer("2 blocks x 2 racks x 2 nodes, cpu=2")
    fabric = devices.resource_slice("fabric", devices.gpus(1), selector={"topology.cpg.dev/block": "block-2"})
    await bed.create(*map(devices.create_request, (fabric, devices.claim("shared", namespace=bed.namespace))))
    leaves = [bed.gang(f"tree-{number}", 4, parent="tree", key=RACK, claims=["shared"], cpu="1") for number in range(2)]
    await bed.create(
        bed.composite("tree", 2), *(leaf[0] for leaf in leaves), *(one for leaf in leaves for one in leaf[1:])
    )
    await bed.wait_until_bound(8)
    assert {name.rpartition("-")[0] for name in await bed.pods_per_node()} == {"node-2-1", "node-2-2"}
    await bed.wait_until_complete()
    assert await bed.device_problems() == []


async def test_a_gang_follows_a_claim_that_is_allocated(bed: "DeviceTestbed") -> None:
    """A running pod uses the claim; a gang that does not fit beside it waits, though other nodes have devices."""
    await bed.offer("2 nodes, cpu=4", 1)
    await bed.create(devices.create_request(devices.claim("shared", namespace=bed.namespace)))
    await bed.create(bed.worker("one", claims=["shared"], cpu="2"))
    await bed.wait_until_bound(1)
    await bed.create(*bed.gang("gang", 3, claims=["shared"], cpu="1"))
    await bed.wait_for_pod_conditions()
    assert await bed.bound_count() == 1
    await bed.delete(PODS, "one")
    await bed.wait_until_bound(3)
    assert len(await bed.pods_per_node("gang")) == 1
    assert await bed.device_problems() == []


async def test_a_gang_preempts_another_for_its_devices(bed: "DeviceTestbed") -> None:
    """CPU is plenty: only the devices of the less important gang are missing. The gang waits until they are free."""
    await bed.offer("2 nodes, cpu=8", 4)
    for name, value in (("low", 10), ("high", 100)):
        body = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": "PriorityClass", "metadata": {"name": name}}
        await bed.try_to_create((PRIORITY_CLASSES.path(), {**body, "value": value}))
    await bed.create(*bed.gang("low", 8, priorityClassName="low"))
    await bed.wait_until_bound(8)
    async with bed.claims_watched() as problems:
        await bed.create(*bed.gang("high", 3, priorityClassName="high"))

        async def are_bound() -> bool:
            return sum((await bed.pods_per_node("high")).values()) == 3

        await bed.wait_until(are_bound, 20, "placement of the important gang")
        assert problems == []
    assert len(await bed.devices_of("high")) == 3
    assert await bed.device_problems() == []


async def test_a_claim_for_more_pods_than_may_use_it(bed: "DeviceTestbed") -> None:
    """A claim has at most 256 users, so a gang of 257 that shares it is not placed, and the claim stays free."""
    await bed.offer("1 node, cpu=64, pods=400", 1)
    shared = devices.claim("shared", namespace=bed.namespace)
    await bed.create(devices.create_request(shared), *bed.gang("gang", 257, claims=["shared"], cpu="10m"))
    await bed.wait_for_pod_conditions()
    assert await bed.bound_count() == 0
    assert await bed.devices_of() == []


@pytest.mark.parametrize("flavour", ["native"], indirect=True, scope="package")
async def test_a_group_claims_a_device_for_all_its_pods(bed: "DeviceTestbed") -> None:
    """The controller makes a claim for the group (KEP-5729), which is reserved for the group and not for pods."""
    await bed.offer("1 node, cpu=2, name=a", 1)
    await bed.offer("1 node, cpu=4, name=b", 2)
    entry = {"name": "own", "resourceClaimTemplateName": "gpu"}
    group, *members = bed.gang("gang", 4, cpu="1")
    group[1]["spec"]["resourceClaims"] = [entry]
    await bed.create(group, *members)
    await bed.wait_until_bound(4)
    assert await bed.pods_per_node() == {"b-1": 4}
    ((_, claim),) = (await bed.claims()).items()
    assert [each["resource"] for each in claim["status"]["reservedFor"]] == ["podgroups"]
    assert await bed.device_problems() == []
    await bed.create(*bed.gang("other", 1))
    await bed.wait_until_bound(5)
    for number in range(4):
        await bed.delete(PODS, f"gang-{number}")
    await bed.delete(bed.pod_groups, "gang")
    await bed.wait_for_devices("", 1)


@pytest.mark.parametrize("flavour", ["native"], indirect=True, scope="package")
async def test_a_pod_waits_until_its_device_is_ready(bed: "DeviceTestbed") -> None:
    """The driver reports by conditions: a device that fails is released and tried again, a ready one is bound."""
    await bed.offer("1 node, cpu=4")
    attached = devices.gpus(1, bindsToNode=True, bindingConditions=[READY], bindingFailureConditions=[FAILED])
    fabric = devices.resource_slice("fabric", attached, node="node-1")
    await bed.create(*map(devices.create_request, (fabric, devices.claim("x", namespace=bed.namespace))))
    await bed.create(bed.worker("p", claims=["x"]))
    await bed.wait_for_message("p", f'waiting for resourceclaim "{bed.namespace}/x" to be ready')
    assert (len(await bed.devices_of("x")), await bed.bound_count()) == (1, 0)
    await bed.report_condition("x", FAILED)
    await bed.wait_for_devices("x", 0)
    await bed.wait_for_devices("x", 1)
    assert await bed.bound_count() == 0
    await bed.report_condition("x", READY)
    await bed.wait_until_bound(1)


@pytest.mark.parametrize("flavour", ["crd"], indirect=True, scope="package")
async def test_devices_stand_for_no_extended_resource_before_1_36(bed: "DeviceTestbed") -> None:
    """The API server would not keep which devices a pod has, so a node has to offer the resource itself."""
    await bed.create(devices.create_request(devices.device_class(extendedResourceName=EXTENDED)))
    await bed.offer("1 node, cpu=4", 1)
    for name, resource in (("p", EXTENDED), ("q", IMPLICIT)):
        asked = {"requests": {resource: "1"}, "limits": {resource: "1"}}
        await bed.create(bed.pod(name, containers=[{"name": "main", "image": "none", "resources": asked}]))
        await bed.wait_for_message(name, f"Insufficient {resource}")
    await bed.offer(f"1 node, cpu=4, name=plugin, {EXTENDED}=1")
    await bed.wait_until_bound(1)
    assert await bed.pods_per_node("p") == {"plugin-1": 1}
    assert await bed.claims() == {}
