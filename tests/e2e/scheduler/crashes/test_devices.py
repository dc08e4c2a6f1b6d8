"""A leader is killed while it allocates devices and binds their pods: the next leader completes the gang."""

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
DRIVER = "crashes.example.com"
SIZE, DEVICES_PER_NODE = 6, 2
Plain = dict[str, Any]


def claim(testbed: "Testbed", name: str) -> "CreateRequest":
    """Return a claim for one device."""
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "crashes"}}]}}
    return RESOURCE_CLAIMS.path(testbed.namespace), {"metadata": {"name": name}, "spec": spec}


def offer(node: str) -> "CreateRequest":
    """Return the slice of a node."""
    devices = [{"name": f"gpu-{number}"} for number in range(DEVICES_PER_NODE)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return RESOURCE_SLICES.path(), {"metadata": {"name": f"crashes-{node}"}, "spec": spec}


@pytest.fixture
async def devices(testbed: "Testbed") -> AsyncIterator[None]:
    """Offer as many devices as the gang needs, on nodes that have room for more pods; a claim for each of its pods."""
    nodes = [one["metadata"]["name"] for one in await testbed.list_objects(NODES)][: SIZE // DEVICES_PER_NODE]
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    classes = DEVICE_CLASSES.path(), {"metadata": {"name": "crashes"}, "spec": {"selectors": [selector]}}
    await testbed.create(classes, *map(offer, nodes), *(claim(testbed, f"claim-{number}") for number in range(SIZE)))
    yield
    for found in await testbed.list_objects(RESOURCE_CLAIMS):
        name = found["metadata"]["name"]
        await testbed.connection.patch(
            RESOURCE_CLAIMS.path(testbed.namespace, name), {"metadata": {"finalizers": None}}
        )
        with contextlib.suppress(ApiError):
            await testbed.delete(RESOURCE_CLAIMS, name)
    await testbed.delete(DEVICE_CLASSES, "crashes")
    await testbed.connection.delete(RESOURCE_SLICES.path())


@pytest.mark.usefixtures("devices")
@pytest.mark.parametrize("writes", [2, SIZE + 2, 2 * SIZE + 1, 2 * SIZE + 4], ids=["first", "some", "all", "bound"])
async def test_a_new_leader_completes_allocated_claims(testbed: "Testbed", api_proxy: "ApiProxy", writes: int) -> None:
    """For a kill at any write: each claim is reserved for its pod, at whose node the device is, and none is lost."""
    leader = testbed.start_replica(proxy=api_proxy, bindsInFlight=1)
    await testbed.wait_for_log(leader, "ready")
    api_proxy.at(writes, leader.process.kill)
    await testbed.create(*gang(testbed))
    await testbed.wait_until(lambda: not leader.process.is_running)
    testbed.start_replica()
    await testbed.wait_until_bound(SIZE)
    await check_claims(testbed)


@pytest.mark.usefixtures("devices")
async def test_claims_are_allocated_although_many_requests_fail(testbed: "Testbed", api_proxy: "ApiProxy") -> None:
    """With conflicts and outages of any kind at random, in reads and writes; nothing is left of failed attempts."""
    await bind_despite_failures(testbed, api_proxy, gang(testbed), SIZE)
    await check_claims(testbed)


def gang(testbed: "Testbed") -> "list[CreateRequest]":
    """Return a gang whose pods have a claim each."""
    entries = [[{"name": "gpu", "resourceClaimName": f"claim-{number}"}] for number in range(SIZE)]
    pods = [testbed.pod(f"pod-{number}", group="pg", resourceClaims=entries[number]) for number in range(SIZE)]
    return [testbed.group("pg", SIZE), *pods]


async def check_claims(testbed: "Testbed") -> None:
    """Check that each claim is reserved for its pod alone, which is at the node of its device."""
    uids = {one["metadata"]["uid"]: one["metadata"]["name"] for one in await testbed.list_objects(PODS)}
    nodes, used = await testbed.pod_nodes(), []
    for found in await testbed.list_objects(RESOURCE_CLAIMS):
        (user,) = found["status"]["reservedFor"]
        (device,) = found["status"]["allocation"]["devices"]["results"]
        assert uids[user["uid"]] == found["metadata"]["name"].replace("claim", "pod")
        assert nodes[uids[user["uid"]]] == device["pool"]
        used.append((device["pool"], device["device"]))
    names = [f"gpu-{number}" for number in range(DEVICES_PER_NODE)]
    assert sorted(used) == sorted(itertools.product(set(nodes.values()), names))
