"""A scheduler is killed between the allocation of devices and the binds: the next completes the gang, or releases it.

``CRASHES`` is the number of kills, and ``CRASH_SEED`` chooses other writes at which they come.
"""

import os
import random
from typing import TYPE_CHECKING

import pytest

from cpg_client.resources import NODES, PODS

if TYPE_CHECKING:
    from aiohttp import web
    from tests.e2e.api_proxy import ApiProxy
    from tests.e2e.devices.device_testbed import DeviceTestbed

CRASHES, SEED = int(os.environ.get("CRASHES", "3")), int(os.environ.get("CRASH_SEED", "1"))
SIZE = 4
WRITES = 3 * SIZE
"""A finalizer, an allocation and a bind for each pod."""

pytestmark = pytest.mark.e2e


async def test_a_gang_is_completed_after_a_kill_at_any_write(idle_bed: "DeviceTestbed", api_proxy: "ApiProxy") -> None:
    """Each gang is bound with its devices, whatever was written of it, and all devices are free at the end."""
    bed, moments = idle_bed, random.Random(SEED)  # noqa: S311  # a run can be repeated
    await bed.offer("2 nodes, cpu=4", SIZE)
    async with bed.claims_watched() as problems:
        for number in range(CRASHES):
            replica = bed.start_replica("--no-leader-elect", proxy=api_proxy, bindsInFlight=2)
            await bed.wait_for_log(replica, "ready")
            moment = moments.randint(number * WRITES // CRASHES + 1, (number + 1) * WRITES // CRASHES)
            api_proxy.at(moment, replica.process.kill)
            await bed.create(*bed.gang(f"gang{number}", SIZE))
            await bed.wait_until_killed(replica)
            following = bed.start_replica("--no-leader-elect")
            await bed.wait_until_bound(SIZE)
            assert await bed.device_problems() == [], moment
            following.process.kill()
            for pod in await bed.pod_nodes():
                await bed.delete(PODS, pod)
            await bed.wait_for_devices("", 0)
        assert problems == []


async def allocate_without_binds(bed: "DeviceTestbed", api_proxy: "ApiProxy") -> None:
    """Have a gang's devices allocated, and kill the scheduler before a pod is bound."""
    api_proxy.refuse = lambda request: 503 if is_bind(request) else 0
    first = bed.start_replica("--no-leader-elect", proxy=api_proxy)
    await bed.wait_for_log(first, "ready")
    await bed.create(*bed.gang("gang", SIZE))
    await bed.wait_for_devices("gang", SIZE)
    first.process.kill()
    assert await bed.bound_count() == 0


async def test_devices_are_released_if_their_nodes_are_lost(idle_bed: "DeviceTestbed", api_proxy: "ApiProxy") -> None:
    """The nodes are cordoned before the next scheduler starts, which finds other nodes and other devices."""
    bed = idle_bed
    await bed.offer("2 nodes, cpu=4, name=old", SIZE // 2)
    await allocate_without_binds(bed, api_proxy)
    for name in ("old-1", "old-2"):
        await bed.merge(NODES, name, {"spec": {"unschedulable": True}})
    await bed.offer("1 node, cpu=4, name=new", SIZE)
    async with bed.claims_watched() as problems:
        bed.start_replica("--no-leader-elect")
        await bed.wait_until_bound(SIZE)
        assert problems == []
    assert await bed.pods_per_node() == {"new-1": SIZE}
    assert await bed.device_problems() == []


async def test_devices_of_deleted_pods_are_released(idle_bed: "DeviceTestbed", api_proxy: "ApiProxy") -> None:
    """The pods are deleted while no scheduler runs; another gang gets all devices."""
    bed = idle_bed
    await bed.offer("2 nodes, cpu=4", SIZE // 2)
    await allocate_without_binds(bed, api_proxy)
    for number in range(SIZE):
        await bed.delete(PODS, f"gang-{number}")
    bed.start_replica("--no-leader-elect")
    await bed.create(*bed.gang("other", SIZE))
    await bed.wait_until_bound(SIZE)
    assert await bed.device_problems() == []


async def test_devices_are_released_when_binds_are_refused(idle_bed: "DeviceTestbed", api_proxy: "ApiProxy") -> None:
    """The API server refuses the pods of one gang for good, so its devices go to another gang."""
    bed = idle_bed
    await bed.offer("1 node, cpu=4", SIZE)
    api_proxy.refuse = lambda request: 422 if "/pods/refused-" in request.path and is_bind(request) else 0
    replica = bed.start_replica("--no-leader-elect", proxy=api_proxy)
    await bed.wait_for_log(replica, "ready")
    async with bed.claims_watched() as problems:
        await bed.create(*bed.gang("refused", SIZE))
        await bed.wait_for_log(replica, "bind failed")
        await bed.create(*bed.gang("other", SIZE))
        await bed.wait_until_bound(SIZE, 30)
        assert problems == []
    assert len(await bed.devices_of("other")) == SIZE
    assert await bed.device_problems() == []


def is_bind(request: "web.Request") -> bool:
    """Return whether a request binds a pod."""
    return request.path.endswith("/binding") and "/pods/" in request.path
