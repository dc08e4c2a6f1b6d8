"""Extended resources that are devices, on a real API server, beside kube-scheduler where that does the same."""

import asyncio
import contextlib
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_client.connection import Connection
from cpg_client.errors import ApiError
from cpg_lab.clusters import Cluster
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

TIMEOUT_SECONDS = 30.0
API = "/apis/resource.k8s.io/v1"
KUBE_SCHEDULER = "default-scheduler"
Plain = dict[str, Any]

pytestmark = pytest.mark.e2e


class Bed:
    """A namespace with nodes, a class and a resource of its own; nodes have a label of the namespace."""

    def __init__(self, connection: Connection, name: str) -> None:
        """Use this name for all of them."""
        self.connection = connection
        self.name = name
        self.resource = f"{name}.example.com/gpu"

    def path(self, plural: str, name: str = "", api: str = "/api/v1") -> str:
        """Return the path of the objects of a kind, or of one of them."""
        return f"{api}/namespaces/{self.name}/{plural}" + (f"/{name}" if name else "")

    async def get(self, path: str) -> Plain:
        """Return an object or a list."""
        found: Plain = msgspec.json.decode(await self.connection.get(path))
        return found

    async def begin(self) -> None:
        """Create the namespace and the class that backs the resource, and wait until pods are accepted."""
        await self.connection.post("/api/v1/namespaces", {"metadata": {"name": self.name}})
        selector = {"cel": {"expression": f'device.driver == "{self.name}.example.com"'}}
        spec = {"selectors": [selector], "extendedResourceName": self.resource}
        await self.connection.post(f"{API}/deviceclasses", {"metadata": {"name": self.name}, "spec": spec})

        async def accepts() -> bool:
            with contextlib.suppress(ApiError):
                await self.connection.get(self.path("serviceaccounts", "default"))
                return True
            return False

        await self.wait_until(accepts, "the namespace accepts no pods")

    async def put_node(self, name: str, *, devices: int = 0, plugin: int = 0) -> str:
        """Create a node with so many devices, or with so many of the resource from a device plugin."""
        amounts: Plain = {"cpu": "8", "memory": "8Gi", "pods": "110"} | ({self.resource: str(plugin)} if plugin else {})
        node = f"{self.name}-{name}"
        body = {"metadata": {"name": node, "labels": {"bed": self.name}}}
        await self.connection.post("/api/v1/nodes", body | {"status": {"capacity": amounts, "allocatable": amounts}})
        if devices:
            pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
            listed = [{"name": f"gpu-{number}"} for number in range(devices)]
            spec = {"driver": f"{self.name}.example.com", "nodeName": node, "pool": pool, "devices": listed}
            await self.connection.post(f"{API}/resourceslices", {"metadata": {"name": node}, "spec": spec})
        return node

    async def put_pod(self, name: str, *containers: int, scheduler: str = SCHEDULER_NAME, **options: Any) -> None:
        """Create a pod whose containers request so many of the resource; a negative number is an init container's."""
        resource, group = options.pop("resource", self.resource), options.pop("group", "")
        init: list[Plain] = []
        main: list[Plain] = []
        for place, count in enumerate(containers or (1,)):
            asked = {"cpu": "100m", **({resource: str(abs(count))} if count else {})}
            body = {"name": f"c{place}", "image": "busybox", "resources": {"requests": asked, "limits": asked}}
            (init if count < 0 else main).append(body)
        spec = {"schedulerName": scheduler, "nodeSelector": {"bed": self.name}, "containers": main, **options}
        labels = {"scheduling.cpg.dev/pod-group": group} if group else {}
        body = {"metadata": {"name": name, "labels": labels}, "spec": spec | {"initContainers": init}}
        await self.connection.post(self.path("pods"), body)

    async def put_gang(self, name: str, count: int, **spec: Any) -> None:
        """Create a PodGroup that is a gang."""
        api = "scheduling.cpg.dev/v1alpha3"
        body = {"metadata": {"name": name}, "spec": {"schedulingPolicy": {"gang": {"minCount": count}}, **spec}}
        await self.connection.post(
            self.path("podgroups", api=f"/apis/{api}"), {"apiVersion": api, "kind": "PodGroup"} | body
        )

    async def delete_pod(self, name: str) -> None:
        """Delete a pod at once."""
        await self.connection.delete(self.path("pods", name), {"gracePeriodSeconds": 0})

    async def pods(self) -> dict[str, Plain]:
        """Return the pods by name."""
        return {one["metadata"]["name"]: one for one in (await self.get(self.path("pods")))["items"]}

    async def bound(self) -> dict[str, str]:
        """Return the nodes of the bound pods, without the name of the bed."""
        found = {name: pod["spec"].get("nodeName", "") for name, pod in (await self.pods()).items()}
        return {name: node.removeprefix(f"{self.name}-") for name, node in found.items() if node}

    async def claims(self) -> dict[str, Plain]:
        """Return the claims by the name of their pod."""
        items = (await self.get(self.path("resourceclaims", api=API)))["items"]
        return {one["metadata"]["ownerReferences"][0]["name"]: one for one in items}

    async def devices(self) -> dict[str, list[str]]:
        """Return the devices of pods, as node and name; each claim is reserved for its pod, whose status names it."""
        claims, pods, found = await self.claims(), await self.pods(), {}
        for name, claim in claims.items():
            status, named = claim.get("status", {}), pods[name]["status"].get("extendedResourceClaimStatus", {})
            assert [one["name"] for one in status.get("reservedFor", ())] == [name]
            assert named["resourceClaimName"] == claim["metadata"]["name"]
            results = status["allocation"]["devices"]["results"]
            found[name] = [f"{one['pool'].removeprefix(f'{self.name}-')}/{one['device']}" for one in results]
        return found

    async def form(self, pod: str) -> Plain:
        """Return what was written for a pod, without what differs from pod to pod."""
        claim, status = (await self.claims())[pod], (await self.pods())[pod]["status"]["extendedResourceClaimStatus"]
        meta, allocation = claim["metadata"], claim["status"]["allocation"]
        prefix = f"{pod}-extended-resources-"
        assert status.pop("resourceClaimName") == meta["name"]
        assert len(meta["name"]) == len(prefix) + 5
        (owner,) = meta["ownerReferences"]
        owner.pop("uid")
        return {
            "prefix": (meta["name"].startswith(prefix), meta["generateName"] == prefix),
            "meta": [meta["annotations"], meta["finalizers"], {**owner, "name": ""}],
            "spec": claim["spec"],
            "requests": [one["request"] for one in allocation["devices"]["results"]],
            "allocation": sorted(allocation),
            "users": [sorted(one) for one in claim["status"]["reservedFor"]],
            "status": status,
        }

    async def wait_until(self, holds: Callable[[], Awaitable[object]], problem: str) -> None:
        """Wait until a condition is true; fail with the problem otherwise."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not await holds():
            assert time.monotonic() < deadline, problem
            await asyncio.sleep(0.1)

    async def wait_bound(self, *names: str) -> dict[str, str]:
        """Wait until these pods are bound and no others, and return their nodes."""

        async def holds() -> bool:
            return (await self.bound()).keys() == set(names)

        await self.wait_until(holds, f"not just {names} are bound")
        return await self.bound()

    async def wait_reason(self, pod: str, text: str) -> None:
        """Wait until the condition of a pod says why it is not bound."""

        async def says() -> bool:
            conditions = (await self.pods())[pod]["status"].get("conditions", ())
            return any(text in one.get("message", "") for one in conditions if one["type"] == "PodScheduled")

        await self.wait_until(says, f"the pod does not say: {text}")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a cluster with kube-scheduler and the controllers of claims."""
    with Cluster(ClusterSpec(components=("scheduler", "controller-manager"))) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def scheduler(cluster: Cluster, install: "Installer", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run our scheduler with the rights and settings of the chart; return its log."""
    with install.scheduler(cluster, tmp_path_factory.mktemp("scheduler"), api="crd") as log:
        yield log


@pytest.fixture
async def bed(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Bed]:
    """Return a bed of its own for each test; its pods, slices and nodes are deleted afterwards."""
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        made = Bed(connection, f"bed-{zlib.crc32(request.node.name.encode())}")
        await made.begin()
        yield made
        await connection.delete(made.path("pods"), {"gracePeriodSeconds": 0})
        await connection.delete(f"{API}/deviceclasses/{made.name}")
        ours = {"fieldSelector": f"spec.driver={made.name}.example.com"}
        await connection.delete(f"{API}/resourceslices", params=ours)
        await connection.delete("/api/v1/nodes", params={"labelSelector": f"bed={made.name}"})


async def test_a_gang_is_given_devices_as_kube_scheduler_gives_them(bed: Bed) -> None:
    """Four pods with two devices each: claims, mappings and status have the form that kube-scheduler gives a pod."""
    await bed.put_node("a", devices=4)
    await bed.put_node("b", devices=6)
    await bed.put_pod("theirs", 2, scheduler=KUBE_SCHEDULER)
    await bed.wait_bound("theirs")
    await bed.put_gang("pg", 4)
    for number in range(4):
        await bed.put_pod(f"p{number}", 2, group="pg")
    names = [f"p{number}" for number in range(4)]
    nodes = await bed.wait_bound("theirs", *names)
    devices = await bed.devices()
    assert all(one.startswith(f"{nodes[name]}/") for name, found in devices.items() for one in found)
    used = sorted(one for found in devices.values() for one in found)
    assert used == [f"{node}/gpu-{number}" for node, count in (("a", 4), ("b", 6)) for number in range(count)]
    for name in names:
        assert await bed.form(name) == await bed.form("theirs")


@pytest.mark.parametrize("containers", [(1,), (1, 0, 2), (-2, 1, 1), (-3, -1, 1)], ids=str)
async def test_requests_have_the_form_that_kube_scheduler_gives_them(bed: Bed, containers: tuple[int, ...]) -> None:
    """For several containers, init containers included, by the name of the class as well."""
    await bed.put_node("a", devices=16)
    implicit = f"deviceclass.resource.kubernetes.io/{bed.name}"
    for name, scheduler in (("theirs", KUBE_SCHEDULER), ("ours", SCHEDULER_NAME)):
        await bed.put_pod(name, *containers, scheduler=scheduler)
        await bed.put_pod(f"{name}-implicit", *containers, scheduler=scheduler, resource=implicit)
    await bed.wait_bound("theirs", "ours", "theirs-implicit", "ours-implicit")
    assert await bed.form("ours") == await bed.form("theirs")
    assert await bed.form("ours-implicit") == await bed.form("theirs-implicit")


async def test_a_node_with_a_device_plugin_gives_no_devices(bed: Bed) -> None:
    """A gang takes what there is of both kinds; the next pod waits until a device is free."""
    await bed.put_node("a", devices=2)
    await bed.put_node("x", plugin=2)
    await bed.put_gang("pg", 4)
    names = [f"p{number}" for number in range(4)]
    for name in names:
        await bed.put_pod(name, group="pg")
    nodes = await bed.wait_bound(*names)
    assert sorted(nodes.values()) == ["a", "a", "x", "x"]
    assert sorted(await bed.devices()) == sorted(name for name in names if nodes[name] == "a")
    await bed.put_pod("late")
    await bed.wait_reason("late", "cannot allocate all claims")
    first = next(name for name in names if nodes[name] == "a")
    await bed.delete_pod(first)
    nodes = await bed.wait_bound(*(set(names) - {first}), "late")
    assert nodes["late"] == "a"


async def test_a_gang_preempts_for_devices(bed: Bed) -> None:
    """Pods of a lower priority leave, and their claims with them."""
    for name, value in ((f"{bed.name}-high", 1000), (f"{bed.name}-low", 1)):
        body = {"metadata": {"name": name}, "value": value, "globalDefault": False}
        await bed.connection.post("/apis/scheduling.k8s.io/v1/priorityclasses", body)
    await bed.put_node("a", devices=4)
    for number in range(4):
        await bed.put_pod(f"low{number}", priorityClassName=f"{bed.name}-low", terminationGracePeriodSeconds=0)
    await bed.wait_bound(*(f"low{number}" for number in range(4)))
    await bed.put_gang("pg", 2, priorityClassName=f"{bed.name}-high")
    for number in range(2):
        await bed.put_pod(f"high{number}", group="pg", priorityClassName=f"{bed.name}-high")

    async def holds() -> bool:
        return {"high0", "high1"} <= (await bed.bound()).keys()

    await bed.wait_until(holds, "the gang is not bound")
    assert len(await bed.bound()) == 4
    assert len({one for found in (await bed.devices()).values() for one in found}) == 4


async def test_a_class_that_appears_gives_devices_to_pods_that_wait(bed: Bed) -> None:
    """Until then, no node has the resource."""
    await bed.put_node("a", devices=1)
    await bed.connection.delete(f"{API}/deviceclasses/{bed.name}")
    await bed.put_pod("p")
    await bed.wait_reason("p", f"Insufficient {bed.resource}")
    spec = {"extendedResourceName": bed.resource}
    await bed.connection.post(f"{API}/deviceclasses", {"metadata": {"name": bed.name}, "spec": spec})
    await bed.wait_bound("p")
    assert await bed.devices() == {"p": ["a/gpu-0"]}


async def test_a_claim_that_is_left_is_deleted(bed: Bed) -> None:
    """As if the scheduler had ended before the bind; the pod gets another claim then."""
    await bed.put_node("empty")
    await bed.put_pod("p")
    await bed.wait_reason("p", "cannot allocate all claims")
    uid = (await bed.pods())["p"]["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
    meta = {
        "name": "p-extended-resources-left0",
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "finalizers": ["resource.kubernetes.io/delete-protection"],
        "ownerReferences": [owner],
    }
    request = {"name": "container-0-request-1", "exactly": {"deviceClassName": bed.name}}
    spec = {"devices": {"requests": [request]}}
    await bed.connection.post(bed.path("resourceclaims", api=API), {"metadata": meta, "spec": spec})
    await bed.put_node("a", devices=1)
    await bed.wait_bound("p")
    assert await bed.devices() == {"p": ["a/gpu-0"]}
    assert (await bed.claims())["p"]["metadata"]["name"] != meta["name"]
