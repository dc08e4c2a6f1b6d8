"""Pods that claim devices, on a real API server with the controller of claims; the tests act as drivers."""

import asyncio
import contextlib
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cpg_client.connection import Connection
from cpg_client.errors import ApiError
from cpg_lab.clusters import Cluster
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

TIMEOUT_SECONDS = 15.0
API = "/apis/resource.k8s.io/v1"
NODES = ("n1", "n2")
DEVICES_PER_NODE = 2
READY, FAILED = "test.example.com/ready", "test.example.com/failed"
Plain = dict[str, Any]

pytestmark = pytest.mark.e2e


class DeviceDriver:
    """Offers devices of a class, and uses them in one namespace."""

    def __init__(self, connection: Connection, name: str) -> None:
        """Use a namespace that exists; class and driver are named after it."""
        self.connection = connection
        self.name = name
        self.driver = f"{name}.example.com"

    def path(self, plural: str, name: str = "", api: str = "/api/v1") -> str:
        """Return the path of the objects of a kind, or of one of them."""
        return f"{api}/namespaces/{self.name}/{plural}" + (f"/{name}" if name else "")

    async def get(self, path: str) -> Plain:
        """Return an object or a list."""
        found: Plain = msgspec.json.decode(await self.connection.get(path))
        return found

    async def offer(self, *nodes: str, devices: int = DEVICES_PER_NODE, **fields: Any) -> None:
        """Offer devices at each of these nodes."""
        selector = {"cel": {"expression": f'device.driver == "{self.driver}"'}}
        spec: Plain = {"selectors": [selector]}
        with contextlib.suppress(ApiError):
            await self.connection.post(f"{API}/deviceclasses", {"metadata": {"name": self.name}, "spec": spec})
        for node in nodes:
            listed = [{"name": f"gpu-{number}", **fields} for number in range(devices)]
            pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": self.driver, "nodeName": node, "pool": pool, "devices": listed}
            meta = {"name": f"{self.name}-{node}"}
            await self.connection.post(f"{API}/resourceslices", {"metadata": meta, "spec": spec})

    def claim_spec(self) -> Plain:
        """Return the spec of a claim for one device."""
        return {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": self.name}}]}}

    async def create_claim(self, name: str) -> None:
        """Create a claim for one device."""
        await self.connection.post(
            self.path("resourceclaims", api=API), {"metadata": {"name": name}, "spec": self.claim_spec()}
        )

    async def create_gang(self, name: str, gang: int) -> None:
        """Create a PodGroup that is a gang."""
        api = "scheduling.cpg.dev/v1alpha3"
        spec = {"schedulingPolicy": {"gang": {"minCount": gang}}}
        body = {"apiVersion": api, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}
        await self.connection.post(self.path("podgroups", api=f"/apis/{api}"), body)

    async def begin(self) -> None:
        """Create the namespace, with a template for claims of one device, and wait until it accepts pods."""
        await self.connection.post("/api/v1/namespaces", {"metadata": {"name": self.name}})
        while True:
            # Pods are accepted when the namespace has its service account.
            with contextlib.suppress(ApiError):
                await self.connection.get(self.path("serviceaccounts", "default"))
                break
            await asyncio.sleep(0.05)
        body = {"metadata": {"name": "one"}, "spec": {"spec": self.claim_spec()}}
        await self.connection.post(self.path("resourceclaimtemplates", api=API), body)

    async def create_pod(self, name: str, *, group: str = "", native_group: str = "", claim: str = "") -> None:
        """Create a pod with a claim of its own, or one that it shares."""
        source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": "one"}
        container = {"name": "main", "image": "busybox", "resources": {"claims": [{"name": "gpu"}]}}
        spec = {
            "schedulerName": "cpg-scheduler",
            "containers": [container],
            "resourceClaims": [{"name": "gpu", **source}],
            **({"schedulingGroup": {"podGroupName": native_group}} if native_group else {}),
        }
        labels = {"scheduling.cpg.dev/pod-group": group} if group else {}
        await self.connection.post(self.path("pods"), {"metadata": {"name": name, "labels": labels}, "spec": spec})

    async def delete_pod(self, name: str) -> None:
        """Delete a pod at once."""
        await self.connection.delete(self.path("pods", name), {"gracePeriodSeconds": 0})

    async def report(self, claim: str, condition: str) -> None:
        """Report a condition of all devices of a claim."""
        found = await self.get(self.path("resourceclaims", claim, API))
        now = self.connection.timing.whole_seconds()
        said = {"type": condition, "status": "True", "reason": "Test", "message": "m", "lastTransitionTime": now}
        results = found["status"]["allocation"]["devices"]["results"]
        devices = [{key: one[key] for key in ("driver", "pool", "device")} | {"conditions": [said]} for one in results]
        await self.connection.patch(
            self.path("resourceclaims", claim, API) + "/status", {"status": {"devices": devices}}
        )

    async def bound_pods(self) -> dict[str, str]:
        """Return the nodes of the bound pods."""
        items = (await self.get(self.path("pods")))["items"]
        return {item["metadata"]["name"]: node for item in items if (node := item["spec"].get("nodeName"))}

    async def devices(self) -> dict[str, tuple[str, ...]]:
        """Return the devices of the allocated claims, as node and name, by the users of each claim."""
        found = {}
        for claim in (await self.get(self.path("resourceclaims", api=API)))["items"]:
            status = claim.get("status", {})
            users = "+".join(sorted(user["name"] for user in status.get("reservedFor", ())))
            results = status.get("allocation", {}).get("devices", {}).get("results", ())
            if results:
                found[users] = tuple(f"{one['pool']}/{one['device']}" for one in results)
        return found

    async def reason(self, pod: str) -> str:
        """Return the reason of the condition PodScheduled."""
        conditions = (await self.get(self.path("pods", pod)))["status"].get("conditions", ())
        return next((one.get("reason", "") for one in conditions if one["type"] == "PodScheduled"), "")

    async def wait_until(self, holds: Callable[[], Awaitable[object]], problem: str) -> None:
        """Wait until a condition is true; fail with the problem otherwise."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not await holds():
            assert time.monotonic() < deadline, problem
            await asyncio.sleep(0.1)

    async def wait_until_bound(self, *names: str) -> dict[str, str]:
        """Wait until these pods are bound and no others, and return their nodes."""

        async def holds() -> bool:
            return (await self.bound_pods()).keys() == set(names)

        await self.wait_until(holds, f"{names} are not bound")
        return await self.bound_pods()

    async def wait_for_devices(self, expected: dict[str, tuple[str, ...]]) -> None:
        """Wait until exactly these claims have devices."""

        async def holds() -> bool:
            return await self.devices() == expected

        await self.wait_until(holds, f"the claims do not become {expected}")


def nodes() -> Plain:
    """Return the nodes."""
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    status = {"capacity": amounts, "allocatable": amounts}
    items = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status} for name in NODES]
    return {"apiVersion": "v1", "kind": "List", "items": items}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a cluster with two nodes and the controller of claims."""
    with Cluster(ClusterSpec(components=("controller-manager",))) as running:
        running.kubectl("apply", "-f", "-", input=msgspec.json.encode(nodes()).decode())
        yield running


@pytest.fixture(scope="module", autouse=True)
def scheduler(cluster: Cluster, install: "Installer", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run our scheduler with the rights and settings of the chart; return its log."""
    with install.scheduler(cluster, tmp_path_factory.mktemp("scheduler"), api="crd") as log:
        yield log


@pytest.fixture
async def driver(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[DeviceDriver]:
    """Return a driver of its own for each test; its pods and slices are deleted afterwards."""
    name = f"devices-{zlib.crc32(request.node.name.encode())}"
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        driver = DeviceDriver(connection, name)
        await driver.begin()
        yield driver
        await connection.delete(driver.path("pods"), {"gracePeriodSeconds": 0})
        await connection.delete(f"{API}/resourceslices", params={"fieldSelector": f"spec.driver={driver.driver}"})


async def test_a_gang_with_a_claim_for_each_pod_is_bound(driver: DeviceDriver) -> None:
    """Each pod is where its device is, and no device is given twice."""
    await driver.offer(*NODES)
    await driver.create_gang("pg", 4)
    names = [f"pod-{number}" for number in range(4)]
    for name in names:
        await driver.create_pod(name, group="pg")
    nodes = await driver.wait_until_bound(*names)
    devices = await driver.devices()
    assert sorted(devices.values()) == [(f"{node}/gpu-{number}",) for node in NODES for number in range(2)]
    assert {name: device.partition("/")[0] for name, (device,) in devices.items()} == nodes


async def test_a_gang_waits_as_a_whole_until_devices_are_free(driver: DeviceDriver) -> None:
    """No claim is allocated before; the deallocation of another pod's claim starts the next attempt."""
    await driver.offer("n1", devices=2)
    await driver.create_pod("first")
    await driver.wait_until_bound("first")
    await driver.create_gang("pg", 2)
    for name in ("a", "b"):
        await driver.create_pod(name, group="pg")

    async def waits() -> bool:
        return await driver.reason("b") == "Unschedulable"

    await driver.wait_until(waits, "the gang has no condition")
    assert list(await driver.devices()) == ["first"]
    await driver.delete_pod("first")
    assert await driver.wait_until_bound("a", "b") == {"a": "n1", "b": "n1"}


async def test_pods_that_share_a_claim_are_bound_where_its_device_is(driver: DeviceDriver) -> None:
    """The claim has all of them as consumers."""
    await driver.offer("n2")
    await driver.create_claim("shared")
    await driver.create_gang("pg", 3)
    for name in "abc":
        await driver.create_pod(name, group="pg", claim="shared")
    assert await driver.wait_until_bound(*"abc") == dict.fromkeys("abc", "n2")
    assert await driver.devices() == {"a+b+c": ("n2/gpu-0",)}


async def test_a_pod_is_bound_when_its_device_is_ready(driver: DeviceDriver) -> None:
    """Until its driver has met the binding conditions, the pod says that it waits for it."""
    await driver.offer("n1", bindsToNode=True, bindingConditions=[READY], bindingFailureConditions=[FAILED])
    await driver.create_claim("x")
    await driver.create_pod("p", claim="x")
    await driver.wait_for_devices({"p": ("n1/gpu-0",)})

    async def waits() -> bool:
        return await driver.reason("p") == "WaitingForDevices"

    await driver.wait_until(waits, "the pod does not say that it waits")
    assert await driver.bound_pods() == {}
    await driver.report("x", READY)
    await driver.wait_until_bound("p")


async def test_a_device_that_fails_is_released(driver: DeviceDriver) -> None:
    """The pod is tried again with what there is then."""
    await driver.offer("n1", bindsToNode=True, bindingConditions=[READY], bindingFailureConditions=[FAILED])
    await driver.create_claim("x")
    await driver.create_pod("p", claim="x")
    await driver.wait_for_devices({"p": ("n1/gpu-0",)})
    await driver.report("x", FAILED)
    await driver.wait_until(lambda: _has_no_devices(driver), "the claim keeps its devices")
    await driver.wait_for_devices({"p": ("n1/gpu-0",)})
    await driver.report("x", READY)
    await driver.wait_until_bound("p")


async def _has_no_devices(driver: DeviceDriver) -> bool:
    return not await driver.devices()
