"""A leader is killed while it makes claims for extended resources: the next leader gives every pod devices once."""

import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.scheduler.crashes.failing_requests import bind_despite_failures

from cpg_client.errors import ApiError
from cpg_client.resources import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES

if TYPE_CHECKING:
    from tests.e2e.api_proxy import ApiProxy
    from tests.e2e.scheduler.crashes.conftest import CreateRequest, Testbed

pytestmark = pytest.mark.e2e
DRIVER, RESOURCE = "extended.example.com", "extended.example.com/gpu"
SIZE, DEVICES_PER_NODE = 6, 2
Plain = dict[str, Any]


def offer(node: str) -> "CreateRequest":
    """Return the slice of a node."""
    devices = [{"name": f"gpu-{number}"} for number in range(DEVICES_PER_NODE)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return RESOURCE_SLICES.path(), {"metadata": {"name": f"extended-{node}"}, "spec": spec}


@pytest.fixture
async def devices(testbed: "Testbed") -> AsyncIterator[None]:
    """Offer as many devices as the gang needs, on nodes that have room for more pods."""
    nodes = [one["metadata"]["name"] for one in await testbed.list_objects(NODES)][: SIZE // DEVICES_PER_NODE]
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    spec = {"selectors": [selector], "extendedResourceName": RESOURCE}
    await testbed.create((DEVICE_CLASSES.path(), {"metadata": {"name": "extended"}, "spec": spec}), *map(offer, nodes))
    yield
    for found in await testbed.list_objects(RESOURCE_CLAIMS):
        name = found["metadata"]["name"]
        path = RESOURCE_CLAIMS.path(testbed.namespace, name)
        await testbed.connection.patch(path, {"metadata": {"finalizers": None}})
        with contextlib.suppress(ApiError):
            await testbed.delete(RESOURCE_CLAIMS, name)
    await testbed.delete(DEVICE_CLASSES, "extended")
    await testbed.connection.delete(RESOURCE_SLICES.path())


def gang(testbed: "Testbed") -> "list[CreateRequest]":
    """Return a gang whose pods request a device each."""
    asked = {"cpu": "100m", RESOURCE: "1"}
    container = {"name": "main", "image": "none", "resources": {"requests": asked, "limits": asked}}
    pods = [testbed.pod(f"pod-{number}", group="pg", containers=[container]) for number in range(SIZE)]
    return [testbed.group("pg", SIZE), *pods]


async def check_claims(testbed: "Testbed") -> None:
    """Check that each pod has one claim, which its status names, with a device of its node that no other pod has."""
    pods = {one["metadata"]["uid"]: one for one in await testbed.list_objects(PODS)}
    claims, used = await testbed.list_objects(RESOURCE_CLAIMS), []
    assert len(claims) == SIZE
    for found in claims:
        (user,) = found["status"]["reservedFor"]
        (owner,) = found["metadata"]["ownerReferences"]
        (device,) = found["status"]["allocation"]["devices"]["results"]
        pod = pods[user["uid"]]
        named = pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
        assert (owner["uid"], named) == (user["uid"], found["metadata"]["name"])
        assert pod["spec"]["nodeName"] == device["pool"]
        used.append((device["pool"], device["device"]))
    nodes = {one["spec"]["nodeName"] for one in pods.values()}
    names = [f"gpu-{number}" for number in range(DEVICES_PER_NODE)]
    assert sorted(used) == sorted(itertools.product(nodes, names))


@pytest.mark.usefixtures("devices")
@pytest.mark.parametrize("writes", [3, SIZE + 2, 2 * SIZE + 2, 3 * SIZE + 2, 4 * SIZE + 4])
async def test_a_new_leader_gives_every_pod_devices_once(
    testbed: "Testbed", api_proxy: "ApiProxy", writes: int
) -> None:
    """For a kill at any write: the creation of a claim, its finalizer, its devices, the status of its pod, the bind."""
    leader = testbed.start_replica(proxy=api_proxy, bindsInFlight=1)
    await testbed.wait_for_log(leader, "ready")
    api_proxy.at(writes, leader.process.kill)
    await testbed.create(*gang(testbed))
    await testbed.wait_until(lambda: not leader.process.is_running)
    testbed.start_replica()
    await testbed.wait_until_bound(SIZE, 60)
    await check_claims(testbed)


@pytest.mark.usefixtures("devices")
async def test_devices_are_given_although_many_requests_fail(testbed: "Testbed", api_proxy: "ApiProxy") -> None:
    """With conflicts and outages of any kind at random, in reads and writes; nothing is left of failed attempts."""
    await bind_despite_failures(testbed, api_proxy, gang(testbed), SIZE)
    await check_claims(testbed)
